//! Sockets and limits that both ends of a connection need: the sockets of a network, connecting to
//! a name, waiting for a limited time, the network of a customer, and places shared among networks.
//!
//! A socket always belongs to the network namespace in which it was created. A process that holds
//! sockets of several namespaces can therefore measure between them.

mod customer;
mod interfaces;
mod metered;
mod places;
mod race;
mod reach;
mod serve;
mod wait;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};

pub use customer::CustomerNetwork;
pub use interfaces::{Line, QUIET_BELOW_BIT_PER_S, busier_bit_per_s};
pub use metered::{Metered, metered};
pub use places::{Evict, Place, PlaceLimits, Places, unless};
pub use race::{Silence, connect_first};
pub use reach::Reach;
pub use serve::serve;
pub(crate) use wait::is_transient;
pub use wait::{POLL_INTERVAL, is_temporary, wait_for};

/// A source of sockets in one network, implemented by every
/// `Fn(Domain, Type) -> io::Result<Socket>` that any thread may call.
pub trait SocketSource: Send + Sync {
    /// Returns a new socket, not bound and not connected.
    ///
    /// # Errors
    /// Returns the kernel's error, for example if the process has no descriptor left.
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

/// Returns the network of the calling thread as seen through the interface `name` alone: routes
/// through other interfaces are not used.
pub fn network_through(name: &str) -> Arc<dyn SocketSource> {
    let name = name.to_owned();
    Arc::new(move |domain, kind| {
        let socket = Socket::new(domain, kind, None)?;
        bind_to_interface(&socket, &name)?;
        Ok(socket)
    })
}

#[cfg(target_os = "linux")]
pub(crate) fn bind_to_interface(socket: &Socket, name: &str) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bind_to_interface(_: &Socket, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns an address with another port. The zone of a link-local IPv6 address remains.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Raises the limit of open sockets and files of this process to `wanted`, at most to what the
/// system allows it. Returns the resulting limit.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    crate::system::raise_descriptor_limit(wanted)
}

/// Returns the network of the calling thread.
pub fn current_network() -> Arc<dyn SocketSource> {
    Arc::new(|domain, kind| Socket::new(domain, kind, None))
}
