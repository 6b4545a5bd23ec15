//! Variants whose trials have two modes, distinguished by a state that the record contains and not
//! by statistics: with few trials no statistic finds modes.

use serde::{Deserialize, Serialize};

use super::indexed::Indexed;
use super::{Comparison, is_noticed};
use crate::schema::{BottleneckSummary, Phase, RunRecord, TrialRecord};
use crate::stats::median;
use crate::variants::metric_of_trial;

/// A variant in some of whose trials an AQM slept under load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Modes {
    pub variant: String,
    /// The metric of both values: that of the run's comparisons.
    pub metric: String,
    pub unit: String,
    pub asleep: Mode,
    pub awake: Mode,
}

/// The trials of a variant in one state.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Mode {
    pub trials: u32,
    /// The median of the trials' values.
    pub value: f64,
}

/// A trial counts as one with a sleeping AQM if the AQM passed at least this share of the packets
/// while it slept.
const ASLEEP: f64 = 0.25;

/// Returns the variants of a run's comparisons whose trials have two modes that a person notices.
pub fn modes(run: &RunRecord, comparisons: &[Comparison]) -> Vec<Modes> {
    let Some(Comparison { metric, unit, .. }) = comparisons.first() else { return Vec::new() };
    let by_name = Indexed::of(run);
    let of = |name: &str| {
        let trials = by_name.valid_trials(name).iter();
        let (asleep, awake): (Vec<_>, Vec<_>) = trials.partition(|trial| is_asleep(trial));
        let mode = |trials: &[&&TrialRecord]| {
            let values = trials.iter().filter_map(|trial| metric_of_trial(trial, metric));
            let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            Some(Mode { trials: values.len() as u32, value: median(&values)? })
        };
        let (asleep, awake) = (mode(&asleep)?, mode(&awake)?);
        is_noticed(asleep.value, awake.value, unit).then(|| Modes {
            variant: name.to_owned(),
            metric: metric.clone(),
            unit: unit.clone(),
            asleep,
            awake,
        })
    };
    run.variants.iter().filter_map(|variant| of(&variant.name)).collect()
}

/// Returns whether the AQM of a busy link slept. The AQM of a link with little traffic always
/// sleeps, so such links do not count.
fn is_asleep(trial: &TrialRecord) -> bool {
    let is_busy = |it: &&BottleneckSummary| {
        it.window.phase == Phase::Load
            && it.capacity_bit_per_s.is_some_and(|capacity| it.throughput_bit_per_s > capacity / 2)
    };
    let mut busy = trial.bottlenecks.iter().filter(is_busy);
    busy.any(|it| it.slept_packets as f64 > ASLEEP * it.offered.packets as f64)
}
