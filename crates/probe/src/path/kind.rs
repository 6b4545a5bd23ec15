//! Kinds of queue at a bottleneck.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// A buffer without AQM that drops packets when full: tail drop, head drop, Buffer Control. On
    /// a link of constant rate also a bound on the age of packets (BoDe), which is the same queue
    /// in other units.
    DropTail,
    /// PIE, DOCSIS-PIE: a controller of the drop probability.
    PieLike,
    /// CoDel: drops while the shortest recent delay is above a target.
    CodelLike,
    /// RED: drops by the mean length.
    RedLike,
    /// A queue per flow, FQ-CoDel and its kin.
    FlowQueuing,
    /// Two queues with one capacity: DualPI2, Low Latency DOCSIS (RFC 9332).
    DualQueue,
}

/// Kinds of queue, grouped by what a user has to do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueFamily {
    DropTail,
    /// An AQM on one queue for all flows: PIE-like, CoDel-like, RED-like.
    SingleQueueAqm,
    FlowQueuing,
    DualQueue,
}

impl QueueKind {
    pub const ALL: [Self; 6] = [
        Self::DropTail,
        Self::PieLike,
        Self::CodelLike,
        Self::RedLike,
        Self::FlowQueuing,
        Self::DualQueue,
    ];

    /// Returns the name in tables and in the model's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::PieLike => "PIE-like",
            Self::CodelLike => "CoDel-like",
            Self::RedLike => "RED-like",
            Self::FlowQueuing => "flow queuing",
            Self::DualQueue => "dual queue",
        }
    }

    /// Returns the kind with this [`QueueKind::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub const fn family(self) -> QueueFamily {
        match self {
            Self::DropTail => QueueFamily::DropTail,
            Self::PieLike | Self::CodelLike | Self::RedLike => QueueFamily::SingleQueueAqm,
            Self::FlowQueuing => QueueFamily::FlowQueuing,
            Self::DualQueue => QueueFamily::DualQueue,
        }
    }
}

impl QueueFamily {
    pub const ALL: [Self; 4] =
        [Self::DropTail, Self::SingleQueueAqm, Self::FlowQueuing, Self::DualQueue];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::SingleQueueAqm => "single-queue AQM",
            Self::FlowQueuing => "flow queuing",
            Self::DualQueue => "dual queue",
        }
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for QueueFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
