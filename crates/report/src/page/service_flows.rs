//! Queues with service flows: flows that queue protection moved away, and the latency histograms
//! that a DOCSIS device reports.

use maud::{Markup, html};
use underload_record::schema::{Direction, LatencyHistogram, Sanction, VariantBottleneck};

use super::parts::{head, table, unit_head, variant_row, words_head};
use crate::subject::Subject;
use crate::words::{count, ms, significant, thousands};

pub(super) fn section(subjects: &[Subject<'_>]) -> Markup {
    html! { (sanctions(subjects)) (histograms(subjects)) }
}

/// Maximum number of flows per queue; the run's record has all.
const SHOWN_FLOWS: usize = 20;

/// Renders the moved flows; empty if there are none.
fn sanctions(subjects: &[Subject<'_>]) -> Markup {
    let mut rows = Vec::new();
    for subject in subjects {
        let of_variant: Vec<Markup> = hops(subject)
            .flat_map(|queue| sanction_rows(subject, queue.direction, &queue.hop))
            .collect();
        if !of_variant.is_empty() {
            rows.push(variant_row(subject, 6));
            rows.extend(of_variant);
        }
    }
    if rows.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("queue")) (words_head("flow")) (unit_head("sent away", "packets"))
        (unit_head("first", "s")) (unit_head("last", "s")) (unit_head("highest score", "ms"))
    };
    html! {
        h2 { "Sent away from the low latency queue" } "\n"
        p.note {
            "Queue protection (RFC 9957) sends packets of flows that keep the low latency queue "
            "long to the classic one. Packets are of all phases and valid trials; first and last "
            "count from the start of a trial. A flow's score is the time in which it drains."
        }
        "\n"
        (table("Flows sent away from the low latency queue", &head, &rows))
    }
}

fn sanction_rows(subject: &Subject<'_>, direction: Direction, hop: &str) -> Vec<Markup> {
    let sanctions = subject.summary.sanctions(direction, hop);
    let row = |(position, sanction): (usize, &Sanction)| {
        let seconds = |ns: u64| significant(ns as f64 / 1e9);
        html! {
            tr {
                td.text { @if position == 0 { (place(direction, hop)) } }
                td.text { (sanction.flow) }
                td { (thousands(sanction.packets)) }
                td { (seconds(sanction.first_ns)) }
                td { (seconds(sanction.last_ns)) }
                td { (ms(sanction.highest_score_ns)) }
            }
        }
    };
    let mut rows: Vec<Markup> = sanctions.iter().take(SHOWN_FLOWS).enumerate().map(row).collect();
    if let Some(more) = sanctions.len().checked_sub(SHOWN_FLOWS).filter(|more| *more > 0) {
        let words = format!("and {} more", count(more, "flow"));
        rows.push(html! { tr { td.text {} td.text colspan="5" { (words) } } });
    }
    rows
}

fn place(direction: Direction, hop: &str) -> String {
    if hop.is_empty() { direction.to_string() } else { format!("{direction} {hop}") }
}

/// Returns the queues of both directions, each over its widest window.
fn hops<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a VariantBottleneck> {
    let summary = subject.summary;
    [Direction::Up, Direction::Down].into_iter().flat_map(|direction| summary.hops(direction))
}

/// Renders a table per set of bins; empty if no queue has a histogram.
fn histograms(subjects: &[Subject<'_>]) -> Markup {
    let mut by_edges: Vec<(&[u64], Vec<Markup>)> = Vec::new();
    for subject in subjects {
        for queue in hops(subject) {
            for histogram in &queue.latency_histograms {
                let row = histogram_row(subject, queue, histogram);
                let edges = &histogram.edges_ns[..];
                match by_edges.iter_mut().find(|(known, _)| *known == edges) {
                    Some((_, rows)) => rows.push(row),
                    None => by_edges.push((edges, vec![row])),
                }
            }
        }
    }
    if by_edges.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Latency histograms" } "\n"
        p.note {
            "As a DOCSIS device reports them for each service flow (TLV 40.6): percent of the "
            "packets sent by the time that they waited, in the load phase of all valid trials."
        }
        "\n"
        @for (number, (edges, rows)) in (1..).zip(&by_edges) {
            (table(&format!("Latency histograms, bins {number}"), &bins_head(edges), rows))
        }
    }
}

fn bins_head(edges: &[u64]) -> Markup {
    let below = edges.first().map(|edge| format!("< {} ms", ms(*edge)));
    let between = edges.windows(2).map(|pair| format!("{}–{}", ms(pair[0]), ms(pair[1])));
    let above = edges.last().map(|edge| format!("≥ {}", ms(*edge)));
    let names: Vec<String> = below.into_iter().chain(between).chain(above).collect();
    html! {
        (words_head("service flow"))
        (head("packets"))
        @for name in &names { (head(name)) }
    }
}

fn histogram_row(
    subject: &Subject<'_>,
    queue: &VariantBottleneck,
    bins: &LatencyHistogram,
) -> Markup {
    let total = bins.packets.iter().fold(0_u64, |sum, packets| sum.saturating_add(*packets));
    let place = place(queue.direction, &queue.hop);
    html! {
        tr {
            td.text { (subject.name) ", " (place) ", " (bins.service_flow) }
            td { (thousands(total)) }
            @for packets in &bins.packets {
                td { (significant(*packets as f64 * 100.0 / (total as f64).max(1.0))) }
            }
        }
    }
}
