//! Progress of a run.

use std::time::Duration;

use underload_record::schema::TrialRecord;
use underload_scenario::Scenario;

/// Receives the progress of a run. Methods do nothing by default; `()` ignores all.
pub trait Progress {
    /// Called before the run begins, with the world and the reason for it.
    fn world(&mut self, _scenario: &Scenario, _world: &str) {}
    /// Called before the first trial; `None` if the duration cannot be estimated.
    fn start(&mut self, _trials: usize, _estimate: Option<Duration>) {}
    /// Called with a note for the user.
    fn say(&mut self, _line: &str) {}
    /// Called with a problem after which the run continues; by default a note.
    fn warn(&mut self, line: &str) {
        self.say(line);
    }
    /// Called with a few words about the step that begins.
    fn show(&mut self, _what: &str) {}
    /// Called with the number of trials of a batch that were not in the cache.
    fn computed(&mut self, _trials: usize) {}
    /// Called once a trial is recorded.
    fn finished(&mut self, _trial: &TrialRecord) {}
    /// Called after the last trial.
    fn end(&mut self) {}
}

impl Progress for () {}
