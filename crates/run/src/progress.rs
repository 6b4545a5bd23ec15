//! What a run tells its caller while it goes on.

use std::time::Duration;

use underload_record::schema::TrialRecord;

use crate::scenario::Scenario;

/// Hears how a run goes. Every method may be left out; `()` hears nothing.
pub trait Progress {
    /// The run can begin: in which world, and why there.
    fn world(&mut self, _scenario: &Scenario, _world: &str) {}
    /// Its trials begin; they will about take so long, where that can be told.
    fn start(&mut self, _trials: usize, _estimate: Option<Duration>) {}
    /// Something that the user should know.
    fn say(&mut self, _line: &str) {}
    /// Something went wrong that the run goes on after: said as anything else, unless it says
    /// otherwise.
    fn warn(&mut self, line: &str) {
        self.say(line);
    }
    /// Called with a few words about the step that begins.
    fn show(&mut self, _what: &str) {}
    /// So many trials more were computed, and not found in the cache.
    fn computed(&mut self, _trials: usize) {}
    /// A trial is recorded.
    fn finished(&mut self, _trial: &TrialRecord) {}
    /// No trial follows.
    fn end(&mut self) {}
}

impl Progress for () {}
