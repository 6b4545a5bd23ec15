//! Comparison of two groups of lines.

use std::ops::Range;

use super::line::Pairs;
use crate::CONFIDENCE;
use crate::comparison::Comparison;
use crate::schema::{Change, Compared, Estimate};
use crate::stats::{
    Alternative, FEWEST_FOR_INTERVAL, hodges_lehmann_ratio, hodges_lehmann_shift, mann_whitney,
    median,
};
use crate::verdict::{Both, EffectRange, Verdict};

/// Compares a cohort with the reference by one value per line, ms. `None` if either has no values.
pub fn compare(cohort: &[f64], reference: &[f64]) -> Option<Compared> {
    let ranks = mann_whitney(cohort, reference, Alternative::TwoSided)?;
    let mut found = Compared {
        verdict: Verdict::NotMeasured,
        devices: [cohort.len() as u64, reference.len() as u64],
        ratio: hodges_lehmann_ratio(reference, cohort, CONFIDENCE)
            .and_then(|ratio| answered(ratio, 1.0 / RATIO_MAX..RATIO_MAX)),
        shift_ms: hodges_lehmann_shift(reference, cohort, CONFIDENCE)
            .and_then(|shift| answered(shift, -RATIO_MAX..RATIO_MAX)),
        less: 1.0 - ranks.superiority,
    };
    let medians = Both { variant: median(cohort)?, baseline: median(reference)? };
    found.verdict = match (found.ratio, found.shift_ms) {
        (None, None) => Verdict::Lost,
        _ if cohort.len().min(reference.len()) < FEWEST_FOR_INTERVAL => Verdict::TooFew,
        (Some(ratio), _) => effect(ratio, 0.0, |ratio| 1.0 / ratio).judge(medians, "ms", true),
        (None, Some(shift)) => {
            effect(shift, f64::NEG_INFINITY, |shift| -shift).judge(medians, "ms", false)
        }
    };
    Some(found)
}

/// Compares the lines of two groups by one value per line, ms, by the rule of cohorts.
pub fn compare_groups(group: &[f64], reference: &[f64]) -> Option<Comparison> {
    let found = compare(group, reference)?;
    let range = found.ratio.map(|ratio| effect(ratio, 0.0, |ratio| 1.0 / ratio));
    Some(Comparison {
        value: median(group),
        baseline_value: median(reference),
        unit: "ms".to_owned(),
        is_ratio: true,
        range: range.filter(|_| found.verdict != Verdict::TooFew),
        verdict: found.verdict,
        ..Comparison::default()
    })
}

/// Compares lines that changed with others by the ratio of each line's values after and before.
pub(super) fn compare_pairs(pairs: &Pairs) -> Option<Change> {
    let [own, others] = &pairs.ratios;
    let ratio = hodges_lehmann_ratio(others, own, CONFIDENCE)?;
    let mut found = Change {
        lines: [own.len() as u64, others.len() as u64],
        medians: [median(own)?, median(others)?],
        effect: None,
        verdict: Verdict::Lost,
    };
    if let Some(ratio) = answered(ratio, 1.0 / RATIO_MAX..RATIO_MAX) {
        let after = median(&pairs.after)?;
        let range = effect(ratio, 0.0, |ratio| 1.0 / ratio);
        let is_enough = own.len().min(others.len()) >= FEWEST_FOR_INTERVAL;
        found.effect = is_enough.then_some(range);
        // The value that the change would have left alone.
        let values = Both { variant: after, baseline: after * ratio.value };
        found.verdict = if is_enough { range.judge(values, "ms", true) } else { Verdict::TooFew };
    }
    Some(found)
}

/// Returns the effect of the cohort relative to the reference, from the estimate of the reference
/// relative to the cohort. `invert` inverts a ratio or a difference. An end that lost probes leave
/// without a bound has none here either.
fn effect(of_reference: Estimate, least: f64, invert: fn(f64) -> f64) -> EffectRange {
    EffectRange {
        low: of_reference.high.map_or(least, invert),
        high: of_reference.low.map(invert),
        middle: Some(invert(of_reference.value)),
        confidence: CONFIDENCE,
    }
}

/// Returns the estimate without the ends that lost probes put outside of `range`; `None` if its
/// value is outside.
fn answered(estimate: Estimate, range: Range<f64>) -> Option<Estimate> {
    let Estimate { value, low, high } = estimate;
    let within = |value: &f64| range.contains(value);
    within(&value).then(|| Estimate { value, low: low.filter(within), high: high.filter(within) })
}

/// Larger ratios, and larger differences in ms, are caused by lost probes.
const RATIO_MAX: f64 = 1e9;
