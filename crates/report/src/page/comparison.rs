//! Comparison of variants with the first, trial by trial, with difference, ratio and certainty.

use maud::{Markup, html};
use underload_record::CONFIDENCE;
use underload_record::schema::{Estimate, LatencySummary, Phase, Quantile};
use underload_record::stats::{
    Alternative, hodges_lehmann_ratio, hodges_lehmann_shift, mann_whitney,
};

use super::parts::{
    NOTHING, below, folded_if, head, signed, table, unit_head, variant_row, words_head,
};
use crate::facts::{LOST_NS, RATIO_MAX};
use crate::likeness::{Alike, is_same_variant};
use crate::subject::Subject;

const FEWEST_TRIALS: usize = 5;

pub(super) fn section(subjects: &[Subject<'_>], is_many: bool) -> Markup {
    let own: Vec<&Subject<'_>> = subjects.iter().filter(|it| it.run_number == 0).collect();
    let Alike { base: Some(first), others } = Alike::new(&own) else { return html! {} };
    let is_another_run = |other: &&Subject<'_>| {
        other.run_number != first.run_number && is_same_variant(first, other)
    };
    let others = others.iter().map(|(other, _)| *other);
    let mut rows = Vec::new();
    let mut has_same = false;
    for other in others.chain(subjects.iter().filter(is_another_run)) {
        let is_same = first.repeats_itself() || other.repeats_itself();
        let row = |quantile| row(first, other, quantile, is_same);
        let mut above_the_median = Quantile::HIGHEST_FIRST.into_iter();
        let high = above_the_median.find_map(|it| row(it).filter(|_| it != Quantile::P50));
        let of_variant: Vec<Markup> =
            [row(Quantile::P50), high, row(Quantile::Mean)].into_iter().flatten().collect();
        if !of_variant.is_empty() {
            has_same |= is_same;
            rows.push(variant_row(other, 5));
            rows.extend(of_variant);
        }
    }
    if rows.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("working latency")) (unit_head("difference", "ms")) (head("ratio"))
        (unit_head("pairs slower", "%")) (head("p-value"))
    };
    html! {
        h2 { "Compared with " (first.heading()) } "\n"
        p.note {
            "The variants that are compared with it. One value per valid trial. Difference and "
            "ratio are Hodges-Lehmann estimates (the median over all pairs of trials) with 95 % "
            "intervals; the p-value is Mann and Whitney's, two-sided. Slower: the share of pairs "
            "in which this variant's trial is the slower one."
            @if subjects.iter().any(has_lost_trial) {
                " A trial that lost every probe counts as slower than any other."
            }
            @if has_same {
                " Where all trials of a variant are identical, because nothing in them is random, "
                "there is neither an interval nor a p-value."
            }
        }
        "\n"
        (folded_if(is_many, "All comparisons", table(&head, &rows)))
    }
}

/// Renders a quantile of two variants. `is_same` means that the trials of one variant are identical.
fn row(
    first: &Subject<'_>,
    other: &Subject<'_>,
    quantile: Quantile,
    is_same: bool,
) -> Option<Markup> {
    let (ours, base) = (values(other, quantile), values(first, quantile));
    if ours.len().min(base.len()) < FEWEST_TRIALS {
        return None;
    }
    let difference = hodges_lehmann_shift(&ours, &base, CONFIDENCE)?;
    let ratio = hodges_lehmann_ratio(&ours, &base, CONFIDENCE)?;
    let test = mann_whitney(&ours, &base, Alternative::TwoSided)?;
    let p_value = match test.p_value {
        _ if is_same => NOTHING.to_owned(),
        small if small < 0.001 => "< 0.001".to_owned(),
        other => format!("{other:.3}"),
    };
    Some(html! {
        tr {
            td.text { (quantile.name()) }
            td { (estimate(&difference, is_same)) }
            td { (estimate(&ratio, is_same)) }
            td { (format!("{:.0}", test.superiority * 100.0)) }
            td { (p_value) }
        }
    })
}

fn values(subject: &Subject<'_>, quantile: Quantile) -> Vec<f64> {
    let latencies = subject.latencies(Phase::Load).into_iter();
    let value_ns = |summary: &LatencySummary| match summary.distribution {
        Some(answered) => answered.told_ns(quantile).map(|ns| ns as f64),
        None => summary.is_all_lost().then_some(LOST_NS),
    };
    latencies.filter_map(|(_, summary)| value_ns(summary)).map(|ns| ns / 1e6).collect()
}

fn has_lost_trial(subject: &Subject<'_>) -> bool {
    subject.latencies(Phase::Load).iter().any(|(_, latency)| latency.is_all_lost())
}

fn estimate(shift: &Estimate, is_same: bool) -> Markup {
    let number = |value: f64| match value {
        lost if lost > RATIO_MAX => "∞".to_owned(),
        lost if lost < -RATIO_MAX => "−∞".to_owned(),
        known => signed(known),
    };
    let interval = shift.low.zip(shift.high).filter(|_| !is_same);
    let interval = interval.map(|(low, high)| format!("{} to {}", number(low), number(high)));
    html! {
        b { (number(shift.value)) }
        @if let Some(interval) = interval { (below(&interval)) }
    }
}
