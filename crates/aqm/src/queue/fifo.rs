//! First in, first out, with a limit: tail-drop (`fifo`) and head-drop (`head-drop`).
//!
//! Tail-drop refuses an arrival that would pass the limit; head-drop takes it and drops the oldest
//! packets until the rest fits. Sources: Linux `sch_fifo.c` (default 1000 packets, the usual
//! transmit queue length) and Mahimahi's `droptail` and `drophead`. Linux's own head-drop has a
//! limit in packets only, and drops exactly one.

use alloc::boxed::Box;

use crate::aqm::Aqm;
use crate::config::{ConfigError, PacketsOrBytes, Values, params};
use crate::qdisc::BoxedQdisc;
use crate::queue::store::{Limit, NoAqm, Overflow, Single};
use crate::rng::Rng;

/// A queue without an AQM, ready to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    /// The size of the queue.
    pub limit: Limit,
    /// The packet that is dropped when the queue is full.
    pub overflow: Overflow,
}

params! {
    define TAIL_DROP: "fifo", "first in, first out; refuses arrivals when full (tail-drop)",
        source: "Linux sch_fifo",
        aliases: &["pfifo", "bfifo", "droptail", "drop-tail", "taildrop", "tail-drop"];
    define HEAD_DROP: "head-drop", "first in, first out; drops the oldest when full",
        source: "Mahimahi drophead, Linux pfifo_head_drop",
        aliases: &["pfifo-head-drop", "drophead", "drop-head", "headdrop"];
    /// The limit of a discipline on a single queue.
    pub(crate) LIMIT: PacketsOrBytes = "limit", "1000p" in "1p".."16777216p",
        "limit of the queue";
}

/// An AQM on one queue, ready to build.
#[derive(Clone, Copy, Debug)]
pub struct OneQueue<C> {
    /// The algorithm's parameters, or the algorithm in its initial state.
    pub config: C,
    /// The size of the queue.
    pub limit: Limit,
}

impl<C> OneQueue<C> {
    /// Returns the AQM with the limit of the parameter [`LIMIT`].
    pub(crate) fn new(config: C, values: &Values) -> Result<Self, ConfigError> {
        Ok(Self { config, limit: limit(values)? })
    }

    /// Returns an empty queue under `aqm`.
    pub(crate) fn under<P: Send + 'static>(&self, aqm: impl Aqm + Send + 'static) -> BoxedQdisc<P> {
        Box::new(Single::new(aqm, self.limit, Overflow::Tail))
    }
}

/// Declares the queue of an AQM, which is made of the queue's parameters and a random stream.
macro_rules! one_queue {
    ($Queue:ident, $Config:ty, |$queue:ident, $rng:ident| $aqm:expr) => {
        /// The AQM on a single queue, ready to build.
        pub type $Queue = OneQueue<$Config>;

        impl $Queue {
            pub(crate) fn build<P: Send + 'static>(
                &self,
                $rng: &$crate::rng::Rng,
            ) -> $crate::qdisc::BoxedQdisc<P> {
                let $queue = self;
                $queue.under($aqm)
            }
        }
    };
}
pub(crate) use one_queue;

impl FifoConfig {
    pub(crate) fn build<P: Send + 'static>(&self, _: &Rng) -> BoxedQdisc<P> {
        Box::new(Single::new(NoAqm, self.limit, self.overflow))
    }
}

pub(crate) fn configure(values: &Values, overflow: Overflow) -> Result<FifoConfig, ConfigError> {
    Ok(FifoConfig { limit: limit(values)?, overflow })
}

/// Returns the value of [`LIMIT`], at least one packet or one smallest frame of bytes.
pub(crate) fn limit(values: &Values) -> Result<Limit, ConfigError> {
    const SMALLEST_BYTES: u64 = 64;
    match values.get(LIMIT) {
        PacketsOrBytes::Bytes(bytes) if bytes < SMALLEST_BYTES => {
            Err(values.refuse(LIMIT, "at least one packet: 1p, or 64B and more"))
        }
        limit => Ok(limit.into()),
    }
}
