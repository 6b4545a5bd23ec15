//! The sim world: scenarios in virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use underload_record::schema;
use underload_scenario::Scenario;
use underload_scenario::own::Own;
use underload_scenario::simulation::configure_with;
use underload_sim::runner::spread;
use underload_sim::trial::{
    Attendance, SimConfig, SimError, TrialLabel, TrialOutcome, run_attended,
};
use underload_store::RunDir;

use super::World;
use crate::error::{Doing as _, Result, RunError};
use crate::packets::{Point, TrialLog};
use crate::trial::{Setting, Trial, TrialData};

pub(super) struct Sim {
    reason: String,
}

impl Sim {
    /// Rejects a scenario that the simulator cannot run, before anything starts.
    pub(super) fn new(scenario: &Scenario, own: &Own, why: &str) -> Result<Self> {
        for variant in &scenario.variants {
            configure_with(variant, 0, TrialLabel::default(), own).map_err(|error| {
                RunError::Refused(format!("{}: variant {}: {error}", scenario.name, variant.name))
            })?;
        }
        Ok(Self { reason: format!("sim: simulated in virtual time, {why}") })
    }
}

impl World for Sim {
    fn name(&self) -> schema::World {
        schema::World::Sim
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    /// Runs trials in parallel; each depends on its variant and seed alone.
    fn run(
        &self,
        trials: &[Trial<'_>],
        _: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> Result<Vec<Option<TrialData>>> {
        let mut outcomes: Vec<Option<TrialData>> = trials.iter().map(|_| None).collect();
        let mut failure = None;
        let work = |index: usize| simulate(&trials[index], setting);
        spread(trials.len(), setting.threads, work, |index, outcome| match outcome {
            Ok(data) => outcomes[index] = data,
            Err(error) => failure = Some(error),
        });
        failure.map_or(Ok(outcomes), Err)
    }
}

/// Simulates one trial; `None` if it was interrupted.
pub(crate) fn simulate(trial: &Trial<'_>, setting: Setting<'_>) -> Result<Option<TrialData>> {
    let config = configure_with(trial.variant, trial.seed, label(trial), setting.own).of_world()?;
    let sample_interval = config.sample_interval.filter(|_| trial.keeps_curves);
    let config = SimConfig { sample_interval, ..config };
    let stop = Some(setting.stop);
    let (outcome, note) = match setting.directory {
        Some(directory) if !setting.captures.is_empty() => {
            simulate_and_log(config, stop, trial.index, (setting.captures, directory))?
        }
        _ => (run_attended(config, &Attendance { stop, ..Attendance::default() }), None),
    };
    match outcome {
        Ok(outcome) => Ok(Some(data(trial, outcome, note))),
        Err(SimError::Stopped) => Ok(None),
        Err(error) => Err(error).of_world(),
    }
}

/// Simulates a trial and stores its packets. Also returns a note for the user if some are missing.
fn simulate_and_log(
    config: SimConfig,
    stop: Option<&AtomicBool>,
    trial: u32,
    (points, directory): (&[Point], &RunDir),
) -> Result<(Result<TrialOutcome, SimError>, Option<String>)> {
    let log = TrialLog::open(points, directory, trial, &config)?;
    let log = Rc::new(RefCell::new(log));
    let outcome = run_attended(
        config,
        &Attendance { stop, watcher: Some(log.clone()), ..Attendance::default() },
    );
    let log = Rc::into_inner(log).ok_or("the simulator still holds the log").of_world()?;
    let log = log.into_inner();
    let note = match &outcome {
        Ok(_) => log.finish().doing(format!("recording packets of trial {trial}"))?,
        Err(_) => {
            log.discard();
            None
        }
    };
    Ok((outcome, note))
}

fn label(trial: &Trial<'_>) -> TrialLabel {
    TrialLabel { index: trial.index, variant: trial.variant.name.clone(), repeat: trial.repeat }
}

fn data(trial: &Trial<'_>, outcome: TrialOutcome, note: Option<String>) -> TrialData {
    let TrialOutcome { record, samples, series, .. } = outcome;
    let (outputs, notes) = (Vec::new(), note.into_iter().collect());
    let mut data = TrialData { record, samples, series, outputs, notes };
    data.drop_wide_links(&trial.variant.path);
    data
}
