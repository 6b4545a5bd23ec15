//! The table of comparisons: each variant with its baseline, and with itself in other runs.

use maud::{Markup, html};
use underload_record::comparison::{Comparison, compare_two};
use underload_record::schema::RunRecord;

use super::parts::{Column, NOTHING, folded_if, table_of};
use crate::settings::is_same_variant;
use crate::subject::Subject;
use crate::words::significant;

/// Metric of two runs of one scenario.
const BETWEEN_RUNS: &str = "load.rtt.p99";

pub(super) fn section(subjects: &[Subject<'_>], is_many: bool) -> Markup {
    let Some(first) = subjects.first() else { return html! {} };
    let record: &RunRecord = &first.run.record;
    let own = || subjects.iter().filter(|subject| subject.run_number == 0);
    let between = |own: &Subject<'_>| {
        let others = subjects.iter().filter(|it| it.run_number > 0 && is_same_variant(own, it));
        let of = |it: &Subject<'_>| {
            let both = ((&it.run.record, &*it.variant.name), (record, &*own.variant.name));
            let mut comparison = compare_two(both.0, both.1, BETWEEN_RUNS)?;
            comparison.variant.clone_from(&it.name);
            Some(comparison)
        };
        others.filter_map(of).collect::<Vec<Comparison>>()
    };
    let between: Vec<Comparison> = own().flat_map(between).collect();
    let all: Vec<&Comparison> = record.comparisons.iter().chain(&between).collect();
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
        (folded_if(is_many, "All comparisons", table_of(&columns, &all)))
    }
}

fn effect(comparison: &Comparison) -> String {
    let Some(range) = comparison.range else { return NOTHING.to_owned() };
    let high = range.high.map_or("∞".to_owned(), significant);
    format!("{} to {high}", significant(range.low))
}
