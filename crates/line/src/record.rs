//! Records of measurement runs, and storage of their steps.

use underload_measure::{Outcome, Step};
use underload_record::schema::{
    FORMAT_VERSION, Finding, HostFacts, RunRecord, ScenarioRecord, VariantRecord, World,
};
use underload_store::{RunDir, StoreError, host};

use crate::Request;

/// A measurement that is about to begin.
pub struct Plan {
    /// The name of the preset, or of the test of another project.
    pub name: String,
    /// The server, in the form that the record shows.
    pub server: String,
    pub variants: Vec<VariantRecord>,
    /// Sentences about what differs from the request.
    pub notes: Vec<String>,
}

/// Returns the record of a run that begins. `commit` is the program's commit.
pub(crate) fn new_record(request: &Request, plan: &Plan, commit: &str) -> RunRecord {
    let notes: Vec<&str> = plan.notes.iter().flat_map(|note| ["# ", note, "\n"]).collect();
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.to_owned(),
        scenario: ScenarioRecord {
            name: format!("measure/{}", plan.name),
            title: title(request, &plan.server),
            text: format!("{}\n{}", request.command_line(), notes.concat()),
            ..ScenarioRecord::default()
        },
        world: World::Measured,
        variants: plan.variants.clone(),
        label: request.label.clone(),
        host: HostFacts {
            device: request.interface.clone().unwrap_or_default(),
            ..host::facts(World::Measured)
        },
        ..RunRecord::default()
    }
}

fn title(request: &Request, server: &str) -> String {
    // The page adds the measured quantities to this title.
    let title = format!("The line to {server}");
    let through = request.interface.iter().map(|name| format!("through {name}"));
    let label = Some(request.label.clone()).filter(|label| !label.is_empty());
    let parts: Vec<String> = std::iter::once(title).chain(through).chain(label).collect();
    parts.join(", ")
}

/// Adds a step to a run. The step is on the disk when this returns.
///
/// # Errors
/// Returns an error if the files of the run cannot be written.
pub fn store_step(step: Step, directory: &mut RunDir) -> Result<Finding, StoreError> {
    let Outcome { trial, samples, series } = step.outcome;
    directory.append_trial(&trial, &samples, &series)?;
    directory.sync()?;
    Ok(step.finding)
}
