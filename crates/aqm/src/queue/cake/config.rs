//! Parameters of CAKE, and its ways to isolate flows and hosts.

use super::shaper::Overhead;
use super::tins::Tins;
use crate::packet::Meta;
use crate::rate::Rate;
use crate::time::Span;

#[derive(Clone, Debug)]
pub struct CakeConfig {
    /// The rate of CAKE's own shaper; `None` if the link behind the queue sets the pace.
    pub rate: Option<Rate>,
    /// The line's overhead, charged on top of each packet's length.
    pub overhead: Overhead,
    /// How packets are sorted by codepoint.
    pub tins: Tins,
    /// How packets are grouped into flows, and which hosts get equal shares.
    pub isolation: Isolation,
    /// Expected round trip of the senders.
    pub rtt: Span,
    pub memory_bytes: u64,
    /// Whether the protected link is in front of this queue: drops are charged too.
    pub ingress: bool,
    /// Size of the largest packet. A delay of one and a half of it is always acceptable.
    pub mtu_bytes: u32,
}

impl CakeConfig {
    /// Returns the acceptable standing delay, longer at low rates, in whole microseconds.
    pub(super) fn target(&self) -> Span {
        Span::from_micros((self.rtt.as_nanos() / 20_000).max(1))
    }
}

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
