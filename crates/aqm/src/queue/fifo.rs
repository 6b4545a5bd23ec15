//! First in, first out, with a limit: tail-drop (`fifo`) and head-drop (`head-drop`).
//!
//! Tail-drop refuses an arrival that would pass the limit; head-drop takes it and drops the
//! oldest packets until the rest fits. Sources: Linux `sch_fifo.c` (default 1000 packets, the
//! usual transmit queue length) and Mahimahi's `droptail` and `drophead`. Linux's own head-drop
//! knows packets only and drops exactly one.

use crate::config::{ConfigError, Definition, Key, PacketsOrBytes, Values};
use crate::queue::store::{Limit, Overflow};

/// Configuration of a FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    /// The most that the queue holds.
    pub limit: Limit,
    /// The packet that is dropped when the queue is full.
    pub overflow: Overflow,
}

/// How much a discipline on a single queue holds.
pub(crate) const LIMIT: Key<PacketsOrBytes> =
    Key::new("limit", "1000p", "how much the queue holds").within("1p", "16777216p");

/// Tail-drop.
pub(crate) const TAIL_DROP: Definition = Definition {
    name: "fifo",
    aliases: &["pfifo", "bfifo", "droptail", "drop-tail", "taildrop", "tail-drop"],
    summary: "first in, first out; refuses arrivals when full (tail-drop)",
    source: "Linux sch_fifo",
    params: &[LIMIT.param()],
    ..Definition::BARE
};

/// Head-drop.
pub(crate) const HEAD_DROP: Definition = Definition {
    name: "head-drop",
    aliases: &["pfifo-head-drop", "drophead", "drop-head", "headdrop"],
    summary: "first in, first out; drops the oldest when full",
    source: "Mahimahi drophead, Linux pfifo_head_drop",
    params: &[LIMIT.param()],
    ..Definition::BARE
};

pub(crate) fn configure(values: &Values, overflow: Overflow) -> Result<FifoConfig, ConfigError> {
    Ok(FifoConfig { limit: limit(values)?, overflow })
}

/// The value of [`LIMIT`]; at least one packet, or one maximum frame of bytes.
pub(crate) fn limit(values: &Values) -> Result<Limit, ConfigError> {
    const SMALLEST_BYTES: u64 = 64;
    match values.get(LIMIT) {
        PacketsOrBytes::Packets(packets) => Ok(Limit::packets(packets)),
        PacketsOrBytes::Bytes(bytes) if bytes >= SMALLEST_BYTES => Ok(Limit::bytes(bytes)),
        PacketsOrBytes::Bytes(_) => {
            Err(values.refuse(LIMIT, "at least one packet: 1p, or 64B and more"))
        }
    }
}
