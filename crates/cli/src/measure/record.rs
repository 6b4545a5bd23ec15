//! From what was measured to the record of a run.

use underload_probe::measure::MeasurementResult;
use underload_probe::preset::Step;
use underload_report::schema::{
    ArmRecord, FORMAT_VERSION, InvalidReason, RunRecord, Sample, ScenarioRecord, Series,
    Timeliness, TrialRecord, Validity, ValidityLimits, World,
};
use underload_report::trial_latencies;

use super::arguments::{Arguments, Tier};
use super::session::Session;
use crate::run::host;

/// The record of a run that is about to begin.
pub fn new(arguments: &Arguments, session: &Session<'_>) -> RunRecord {
    let arm = |step: &Step| ArmRecord { name: step.name.clone(), label: step.label.clone() };
    let preset = arguments.preset;
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("UNDERLOAD_COMMIT").to_owned(),
        scenario: ScenarioRecord {
            name: format!("measure/{preset}"),
            title: format!("Latency under load to {}", arguments.host),
            text: format!("# underload measure {} --preset {preset}\n", arguments.host),
        },
        seed: 0,
        world: World::Measured,
        complete: false,
        arms: session.steps().iter().map(arm).collect(),
        trials: Vec::new(),
        summaries: Vec::new(),
        expectations: Vec::new(),
        host: host::facts(World::Measured),
    }
}

/// The record of one step.
pub fn trial(
    step: &Step,
    measured: MeasurementResult,
    _tier: Option<Tier>,
) -> (TrialRecord, Vec<Sample>, Vec<Series>) {
    let validity = judge(&measured.timeliness, measured.incomplete);
    let latencies = trial_latencies(&measured.samples, &measured.flows, &measured.phases);
    let record = TrialRecord {
        index: step.config.trial,
        arm: step.name.clone(),
        repeat: 0,
        seed: 0,
        validity,
        timeliness: measured.timeliness,
        phases: measured.phases,
        flows: measured.flows,
        latencies,
        ..TrialRecord::default()
    };
    (record, measured.samples, measured.series)
}

fn judge(timeliness: &Timeliness, incomplete: Vec<String>) -> Validity {
    let mut reasons = match timeliness.judge(&ValidityLimits::default()) {
        Validity::Valid => Vec::new(),
        Validity::Invalid { reasons } => reasons,
    };
    reasons.extend(incomplete.into_iter().map(|what| InvalidReason::Incomplete { what }));
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons } }
}
