//! Lag of each class, the share of the tier that a load used, and its Quality of Outcome.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{CohortRows, Lines};
use crate::CONFIDENCE;
use crate::comparison::Verdict;
use crate::schema::{ClassStudy, Interval, QualityStudy, TierUse};
use crate::stats::{hodges_lehmann_shift, mean_interval};

/// Returns every class of every cohort that was measured without and under load on the same day.
pub(super) fn study(lines: &Lines) -> Vec<ClassStudy> {
    let mut rows = Vec::new();
    for (place, name) in lines.series.iter().enumerate() {
        for (cohort, cohort_name) in lines.cohorts.iter().enumerate() {
            let own = lines.of_cohort(cohort).and_then(|own| own.classes.get(&place));
            let Some(own) = own else { continue };
            let over = |values: &[f64]| mean_interval(values, CONFIDENCE);
            rows.push(ClassStudy {
                cohort: cohort_name.clone(),
                step: name.step.clone(),
                dscp: name.dscp,
                devices: own.devices,
                days: own.days,
                idle_p50_ms: over(&own.idle_p50_ms),
                loaded_p99_ms: over(&own.loaded_p99_ms),
                lag_ms: over(&own.lag_ms),
                days_lost: own.days_lost,
                against: lines.against(place),
                cut_percent: over(&own.cut_percent).map(Interval::capped),
                verdict: Verdict::NotMeasured,
            });
        }
    }
    let judge = |row: &ClassStudy| {
        let mut same = rows.iter().filter(|it| it.cohort == row.cohort && it.step == row.step);
        let lag = |row: &ClassStudy| Some(row.lag_ms?.mean);
        let against = same.find(|it| it.dscp == row.against).and_then(lag);
        Verdict::of_cut(row.cut_percent, lag(row), against)
    };
    let verdicts: Vec<Verdict> = rows.iter().map(judge).collect();
    rows.iter_mut().zip(verdicts).for_each(|(row, verdict)| row.verdict = verdict);
    rows
}

impl Lines {
    /// Returns the marking that the classes of a step are compared with: the lowest.
    pub fn against(&self, place: usize) -> u8 {
        let Some(own) = self.series.get(place) else { return 0 };
        let of_step = self.series.iter().filter(|it| it.step == own.step && !it.is_inside);
        of_step.map(|name| name.dscp).min().unwrap_or(own.dscp)
    }
}

/// A line uses its full tier from this percentage on.
const FULL_PERCENT: f64 = 95.0;

/// Means of lines by step, percent.
type ByStep = BTreeMap<String, Vec<f64>>;

/// Returns the means of a cohort's lines for every step and cohort with one.
fn means_by_step(lines: &Lines, of: fn(&CohortRows) -> &ByStep) -> Vec<(&String, usize, &[f64])> {
    let cohorts = || (0..lines.cohorts.len()).filter_map(|it| Some((it, of(lines.of_cohort(it)?))));
    let steps: BTreeSet<&String> = cohorts().flat_map(|(_, means)| means.keys()).collect();
    let own =
        |step| cohorts().filter_map(move |(it, means)| Some((step, it, &means.get(step)?[..])));
    steps.into_iter().flat_map(own).filter(|(.., means)| !means.is_empty()).collect()
}

/// Returns the use of the tier for every loaded step of every cohort.
pub(super) fn uses(lines: &Lines) -> Vec<TierUse> {
    let means = means_by_step(lines, |own| &own.uses).into_iter();
    let row = |(step, cohort, means): (&String, usize, &[f64])| {
        let full = means.iter().filter(|percent| **percent >= FULL_PERCENT).count();
        TierUse {
            cohort: lines.cohorts[cohort].clone(),
            step: step.clone(),
            percent: mean_interval(means, CONFIDENCE),
            full: full as f64 * 100.0 / means.len() as f64,
        }
    };
    means.map(row).collect()
}

/// Returns the Quality of Outcome for every loaded step of every cohort.
pub(super) fn qualities(lines: &Lines) -> Vec<QualityStudy> {
    let all = means_by_step(lines, |own| &own.qualities);
    let row = |(step, cohort, means): &(&String, usize, &[f64])| {
        let is_reference =
            |it: &&(&String, usize, &[f64])| it.0 == *step && Some(it.1) == lines.reference;
        let against = all.iter().find(is_reference).filter(|it| it.1 != *cohort);
        QualityStudy {
            cohort: lines.cohorts[*cohort].clone(),
            step: (*step).clone(),
            devices: means.len() as u64,
            percent: mean_interval(means, CONFIDENCE),
            gain: against.and_then(|(.., other)| hodges_lehmann_shift(means, other, CONFIDENCE)),
        }
    };
    all.iter().map(row).collect()
}
