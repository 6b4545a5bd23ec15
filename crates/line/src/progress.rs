//! Reports of a measurement that is running.

use underload_probe::measure;
use underload_probe::preset::Step;
use underload_record::schema::Finding;

pub trait Progress {
    /// Reports a sentence about the session, such as a server seen for the first time.
    fn note(&mut self, text: &str);
    fn start(&mut self, _steps: &[Step]) {}
    fn begin_step(&mut self, _step: &Step) {}
    /// Called several times per second while a step runs.
    fn update(&mut self, _progress: &measure::Progress) {}
    fn end_step(&mut self, _finding: &Finding) {}
    /// Called once, after the last step or an error.
    fn close(&mut self) {}
}
