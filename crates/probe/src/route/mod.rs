//! The hops of the route to a far end, found and probed by ICMP echoes.
//!
//! - [`Route`]: the router and the provider's first hop, found by echoes with a limited time to
//!   live. Needs no right but that of echoes.
//! - [`RouteProber`]: echoes to several hops at the same times.

mod discover;
mod prober;

use underload_record::schema::PathHop;

pub use discover::{DISTANCE_MAX, Route, RouteError, RouteHop};
pub use prober::{EchoTarget, RouteProber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopProbes {
    pub hop: PathHop,
    /// Address as records show it; empty if unknown.
    pub address: String,
    /// Number of hops from this machine; `None` if unknown.
    pub distance: Option<u8>,
    /// By time of sending; empty if the hop does not answer.
    pub probes: Vec<PathProbe>,
}

/// A probe, with times on the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    pub sent_ns: u64,
    /// `None` if it was lost.
    pub round_trip_ns: Option<u64>,
}
