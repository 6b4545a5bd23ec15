//! What every end of a connection needs: sockets of a network, connecting to a name, waiting that
//! ends soon, whose network an address is in, and places that networks share.
//!
//! A socket belongs for ever to the network namespace in which it was created, so handing out
//! sockets is all that is needed to measure between namespaces from one process.

mod customer;
mod descriptors;
mod interfaces;
mod places;
mod race;
mod wait;

use std::io;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

pub use customer::CustomerNetwork;
pub use descriptors::raise_descriptor_limit;
pub use interfaces::Line;
pub use places::{Evict, Place, PlaceLimits, Places, unless};
pub use race::{Silence, connect_first};
pub use wait::{POLL_INTERVAL, is_temporary, wait_for};

/// A source of sockets in one network.
///
/// Implemented by every `Fn(Domain, Type) -> io::Result<Socket>` that may be called from any
/// thread.
pub trait SocketSource: Send + Sync {
    /// A new socket, not bound and not connected.
    ///
    /// # Errors
    /// What the kernel says, for example that descriptors have run out.
    fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket>;
}

impl<F> SocketSource for F
where
    F: Fn(Domain, Type) -> io::Result<Socket> + Send + Sync,
{
    fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket> {
        self(domain, kind)
    }
}

/// The network of the calling thread.
pub fn current_network() -> Arc<dyn SocketSource> {
    Arc::new(|domain, kind| Socket::new(domain, kind, None))
}
