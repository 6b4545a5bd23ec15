//! Round trips inside the load: those of the TCP connections that load the path.

use serde::{Deserialize, Serialize};

use super::{Direction, Distribution};

/// Round trips of the TCP connections that load one direction, in the load phase.
///
/// A value is a sender's smoothed round trip (RFC 6298: about the last eight acknowledgements),
/// read every 10 ms. Probes beside the load wait in the queue that another application would wait
/// in. These values include the queue of the load itself, which is a different one behind a queue
/// per flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InsideLatency {
    /// Direction of the payload.
    pub direction: Direction,
    /// Connections with at least one value.
    pub connections: u32,
    /// Smallest round trip that a sender observed, its handshake included; `None` if unknown.
    pub smallest_ns: Option<u64>,
    /// Values of all connections together.
    pub distribution: Distribution,
}

crate::named! {
    /// The traffic that a packet belongs to when its delay is measured.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Vantage {
        /// A packet of another application: a call, a game.
        Beside = "beside",
        /// A packet of a loading connection: a page or a download.
        Inside = "inside",
    }
}
