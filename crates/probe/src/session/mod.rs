//! A probe session without sockets and without a clock: when to send, and how to match answers.
//!
//! [`Schedule`] is the open-loop prober: slot `i` of a class has a fixed instant, whatever happened
//! to earlier slots. A slot that cannot be sent before its successor is due is counted as skipped;
//! the schedule never shifts, so a stall of the sender or of the network cannot hide the delays
//! that it caused (no coordinated omission). [`match_replies`] turns packets and answers into
//! samples. [`ClosedLoop`] is the request-response probe, which sends after each answer: a second
//! view, never a headline.
//!
//! The caller passes all times, as nanoseconds of the run ([`crate::RunClock`]).

mod closed_loop;
mod matching;
mod offset;
mod schedule;

pub use closed_loop::{ClosedLoop, ClosedLoopStep};
pub use matching::{Collected, ProbeCounts, ReplyRecord, SentRecord, match_replies};
pub(crate) use matching::{Labels, match_labelled};
pub use offset::{ClockOffset, estimate_clock_offset};
pub use schedule::{Schedule, Slot};
