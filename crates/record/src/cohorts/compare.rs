//! Two groups of lines.

use crate::CONFIDENCE;
use crate::schema::{Compared, Estimate};
use crate::stats::{
    Alternative, Shift, hodges_lehmann_ratio, hodges_lehmann_shift, kolmogorov_smirnov,
    mann_whitney,
};

/// A cohort against the reference, one value of each line, ms. `None` where one has none.
pub fn compare(cohort: &[f64], reference: &[f64]) -> Option<Compared> {
    let ranks = mann_whitney(cohort, reference, Alternative::TwoSided)?;
    let distance = kolmogorov_smirnov(cohort, reference)?;
    Some(Compared {
        devices: [cohort.len() as u64, reference.len() as u64],
        ratio: hodges_lehmann_ratio(reference, cohort, CONFIDENCE).map(estimate),
        shift_ms: hodges_lehmann_shift(reference, cohort, CONFIDENCE).map(estimate),
        less: 1.0 - ranks.superiority,
        rank_p_value: ranks.p_value,
        distance: distance.distance,
        distance_p_value: distance.p_value,
    })
}

fn estimate(shift: Shift) -> Estimate {
    Estimate { value: shift.estimate, low: shift.low, high: shift.high }
}
