//! The variants of later runs beside those of the first: the same scenario run again or elsewhere, or
//! files of other tools.

use std::collections::BTreeMap;

use underload_record::comparison::{Comparison, OfRun, compare_runs, number_claims};
use underload_record::schema::RunRecord;

use crate::subject::Subject;

/// The metric of runs whose scenario declares none.
const USUAL: &str = "load.rtt.p99";

/// A comparison of a variant of a later run with one of the first, and the subjects of both.
pub(crate) struct Across<'s, 'a> {
    pub(crate) comparison: Comparison,
    pub(crate) variant: &'s Subject<'a>,
    pub(crate) baseline: &'s Subject<'a>,
}

/// Compares each variant of later runs with the same variant of the first run, or if every run has one
/// variant, with that. Comparisons have the names of the subjects, and claims behind those of the
/// first run.
pub(crate) fn comparisons<'s, 'a>(subjects: &'s [Subject<'a>]) -> Vec<Across<'s, 'a>> {
    // A run without a valid trial has no subjects.
    let mut numbers: Vec<usize> = subjects.iter().map(|subject| subject.run_number).collect();
    numbers.dedup();
    let of_number = |number: &usize| subjects.iter().find(|it| it.run_number == *number);
    let runs: Vec<&RunRecord> =
        numbers.iter().filter_map(of_number).map(|subject| &subject.run.record).collect();
    let is_compared = numbers.first() == Some(&0) && runs.len() > 1;
    let Some(first) = runs.first().filter(|_| is_compared) else { return Vec::new() };
    let of_run = |subject: &Subject<'a>| OfRun {
        run: numbers.partition_point(|number| *number < subject.run_number),
        variant: &subject.variant.name,
    };
    let are_single = runs.iter().all(|run| run.variants.len() == 1);
    let own = subjects.iter().filter(|own| own.run_number == 0);
    let by_name: BTreeMap<&str, &'s Subject<'a>> =
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
    let mut all = compare_runs(&runs, &compared, metric);
    number_claims(&mut all, &first.comparisons);
    let with_subjects = |(mut comparison, (variant, baseline)): (Comparison, (_, _))| {
        let (variant, baseline): (&Subject<'_>, &Subject<'_>) = (variant, baseline);
        comparison.variant = variant.called();
        comparison.baseline = baseline.called();
        Across { comparison, variant, baseline }
    };
    all.into_iter().zip(pairs).map(with_subjects).collect()
}
