//! Compares the variants of a run, each with its baseline, and says what follows. Sentences, tables
//! and pages read [`Comparison`]s.
//!
//! All comparisons of a run are of one metric. A ratio and its range are of the same trials, pair by
//! pair: repeats with the same number share line and seed. The range is that of
//! [`median_interval`](crate::stats::median_interval), so it holds for values of two modes, too.

mod choose;
mod claims;
mod indexed;
mod modes;
mod overload;
mod pairs;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use underload_aqm::config::{Kind, Spec, Value};

use crate::schema::{Direction, RunRecord, VariantRecord, World};
use crate::stats::median;
use crate::verdict::is_effect_noticed;
pub use crate::verdict::{Both, EffectRange, Verdict, is_noticed};
pub use choose::{DeclaredValues, declared_values, statistic};
use choose::{Partners, Statistic};
pub use claims::{Claim, Extent, claims, number_claims};
use indexed::Indexed;
pub use modes::{Mode, Modes, modes};
pub use overload::Overload;
pub use pairs::{effect, repeats_itself};

/// A setting with different values in two variants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct SettingChange {
    /// Key of the scenario, such as `path.up_queue`.
    pub key: String,
    /// The baseline's value; `None` for the default.
    pub from: Option<String>,
    /// The variant's value; `None` for the default.
    pub to: Option<String>,
}

impl SettingChange {
    pub fn is_queue(&self) -> bool {
        self.key.ends_with("queue")
    }

    /// Returns the parameter `rate` of the variant's queue, bit/s; `None` without one, and if the
    /// baseline has the same discipline, whose differences are named.
    pub fn shaped_bit_per_s(&self) -> Option<u64> {
        let queue = Spec::parse(self.to.as_deref().filter(|_| self.is_queue())?).ok()?;
        let is_same = |from: &String| Spec::parse(from).is_ok_and(|it| it.name == queue.name);
        let mut rates = queue.items.iter().filter(|it| it.key.as_deref() == Some("rate"));
        match Kind::Rate.read(&rates.next()?.value)? {
            Value::Rate(rate) if !self.from.as_ref().is_some_and(is_same) => {
                Some(rate.bits_per_second())
            }
            _ => None,
        }
    }

    /// Returns the settings in which two variants of a scenario differ.
    pub fn between(baseline: &VariantRecord, variant: &VariantRecord) -> Vec<Self> {
        let mut keys: Vec<&String> =
            baseline.factors.keys().chain(variant.factors.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let of = |key: &String| Self {
            key: key.clone(),
            from: baseline.factors.get(key).cloned(),
            to: variant.factors.get(key).cloned(),
        };
        keys.into_iter().map(of).filter(|setting| setting.from != setting.to).collect()
    }
}

/// The comparison of a variant with its baseline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The sentence that states the comparison: `S1`, `S2`, ...; empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    pub variant: String,
    pub baseline: String,
    /// Whether the scenario declares it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_declared: bool,
    /// The settings that differ, by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingChange>,
    /// The metric of all comparisons of the run, such as `load.rtt.p99_of_sent`.
    pub metric: String,
    /// The metric of the baseline, if the scenario declares another.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline_metric: String,
    /// Unit of both values; empty for a plain number.
    pub unit: String,
    /// The variant's value over all its trials; `None` if it is that of a lost probe, or not measured.
    pub value: Option<f64>,
    pub baseline_value: Option<f64>,
    /// Whether `range` is of quotients, value over baseline, and not of differences.
    pub is_ratio: bool,
    /// The range of the pairs; `None` with too few pairs.
    pub range: Option<EffectRange>,
    pub pairs: PairCounts,
    /// Percent of the probes that never arrived; `None` without probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_percent: Option<Both>,
    /// Rates that differ between variant and baseline, which may explain a difference of latency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateChange>,
    pub verdict: Verdict,
}

/// Recommended number of repeats: the smallest whose range contains the median with a probability
/// of at least 95 %.
pub const REPEATS: u32 = 6;

/// How many pairs of trials there are, and how their values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PairCounts {
    pub compared: u32,
    /// Pairs in which the variant's value is the lower one.
    pub lower: u32,
    pub higher: u32,
    /// Whether a person notices the difference in every pair, and it has the same direction in all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_noticed: bool,
    /// Whether the trials of the variant or of the baseline have no randomness, so that they are
    /// identical.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_same: bool,
}

/// A rate in which two variants differ.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateChange {
    pub direction: Direction,
    /// Whether the rates are goodput, and not the throughput of the link.
    pub is_goodput: bool,
    pub bit_per_s: Both,
}

/// Units of values with a true zero, which have a ratio.
const RATIO_UNITS: [&str; 4] = ["ms", "s", "Mbit/s", "Mbit/s/s"];

/// A ratio beyond which a comparison is suspicious: ten times the ratio of a second of bufferbloat
/// to a queue of 5 ms.
const SUSPICIOUS: f64 = 2_000.0;

/// Sets the comparisons of a run, and the modes of its variants.
pub fn conclude(run: &mut RunRecord) {
    run.comparisons = compare(run);
    run.modes = modes(run, &run.comparisons);
    run.overloads = overload::overloads(run);
}

/// Compares the variants of a run: those that its scenario declares, then every other one. Sets
/// [`Comparison::claim`]. Empty for a measured line, whose steps are judged instead, for a study,
/// and for variants whose settings are unknown.
pub fn compare(run: &RunRecord) -> Vec<Comparison> {
    if run.world == World::Measured || run.study.is_some() || run.summaries.is_empty() {
        return Vec::new();
    }
    let partners = Partners::of(run);
    let run = Indexed::of(run);
    let Some(statistic) = Statistic::of(&run, &partners) else { return Vec::new() };
    let compare = |(variant, baseline): &(&str, &str)| statistic.compare(variant, baseline);
    let mut all: Vec<Comparison> = partners.pairs.iter().map(compare).collect();
    all.iter_mut().take(partners.declared).for_each(|declared| declared.is_declared = true);
    number_claims(&mut all, &[]);
    all
}

/// Compares a variant of a run with a variant of another run or of the same run.
pub fn compare_two(
    (run, variant): (&RunRecord, &str),
    (other, baseline): (&RunRecord, &str),
    metric: &str,
) -> Option<Comparison> {
    compare_runs(
        &[run, other],
        &[(OfRun { run: 0, variant }, OfRun { run: 1, variant: baseline })],
        metric,
    )
    .pop()
}

/// A variant of one of several runs.
#[derive(Debug, Clone, Copy)]
pub struct OfRun<'a> {
    /// Position among the runs.
    pub run: usize,
    pub variant: &'a str,
}

/// Compares variants of different runs with baselines, all by one metric: a latency by the highest
/// quantile that every pair has. Omits pairs with a variant that its run lacks. The
/// comparisons have no claims: see [`number_claims`].
pub fn compare_runs(
    runs: &[&RunRecord],
    pairs: &[(OfRun<'_>, OfRun<'_>)],
    metric: &str,
) -> Vec<Comparison> {
    let runs: Vec<Indexed<'_>> = runs.iter().map(|run| Indexed::of(run)).collect();
    let compare = |metric: &str| -> Vec<Comparison> {
        let one = |(own, other): &(OfRun<'_>, OfRun<'_>)| {
            let (run, others) = (runs.get(own.run)?, runs.get(other.run)?);
            run.variant(own.variant).zip(others.variant(other.variant))?;
            let both = ((run, own.variant), (others, other.variant));
            Some(Statistic::declared(both.0, both.1, metric).compare(own.variant, other.variant))
        };
        pairs.iter().filter_map(one).collect()
    };
    let mut all = compare(metric);
    // A pair in which one variant lost its median probe has no quantile, and does not lower the
    // quantile of the other pairs.
    let told = all.iter().filter(|it| it.value.is_some() && it.baseline_value.is_some());
    let lowest = told.min_by_key(|it| statistic(&it.metric).1).map(|it| it.metric.clone());
    if let Some(lowest) = lowest.filter(|lowest| all.iter().any(|it| it.metric != *lowest)) {
        all = compare(&lowest);
    }
    all
}

/// Compares many lines as one: each line's comparison is a pair. A line that lost more than half of its
/// probes is longer than every other; lines without both values are left out. `None` without lines.
pub fn compare_lines(lines: &[Comparison]) -> Option<Comparison> {
    let first = lines.first()?;
    let variant: fn(Both) -> f64 = |it| it.variant;
    let baseline: fn(Both) -> f64 = |it| it.baseline;
    let known = |it: &Comparison, value: Option<f64>, of: fn(Both) -> f64| {
        let is_lost = it.lost_percent.is_some_and(|lost| of(lost) > 50.0);
        value.or(is_lost.then_some(f64::INFINITY))
    };
    let pair = |(number, it): (u32, &Comparison)| {
        let value = known(it, it.value, variant)?;
        Some((number, value, known(it, it.baseline_value, baseline)?))
    };
    let values: Vec<(u32, f64, f64)> = (0..).zip(lines).filter_map(pair).collect();
    let is_ratio = RATIO_UNITS.contains(&first.unit.as_str())
        && values.iter().all(|(_, value, baseline)| *value > 0.0 && *baseline > 0.0);
    let middle = |of: fn(&(u32, f64, f64)) -> f64| {
        median(&values.iter().map(of).collect::<Vec<f64>>()).filter(|it| it.is_finite())
    };
    let lost = |of: fn(Both) -> f64| {
        let all: Option<Vec<f64>> = lines.iter().map(|it| it.lost_percent.map(of)).collect();
        median(&all?)
    };
    let (value, baseline_value) = (middle(|it| it.1), middle(|it| it.2));
    let lost_percent = lost(variant).zip(lost(baseline));
    let pairs = pairs::Pairs { values, is_ratio, is_same: false };
    let mut comparison = Comparison {
        value,
        baseline_value,
        is_ratio,
        range: pairs.range(),
        pairs: pairs.counts(&first.unit),
        lost_percent: lost_percent.map(|(variant, baseline)| Both { variant, baseline }),
        metric: first.metric.clone(),
        unit: first.unit.clone(),
        ..Comparison::default()
    };
    comparison.verdict = comparison.judge();
    Some(comparison)
}

/// Returns the trials that a comparison of a variant with a baseline pairs: the number of the repeat,
/// value and baseline, which are infinite for a lost probe.
pub fn pairs_of(
    comparison: &Comparison,
    (run, variant): (&RunRecord, &str),
    (other, baseline): (&RunRecord, &str),
) -> Vec<(u32, f64, f64)> {
    let (run, other) = (Indexed::of(run), Indexed::of(other));
    let statistic = Statistic::stored(&run, &other, comparison);
    pairs::Pairs::of(&statistic, variant, baseline, comparison.is_ratio).values
}

impl Comparison {
    /// Returns value over baseline for values with a true zero.
    pub fn ratio(&self) -> Option<f64> {
        let (value, baseline) = (self.value?, self.baseline_value?);
        (self.is_ratio && baseline > 0.0).then(|| value / baseline)
    }

    /// Returns how far apart the two are, for an order of sentences; infinite if one is lost.
    pub fn size(&self) -> f64 {
        match (self.value, self.baseline_value) {
            (Some(value), Some(baseline)) if self.is_ratio && value > 0.0 && baseline > 0.0 => {
                (value / baseline).ln().abs()
            }
            (Some(value), Some(baseline)) => (value - baseline).abs(),
            _ if self.verdict == Verdict::Lost => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// Returns the verdict of the values alone, for trials that are too few for another.
    pub fn direction(&self) -> Verdict {
        match (self.value, self.baseline_value) {
            (Some(value), Some(baseline))
                if !self.pairs.is_noticed && !is_noticed(value, baseline, &self.unit) =>
            {
                Verdict::Alike
            }
            (Some(value), Some(baseline)) if value < baseline => Verdict::Lower,
            (Some(_), Some(_)) => Verdict::Higher,
            _ => self.verdict,
        }
    }

    fn judge(&self) -> Verdict {
        let (Some(variant), Some(baseline)) = (self.value, self.baseline_value) else {
            let lost = self.lost_percent.map_or(0.0, |lost| lost.variant.max(lost.baseline));
            return if lost > 50.0 { Verdict::Lost } else { Verdict::NotMeasured };
        };
        let Some(range) = self.range else { return Verdict::TooFew };
        if self.ratio().is_some_and(|ratio| !(1.0 / SUSPICIOUS..=SUSPICIOUS).contains(&ratio)) {
            return Verdict::Suspicious;
        }
        range.judge(Both { variant, baseline }, &self.unit, self.is_ratio)
    }

    /// Whether a person notices the effect in the middle of the pairs.
    pub fn is_middle_noticed(&self) -> bool {
        let baseline = self.baseline_value.unwrap_or_default();
        let middle = self.range.map(|range| range.middle.unwrap_or(f64::INFINITY));
        middle.is_some_and(|middle| is_effect_noticed(middle, baseline, &self.unit, self.is_ratio))
    }
}

impl Statistic<'_> {
    fn compare(&self, variant: &str, baseline: &str) -> Comparison {
        let value = self.run.value(variant, &self.metric);
        let baseline_value = self.other.value(baseline, &self.baseline_metric);
        // If one value is 0, as the rate of a variant that carried nothing, a ratio says nothing, so
        // the difference is compared.
        let is_ratio = RATIO_UNITS.contains(&self.unit.as_str())
            && value != Some(0.0)
            && baseline_value != Some(0.0);
        let pairs = pairs::Pairs::of(self, variant, baseline, is_ratio);
        let both = self.other.variant(baseline).zip(self.run.variant(variant));
        let summaries = self.run.summary(variant).zip(self.other.summary(baseline));
        let baseline_metric = if self.metric == self.baseline_metric {
            String::new()
        } else {
            self.baseline_metric.clone()
        };
        let mut comparison = Comparison {
            claim: String::new(),
            variant: variant.to_owned(),
            baseline: baseline.to_owned(),
            is_declared: false,
            settings: both
                .map(|(baseline, variant)| SettingChange::between(baseline, variant))
                .unwrap_or_default(),
            metric: self.metric.clone(),
            baseline_metric,
            unit: self.unit.clone(),
            value,
            baseline_value,
            is_ratio,
            range: pairs.range(),
            pairs: pairs.counts(&self.unit),
            lost_percent: self.lost_percent(variant, baseline),
            rates: summaries.map(|(own, other)| pairs::rates(own, other)).unwrap_or_default(),
            verdict: Verdict::NotMeasured,
        };
        comparison.verdict = comparison.judge();
        comparison
    }
}
