//! Kinds of queue at a bottleneck.

use serde::{Deserialize, Serialize};

underload_record::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum QueueKind {
        /// A buffer without AQM that drops packets when full: tail drop, head drop, Buffer Control.
        /// On a link of constant rate also a bound on the age of packets (BoDe), which is the same
        /// queue in other units.
        DropTail = "drop-tail",
        /// PIE, DOCSIS-PIE: a controller of the drop probability.
        PieLike = "PIE-like",
        /// CoDel: drops while the shortest recent delay is above a target.
        CodelLike = "CoDel-like",
        /// RED: drops by the mean length.
        RedLike = "RED-like",
        /// A queue per flow, FQ-CoDel and its kin.
        FlowQueuing = "flow queuing",
        /// Two queues with one capacity: DualPI2, Low Latency DOCSIS (RFC 9332).
        DualQueue = "dual queue",
    }
}

underload_record::named! {
    /// Kinds of queue, grouped by what a user has to do about them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum QueueFamily {
        DropTail = "drop-tail",
        /// An AQM on one queue for all flows: PIE-like, CoDel-like, RED-like.
        SingleQueueAqm = "single-queue AQM",
        FlowQueuing = "flow queuing",
        DualQueue = "dual queue",
    }
}

impl QueueKind {
    pub const fn family(self) -> QueueFamily {
        match self {
            Self::DropTail => QueueFamily::DropTail,
            Self::PieLike | Self::CodelLike | Self::RedLike => QueueFamily::SingleQueueAqm,
            Self::FlowQueuing => QueueFamily::FlowQueuing,
            Self::DualQueue => QueueFamily::DualQueue,
        }
    }
}
