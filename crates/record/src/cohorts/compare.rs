//! Comparison of two groups of lines.

use std::ops::Range;

use crate::CONFIDENCE;
use crate::schema::{Compared, Estimate};
use crate::stats::{
    Alternative, hodges_lehmann_ratio, hodges_lehmann_shift, kolmogorov_smirnov, mann_whitney,
};

/// Compares a cohort with the reference by one value per line, ms. `None` if either has no values.
pub fn compare(cohort: &[f64], reference: &[f64]) -> Option<Compared> {
    let ranks = mann_whitney(cohort, reference, Alternative::TwoSided)?;
    let distance = kolmogorov_smirnov(cohort, reference)?;
    Some(Compared {
        devices: [cohort.len() as u64, reference.len() as u64],
        ratio: hodges_lehmann_ratio(reference, cohort, CONFIDENCE)
            .and_then(|ratio| answered(ratio, 1.0 / RATIO_MAX..RATIO_MAX)),
        shift_ms: hodges_lehmann_shift(reference, cohort, CONFIDENCE)
            .and_then(|shift| answered(shift, -RATIO_MAX..RATIO_MAX)),
        less: 1.0 - ranks.superiority,
        rank_p_value: ranks.p_value,
        distance: distance.distance,
        distance_p_value: distance.p_value,
    })
}

/// An estimate without ends outside of `range`, due to lost probes; `None` if it is outside.
fn answered(estimate: Estimate, range: Range<f64>) -> Option<Estimate> {
    let Estimate { value, low, high } = estimate;
    let within = |value: &f64| range.contains(value);
    within(&value).then(|| Estimate { value, low: low.filter(within), high: high.filter(within) })
}

/// Larger ratios, and larger differences in ms, are caused by lost probes.
const RATIO_MAX: f64 = 1e9;
