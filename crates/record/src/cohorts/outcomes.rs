//! The outcomes of runs, and a check that equal cohorts do not differ.

use underload_aqm::rng::Rng;

use super::line::{Line, Lines};
use crate::CONFIDENCE;
use crate::schema::{Estimate, OutcomeStudy, SelfCheck};
use crate::stats::{Alternative, ClusterShare, cluster_share, mann_whitney, nearest_rank};

/// Returns the share of every outcome in every cohort. Unequal shares are a finding, because lines
/// without results may differ from the others.
pub(super) fn study(lines: &Lines) -> Vec<OutcomeStudy> {
    let share = |cohort: usize, outcome: usize| -> Option<ClusterShare> {
        let counts = |line: &Line| {
            let all = line.outcomes.iter().map(|count| u64::from(*count)).sum();
            (line.runs_with(outcome), all)
        };
        cluster_share(&lines.of_cohort(cohort).map(counts).collect::<Vec<_>>())
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
            rows.push(OutcomeStudy {
                cohort: lines.cohorts[cohort].clone(),
                outcome: name.clone(),
                runs: lines.of_cohort(cohort).map(|line| line.runs_with(outcome)).sum(),
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

impl Line {
    fn runs_with(&self, outcome: usize) -> u64 {
        u64::from(self.outcomes.get(outcome).copied().unwrap_or(0))
    }
}

const SPLITS: u32 = 200;
/// Maximum number of lines in the check; more would only take longer.
const LINES_MOST: usize = 10_000;
const LINES_LEAST: usize = 20;
/// P-value below which two halves differ.
const LEVEL: f64 = 0.05;

/// Compares random halves of the reference, or of the only cohort.
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
