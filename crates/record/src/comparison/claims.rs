//! Which comparisons one sentence states together: every comparison is in exactly one claim.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Comparison, Verdict};

/// Comparisons that one sentence states.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim<'a> {
    /// `S1`, `S2`, ..., in the order of the sentences.
    pub id: String,
    pub extent: Extent,
    pub comparisons: Vec<&'a Comparison>,
}

/// What the comparisons of a claim have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// The claim has one comparison.
    One,
    /// All comparisons change the same settings, each relative to another baseline.
    SameChange,
    /// All comparisons have the same verdict, and none has a separate sentence.
    SameVerdict,
}

/// Maximum number of single comparisons with a sentence each.
const MOST_SINGLE: usize = 4;
/// Maximum number of changes with a sentence each.
const MOST_CHANGES: usize = 6;

/// Returns the claims of comparisons that have their numbers, in the order of their sentences.
pub fn claims(comparisons: &[Comparison]) -> Vec<Claim<'_>> {
    let mut by_id: BTreeMap<u32, Vec<&Comparison>> = BTreeMap::new();
    for comparison in comparisons {
        let number = comparison.claim.trim_start_matches('S').parse().unwrap_or(u32::MAX);
        by_id.entry(number).or_default().push(comparison);
    }
    by_id.into_values().map(claim).collect()
}

fn claim(comparisons: Vec<&Comparison>) -> Claim<'_> {
    let first = comparisons[0];
    let is_same_change = comparisons.iter().all(|it| it.settings == first.settings)
        && comparisons.iter().any(|it| it.baseline != first.baseline);
    let extent = match comparisons.len() {
        1 => Extent::One,
        _ if is_same_change => Extent::SameChange,
        _ => Extent::SameVerdict,
    };
    Claim { id: first.claim.clone(), extent, comparisons }
}

/// Sets the claim of each comparison, with numbers behind those of `before`.
pub fn number_claims(comparisons: &mut [Comparison], before: &[Comparison]) {
    let used = claims(before).len();
    for (number, claim) in grouped(comparisons).into_iter().enumerate() {
        for position in claim {
            comparisons[position].claim = format!("S{}", used + number + 1);
        }
    }
}

/// Returns the positions of the comparisons of each claim, the largest effects first.
fn grouped(comparisons: &[Comparison]) -> Vec<Vec<usize>> {
    let size = |positions: &[usize]| {
        let mut sizes: Vec<f64> = positions.iter().map(|it| comparisons[*it].size()).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        sizes[(sizes.len() - 1) / 2]
    };
    let largest_first = |groups: &mut Vec<Vec<usize>>| {
        groups.sort_by(|a, b| size(b).total_cmp(&size(a)));
    };
    let mut by_change: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut rest: Vec<usize> = Vec::new();
    for (position, comparison) in comparisons.iter().enumerate() {
        if comparison.verdict == Verdict::NotMeasured {
            rest.push(position);
            continue;
        }
        let change = (!comparison.is_declared, &comparison.settings);
        by_change.entry(change).or_default().push(position);
    }
    let baselines = |positions: &[usize]| {
        let mut all: Vec<&str> =
            positions.iter().map(|it| comparisons[*it].baseline.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let (mut changes, single): (Vec<Vec<usize>>, Vec<Vec<usize>>) =
        by_change.into_values().partition(|group| baselines(group) > 1);
    largest_first(&mut changes);
    let mut single: Vec<Vec<usize>> =
        single.into_iter().flatten().map(|position| vec![position]).collect();
    largest_first(&mut single);
    let is_declared = |group: &Vec<usize>| !comparisons[group[0]].is_declared;
    changes.sort_by_key(is_declared);
    single.sort_by_key(is_declared);
    if changes.len() > MOST_CHANGES {
        rest.extend(changes.split_off(MOST_CHANGES - 1).into_iter().flatten());
    }
    if single.len() > MOST_SINGLE {
        rest.extend(single.split_off(MOST_SINGLE - 1).into_iter().flatten());
    }
    let mut by_verdict: BTreeMap<(Verdict, Verdict), Vec<usize>> = BTreeMap::new();
    for position in rest {
        let comparison = &comparisons[position];
        by_verdict.entry((comparison.verdict, comparison.direction())).or_default().push(position);
    }
    let mut all: Vec<Vec<usize>> = changes.into_iter().chain(single).collect();
    all.sort_by_key(is_declared);
    all.into_iter().chain(by_verdict.into_values()).collect()
}
