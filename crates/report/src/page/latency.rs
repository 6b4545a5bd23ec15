//! Idle and working latency: the overview plot and the table of every variant.

use maud::{Markup, html};
use underload_record::schema::{
    LatencyMeasure, Phase, Quantile, VariantInside, VariantLatency, VariantMetric,
};

use super::figures::{Headings, figures};
use super::parts::{
    Least, NOTHING, below, folded, folded_if, head, phase_words, range, signed, table, unit_head,
    variant_row, wide_head, words_head,
};
use crate::plot::Plot;
use crate::subject::{Subject, usual_highest};
use crate::words::{metric_words, significant, thousands};

/// Maximum number of metrics of an application in the table of latencies; its own table has all.
const SHOWN_METRICS: usize = 3;

/// Columns after the first: quantiles, samples, lost, window.
const COLUMNS: usize = Quantile::ALL.len() + 3;

pub(super) fn section(subjects: &[Subject<'_>], overview: &[Plot], is_many: bool) -> Markup {
    let mut rows = Vec::new();
    let strong = Strong::new(subjects.iter().filter_map(|it| it.summary.headline(Phase::Load)));
    for subject in subjects {
        let phases = [Phase::Idle, Phase::Load];
        let latencies: Vec<&VariantLatency> =
            phases.into_iter().filter_map(|phase| subject.summary.headline(phase)).collect();
        let describe = |latency: &VariantLatency| phase_words(latency.phase).to_owned();
        rows.extend(variant_rows(subject, &latencies, strong, describe));
        if !latencies.is_empty() {
            rows.extend(subject.summary.inside.iter().map(|it| inside_row(it, strong)));
        }
        rows.extend(application_rows(subject, latencies.is_empty()));
    }
    // Neither servers that answer no probes nor invalid trials have latencies to show.
    if rows.is_empty() {
        return html! {};
    }
    let numbers = table("Idle and working latency", &heads("phase", strong), &rows);
    html! {
        h2 { "Idle and working latency" } "\n"
        p.note {
            "Round-trip time of a probe sent on a fixed schedule: idle before the load begins, "
            "working while it is steady. Quantiles pool every sample of a variant's valid trials "
            "(nearest rank). The small line is the interval of the trials' own quantiles, which holds "
            "the median of many trials with about 95 %."
            @if subjects.iter().any(|subject| !subject.summary.inside.is_empty()) {
                " Inside the load: the smoothed round trips of the TCP flows that are the load, "
                "read every 10 ms while it is steady, mean of the trials' quantiles. They exceed "
                "those of the probe where each flow has a queue."
            }
        }
        "\n"
        (folded_if(is_many, "All variants as bars", figures(overview, Headings::Hidden)))
        (folded_if(is_many, "All variants in numbers", numbers))
        (other_probes(subjects))
    }
}

/// Renders the numbers of each application below its latency.
fn application_rows(subject: &Subject<'_>, needs_variant: bool) -> Vec<Markup> {
    let applications = subject.applications();
    let mut rows = Vec::new();
    if needs_variant && !applications.is_empty() {
        rows.push(variant_row(subject, COLUMNS + 1));
    }
    rows.extend(applications.into_iter().map(|(flow, metrics)| application_row(flow, &metrics)));
    rows
}

fn application_row(flow: &str, metrics: &[&VariantMetric]) -> Markup {
    html! {
        tr {
            td.text { (flow) }
            // On a narrow screen this text wraps at the screen's edge, not at that of the wider table.
            td.text colspan=(COLUMNS) { div.fit {
                @if let Some(first) = metrics.first() {
                    b { (metric_words(first)) }
                    @if let Some(range) = range(&first.value, 1.0, Least::None) {
                        " " span.interval { (range) }
                    }
                }
                @for metric in metrics.iter().take(SHOWN_METRICS).skip(1) {
                    ", " (metric_words(metric))
                }
            } }
        }
    }
}

/// Renders every other probe, delay and phase, folded.
fn other_probes(subjects: &[Subject<'_>]) -> Markup {
    let mut rows = Vec::new();
    let strong = Strong::new(subjects.iter().flat_map(|subject| &subject.summary.latencies));
    for subject in subjects {
        let headline = |latency: &VariantLatency| {
            subject.summary.headline(latency.phase).is_some_and(|headline| headline == latency)
                && matches!(latency.phase, Phase::Idle | Phase::Load)
        };
        let others: Vec<&VariantLatency> =
            subject.summary.latencies.iter().filter(|latency| !headline(latency)).collect();
        rows.extend(variant_rows(subject, &others, strong, |latency| {
            let mut words = vec![latency.probe.as_str(), phase_words(latency.phase)];
            if latency.measure != LatencyMeasure::RoundTrip {
                words.push(latency.measure.name());
            }
            if latency.closed_loop {
                words.push("closed loop: its percentiles hide load");
            }
            words.join(", ")
        }));
    }
    if rows.is_empty() {
        return html! {};
    }
    let caption = "Every probe, delay and phase";
    folded(caption, false, &table(caption, &heads("probe and phase", strong), &rows))
}

fn heads(what: &str, strong: Strong) -> Markup {
    html! {
        (words_head(what))
        @for quantile in Quantile::ALL {
            @if strong.has(quantile) { (unit_head(quantile.name(), "ms")) }
            @else { (wide_head(quantile.name())) }
        }
        (head("samples")) (head("lost")) (unit_head("window", "s"))
    }
}

fn variant_rows(
    subject: &Subject<'_>,
    latencies: &[&VariantLatency],
    strong: Strong,
    describe: impl Fn(&VariantLatency) -> String,
) -> Vec<Markup> {
    if latencies.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![variant_row(subject, COLUMNS + 1)];
    for latency in latencies {
        rows.push(html! {
            tr {
                td.text { (describe(latency)) }
                @for quantile in Quantile::ALL {
                    td class=[strong.width(quantile)] {
                        (quantile_value(latency, quantile, strong))
                    }
                }
                td { (thousands(latency.sent)) }
                td {
                    (thousands(latency.lost))
                    @if latency.trials_all_lost > 0 {
                        (below(&format!("all in {} trials", latency.trials_all_lost)))
                    }
                }
                td { (significant(latency.window_ns as f64 / 1e9)) }
            }
        });
        if !latency.time_weighted.is_empty() {
            rows.push(time_weighted_row(latency, strong));
        }
    }
    rows
}

/// Renders the round trips of the connections that load a direction.
fn inside_row(inside: &VariantInside, strong: Strong) -> Markup {
    let cell = |quantile| {
        let Some(interval) = inside.told_over_repeats(quantile) else {
            return html! { (NOTHING) };
        };
        let value = signed(interval.mean / 1e6);
        html! {
            @if strong.has(quantile) { b { (value) } } @else { (value) }
            @if let Some(range) = range(interval, 1e6, Least::Zero) { (below(&range)) }
        }
    };
    html! {
        tr {
            td.text { "inside the load, " (inside.direction.name()) }
            @for quantile in Quantile::ALL {
                td class=[strong.width(quantile)] { (cell(quantile)) }
            }
            td { (thousands(inside.values)) }
            td {} td {}
        }
    }
}

/// Renders the quantiles of a closed-loop probe weighted by time.
fn time_weighted_row(latency: &VariantLatency, strong: Strong) -> Markup {
    let mean = |quantile| {
        let interval = latency.time_weighted.get(&quantile);
        interval.map_or(NOTHING.to_owned(), |interval| significant(interval.mean / 1e6))
    };
    html! {
        tr {
            td.text { (latency.probe) ", by time" }
            @for quantile in Quantile::ALL {
                td class=[strong.width(quantile)] { (mean(quantile)) }
            }
            td {} td {} td {}
        }
    }
}

/// The columns that are shown on phones: the median and the usual highest percentile.
#[derive(Clone, Copy)]
struct Strong(Quantile);

impl Strong {
    fn new<'a>(latencies: impl Iterator<Item = &'a VariantLatency>) -> Self {
        Self(usual_highest(latencies))
    }

    fn has(self, quantile: Quantile) -> bool {
        quantile == Quantile::P50 || quantile == self.0
    }

    /// Returns the class of a cell that is hidden on phones.
    fn width(self, quantile: Quantile) -> Option<&'static str> {
        (!self.has(quantile)).then_some("wide-only")
    }
}

/// Formats ns as ms with a typographic minus sign.
fn in_ms(ns: i64) -> String {
    signed(ns as f64 / 1e6)
}

fn quantile_value(latency: &VariantLatency, quantile: Quantile, strong: Strong) -> Markup {
    let Some(value_ns) = latency.told_ns(quantile) else { return html! { (NOTHING) } };
    let interval = latency.told_over_repeats(quantile);
    let least =
        if latency.measure == LatencyMeasure::RoundTrip { Least::Zero } else { Least::None };
    let interval = interval.and_then(|interval| range(interval, 1e6, least));
    html! {
        @if strong.has(quantile) { b { (in_ms(value_ns)) } } @else { (in_ms(value_ns)) }
        @if let Some(interval) = interval { (below(&interval)) }
    }
}
