//! Comparisons of two variants, as numbers; [`phrases`](crate::phrases) puts them into words.

use underload_record::CONFIDENCE;
use underload_record::schema::{
    Direction, Judged, LatencySummary, Quantile, VariantLatency, VariantThroughput,
};
use underload_record::stats::hodges_lehmann_ratio;

use crate::subject::Subject;
use crate::words::judged_by;

/// Smaller ratios count as no difference.
pub(crate) const ALIKE: f64 = 1.1;

/// Rates within this ratio count as equal.
pub(crate) const RATE_ALIKE: f64 = 1.05;

/// Mbit/s below which a direction counts as unloaded.
pub(crate) const NO_RATE_MBIT: f64 = 0.05;

/// Use of a link's capacity, percent, below which a rate explains no latency.
const IDLE_PERCENT: f64 = 10.0;

/// Least loss of probes that is mentioned, percent.
pub(crate) const LOSS_PERCENT: f64 = 1.0;

/// Fewest repeats per variant with an interval.
pub(crate) const FEW_REPEATS: usize = 5;

/// Value of a lost probe in ratios of trials, ns: longer than any answer, so that it ranks last.
pub(crate) const LOST_NS: f64 = 1e30;
/// Larger ratios contain a lost probe.
pub(crate) const RATIO_MAX: f64 = 1e9;

/// A variant and its latency that is compared.
pub(crate) type Told<'a> = (&'a Subject<'a>, &'a VariantLatency);

/// How certain a comparison is, given the repeats.
pub(crate) enum Certainty {
    /// The repeats of a variant are identical.
    Identical {
        /// Display name of the variant.
        called: String,
        trials: usize,
    },
    /// The interval of the ratio of the trials' quantiles includes 1.
    NoRatio { trials: usize },
    /// The interval of the ratio of the trials' quantiles.
    Ratio {
        /// The quantile in words.
        by: String,
        trials: usize,
        low: f64,
        /// Infinite if a variant's quantile is a lost probe.
        high: f64,
    },
    /// The interval of the difference of the trials' numbers includes 0.
    NoDifference { trials: usize },
    /// There are enough trials and the means differ.
    Mean { trials: usize },
}

impl Certainty {
    /// Judges by the trials' own quantiles; `None` if they have too few samples, if both quantiles
    /// are lost probes, or if there are fewer than [`FEW_REPEATS`] trials.
    pub(crate) fn of_latencies(first: Told<'_>, other: Told<'_>, told: Quantile) -> Option<Self> {
        if let Some(identical) = Self::identical(first.0, other.0) {
            return Some(identical);
        }
        if [first, other].iter().all(|(_, latency)| latency.judged(told) == Some(Judged::Lost)) {
            return None;
        }
        let interval = ratio_interval(first, other, told)?;
        let RatioInterval { quantile, trials, bounds: Some((low, high)) } = interval else {
            return None;
        };
        let by = judged_by(quantile, [first.1, other.1]);
        let ratio = Self::Ratio { by, trials, low, high };
        Some(if interval.is_noise() { Self::NoRatio { trials } } else { ratio })
    }

    /// Judges numbers of which each trial has one; `is_noise` returns whether they may be equal.
    /// `None` with fewer than [`FEW_REPEATS`] trials.
    pub(crate) fn of_numbers(
        first: &Subject<'_>,
        other: &Subject<'_>,
        is_noise: impl FnOnce() -> bool,
    ) -> Option<Self> {
        if let Some(identical) = Self::identical(first, other) {
            return Some(identical);
        }
        let trials = other.trials().count().min(first.trials().count());
        match trials {
            0..FEW_REPEATS => None,
            _ if is_noise() => Some(Self::NoDifference { trials }),
            _ => Some(Self::Mean { trials }),
        }
    }

    fn identical(first: &Subject<'_>, other: &Subject<'_>) -> Option<Self> {
        let same = [first, other].into_iter().find(|variant| variant.repeats_itself())?;
        Some(Self::Identical { called: same.called(), trials: same.trials().count() })
    }
}

/// An interval of the ratio of two variants over their trials, larger over smaller.
pub(crate) struct RatioInterval {
    pub(crate) quantile: Quantile,
    /// Trials of the variant that has fewer.
    pub(crate) trials: usize,
    /// `None` with fewer than [`FEW_REPEATS`] trials.
    pub(crate) bounds: Option<(f64, f64)>,
}

impl RatioInterval {
    /// Returns whether the interval includes a ratio of 1; false without an interval.
    pub(crate) fn is_noise(&self) -> bool {
        self.bounds.is_some_and(|(low, high)| (low..=high).contains(&1.0))
    }
}

/// Returns the interval for the quantile `told`, or for the median if a trial has too few samples;
/// `None` if it has too few for both.
pub(crate) fn ratio_interval(
    first: Told<'_>,
    other: Told<'_>,
    told: Quantile,
) -> Option<RatioInterval> {
    let of_trials = |(subject, told): Told<'_>, quantile: Quantile| -> Option<Vec<f64>> {
        let latencies = subject.trials().filter_map(|trial| {
            let mut latencies = trial.latencies.iter();
            let own = latencies.find(|latency| {
                latency.probe == told.probe
                    && latency.measure == told.measure
                    && latency.window.phase == told.phase
            });
            own.filter(|latency| latency.distribution.is_some() || latency.is_all_lost())
        });
        let value = |latency: &LatencySummary| match latency.judged(quantile)? {
            Judged::Answered(ns) => Some(ns as f64),
            Judged::Lost => Some(LOST_NS),
        };
        latencies.map(value).collect()
    };
    let both =
        |quantile| Some((quantile, of_trials(first, quantile)?, of_trials(other, quantile)?));
    let is_lower = other.1.judged(told)? < first.1.judged(told)?;
    let (quantile, first, other) = [told, Quantile::P50].into_iter().find_map(both)?;
    let trials = first.len().min(other.len());
    let (larger, smaller) = if is_lower { (&first, &other) } else { (&other, &first) };
    let bounds = if trials < FEW_REPEATS {
        None
    } else {
        let ratio = hodges_lehmann_ratio(larger, smaller, CONFIDENCE)?;
        let bounded = |ratio: f64| if ratio > RATIO_MAX { f64::INFINITY } else { ratio };
        Some((bounded(ratio.low?), bounded(ratio.high?)))
    };
    (trials > 0).then_some(RatioInterval { quantile, trials, bounds })
}

/// A rate in which two variants differ, which may explain a lower latency.
pub(crate) struct UnequalRate {
    pub(crate) direction: Direction,
    /// True if the rates are goodput, false if they are the link's throughput.
    pub(crate) is_goodput: bool,
    pub(crate) first_bit_per_s: f64,
    pub(crate) other_bit_per_s: f64,
}

/// Returns the rates in which two variants differ.
pub(crate) fn unequal_rates(first: &Subject<'_>, other: &Subject<'_>) -> Vec<UnequalRate> {
    let unequal = |direction: Direction| {
        let own = first.summary.throughput(direction)?;
        let others = other.summary.throughput(direction)?;
        let goodputs = own.goodput_bit_per_s.zip(others.goodput_bit_per_s);
        let is_goodput = goodputs.is_some();
        let is_idle = |carried: &VariantThroughput| {
            carried.utilisation_percent.is_some_and(|used| used.mean < IDLE_PERCENT)
        };
        if !is_goodput && is_idle(own) && is_idle(others) {
            return None;
        }
        let (own, others) = goodputs.or_else(|| own.link_bit_per_s.zip(others.link_bit_per_s))?;
        let (first_bit_per_s, other_bit_per_s) = (own.mean, others.mean);
        let low = first_bit_per_s.min(other_bit_per_s);
        let high = first_bit_per_s.max(other_bit_per_s);
        let is_unequal = high >= NO_RATE_MBIT * 1e6 && high > low * RATE_ALIKE;
        let rate = UnequalRate { direction, is_goodput, first_bit_per_s, other_bit_per_s };
        is_unequal.then_some(rate)
    };
    [Direction::Up, Direction::Down].into_iter().filter_map(unequal).collect()
}

/// Percent of the probes that each of two variants lost, where that is worth a word: a queue that drops
/// them has only the quick ones left.
pub(crate) fn losses(first: &VariantLatency, other: &VariantLatency) -> Option<(f64, f64)> {
    let (first, other) = (first.lost_percent(), other.lost_percent());
    (first.max(other) >= LOSS_PERCENT).then_some((first, other))
}

/// `load.rtt.` and p99 of `load.rtt.p99`.
pub(crate) fn statistic(name: &str) -> (&str, Option<Quantile>) {
    let start = name.rfind(['.', '_']).map_or(0, |at| at + 1);
    // `p99.9` contains a `.`, at which the search above splits the name.
    let start = if name.ends_with("p99.9") { name.len() - "p99.9".len() } else { start };
    match Quantile::from_name(&name[start..]) {
        Some(quantile) => (&name[..start], Some(quantile)),
        None => (name, None),
    }
}
