//! The record of a run of measurements, and its steps on the disk.

use underload_measure::{Outcome, Step};
use underload_probe::preset::Step as PresetStep;
use underload_record::schema::{
    ArmRecord, FORMAT_VERSION, Finding, RunRecord, ScenarioRecord, World,
};
use underload_store::{RunDir, StoreError, host};

use super::arguments::Arguments;

/// What is going to be measured, once the server has let it.
pub struct Plan {
    /// The preset's name, or that of a test of another kind.
    pub name: String,
    /// Who is measured against, as a record may name it.
    pub server: String,
    /// An arm per step.
    pub arms: Vec<ArmRecord>,
    /// Deviations from what was asked for, in words.
    pub notes: Vec<String>,
}

/// The arms of steps of ours.
pub fn arms(steps: &[PresetStep]) -> Vec<ArmRecord> {
    let arm = |step: &PresetStep| ArmRecord {
        name: step.name.clone(),
        label: step.label.clone(),
        ..ArmRecord::default()
    };
    steps.iter().map(arm).collect()
}

/// The record of a run that is about to begin.
pub fn new(arguments: &Arguments, plan: &Plan) -> RunRecord {
    let notes: Vec<&str> = plan.notes.iter().flat_map(|note| ["# ", note, "\n"]).collect();
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: underload_terminal::COMMIT.to_owned(),
        scenario: ScenarioRecord {
            name: format!("measure/{}", plan.name),
            title: format!("Latency under load to {}", plan.server),
            text: format!("{}\n{}", arguments.command_line(), notes.concat()),
            headline: None,
            plots: Vec::new(),
        },
        seed: 0,
        world: World::Measured,
        complete: false,
        arms: plan.arms.clone(),
        trials: Vec::new(),
        summaries: Vec::new(),
        study: None,
        expectations: Vec::new(),
        verdict: Vec::new(),
        host: host::facts(World::Measured),
    }
}

/// Adds a step to a run, where it is safe once this returns.
///
/// # Errors
/// Returns the error of the disk.
pub fn store(step: Step, directory: &mut RunDir) -> Result<Finding, StoreError> {
    let Outcome { trial, samples, series } = step.outcome;
    directory.append_trial(&trial, &samples, &series)?;
    directory.sync()?;
    Ok(step.finding)
}
