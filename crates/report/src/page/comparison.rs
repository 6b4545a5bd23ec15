//! The table of comparisons: each variant with its baseline, and with itself in other runs.

use maud::{Markup, html};
use underload_record::comparison::Comparison;

use super::parts::{Column, NOTHING, folded_if, table_of};
use crate::across;
use crate::subject::Subject;
use crate::words::significant;

pub(super) fn section(subjects: &[Subject<'_>], is_many: bool) -> Markup {
    let Some(first) = subjects.first() else { return html! {} };
    let between = across::comparisons(subjects);
    let between = between.iter().map(|across| &across.comparison);
    let all: Vec<&Comparison> = first.run.record.comparisons.iter().chain(between).collect();
    if all.is_empty() {
        return html! {};
    }
    let number = |value: Option<f64>| value.map_or(NOTHING.to_owned(), significant);
    let columns = [
        Column::names("variant", |it: &&Comparison| it.variant.clone()),
        Column::words("compared with", |it: &&Comparison| it.baseline.clone()),
        Column::words("metric", |it: &&Comparison| it.metric.clone()),
        Column::numbers("value", |it: &&Comparison| number(it.value)),
        Column::numbers("of the other", |it: &&Comparison| number(it.baseline_value)),
        Column::units("effect", "range of pairs", |it: &&Comparison| effect(it)),
        Column::units("lower", "pairs of trials", |it: &&Comparison| {
            format!("{} of {}", it.pairs.lower, it.pairs.compared)
        }),
        Column::words("verdict", |it: &&Comparison| it.verdict.name()),
    ];
    html! {
        h2 { "Compared" } "\n"
        p.note {
            "Values are of all valid trials together. The effect is value over value of the other, or "
            "their difference where a ratio has no meaning, in each pair of trials with the same "
            "number: its range holds the median of many trials with about 95 %. A trial that lost "
            "the probes of the percentile counts as slower than any other."
        }
        "\n"
        (folded_if(is_many, "All comparisons", table_of("Variants compared", &columns, &all)))
    }
}

fn effect(comparison: &Comparison) -> String {
    let Some(range) = comparison.range else { return NOTHING.to_owned() };
    let high = range.high.map_or("∞".to_owned(), significant);
    format!("{} to {high}", significant(range.low))
}
