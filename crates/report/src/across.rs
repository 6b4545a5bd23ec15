//! The variants of later runs beside those of the first: the same scenario run again or elsewhere, or
//! files of other tools.

use std::collections::BTreeMap;

use underload_record::comparison::{self, Comparison, OfRun};
use underload_record::schema::RunRecord;

use crate::subject::Subject;

/// The metric of runs whose scenario declares none.
const USUAL: &str = "load.rtt.p99";

/// Compares each variant of later runs with the same variant of the first run, or if every run has one
/// variant, with that. Variants have the names of their subjects.
pub(crate) fn comparisons(subjects: &[Subject<'_>]) -> Vec<Comparison> {
    let mut runs: Vec<&RunRecord> = Vec::new();
    for subject in subjects {
        if runs.len() == subject.run_number {
            runs.push(&subject.run.record);
        }
    }
    let Some(first) = runs.first().filter(|_| runs.len() > 1) else { return Vec::new() };
    let are_single = runs.iter().all(|run| run.variants.len() == 1);
    let own = subjects.iter().filter(|own| own.run_number == 0);
    let by_name: BTreeMap<&str, &Subject<'_>> =
        own.map(|own| (own.variant.name.as_str(), own)).collect();
    let partner = |other: &Subject<'_>| {
        let same = by_name.get(other.variant.name.as_str());
        let only = by_name.values().next().filter(|_| are_single);
        same.filter(|own| own.is_same_variant(other)).or(only).copied()
    };
    let later = subjects.iter().filter(|subject| subject.run_number > 0);
    let pairs: Vec<(&Subject<'_>, &Subject<'_>)> =
        later.filter_map(|other| Some((other, partner(other)?))).collect();
    let compared: Vec<(OfRun<'_>, OfRun<'_>)> =
        pairs.iter().map(|(own, other)| (of_run(own), of_run(other))).collect();
    let declared = first.scenario.headline.as_ref().map(|headline| headline.metric.as_str());
    let own = first.comparisons.first().map(|comparison| comparison.metric.as_str());
    let metric = declared.filter(|metric| !metric.is_empty()).or(own).unwrap_or(USUAL);
    let mut all = comparison::compare_runs(&runs, &compared, metric);
    for (comparison, (own, other)) in all.iter_mut().zip(&pairs) {
        comparison.variant = own.called();
        comparison.baseline = other.called();
    }
    all
}

fn of_run<'a>(subject: &Subject<'a>) -> OfRun<'a> {
    OfRun { run: subject.run_number, variant: &subject.variant.name }
}
