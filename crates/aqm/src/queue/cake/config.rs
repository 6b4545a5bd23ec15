//! Parameters of CAKE, and its ways to isolate flows and hosts.

use super::shaper::Overhead;
use super::tins::Tins;
use crate::packet::Meta;
use crate::rate::Rate;
use crate::time::Span;

/// Parameters of [`Cake`](super::Cake).
#[derive(Clone, Debug)]
pub struct CakeConfig {
    /// Rate of CAKE's own shaper; `None` if the link behind the queue sets the pace.
    pub rate: Option<Rate>,
    /// Overhead of the line below, which a packet is charged on top of its length.
    pub overhead: Overhead,
    /// How packets are sorted by codepoint.
    pub tins: Tins,
    /// Rule that groups packets into flows, and the hosts that get equal shares.
    pub isolation: Isolation,
    /// Round trip that senders are expected to have.
    pub rtt: Span,
    /// Bytes stored at most.
    pub memory_bytes: u64,
    /// Whether the link to protect lies before this queue: drops are charged too.
    pub ingress: bool,
    /// Largest packet in bytes, of which one and a half may always wait.
    pub mtu_bytes: u32,
}

impl CakeConfig {
    /// Delay that may stand, where the rate is not too low for it; in whole microseconds, like
    /// the kernel's.
    pub(super) fn target(&self) -> Span {
        Span::from_micros((self.rtt.as_nanos() / 20_000).max(1))
    }
}

/// A rule that groups packets into flows, and selects the hosts that get equal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All is one flow.
    None,
    /// A flow is all that comes from one host.
    Source,
    /// A flow is all that goes to one host.
    Destination,
    /// A flow is all that goes from one host to another.
    Hosts,
    /// A flow is a 5-tuple.
    Flows,
    /// 5-tuples, shared by their sources first.
    DualSource,
    /// 5-tuples, shared by their destinations first.
    DualDestination,
    /// 5-tuples, shared by whichever of their hosts has more of them.
    Triple,
}

impl Isolation {
    /// Whether sources are given equal shares.
    #[inline]
    pub const fn shares_by_source(self) -> bool {
        matches!(self, Self::DualSource | Self::Triple)
    }

    /// Whether destinations are given equal shares.
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
