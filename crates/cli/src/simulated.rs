//! The sim world: the same scenario in virtual time.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;

use anyhow::Context;
use underload_report::RunDir;
use underload_run::scenario::Scenario;
use underload_run::world::sim::configure;
use underload_sim::runner::spread;
use underload_sim::trial::{
    Attendance, SimConfig, SimError, TrialLabel, TrialOutcome, run_attended,
};

use crate::run::packets::{TrialLog, Wanted};
use crate::run::{Interrupt, Trial, TrialData, keep_bottlenecks};

/// Refuses what the simulator cannot run, before anything starts.
///
/// # Errors
/// Names the arm, the flow and what would be accepted.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    for arm in &scenario.arms {
        configure(arm, 0, TrialLabel::default())
            .with_context(|| format!("{}: arm {}", scenario.name, arm.name))?;
    }
    Ok(())
}

/// Trials worth handing over at once: one for each core.
pub fn batch_size() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// What is true of all trials of a run.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Stops trials under way.
    pub interrupt: &'a Interrupt,
    /// Where the record goes.
    pub directory: &'a RunDir,
    /// Packets to record.
    pub packets: &'a Wanted,
    /// Trials side by side; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
}

/// Runs trials side by side; each depends on nothing but its arm and seed. Those that were
/// interrupted are `None`.
///
/// # Errors
/// Where a trial cannot be simulated, or its packets not be written.
pub fn run_batch(
    trials: &[Trial<'_>],
    setting: Setting<'_>,
) -> anyhow::Result<Vec<Option<TrialData>>> {
    let mut outcomes: Vec<Option<TrialData>> = trials.iter().map(|_| None).collect();
    let mut failure = None;
    let work = |index: usize| simulate(&trials[index], setting);
    spread(trials.len(), setting.threads, work, |index, outcome| match outcome {
        Ok(data) => outcomes[index] = data,
        Err(error) => failure = Some(error),
    });
    failure.map_or(Ok(outcomes), Err)
}

/// One trial. `None`: interrupted.
fn simulate(trial: &Trial<'_>, setting: Setting<'_>) -> anyhow::Result<Option<TrialData>> {
    let config = configure(trial.arm, trial.seed, label(trial))?;
    let sample_interval = config.sample_interval.filter(|_| trial.keeps_curves);
    let config = SimConfig { sample_interval, ..config };
    let stop = Some(setting.interrupt.flag());
    let outcome = if setting.packets.is_empty() {
        run_attended(config, &Attendance { stop, ..Attendance::default() })
    } else {
        watched(config, stop, trial.index, setting)?
    };
    match outcome {
        Ok(outcome) => Ok(Some(data(trial, outcome))),
        Err(SimError::Stopped) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same with its packets on disk.
fn watched(
    config: SimConfig,
    stop: Option<&AtomicBool>,
    trial: u32,
    setting: Setting<'_>,
) -> anyhow::Result<Result<TrialOutcome, SimError>> {
    let log = TrialLog::open(setting.packets, setting.directory, trial, &config)?;
    let log = Rc::new(RefCell::new(log));
    let outcome = run_attended(
        config,
        &Attendance { stop, watcher: Some(log.clone()), ..Attendance::default() },
    );
    let log = Rc::into_inner(log).context("the trial is over and nobody watches it")?.into_inner();
    match &outcome {
        Ok(_) => log.finish().with_context(|| format!("recording packets of trial {trial}"))?,
        Err(_) => log.discard(),
    }
    Ok(outcome)
}

fn label(trial: &Trial<'_>) -> TrialLabel {
    TrialLabel { index: trial.index, arm: trial.arm.name.clone(), repeat: trial.repeat }
}

fn data(trial: &Trial<'_>, outcome: TrialOutcome) -> TrialData {
    let TrialOutcome { record, samples, series, .. } = outcome;
    let mut data = TrialData { record, samples, series, outputs: Vec::new() };
    keep_bottlenecks(&mut data, &trial.arm.path);
    data
}
