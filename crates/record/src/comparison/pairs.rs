//! Pairs of trials: their effects, how many go which way, and the rates beside them.

use std::collections::BTreeMap;

use super::choose::Statistic;
use super::{Both, EffectRange, PairCounts, RateChange, is_noticed};
use crate::schema::{Direction, TrialRecord, VariantSummary, VariantThroughput};
use crate::stats::{CONFIDENCE, FEWEST_FOR_INTERVAL, median_interval, nearest_rank};
use crate::variants::metric_of_trial;

/// The values of the trials that two variants have in common.
pub(super) struct Pairs {
    /// Number of the repeat, value and baseline of each pair; infinite for a lost probe.
    pub(super) values: Vec<(u32, f64, f64)>,
    pub(super) is_ratio: bool,
    pub(super) is_same: bool,
}

impl Pairs {
    pub(super) fn of(
        statistic: &Statistic<'_>,
        variant: &str,
        baseline: &str,
        is_ratio: bool,
    ) -> Self {
        let own = statistic.run.valid_trials(variant);
        let others = statistic.other.valid_trials(baseline);
        let by_repeat: BTreeMap<u32, &&TrialRecord> =
            others.iter().map(|trial| (trial.repeat, trial)).collect();
        let pair = |trial: &&TrialRecord| {
            let other = by_repeat.get(&trial.repeat)?;
            let value = metric_of_trial(trial, &statistic.metric)?;
            Some((trial.repeat, value, metric_of_trial(other, &statistic.baseline_metric)?))
        };
        let values = own.iter().filter_map(pair).collect();
        let is_same = repeats_itself(own) || repeats_itself(others);
        Self { values, is_ratio, is_same }
    }

    pub(super) fn counts(&self, unit: &str) -> PairCounts {
        let count = |is: fn(f64, f64) -> bool| {
            self.values.iter().filter(|(_, value, baseline)| is(*value, *baseline)).count() as u32
        };
        let compared = self.values.len() as u32;
        let lower = count(|value, baseline| value < baseline);
        let higher = count(|value, baseline| value > baseline);
        let mut noticed =
            self.values.iter().map(|(_, value, baseline)| is_noticed(*value, *baseline, unit));
        PairCounts {
            compared,
            lower,
            higher,
            is_noticed: compared > 0 && lower.max(higher) == compared && noticed.all(|it| it),
            is_same: self.is_same,
        }
    }

    pub(super) fn range(&self) -> Option<EffectRange> {
        if self.is_same || self.values.len() < FEWEST_FOR_INTERVAL {
            return None;
        }
        let mut effects: Vec<f64> = self
            .values
            .iter()
            .map(|(_, value, baseline)| effect(*value, *baseline, self.is_ratio))
            .collect();
        let interval = median_interval(&effects, CONFIDENCE)?;
        effects.sort_unstable_by(f64::total_cmp);
        let middle = nearest_rank(&effects, 0.5);
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        Some(EffectRange {
            low: if interval.low.is_finite() { interval.low } else { f64::MAX },
            high: finite(interval.high),
            middle: middle.and_then(finite),
            confidence: interval.confidence,
        })
    }
}

/// Returns value over baseline, or their difference.
pub fn effect(value: f64, baseline: f64, is_ratio: bool) -> f64 {
    // Two infinite values are equal, too.
    let is_equal = value.total_cmp(&baseline).is_eq();
    match (is_ratio, is_equal) {
        (true, true) => 1.0,
        (true, false) => value / baseline,
        (false, true) => 0.0,
        (false, false) => value - baseline,
    }
}

/// Whether two or more trials are identical: nothing in them was random, so they count as one.
pub fn repeats_itself(trials: &[&TrialRecord]) -> bool {
    let Some((first, others)) = trials.split_first() else { return false };
    let is_same = |trial: &&TrialRecord| {
        trial.latencies == first.latencies
            && trial.flows == first.flows
            && trial.bottlenecks == first.bottlenecks
    };
    !others.is_empty() && others.iter().all(is_same)
}

/// Rates within this ratio count as equal.
const RATE_ALIKE: f64 = 1.05;
/// Rate below which a direction counts as unloaded, bit/s.
const NO_RATE_BIT_PER_S: f64 = 50e3;
/// Use of a link's capacity, percent, below which a rate explains no latency.
const IDLE_PERCENT: f64 = 10.0;

/// The largest share of a transfer's rate that its acknowledgements are on the way back: 64 of 1500
/// bytes, if each segment is acknowledged.
const MOST_ANSWERS: f64 = 0.05;

/// Returns the rates in which a variant differs from its baseline. Acknowledgements of transfers the
/// other way are none.
pub(super) fn rates(variant: &VariantSummary, baseline: &VariantSummary) -> Vec<RateChange> {
    let unequal = |direction: Direction| {
        let own = variant.throughput(direction)?;
        let others = baseline.throughput(direction)?;
        let goodputs = own.goodput_bit_per_s.zip(others.goodput_bit_per_s);
        let is_goodput = goodputs.is_some();
        let is_idle = |carried: &VariantThroughput| {
            carried.utilisation_percent.is_some_and(|used| used.mean < IDLE_PERCENT)
        };
        let only_answers = |summary: &VariantSummary, carried: &VariantThroughput| {
            let transfers = summary.throughput(direction.opposite())?.goodput_bit_per_s?;
            Some(carried.link_bit_per_s?.mean <= transfers.mean * MOST_ANSWERS)
        };
        let are_answers = [(variant, own), (baseline, others)]
            .iter()
            .all(|(summary, carried)| only_answers(summary, carried) == Some(true));
        if !is_goodput && (are_answers || is_idle(own) && is_idle(others)) {
            return None;
        }
        let (own, others) = goodputs.or_else(|| own.link_bit_per_s.zip(others.link_bit_per_s))?;
        let bit_per_s = Both { variant: own.mean, baseline: others.mean };
        let (low, high) = (own.mean.min(others.mean), own.mean.max(others.mean));
        let is_unequal = high >= NO_RATE_BIT_PER_S && high > low * RATE_ALIKE;
        is_unequal.then_some(RateChange { direction, is_goodput, bit_per_s })
    };
    [Direction::Up, Direction::Down].into_iter().filter_map(unequal).collect()
}
