//! Reasons for which cohorts are not compared, found before any effect is.

use super::line::{Line, Lines};
use crate::CONFIDENCE;
use crate::schema::{CohortCount, Unhealthy};
use crate::stats::{ClusterShare, cluster_share, normal_quantile};

/// Unequal numbers of devices are reported if a difference as large as theirs has a lower
/// probability than this in cohorts of equal size.
const LEVEL: f64 = 0.001;
/// Fewest silent devices of a cohort that count: a few devices have their own reasons.
const SILENT_LEAST: u64 = 5;
/// Devices in several cohorts that are tolerated, percent.
const MOVED_PERCENT: u64 = 1;

impl Line {
    /// Returns whether runs were due on the line and none was successful.
    pub(super) fn is_silent(&self) -> bool {
        self.tests == 0 && self.outcomes.iter().any(|count| *count > 0)
    }
}

/// Returns what is wrong with the cohorts; empty with one cohort.
pub(super) fn check(lines: &Lines, cohorts: &[CohortCount]) -> Vec<Unhealthy> {
    let Some(reference) = lines.reference.and_then(|place| cohorts.get(place)) else {
        return Vec::new();
    };
    let of = (0..cohorts.len()).filter_map(|place| lines.of_cohort(place)).map(|own| own.lines);
    let (devices, of) = (lines.moved, of.sum::<u64>());
    let moved = (devices * 100 > of * MOVED_PERCENT).then_some(Unhealthy::Moved { devices, of });
    let unequal = cohorts.iter().filter(|own| {
        let shares = silent(own).zip(silent(reference));
        let p_value = shares.map_or(1.0, |(own, other)| own.less(&other, CONFIDENCE).2);
        p_value < LEVEL && own.silent.max(reference.silent) >= SILENT_LEAST
    });
    let unequal = unequal.map(|own| Unhealthy::Silent { cohort: own.name.clone() });
    moved.into_iter().chain(unplanned(lines, cohorts)).chain(unequal).collect()
}

/// Returns the share of silent devices among those with due runs.
fn silent(own: &CohortCount) -> Option<ClusterShare> {
    let (silent, others) = (own.silent as usize, own.devices as usize);
    cluster_share(&[vec![(1, 1); silent], vec![(0, 1); others]].concat())
}

/// Compares the numbers of devices with the plan's shares, by the normal distribution.
fn unplanned(lines: &Lines, cohorts: &[CohortCount]) -> Vec<Unhealthy> {
    let drawn = cohorts.iter().zip(&lines.planned);
    let drawn: Vec<(&CohortCount, u64, f64)> =
        drawn.filter_map(|(own, share)| Some((own, own.devices + own.silent, (*share)?))).collect();
    let of: u64 = drawn.iter().map(|(_, devices, _)| devices).sum();
    let shares: f64 = drawn.iter().map(|(.., share)| share).sum();
    let compare = |(own, devices, share): (&CohortCount, u64, f64)| {
        let (all, planned) = (of as f64, share / shares);
        let limit = normal_quantile(1.0 - LEVEL / 2.0) * (all * planned * (1.0 - planned)).sqrt();
        ((devices as f64 - all * planned).abs() > limit + 0.5).then(|| Unhealthy::Unplanned {
            cohort: own.name.clone(),
            devices,
            of,
            planned_percent: planned * 100.0,
        })
    };
    drawn.into_iter().filter_map(compare).collect()
}
