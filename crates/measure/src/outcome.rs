//! The record of a trial, and whether it may be believed.

use underload_probe::measure::MeasurementResult;
use underload_record::schema::{Direction, Sample, Series, TrialRecord, Validity, ValidityLimits};
use underload_record::trial_latencies;

/// A trial and all that it recorded.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub trial: TrialRecord,
    pub samples: Vec<Sample>,
    /// Curves of the load flows.
    pub series: Vec<Series>,
}

/// Judges a measurement by the punctuality of the machine and by its list `incomplete` of
/// deviations from the request, to which a caller may add.
pub fn validity(measured: &MeasurementResult, limits: &ValidityLimits) -> Validity {
    Validity::judge(&measured.timeliness, limits, measured.incomplete.clone())
}

/// Returns the payload that all flows of a direction delivered in the load phase, bit/s; `None` if
/// no flow of the direction reported any.
pub fn goodput(measured: &MeasurementResult, direction: Direction) -> Option<u64> {
    let rates = measured.flows.iter().filter_map(|flow| match direction {
        Direction::Up => flow.goodput_up_bit_per_s,
        Direction::Down => flow.goodput_down_bit_per_s,
    });
    rates.reduce(|sum, rate| sum + rate)
}

/// Converts a measurement to a trial. `identity` has the index, variant, repeat and seed.
pub fn trial(identity: TrialRecord, measured: MeasurementResult) -> Outcome {
    let validity = validity(&measured, &ValidityLimits::default());
    let trial = TrialRecord {
        validity,
        timeliness: measured.timeliness,
        latencies: trial_latencies(&measured.samples, &measured.flows, &measured.phases),
        inside: measured.inside,
        phases: measured.phases,
        flows: measured.flows,
        ce_alarms: measured.ce_alarms,
        ..identity
    };
    Outcome { trial, samples: measured.samples, series: measured.series }
}
