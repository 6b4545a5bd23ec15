//! Judges the effect of one thing relative to another: the only place that decides whether one is
//! lower. It is the rule of variants, histories, cohorts and studies.

use serde::{Deserialize, Serialize};

use crate::schema::Interval;

crate::named! {
    /// What a comparison found.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// The range excludes equality, and its middle differs by what a person notices.
        Lower = "lower",
        /// The opposite of `Lower`.
        Higher = "higher",
        /// A person notices no difference within the range.
        Alike = "alike",
        /// The range includes a difference that a person notices, but it also includes equality, or
        /// a person does not notice the difference in its middle.
        NotSure = "not sure",
        /// No range: fewer than five pairs of trials, trials in which nothing is random, or as few
        /// devices, lines or runs.
        TooFew = "too few trials",
        /// More than half of the probes of the variant or of the baseline never arrived: only
        /// losses are compared.
        Lost = "lost",
        /// The effect is larger than in any scenario, so the measurement must be checked.
        Suspicious = "suspicious",
        /// Variant and baseline differ in more than the compared setting, for example in the hours
        /// of their runs.
        NotComparable = "not comparable",
        /// The variant or its baseline has no value.
        #[default]
        NotMeasured = "not measured",
    }
}

/// A number of the variant and of the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Both {
    pub variant: f64,
    pub baseline: f64,
}

/// The range of an effect over the pairs of trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffectRange {
    pub low: f64,
    /// `None` if there is no upper bound: the variant lost the probes of a trial.
    pub high: Option<f64>,
    /// The median of the pairs; `None` as for `high`.
    pub middle: Option<f64>,
    /// Probability that such a range holds the median over all seeds.
    pub confidence: f64,
}

impl EffectRange {
    /// Returns the smallest ratio that as many trials would have shown.
    pub fn smallest_shown(&self) -> Option<f64> {
        let (high, middle) = (self.high?, self.middle?);
        Some((high / middle).max(middle / self.low)).filter(|ratio| ratio.is_finite())
    }

    /// Judges an effect by its range and by the two values that people see beside it: the rule of
    /// variants, histories, cohorts and studies.
    pub fn judge(&self, values: Both, unit: &str, is_ratio: bool) -> Verdict {
        let is_noticed = |effect| is_effect_noticed(effect, values.baseline, unit, is_ratio);
        let equal = if is_ratio { 1.0 } else { 0.0 };
        let high = self.high.unwrap_or(f64::INFINITY);
        if !is_noticed(self.low) && !is_noticed(high) {
            return Verdict::Alike;
        }
        // The two values may say the opposite of the range, if one trial or one line decides.
        match is_noticed(self.middle.unwrap_or(f64::INFINITY)) {
            true if high < equal && values.variant < values.baseline => Verdict::Lower,
            true if self.low > equal && values.variant > values.baseline => Verdict::Higher,
            _ => Verdict::NotSure,
        }
    }
}

/// Whether a person notices an effect on the baseline.
pub(crate) fn is_effect_noticed(effect: f64, baseline: f64, unit: &str, is_ratio: bool) -> bool {
    let value = if is_ratio { effect * baseline } else { baseline + effect };
    is_noticed(value, baseline, unit)
}

impl Interval {
    /// Caps a reduction at 100 %: with a lag below zero it would be more.
    pub(crate) fn capped(self) -> Self {
        let cap = |percent: f64| percent.min(100.0);
        let (low, high) = (self.low.map(cap), self.high.map(cap));
        Self { mean: cap(self.mean), low, high, ..self }
    }
}

impl Verdict {
    /// Judges two values that have a range each: they differ if their ranges are apart.
    pub fn of_ranges(own: &Interval, baseline: &Interval, unit: &str) -> Self {
        let ends = (own.low.zip(own.high), baseline.low.zip(baseline.high));
        let (Some((low, high)), Some((least, most))) = ends else { return Self::TooFew };
        let values = Both { variant: own.mean, baseline: baseline.mean };
        let range = EffectRange {
            low: low - most,
            high: Some(high - least),
            middle: Some(values.variant - values.baseline),
            confidence: own.confidence.min(baseline.confidence),
        };
        range.judge(values, unit, false)
    }

    /// Judges two values alone.
    pub fn of_values(value: f64, baseline: f64, unit: &str) -> Self {
        match value < baseline {
            _ if !is_noticed(value, baseline, unit) => Self::Alike,
            true => Self::Lower,
            false => Self::Higher,
        }
    }

    /// Judges a reduction of lag, percent of the baseline's, beside both lags, ms.
    pub(crate) fn of_cut(cut: Option<Interval>, lag: Option<f64>, baseline: Option<f64>) -> Self {
        let (Some(cut), Some(variant), Some(baseline)) = (cut, lag, baseline) else {
            return Self::NotMeasured;
        };
        let ratio = |percent: f64| 1.0 - percent / 100.0;
        let Some((most, least)) = cut.high.zip(cut.low) else { return Self::TooFew };
        let (high, middle) = (Some(ratio(least)), Some(ratio(cut.mean)));
        let range = EffectRange { low: ratio(most), high, middle, confidence: cut.confidence };
        range.judge(Both { variant, baseline }, "ms", true)
    }
}

/// Least differences that a person notices, by unit: absolute, and as a share of the baseline. 1 ms is
/// a hundredth of what interrupts a conversation; 5 % is what rates of repeated trials differ by.
const FLOORS: [(&str, f64, f64); 6] = [
    ("ms", 1.0, 0.05),
    ("s", 0.05, 0.05),
    ("Mbit/s", 0.05, 0.05),
    ("%", 0.5, 0.05),
    ("MOS", 0.1, 0.0),
    ("", 0.0, 0.05),
];

/// Whether a person notices the difference of two values.
pub fn is_noticed(value: f64, baseline: f64, unit: &str) -> bool {
    let known = FLOORS.into_iter().find(|(known, ..)| *known == unit);
    let (_, absolute, share) = known.unwrap_or(("", 0.0, 0.05));
    let difference = (value - baseline).abs();
    // Two infinite values are equal.
    difference >= absolute && difference >= share * baseline.abs() && difference > 0.0
}
