//! The place on a path at which a load adds delay.

use serde::{Deserialize, Serialize};

use super::Distribution;

underload_aqm::named! {
    /// A part of the path between this machine and the far end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PathSegment {
        /// From this machine to the router; only to the peer if a peer answers.
        Local = "local network",
        /// Between the peer and the router; exists only if a peer answers.
        Router = "router",
        /// Between the router and the provider's first hop; includes the router's queue towards the
    /// line.
        Access = "access line",
        /// From the provider's first hop to the far end.
        Beyond = "beyond",
    }
}

underload_aqm::named! {
    /// A host at the end of a segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PathHop {
        Peer = "peer",
        Router = "router",
        Provider = "provider's first hop",
        FarEnd = "far end",
    }
}

/// The delay that a load adds in each segment of the path, and the segment that adds most of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Location {
    /// The probed hops, nearest first.
    pub hops: Vec<HopReadings>,
    /// The segments between usable hops, nearest first; empty if the delay is unknown.
    pub segments: Vec<SegmentDelay>,
    /// Delay that the load adds over the whole path; `None` if the far end answered too few probes.
    pub total: Option<Distribution>,
    /// The segment that adds the delay; `None` if it is not known.
    pub verdict: Option<PathSegment>,
    /// Reason of a missing verdict, as the end of a sentence; `None` with a verdict.
    pub not_known_because: Option<String>,
    /// Rate of this load, in percent of what the local network carried when it was loaded alone;
    /// `None` if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_share_percent: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HopReadings {
    pub hop: PathHop,
    /// Address of the hop; empty if unknown.
    pub address: String,
    /// Number of hops from this machine; `None` if unknown.
    pub distance: Option<u8>,
    /// Probes sent in the load phase.
    pub sent: u64,
    /// Probes of the load phase that were answered.
    pub answered: u64,
    /// Median round trip without load.
    pub idle_ns: Option<i64>,
    /// Why the hop is not used, as the end of a sentence; `None` if it is used.
    pub unused_because: Option<String>,
}

/// The delay that a load adds between two hops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentDelay {
    /// The segments between the two hops: more than one if a hop between them is not used.
    pub covers: Vec<PathSegment>,
    /// Delay that the load adds between the two hops, ns.
    pub added: Distribution,
    /// Share of the mean of the delay that the load adds, percent.
    pub share_percent: f64,
}

impl PathHop {
    pub fn segment(self) -> PathSegment {
        match self {
            Self::Peer => PathSegment::Local,
            Self::Router => PathSegment::Router,
            Self::Provider => PathSegment::Access,
            Self::FarEnd => PathSegment::Beyond,
        }
    }
}
