//! First in, first out, with a limit: tail-drop (`fifo`) and head-drop (`head-drop`).
//!
//! Tail-drop refuses an arrival that would pass the limit; head-drop takes it and drops the
//! oldest packets until the rest fits. Sources: Linux `sch_fifo.c` (default 1000 packets, the
//! usual transmit queue length) and Mahimahi's `droptail` and `drophead`. Linux's own head-drop
//! knows packets only and drops exactly one.

use crate::config::{ConfigError, Definition, Fallback, Kind, Param, Values};
use crate::queue::{Limit, Overflow};
use crate::registry::{QueueConfig, QueueEntry};

/// What a FIFO needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    /// How much it holds.
    pub limit: Limit,
    /// Who goes when it is full.
    pub overflow: Overflow,
}

/// The table row for `limit`, shared by every discipline on a single queue.
pub(crate) const LIMIT: Param = Param {
    key: "limit",
    kind: Kind::Limit,
    fallback: Fallback::Value("1000p"),
    range: Some(("1p", "16777216p")),
    doc: "how much the queue holds",
};

/// Tail-drop.
pub(crate) const TAIL_DROP: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "fifo",
        summary: "first in, first out; refuses arrivals when full (tail-drop)",
        source: "Linux sch_fifo",
        profiles: &[],
        params: &[LIMIT],
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure: |values, _| configure(values, Overflow::Tail),
};

/// Head-drop.
pub(crate) const HEAD_DROP: QueueEntry = QueueEntry {
    definition: &Definition {
        name: "head-drop",
        summary: "first in, first out; drops the oldest when full",
        source: "Mahimahi drophead, Linux pfifo_head_drop",
        profiles: &[],
        params: &[LIMIT],
        shared: &[],
        positional: None,
        free_key: None,
    },
    configure: |values, _| configure(values, Overflow::Head),
};

fn configure(values: &Values, overflow: Overflow) -> Result<QueueConfig, ConfigError> {
    Ok(QueueConfig::Fifo(FifoConfig { limit: limit(values)?, overflow }))
}

/// The value of [`LIMIT`]; at least one packet, or one maximum frame of bytes.
pub(crate) fn limit(values: &Values) -> Result<Limit, ConfigError> {
    const SMALLEST_BYTES: u64 = 64;
    match (values.packets("limit"), values.bytes("limit")) {
        (Some(packets), _) => Ok(Limit::packets(packets)),
        (None, Some(bytes)) if bytes >= SMALLEST_BYTES => Ok(Limit::bytes(bytes)),
        _ => Err(values.refuse("limit", "at least one packet: 1p, or 64B and more")),
    }
}
