//! Parameters of CAKE, and its ways to isolate flows and hosts.

use crate::packet::Meta;

/// How packets are grouped into flows, and which hosts get equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All packets are one flow.
    None,
    /// A flow is all packets from one host.
    Source,
    /// A flow is all packets to one host.
    Destination,
    /// A flow is all packets from one host to another.
    Hosts,
    /// A flow is a 5-tuple.
    Flows,
    /// 5-tuples; sources get equal shares.
    DualSource,
    /// 5-tuples; destinations get equal shares.
    DualDestination,
    /// 5-tuples; the source or the destination gets an equal share, whichever has more flows.
    Triple,
}

impl Isolation {
    /// Whether sources get equal shares.
    #[inline]
    pub const fn shares_by_source(self) -> bool {
        matches!(self, Self::DualSource | Self::Triple)
    }

    /// Whether destinations get equal shares.
    #[inline]
    pub const fn shares_by_destination(self) -> bool {
        matches!(self, Self::DualDestination | Self::Triple)
    }

    /// Returns the hash that all packets of one flow share.
    #[inline]
    pub(super) const fn hash(self, meta: &Meta) -> u32 {
        match self {
            Self::None => 0,
            Self::Source => meta.src,
            Self::Destination => meta.dst,
            Self::Hosts => meta.src ^ meta.dst,
            Self::Flows | Self::DualSource | Self::DualDestination | Self::Triple => meta.flow,
        }
    }
}
