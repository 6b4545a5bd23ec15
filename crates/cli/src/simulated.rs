//! The sim world: the same scenario in virtual time.

use std::thread::available_parallelism;

use anyhow::{Context, anyhow};
use underload_sim::plan::configure;
use underload_sim::runner::run_trials;
use underload_sim::scenario::Scenario;
use underload_sim::trial::{SimConfig, TrialLabel, TrialOutcome};

use crate::run::{Trial, TrialData, keep_bottlenecks};

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

/// Runs trials side by side; each depends on nothing but its arm and seed.
///
/// # Errors
/// Where a trial cannot be simulated.
pub fn run_batch(trials: &[Trial<'_>]) -> anyhow::Result<Vec<TrialData>> {
    for trial in trials {
        configure(trial.arm, trial.seed, label(trial))?;
    }
    let mut outcomes: Vec<Option<TrialOutcome>> = trials.iter().map(|_| None).collect();
    let mut failure = None;
    let config = |index: usize| -> SimConfig {
        let trial = &trials[index];
        let config = configure(trial.arm, trial.seed, label(trial)).expect("it was checked above");
        let sample_interval = config.sample_interval.filter(|_| trial.keeps_curves);
        SimConfig { sample_interval, ..config }
    };
    run_trials(trials.len(), None, config, |index, outcome| match outcome {
        Ok(outcome) => outcomes[index] = Some(outcome),
        Err(error) => failure = Some(anyhow!(error)),
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(trials
        .iter()
        .zip(outcomes)
        .filter_map(|(trial, outcome)| Some(data(trial, outcome?)))
        .collect())
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
