//! What became of runs, and whether comparing cohorts finds a difference where there is none.

use underload_aqm::rng::Rng;

use super::line::{Line, Lines};
use crate::CONFIDENCE;
use crate::schema::{Estimate, OutcomeStudy, SelfCheck};
use crate::stats::{Alternative, ClusterShare, cluster_share, mann_whitney, nearest_rank};

/// Every end that a run of a cohort came to: unequal shares are a finding, because lines that are
/// missing may not be like the others.
pub(super) fn study(lines: &Lines) -> Vec<OutcomeStudy> {
    let share = |cohort: usize, outcome: usize| -> Option<ClusterShare> {
        let of = |line: &Line| {
            let all = line.outcomes.iter().map(|count| u64::from(*count)).sum();
            (u64::from(line.outcomes.get(outcome).copied().unwrap_or(0)), all)
        };
        cluster_share(&lines.of_cohort(cohort).map(of).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for (outcome, name) in lines.outcomes.iter().enumerate() {
        let reference = lines.reference.and_then(|reference| share(reference, outcome));
        let shares: Vec<_> =
            (0..lines.cohorts.len()).map(|cohort| share(cohort, outcome)).collect();
        if !shares.iter().flatten().any(|share| share.share > 0.0) {
            continue;
        }
        for (cohort, own) in shares.iter().enumerate() {
            let Some(own) = own else { continue };
            let is_reference = lines.reference == Some(cohort);
            let compared = reference
                .filter(|reference| !is_reference && own.clusters > 1 && reference.clusters > 1)
                .map(|reference| own.less(&reference, CONFIDENCE));
            let runs = lines
                .of_cohort(cohort)
                .map(|line| u64::from(line.outcomes.get(outcome).copied().unwrap_or(0)))
                .sum();
            rows.push(OutcomeStudy {
                cohort: lines.cohorts[cohort].clone(),
                outcome: name.clone(),
                runs,
                percent: own.share * 100.0,
                difference: compared.map(|(difference, half, _)| Estimate {
                    value: difference * 100.0,
                    low: Some((difference - half) * 100.0),
                    high: Some((difference + half) * 100.0),
                }),
                p_value: compared.map(|(_, _, p_value)| p_value),
            });
        }
    }
    rows
}

/// How often a cohort is halved.
const SPLITS: u32 = 200;
/// Lines that are halved at most; more show the same and take longer.
const LINES_MOST: usize = 10_000;
/// Fewer lines have no halves to speak of.
const LINES_LEAST: usize = 20;
/// What counts as a difference.
const LEVEL: f64 = 0.05;

/// Halves of the reference, or of the only cohort.
pub(super) fn self_check(lines: &Lines, rng: &mut Rng) -> Option<SelfCheck> {
    let cohort = lines.reference.unwrap_or(0);
    let place = lines.headline()?;
    let means = lines.of_cohort(cohort).filter_map(|line| line.series.get(&place)?.mean_ms());
    let mut means: Vec<f64> = means.take(LINES_MOST).collect();
    if means.len() < LINES_LEAST {
        return None;
    }
    let half = means.len() / 2;
    let (mut differ, mut ratios) = (0, Vec::new());
    for _ in 0..SPLITS {
        for place in 0..half {
            let other = place + rng.below((means.len() - place) as u32) as usize;
            means.swap(place, other);
        }
        let (first, second) = means.split_at(half);
        let found = mann_whitney(first, second, Alternative::TwoSided)?;
        differ += u32::from(found.p_value < LEVEL);
        let mean = |half: &[f64]| half.iter().map(|ms| ms.ln()).sum::<f64>() / half.len() as f64;
        ratios.push((mean(first) - mean(second)).abs().exp());
    }
    ratios.sort_unstable_by(f64::total_cmp);
    Some(SelfCheck {
        cohort: lines.cohorts.get(cohort)?.clone(),
        devices: means.len() as u64,
        splits: SPLITS,
        differ_percent: f64::from(differ) * 100.0 / f64::from(SPLITS),
        ratio_by_chance: nearest_rank(&ratios, 0.95)?,
    })
}
