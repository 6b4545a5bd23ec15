//! The interface between a queue with two service flows and a link that grants each its own
//! transmissions: the upstream of Low Latency DOCSIS.

use crate::rate::Rate;
use crate::time::Span;

crate::named! {
    /// A queue of an aggregate, which has two.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Side {
        /// Packets of L4S and of senders that build no queue.
        LowLatency = "low-latency",
        /// Packets without the marks of the low latency service flow.
        Classic = "classic",
    }
}

/// The limits of one service flow inside the aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRates {
    /// Maximum sustained rate (`MSR`, TLV 24.8); `None` for the rate of the aggregate.
    pub sustained: Option<Rate>,
    /// Peak rate (TLV 24.27), only with a sustained rate; `None` for the link's.
    pub peak: Option<Rate>,
    /// Bytes that may pass beyond the sustained rate (TLV 24.9).
    pub burst_bytes: u64,
}

impl FlowRates {
    /// The burst at the peak rate: a largest frame with one VLAN tag.
    pub const PEAK_BURST_BYTES: u64 = 1_522;

    /// The limits of the aggregate alone. The burst is the standard's default, two frames.
    pub const UNLIMITED: Self = Self { sustained: None, peak: None, burst_bytes: 3_044 };

    /// Returns the flow's long-term rate in an aggregate of `rate`.
    pub fn within(self, rate: Rate) -> Rate {
        self.sustained.map_or(rate, |sustained| sustained.min(rate))
    }
}

/// Grants to the low latency flow without a request (PGS, TLV 24.44 and 24.45).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProactiveGrants {
    /// Guaranteed grant rate (`GGR`).
    pub rate: Rate,
    /// Guaranteed grant interval (`GGI`); not zero.
    pub interval: Span,
}

/// The parameters of a service flow or an aggregate that the CMTS knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Share of the low latency flow while both flows wait, of 256.
    pub weight: u8,
    /// Limits of each flow, by [`Side`].
    pub flows: [FlowRates; 2],
    /// Grants to the low latency flow without a request; `None` for none.
    pub proactive: Option<ProactiveGrants>,
}

impl Contract {
    /// A single service flow, whose limits are those of the link. Its side is [`Side::Classic`].
    pub const SINGLE_FLOW: Self =
        Self { weight: 0, flows: [FlowRates::UNLIMITED; 2], proactive: None };
}

/// The backlog of a service flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Bytes stored, which the modem requests grants for.
    pub bytes: u64,
    /// Bytes that must be granted before the next packet leaves; `None` if nothing is stored.
    pub head_bytes: Option<u32>,
}
