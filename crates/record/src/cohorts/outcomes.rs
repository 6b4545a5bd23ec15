//! The outcomes of runs.

use super::line::Lines;
use crate::schema::{Estimate, OutcomeStudy};
use crate::stats::{ClusterShare, cluster_share};
use crate::verdict::{Both, EffectRange};

/// Confidence of an interval: a study has many outcomes.
const CONFIDENCE: f64 = 0.99;

/// Returns the share of every outcome in every cohort. Unequal shares are a finding, because lines
/// without results may differ from the others.
pub(super) fn study(lines: &Lines) -> Vec<OutcomeStudy> {
    let runs = |cohort: usize, outcome: usize| {
        let own = lines.of_cohort(cohort);
        own.map_or(Vec::new(), |own| own.runs_with(outcome, lines.outcomes.len()))
    };
    let share = |cohort, outcome| -> Option<ClusterShare> { cluster_share(&runs(cohort, outcome)) };
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
                .map(|reference| (own.less(&reference, CONFIDENCE), reference.share * 100.0));
            let range = compared.map(|((difference, half, _), _)| EffectRange {
                low: (difference - half) * 100.0,
                high: Some((difference + half) * 100.0),
                middle: Some(difference * 100.0),
                confidence: CONFIDENCE,
            });
            let percent = own.share * 100.0;
            let judged = range.zip(compared).map(|(range, (_, baseline))| {
                range.judge(Both { variant: percent, baseline }, "%", false)
            });
            rows.push(OutcomeStudy {
                cohort: lines.cohorts[cohort].clone(),
                outcome: name.clone(),
                runs: runs(cohort, outcome).iter().map(|(with, _)| with).sum(),
                percent,
                difference: range.and_then(|EffectRange { low, high, middle, .. }| {
                    Some(Estimate { value: middle?, low: Some(low), high })
                }),
                verdict: judged.unwrap_or_default(),
            });
        }
    }
    rows
}
