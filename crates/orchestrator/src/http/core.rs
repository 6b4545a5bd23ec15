//! State shared by all requests: the orchestrator's rules, the threads that write its stores, and
//! the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underload_fleet::orchestrator::Orchestrator;
use underload_fleet::store::{Store, StoreError};

use super::batch::{Clock, Tell, Writers};
use super::secrets;

/// Limits of what may come in. Where connections or bodies are at their limit, the network or
/// device that has the most loses its oldest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of open connections from one IPv4 address or from one /56 of IPv6.
    pub connections_per_network: usize,
    /// Maximum time from the end of one request of a connection to the end of the next request's
    /// head. A TLS handshake may not take longer, either.
    pub idle_max: Duration,
    /// Maximum time to receive a request's body.
    pub body_max: Duration,
    /// Bytes of bodies that are being read, of all connections together.
    pub body_bytes: usize,
    /// Requests that wait for a store, for each of its threads.
    pub waiting: usize,
    /// Requests of a device in a minute.
    pub device_per_minute: u32,
    /// Requests without a session in a minute from one address, or from one /56 of IPv6: to enrol,
    /// to open a session, to show an operator's token.
    pub strangers_per_minute: u32,
}

/// Descriptors for everything but connections: databases, archives, listeners.
const OTHER_DESCRIPTORS: u64 = 256;

impl Limits {
    /// Lowers the number of connections to what a process has descriptors for.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let for_connections = descriptors - OTHER_DESCRIPTORS.min(descriptors / 2);
        let most = usize::try_from(for_connections).unwrap_or(usize::MAX);
        let connections = self.connections.min(most);
        // One network may open at most half of the connections, but at least one.
        let connections_per_network = self.connections_per_network.min((connections / 2).max(1));
        Self { connections, connections_per_network, ..self }
    }

    /// Descriptors that a process needs for as many connections.
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
        }
    }
}

/// The rules of a fleet, and the threads that keep its state. Its end waits until all that was
/// asked is done.
pub struct Core {
    /// The rules that answer the messages of devices, servers and operators.
    pub rules: Orchestrator,
    /// The threads that change what is stored.
    pub writers: Writers,
    fleet_secret: [u8; 32],
    clock: Clock,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of it.
        f.debug_struct("Core").field("writers", &self.writers).finish_non_exhaustive()
    }
}

/// Why an orchestrator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A store failed, or the list of stores is empty.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Listening at the configured address failed.
    #[error("listening at {address}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system could not start the threads.
    #[error("starting its threads")]
    Threads(#[source] io::Error),
    /// Without TLS whoever is in between reads the sessions' keys.
    #[error("plain HTTP is for this machine alone, not for {0}: give a certificate")]
    Plain(SocketAddr),
}

/// Returns a clock that reads the system time, in milliseconds since the Unix epoch; 0 if the
/// system time is before it.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_millis() as u64
    })
}

impl Core {
    /// Reads the secrets of a fleet from its stores, or makes them, and starts a thread for each.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        mut stores: Vec<Box<dyn Store>>,
        clock: Clock,
        limits: &Limits,
        tell: &Tell,
    ) -> Result<Arc<Self>, StartError> {
        let (rules, fleet_secret) = match stores.first_mut() {
            Some(store) => secrets::rules(store.as_mut())?,
            None => return Err(StoreError::broken("there is none").into()),
        };
        let writers = Writers::start(stores, limits.waiting, &clock, tell);
        let writers = writers.map_err(StartError::Threads)?;
        Ok(Arc::new(Self { rules, writers, fleet_secret, clock }))
    }

    /// All orchestrators of a fleet have the same.
    pub(crate) fn fleet_secret(&self) -> &[u8; 32] {
        &self.fleet_secret
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
