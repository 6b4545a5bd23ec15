//! From what was measured to the record of a run.

use underload_probe::control::SessionNews;
use underload_probe::measure::MeasurementResult;
use underload_probe::preset::Step;
use underload_record::schema::{
    ArmRecord, FORMAT_VERSION, Finding, FlowDirection, FlowRecord, Metric, RunRecord, Sample,
    ScenarioRecord, Series, TrialRecord, Validity, World,
};
use underload_record::trial_latencies;
use underload_store::{RunDir, StoreError, host};

use super::arguments::{Arguments, Tier};
use super::findings;

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
pub fn arms(steps: &[Step]) -> Vec<ArmRecord> {
    let arm = |step: &Step| ArmRecord {
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

/// A step's trial, with what it found.
pub struct Kept {
    /// The step's record.
    pub trial: TrialRecord,
    /// The samples of every probe.
    pub samples: Vec<Sample>,
    /// Curves of the load flows.
    pub series: Vec<Series>,
    /// The step's findings.
    pub finding: Finding,
}

impl Kept {
    /// Adds the step to a run, where it is safe once this returns.
    ///
    /// # Errors
    /// What the disk said.
    pub fn store(self, directory: &mut RunDir) -> Result<Finding, StoreError> {
        directory.append_trial(&self.trial, &self.samples, &self.series)?;
        directory.sync()?;
        Ok(self.finding)
    }
}

/// The record of one step.
pub fn trial(
    step: &Step,
    measured: MeasurementResult,
    tier: Option<Tier>,
    news: &SessionNews,
) -> Kept {
    let mut incomplete = measured.incomplete.clone();
    if let Some(reason) = &news.ended {
        incomplete.push(format!("the server ended the session: {reason}"));
    }
    let validity = Validity::judge(&measured.timeliness, incomplete);
    let latencies = trial_latencies(&measured.samples, &measured.flows, &measured.phases);
    let finding = findings::finding(step, &measured, &latencies, &validity, tier, news);
    let mut flows = measured.flows;
    flows.push(line_record(&finding));
    let trial = TrialRecord {
        index: step.config.trial,
        arm: step.name.clone(),
        repeat: 0,
        seed: 0,
        validity,
        timeliness: measured.timeliness,
        phases: measured.phases,
        flows,
        latencies,
        ce_alarms: measured.ce_alarms,
        finding: Some(Box::new(finding.clone())),
        ..TrialRecord::default()
    };
    Kept { trial, samples: measured.samples, series: measured.series, finding }
}

/// What belongs to no flow: responsiveness, share of the tier, clocks.
pub fn line_record(finding: &Finding) -> FlowRecord {
    let rpm = finding.rpm;
    let values = [
        ("rpm_draft_09", "RPM", rpm.map(|rpm| rpm.draft_09)),
        ("rpm_goresponsiveness_p90", "RPM", rpm.map(|rpm| rpm.goresponsiveness_p90)),
        (
            "rpm_goresponsiveness_trimmed_mean",
            "RPM",
            rpm.map(|rpm| rpm.goresponsiveness_trimmed_mean),
        ),
        ("of_tier_down", "%", finding.tier_down_percent),
        ("of_tier_up", "%", finding.tier_up_percent),
        ("clock_offset", "ms", finding.clock_offset_ms),
        ("clock_error", "ms", finding.clock_error_ms),
    ];
    let metric = |(name, unit, value): (&str, &str, Option<f64>)| {
        let value = Some(value?);
        Some(Metric { name: name.to_owned(), unit: unit.to_owned(), value })
    };
    FlowRecord {
        name: "line".to_owned(),
        kind: "line".to_owned(),
        direction: FlowDirection::Both,
        metrics: values.into_iter().filter_map(metric).collect(),
        ..FlowRecord::default()
    }
}
