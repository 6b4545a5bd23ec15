//! Servers for clients of other tools, and clients of other servers.
//!
//! - [`bind`]: listening sockets, separate for IPv4 and IPv6.
//! - `channel` (with the feature of that name): the web page's probes as datagrams, over WebRTC.
//! - [`https`]: requests to other servers, without an asynchronous runtime.
//! - [`listeners`]: the servers for other tools that run beside a measurement server.
//! - [`metrics`]: a page of numbers for Prometheus.
//! - [`ndt7`]: a client of M-Lab's servers and of others with the same protocol.
//! - [`nq`]: responsiveness tests of `networkQuality` and goresponsiveness, and a client of such
//!   servers.
//! - [`stamp`]: a reflector for STAMP and TWAMP-light senders.
//!
//! The servers use the sockets, clocks and STAMP packets of `underload-probe`, and
//! [`CompatLedger`](underload_service::CompatLedger), which limits what all of them together may
//! use of a server that also serves underload's own clients.
//!
//! Each protocol is implemented from its description, without its authors' code, and answers as the
//! original servers do. Additions for a public server: bounded state, leases by the server's clock,
//! no amplification, generated payload that is never echoed, and no panic on any input.
//! `docs/interoperability.md` has the transcripts.

pub mod bind;
#[cfg(feature = "channel")]
pub mod channel;
pub mod https;
pub mod listeners;
pub mod metrics;
pub mod ndt7;
pub mod nq;
pub mod stamp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use underload_probe::network::{self, CustomerNetwork, PlaceLimits};

#[derive(Debug, thiserror::Error)]
pub enum CompatError {
    #[error("{protocol} server: {step}")]
    Socket { protocol: &'static str, step: &'static str, source: std::io::Error },
    #[error(transparent)]
    Endpoint(#[from] underload_probe::endpoint::EndpointError),
}

/// The threads of a server. Dropping them sets `stop` and joins them.
#[derive(Debug, Default)]
struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread; `body` must return soon after its argument becomes true.
    fn spawn(
        &mut self,
        protocol: &'static str,
        name: &str,
        body: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), CompatError> {
        let stop = Arc::clone(&self.stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || body(&stop));
        let step = "starting its thread";
        let error = |source| CompatError::Socket { protocol, step, source };
        self.handles.push(thread.map_err(error)?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

/// Places shared by networks (a /24 of IPv4, a /56 of IPv6).
type Places = network::Places<CustomerNetwork>;
type Place = network::Place<CustomerNetwork>;

/// Time for which the holder of a place is safe from newcomers of the same network.
const GRACE: Duration = Duration::from_secs(1);

fn places(in_all: usize, per_network: usize) -> Places {
    Places::new(PlaceLimits { in_all, per_network, grace: GRACE })
}
