//! State shared by all requests: the orchestrator's rules, the threads that write its stores, and
//! the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;
use underload_fleet::orchestrator::Orchestrator;
use underload_fleet::store::{Store, StoreError};

use super::batch::{Clock, Tell, Writers};
use super::proxy::Cidr;
use super::refusals::Refusals;
use super::secrets;

/// Limits on connections and requests. When all connections or body bytes are in use, the network
/// or device that has the most loses its oldest connection or body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    /// Maximum number of open connections from one IPv4 address or from one /56 of IPv6.
    pub connections_per_network: usize,
    /// Maximum time from the end of one request of a connection to the end of the next request's
    /// head, and of a TLS handshake.
    pub idle_max: Duration,
    /// Maximum time to receive a request's body.
    pub body_max: Duration,
    /// Maximum number of bytes of all bodies that are being read.
    pub body_bytes: usize,
    /// Maximum number of requests that wait for a store, for each of its threads.
    pub waiting: usize,
    /// Maximum number of requests of a device per minute.
    pub device_per_minute: u32,
    /// Maximum number of requests without a session per minute from one IPv4 address or one /56 of
    /// IPv6: to enrol, to open a session, to show an operator's token.
    pub strangers_per_minute: u32,
    /// Proxies whose `X-Forwarded-For` names the address to which the limits of requests apply. The
    /// limit of connections from one address does not apply to them.
    pub trusted_proxies: &'static [Cidr],
    /// Balancers of connections, each of which begins a connection with the address of its client, in
    /// version 2 of the PROXY protocol. A connection from them without it is closed.
    pub proxy_protocol: &'static [Cidr],
}

/// Descriptors for databases, archives and listeners, besides those of connections.
const OTHER_DESCRIPTORS: u64 = 256;

impl Limits {
    /// Lowers the number of connections to what `descriptors` suffice for.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let for_connections = descriptors - OTHER_DESCRIPTORS.min(descriptors / 2);
        let most = usize::try_from(for_connections).unwrap_or(usize::MAX);
        let connections = self.connections.min(most);
        // A network may open at most half of the connections, but at least one.
        let connections_per_network = self.connections_per_network.min((connections / 2).max(1));
        Self { connections, connections_per_network, ..self }
    }

    /// Descriptors that a process needs for these connections.
    pub fn descriptors(&self) -> u64 {
        (self.connections as u64).saturating_add(OTHER_DESCRIPTORS)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            connections_per_network: 1_024,
            idle_max: Duration::from_secs(30),
            body_max: Duration::from_secs(20),
            body_bytes: 64 << 20,
            waiting: 4_096,
            device_per_minute: 60,
            strangers_per_minute: 600,
            trusted_proxies: &[],
            proxy_protocol: &[],
        }
    }
}

/// The rules of a fleet, and the threads that write its state. Dropping it waits for the requests
/// in the queues.
pub struct Core {
    /// The rules that answer the messages of devices, servers and operators.
    pub rules: Orchestrator,
    /// The threads that write to the stores.
    pub writers: Writers,
    /// A secret that all orchestrators of a fleet share.
    pub(crate) fleet_secret: [u8; 32],
    /// Refused tokens.
    pub(crate) refusals: Refusals,
    clock: Clock,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("writers", &self.writers).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A store failed, or the list of stores is empty.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("listening at {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("starting its threads")]
    Threads(#[source] io::Error),
    /// Without TLS the sessions' keys can be read on the network.
    #[error("plain HTTP is served on loopback only, not on {0}: configure a certificate")]
    Plain(SocketAddr),
}

/// Returns the system time in milliseconds since the Unix epoch; 0 before it.
pub fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

pub fn system_clock() -> Clock {
    Arc::new(system_ms)
}

impl Core {
    /// Reads the secrets of a fleet from its store, or creates them, and starts a thread for each
    /// store.
    pub fn start(
        mut stores: Vec<Box<dyn Store>>,
        clock: Clock,
        limits: &Limits,
        tell: &Tell,
    ) -> Result<Arc<Self>, StartError> {
        let (rules, fleet_secret) = match stores.first_mut() {
            Some(store) => secrets::rules(store.as_mut())?,
            None => return Err(StoreError::broken("no store is configured").into()),
        };
        let writers = Writers::start(stores, limits.waiting, &clock, tell);
        let writers = writers.map_err(StartError::Threads)?;
        let refusals = Refusals::default();
        Ok(Arc::new(Self { rules, writers, fleet_secret, refusals, clock }))
    }

    /// Derives the secret of pages, from which the fleet's secret cannot be computed.
    pub fn pages_secret(&self) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.fleet_secret), b"pages");
        let mut secret = [0; 32];
        secret.copy_from_slice(tag.as_ref());
        secret
    }

    /// Returns the current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.clock)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_fewer_than_descriptors() {
        let limits = Limits::default();
        assert_eq!(limits.within(limits.descriptors()), limits);
        let shell = limits.within(1_024);
        assert_eq!((shell.connections, shell.connections_per_network), (768, 384));
        let few = limits.within(64);
        assert_eq!((few.connections, few.connections_per_network), (32, 16));
    }
}
