//! Lag of each class, the share of the tier that a load used, and its Quality of Outcome.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{ClassDays, Line, Lines};
use crate::CONFIDENCE;
use crate::comparison::Verdict;
use crate::schema::{ClassStudy, Interval, QualityStudy, TierUse};
use crate::stats::{hodges_lehmann_shift, mean_interval};

/// Returns every class of every cohort that was measured without and under load on the same day.
pub(super) fn study(lines: &Lines) -> Vec<ClassStudy> {
    let mut rows = Vec::new();
    for (place, name) in lines.series.iter().enumerate() {
        for (cohort, cohort_name) in lines.cohorts.iter().enumerate() {
            let own: Vec<&ClassDays> = lines
                .of_cohort(cohort)
                .filter_map(|line| line.classes.get(&place))
                .filter(|class| class.days + class.days_lost > 0)
                .collect();
            if own.is_empty() {
                continue;
            }
            let over = |value: &dyn Fn(&ClassDays) -> Option<f64>| -> Option<Interval> {
                let values: Vec<f64> = own.iter().filter_map(|class| value(class)).collect();
                mean_interval(&values, CONFIDENCE)
            };
            let by_day = |class: &ClassDays, sum_us: f64| {
                (class.days > 0).then(|| sum_us / f64::from(class.days) / 1e3)
            };
            rows.push(ClassStudy {
                cohort: cohort_name.clone(),
                step: name.step.clone(),
                dscp: name.dscp,
                devices: own.len() as u64,
                days: own.iter().map(|class| u64::from(class.days)).sum(),
                idle_p50_ms: over(&|class| by_day(class, class.idle_p50_us)),
                loaded_p99_ms: over(&|class| by_day(class, class.loaded_p99_us)),
                lag_ms: over(&|class| by_day(class, class.loaded_p99_us - class.idle_p50_us)),
                days_lost: own.iter().map(|class| u64::from(class.days_lost)).sum(),
                against: lines.against(place),
                cut_percent: over(&|class| {
                    (class.cut_days > 0).then(|| class.cut_percent / f64::from(class.cut_days))
                })
                .map(Interval::capped),
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

/// Percentages of each line by step: sum over tests, and number of tests.
type ByStep = BTreeMap<String, (f64, u32)>;

/// Returns the means of a cohort's lines for every step and cohort with one.
fn means_by_step(lines: &Lines, of: fn(&Line) -> &ByStep) -> Vec<(&String, usize, Vec<f64>)> {
    let steps: BTreeSet<&String> = lines.lines.iter().flat_map(|line| of(line).keys()).collect();
    let mut all = Vec::new();
    for step in steps {
        for cohort in 0..lines.cohorts.len() {
            let mean = |line: &Line| {
                let (sum, tests) = of(line).get(step)?;
                (*tests > 0).then(|| sum / f64::from(*tests))
            };
            let means: Vec<f64> = lines.of_cohort(cohort).filter_map(mean).collect();
            if !means.is_empty() {
                all.push((step, cohort, means));
            }
        }
    }
    all
}

/// Returns the use of the tier for every loaded step of every cohort.
pub(super) fn uses(lines: &Lines) -> Vec<TierUse> {
    let means = means_by_step(lines, |line| &line.uses).into_iter();
    let row = |(step, cohort, means): (&String, usize, Vec<f64>)| {
        let full = means.iter().filter(|percent| **percent >= FULL_PERCENT).count();
        TierUse {
            cohort: lines.cohorts[cohort].clone(),
            step: step.clone(),
            percent: mean_interval(&means, CONFIDENCE),
            full: full as f64 * 100.0 / means.len() as f64,
        }
    };
    means.map(row).collect()
}

/// Returns the Quality of Outcome for every loaded step of every cohort.
pub(super) fn qualities(lines: &Lines) -> Vec<QualityStudy> {
    let all = means_by_step(lines, |line| &line.qualities);
    let row = |(step, cohort, means): &(&String, usize, Vec<f64>)| {
        let is_reference =
            |it: &&(&String, usize, Vec<f64>)| it.0 == *step && Some(it.1) == lines.reference;
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
