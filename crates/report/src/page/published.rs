//! Measured values beside published ones.

use maud::{Markup, html};
use underload_record::schema::{Expectation, Verdict};

use super::parts::{below, head, table, words_head};
use crate::subject::run_suffix;
use underload_store::RunData;

use crate::published;

pub(super) fn section(runs: &[RunData]) -> Markup {
    let mut rows = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        rows.extend(run.record.expectations.iter().map(|expected| row(expected, &suffix)));
    }
    if rows.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("number")) (head("published")) (head("ours")) (words_head("unit"))
        (words_head("outcome")) (words_head("source and note"))
    };
    html! {
        h2 { "Against published numbers" } "\n"
        p.note { "A miss stays a miss: bands come from the source, not from this run." } "\n"
        (table("Published numbers and ours", &head, &rows))
    }
}

fn row(expected: &Expectation, suffix: &str) -> Markup {
    let class = match expected.verdict {
        Verdict::Met => "met",
        Verdict::NotMeasured | Verdict::NotComparable => "unmeasured",
        Verdict::Missed { .. } => "missed",
    };
    let unit = if expected.unit == "1" { "" } else { &expected.unit };
    let remarks = [&expected.note, &expected.cause].into_iter().filter(|text| !text.is_empty());
    html! {
        tr {
            th.text.wide { (published::what(expected)) (suffix) }
            td { (published::published(expected)) }
            td { b { (published::ours(expected)) } }
            td.text { (unit) }
            td.text { span class=(class) { (published::outcome(expected)) } }
            td.text.wide {
                (expected.source)
                @for remark in remarks { (below(remark)) }
            }
        }
    }
}
