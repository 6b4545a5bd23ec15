//! Kinds of queue at a bottleneck.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kinds of queue that behave differently to their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// A buffer that loses what does not fit: tail drop, head drop, Buffer Control. On a link of
    /// constant rate also a bound on the age of packets (BoDe): the same queue in other units.
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

/// Kinds of queue as far as a user has to act differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueFamily {
    /// A buffer that drops what does not fit, [`QueueKind::DropTail`].
    DropTail,
    /// An AQM on one queue for all: PIE-like, CoDel-like, RED-like.
    SingleQueueAqm,
    /// A queue per flow, [`QueueKind::FlowQueuing`].
    FlowQueuing,
    /// Two queues with one capacity, [`QueueKind::DualQueue`].
    DualQueue,
}

impl QueueKind {
    /// All kinds, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::DropTail,
        Self::PieLike,
        Self::CodelLike,
        Self::RedLike,
        Self::FlowQueuing,
        Self::DualQueue,
    ];

    /// The name in tables and in the model's file.
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

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The family that the kind belongs to.
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
    /// All families, in the order of declaration.
    pub const ALL: [Self; 4] =
        [Self::DropTail, Self::SingleQueueAqm, Self::FlowQueuing, Self::DualQueue];

    /// The name in tables.
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
