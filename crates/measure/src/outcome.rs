//! The record of a trial, and whether it may be believed.

use underload_probe::measure::MeasurementResult;
use underload_record::schema::{Direction, Sample, Series, TrialRecord, Validity, ValidityLimits};
use underload_record::trial_latencies;

/// The identity of a trial within its run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrialLabel {
    /// Position of the trial in the run.
    pub index: u32,
    /// The name of its arm.
    pub arm: String,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// Seed of the trial, as opposed to the seed of the run.
    pub seed: u64,
}

/// A trial and all that it recorded.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Record of the trial, without samples and series.
    pub trial: TrialRecord,
    /// The samples of every probe.
    pub samples: Vec<Sample>,
    /// Curves of the load flows.
    pub series: Vec<Series>,
}

/// Whether a measurement may be believed: how punctual the machine was, then what did not go as
/// asked. Whoever knows more of that adds it to `incomplete` before.
pub fn validity(measured: &MeasurementResult, limits: &ValidityLimits) -> Validity {
    Validity::judge(&measured.timeliness, limits, measured.incomplete.clone())
}

/// Payload delivered per second in the load phase by all flows of a direction, bit/s; `None` if no
/// flow of it reported any.
pub fn goodput(measured: &MeasurementResult, direction: Direction) -> Option<u64> {
    let rates = measured.flows.iter().filter_map(|flow| match direction {
        Direction::Up => flow.goodput_up_bit_per_s,
        Direction::Down => flow.goodput_down_bit_per_s,
    });
    rates.reduce(|sum, rate| sum + rate)
}

/// The record of a measurement as a trial.
pub fn trial(label: TrialLabel, measured: MeasurementResult) -> Outcome {
    let validity = validity(&measured, &ValidityLimits::default());
    let TrialLabel { index, arm, repeat, seed } = label;
    let trial = TrialRecord {
        index,
        arm,
        repeat,
        seed,
        validity,
        timeliness: measured.timeliness,
        latencies: trial_latencies(&measured.samples, &measured.flows, &measured.phases),
        phases: measured.phases,
        flows: measured.flows,
        ce_alarms: measured.ce_alarms,
        ..TrialRecord::default()
    };
    Outcome { trial, samples: measured.samples, series: measured.series }
}
