//! What a queue with two service flows agrees on with a link that grants each its own
//! transmissions: the upstream of Low Latency DOCSIS.

use crate::rate::Rate;
use crate::time::Span;

/// One of the two queues of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// L: low latency.
    LowLatency,
    /// C: classic.
    Classic,
}

impl Side {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowLatency => "low-latency",
            Self::Classic => "classic",
        }
    }

    /// Both; `ALL[side as usize]` is `side`.
    pub const ALL: [Self; 2] = [Self::LowLatency, Self::Classic];
}

/// The limits of one service flow inside the aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRates {
    /// Maximum sustained rate (`MSR`, TLV 24.8); `None`: as fast as the aggregate.
    pub sustained: Option<Rate>,
    /// Peak rate (TLV 24.27), with a sustained rate only; `None`: the link's.
    pub peak: Option<Rate>,
    /// Bytes that may pass beyond the sustained rate (TLV 24.9).
    pub burst_bytes: u64,
}

impl FlowRates {
    /// Bytes that may pass beyond the peak rate: a largest frame with one VLAN tag.
    pub const PEAK_BURST_BYTES: u64 = 1_522;

    /// No limit but the aggregate's. The burst is the standard's default, two frames.
    pub const UNLIMITED: Self = Self { sustained: None, peak: None, burst_bytes: 3_044 };

    /// What the flow can have of an aggregate of `rate` in the long run.
    pub fn within(self, rate: Rate) -> Rate {
        self.sustained.map_or(rate, |sustained| sustained.min(rate))
    }
}

/// Grants that the low latency flow gets without asking (PGS, TLV 24.44 and 24.45).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProactiveGrants {
    /// Guaranteed grant rate (`GGR`).
    pub rate: Rate,
    /// Guaranteed grant interval (`GGI`); not zero.
    pub interval: Span,
}

/// What the CMTS knows of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Part of the low latency flow while both ask, of 256.
    pub weight: u8,
    /// Limits of each flow, by [`Side`].
    pub flows: [FlowRates; 2],
    /// Grants without requests.
    pub proactive: Option<ProactiveGrants>,
}

/// What waits in one service flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Bytes stored: what the modem asks grants for.
    pub bytes: u64,
    /// Bytes of the packet that leaves next, if there is one.
    pub head_bytes: Option<u32>,
}

/// What a flow was granted so far, and what became of it. In bytes; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Granted, proactive grants included.
    pub bytes: u64,
    /// Lost, because the flow stored nothing.
    pub unused_bytes: u64,
}
