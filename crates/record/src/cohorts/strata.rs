//! Comparison of cohorts within strata of similar lines, averaged with the weights of the strata.
//!
//! Two cohorts with different tiers or regions differ for that reason alone. Within a stratum of
//! similar lines they do not; a stratum that only one of them has is left out. The others are
//! weighted by their lines of both cohorts, with equal weights for both.
//!
//! A line may be in several strata, if it is measured at several hours, or before and after an
//! update. Its contributions are added before they are squared, so that the interval is over lines.

use std::collections::BTreeMap;

use super::line::{Lines, Member};
use crate::CONFIDENCE;
use crate::schema::{Estimate, Stratified, Stratum};
use crate::stats::normal_quantile;
use crate::verdict::{Both, EffectRange, Verdict};

/// Minimum number of lines of each cohort in a stratum.
const LINES_LEAST: u64 = 5;
/// Number of strata that are reported separately, those with the largest weights.
const STRATA_TOLD: usize = 24;

pub(super) fn stratified(lines: &Lines, place: usize) -> Vec<Stratified> {
    let Some(reference) = lines.reference else { return Vec::new() };
    let others = (0..lines.cohorts.len()).filter(|cohort| *cohort != reference);
    let pairs = others.flat_map(|cohort| (0..lines.dimensions.len()).map(move |by| (cohort, by)));
    pairs.filter_map(|(cohort, by)| one(lines, place, by, [cohort, reference])).collect()
}

#[derive(Default, Clone, Copy)]
struct Group {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Group {
    fn mean(self) -> f64 {
        self.sum / self.count as f64
    }

    /// Squared standard error of the mean.
    fn error(self) -> f64 {
        let count = self.count as f64;
        (self.squares - count * self.mean().powi(2)).max(0.0) / (count - 1.0) / count
    }
}

fn one(lines: &Lines, place: usize, by: usize, pair: [usize; 2]) -> Option<Stratified> {
    let side_of =
        |strata: &[Member]| pair.iter().position(|cohort| usize::from(strata[0].cohort) == *cohort);
    let of_lines = || lines.strata(place, by).filter_map(|strata| Some((side_of(strata)?, strata)));
    let mut groups: BTreeMap<u16, [Group; 2]> = BTreeMap::new();
    for (side, strata) in of_lines() {
        for Member { stratum, value, .. } in strata {
            let sum = &mut groups.entry(*stratum).or_default()[side];
            sum.count += 1;
            sum.sum += value;
            sum.squares += value * value;
        }
    }
    if groups.is_empty() {
        return None;
    }
    let all = groups.len();
    groups.retain(|_, sums| sums.iter().all(|sum| sum.count >= LINES_LEAST));
    let total: u64 = groups.values().flatten().map(|sum| sum.count).sum();
    let weight = |sums: &[Group; 2]| (sums[0].count + sums[1].count) as f64 / total as f64;
    let (mut square, mut dropped) = (0.0, [0, 0]);
    for (side, strata) in of_lines() {
        let known = |of: &Member| Some((groups.get(&of.stratum)?, of.value));
        let known: Vec<_> = strata.iter().filter_map(known).collect();
        dropped[side] += u64::from(known.is_empty());
        let part = |(sums, value): &(&[Group; 2], f64)| {
            weight(sums) / sums[side].count as f64 * (*value - sums[side].mean())
        };
        square += known.iter().map(part).sum::<f64>().powi(2);
    }
    let mean: f64 = groups.values().map(|sums| weight(sums) * difference(sums)).sum();
    let reference: f64 = groups.values().map(|sums| weight(sums) * sums[1].mean()).sum();
    let ratio_of_all = (total > 0).then(|| ratio(mean, square));
    let strata_dropped = (all - groups.len()) as u64;
    let (name, texts) = &lines.dimensions[by];
    let mut strata: Vec<Stratum> = groups
        .iter()
        .map(|(value, sums)| {
            let value = texts.get(usize::from(*value)).cloned().unwrap_or_default();
            Stratum { value, weight: weight(sums), ..stratum(sums) }
        })
        .collect();
    strata.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.value.cmp(&b.value)));
    strata.truncate(STRATA_TOLD);
    strata.sort_by(|a, b| a.value.cmp(&b.value));
    Some(Stratified {
        by: name.clone(),
        cohort: lines.cohorts[pair[0]].clone(),
        against: lines.cohorts[pair[1]].clone(),
        strata,
        ratio: ratio_of_all,
        verdict: ratio_of_all.map(|it| verdict(&it, reference.exp())).unwrap_or_default(),
        dropped,
        strata_dropped,
    })
}

/// Converts a difference of logarithms and its squared standard error to a ratio.
fn ratio(difference: f64, square: f64) -> Estimate {
    let half = normal_quantile(0.5 + CONFIDENCE / 2.0) * square.sqrt();
    let end = |at: f64| Some(at.exp()).filter(|end| end.is_finite());
    let (low, high) = (end(difference - half), end(difference + half));
    Estimate { value: difference.exp(), low, high }
}

/// Judges a cohort by the ratio of the reference's mean, ms, to its own.
fn verdict(ratio: &Estimate, baseline: f64) -> Verdict {
    let Some(most) = ratio.high else { return Verdict::TooFew };
    let range = EffectRange {
        low: 1.0 / most,
        high: ratio.low.map(|least| 1.0 / least),
        middle: Some(1.0 / ratio.value),
        confidence: CONFIDENCE,
    };
    range.judge(Both { variant: baseline / ratio.value, baseline }, "ms", true)
}

/// Compares the lines of both cohorts in a stratum.
fn stratum(sums: &[Group; 2]) -> Stratum {
    let ratio = ratio(difference(sums), sums[0].error() + sums[1].error());
    Stratum {
        devices: [sums[0].count, sums[1].count],
        ratio,
        verdict: verdict(&ratio, sums[1].mean().exp()),
        ..Stratum::default()
    }
}

/// Returns how much larger the reference's mean logarithm is.
fn difference(sums: &[Group; 2]) -> f64 {
    sums[1].mean() - sums[0].mean()
}
