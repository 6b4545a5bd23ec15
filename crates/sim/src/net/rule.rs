//! A rule that changes the rate of a link while a trial runs.
//!
//! A rule sees what a program on a router sees: the answers of the trial's first probe, and the
//! counter of its link. It also sees what the next link will carry, for rules that others are
//! compared with.

use std::fmt;
use std::sync::Arc;

use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};

/// The input of a rule: the last step, and how much the line carries in the next one.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub now: Time,
    /// When the probes were sent that were answered in the step, and their round trips.
    pub answers: &'a [(Time, Span)],
    /// Bytes that the link has sent since the beginning.
    pub sent_bytes: u64,
    /// Bytes that the line, the next link away from the client, can carry in the next step; `None`
    /// if its rate is unlimited.
    pub offered_bytes: Option<u64>,
}

/// Returns the rate of a link from now on.
pub type RateRule = dyn FnMut(&Seen<'_>) -> Rate;

/// Creates the rule of a link at the start of a trial.
#[derive(Clone)]
pub struct MakeRule(pub Arc<dyn Fn() -> Box<RateRule> + Send + Sync>);

impl fmt::Debug for MakeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeRule")
    }
}
