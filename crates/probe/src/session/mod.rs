//! A probe session without sockets and without a clock: when to send, and what the answers mean.
//!
//! [`Schedule`] is the open-loop prober: slot `i` of a class belongs to a fixed instant, whatever
//! happened to the slots before it. A slot that cannot be sent before its successor is due is
//! counted as skipped; the schedule is never shifted, so a stall of the sender or of the network
//! cannot hide the delays that it caused (no coordinated omission). [`match_replies`] turns what
//! was sent and what came back into samples. [`ClosedLoop`] is the request-response probe that
//! sends on the answer to the one before, a second view and never a headline.
//!
//! Times are nanoseconds of the run ([`crate::RunClock`]), always given by the caller.

mod closed_loop;
mod matching;
mod offset;
mod schedule;

pub use closed_loop::{ClosedLoop, ClosedLoopStep};
pub use matching::{Collected, ProbeCounts, ReplyRecord, SentRecord, match_replies};
pub(crate) use matching::{Labels, match_labelled};
pub use offset::{ClockOffset, estimate_clock_offset};
pub use schedule::{Schedule, Slot};
