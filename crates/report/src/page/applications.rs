//! Numbers of applications, and folded away the probes' counters.

use maud::{Markup, html};
use underload_record::schema::VariantMetric;

use super::parts::{Least, folded, folded_if, mean, table, unit_head, variant_name, words_head};
use crate::subject::Subject;

/// Maximum number of variants with a column each; more have a row each.
const MOST_VARIANT_COLUMNS: usize = 5;

pub(super) fn section(subjects: &[Subject<'_>], is_many: bool) -> Markup {
    let is_probe = |number: &Number<'_>| {
        let flows = subjects.iter().flat_map(Subject::trials).flat_map(|trial| &trial.flows);
        flows.into_iter().any(|known| known.name == number.flow && is_counter(&known.kind))
    };
    let mut numbers: Vec<Number<'_>> = Vec::new();
    for metric in subjects.iter().flat_map(|subject| &subject.summary.metrics) {
        let number = Number::of(metric);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    let (probes, applications): (Vec<_>, Vec<_>) = numbers.into_iter().partition(is_probe);
    html! {
        @if !applications.is_empty() {
            h2 { "What the applications felt" } "\n"
            (folded_if(is_many, "All applications", tables("What the applications felt", subjects, &applications)))
        }
        @if !probes.is_empty() {
            @let caption = "Counters of the probes";
            (folded(caption, false, &tables(caption, subjects, &probes)))
        }
    }
}

/// Kinds of flow that are not applications: probes, and results of a measured line as a whole.
fn is_counter(kind: &str) -> bool {
    matches!(kind, "probe" | "line")
}

/// A number that a flow counts or computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number<'a> {
    flow: &'a str,
    name: &'a str,
    unit: &'a str,
}

impl<'a> Number<'a> {
    fn of(metric: &'a VariantMetric) -> Self {
        Self { flow: &metric.flow, name: &metric.name, unit: &metric.unit }
    }

    fn words(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Renders the number of one variant.
    fn cell(&self, subject: &Subject<'_>) -> Markup {
        let found = subject.summary.metrics.iter().find(|metric| Number::of(metric) == *self);
        html! { td { (mean(found.map(|metric| &metric.value), 1.0, Least::None)) } }
    }
}

fn tables(caption: &str, subjects: &[Subject<'_>], numbers: &[Number<'_>]) -> Markup {
    if subjects.len() <= MOST_VARIANT_COLUMNS {
        return column_per_variant(caption, subjects, numbers);
    }
    let mut flows: Vec<&str> = numbers.iter().map(|number| number.flow).collect();
    flows.dedup();
    let of_flow = |flow| numbers.iter().filter(move |number| number.flow == flow).copied();
    html! {
        @for flow in flows {
            @let caption = format!("{caption}: {flow}");
            (row_per_variant(&caption, subjects, flow, &of_flow(flow).collect::<Vec<_>>()))
        }
    }
}

fn column_per_variant(caption: &str, subjects: &[Subject<'_>], numbers: &[Number<'_>]) -> Markup {
    let head = html! {
        (words_head("flow")) (words_head("what"))
        @for subject in subjects { th { (variant_name(subject)) } }
    };
    let row = |number: &Number<'_>| {
        html! {
            tr {
                td.text { (number.flow) }
                td.text { (number.words()) " " span.interval { (number.unit) } }
                @for subject in subjects { (number.cell(subject)) }
            }
        }
    };
    table(caption, &head, &numbers.iter().map(row).collect::<Vec<_>>())
}

fn row_per_variant(
    caption: &str,
    subjects: &[Subject<'_>],
    flow: &str,
    numbers: &[Number<'_>],
) -> Markup {
    let head = html! {
        (words_head(flow))
        @for number in numbers { (unit_head(&number.words(), number.unit)) }
    };
    let row = |subject: &Subject<'_>| {
        html! {
            tr {
                th.text { (variant_name(subject)) }
                @for number in numbers { (number.cell(subject)) }
            }
        }
    };
    table(caption, &head, &subjects.iter().map(row).collect::<Vec<_>>())
}
