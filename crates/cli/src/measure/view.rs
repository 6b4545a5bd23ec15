//! What the user sees while a measurement runs, on stderr.

use underload_probe::measure::Progress;
use underload_probe::preset::Step;
use underload_report::schema::{Phase, TrialRecord, Validity};

/// The view of a run of steps.
pub struct View {
    phase: Option<Phase>,
}

impl View {
    /// Of these steps.
    pub fn start(steps: &[Step]) -> Self {
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        eprintln!("measuring: {}", names.join(", "));
        Self { phase: None }
    }

    /// A step begins.
    pub fn begin(&mut self, step: &Step) {
        self.phase = None;
        eprintln!("{}: {}", step.name, step.label);
    }

    /// How far it is.
    pub fn show(&mut self, progress: &Progress) {
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            eprintln!("  {}", progress.phase);
        }
    }

    /// A step has ended.
    pub fn end(&mut self, trial: &TrialRecord) {
        if let Validity::Invalid { reasons } = &trial.validity {
            for reason in reasons {
                eprintln!("  INVALID: {reason}");
            }
        }
    }

    /// Takes everything off the screen that should not stay.
    pub fn close(&mut self) {}
}
