//! Bytes carried, dropped and marked by bottlenecks, and the sojourn in their queues.

use maud::{Markup, PreEscaped, html};
use underload_record::schema::{Direction, Interval, Phase, Quantile, VariantBottleneck};

use super::parts::{
    Least, NOTHING, folded_if, mean, phase_words, table, unit_head, variant_row, words_head,
};
use crate::subject::Subject;
use crate::words::{shares, significant, thousands};

pub(super) fn section(subjects: &[Subject<'_>], is_many: bool) -> Markup {
    let mut rows = Vec::new();
    for subject in subjects {
        let directions = [Direction::Up, Direction::Down].into_iter();
        let of_variant: Vec<Row> =
            directions.flat_map(|direction| direction_rows(subject, direction)).collect();
        if !of_variant.is_empty() {
            rows.push((subject, of_variant));
        }
    }
    if rows.is_empty() {
        return html! {};
    }
    // The queue of a real line is unknown, so columns without values are left out.
    let cells = || rows.iter().flat_map(|(_, rows)| rows);
    let is_known = |column: usize| cells().any(|row| row.cells[column].0 != NOTHING);
    let known: Vec<usize> = (0..COLUMNS.len()).filter(|column| is_known(*column)).collect();
    let head = html! {
        (words_head("bottleneck"))
        @for column in &known {
            @let (name, unit) = COLUMNS[*column];
            (unit_head(name, unit))
        }
    };
    let rows: Vec<Markup> = rows
        .iter()
        .flat_map(|(subject, rows)| {
            let name = variant_row(subject, known.len() + 1);
            std::iter::once(name).chain(rows.iter().map(|row| row.markup(&known)))
        })
        .collect();
    html! {
        h2 { "Throughput and queues" } "\n"
        p.note {
            "Goodput is the payload of all flows in the load phase; link is what the bottleneck "
            "sent. Drops and marks are totals of all valid trials with their share of the packets "
            "offered. Sojourn is the time in the queue, without the packet's own transmission, "
            "mean over repeats."
            @if subjects.iter().any(has_shares) { " A : B is A's goodput over B's." }
        }
        "\n"
        (folded_if(is_many, "All queues", table("Throughput and queues", &head, &rows)))
    }
}

fn has_shares(subject: &Subject<'_>) -> bool {
    subject.summary.throughputs.iter().any(|carried| !carried.ratios.is_empty())
}

/// The columns after the first, with their units.
const COLUMNS: [(&str, &str); 7] = [
    ("goodput", "Mbit/s"),
    ("link", "Mbit/s"),
    ("in use", "%"),
    ("dropped", "packets, %"),
    ("marked", "packets, %"),
    ("sojourn p50", "ms"),
    ("p99", "ms"),
];

struct Row {
    words: String,
    cells: [PreEscaped<String>; COLUMNS.len()],
}

impl Row {
    fn markup(&self, known: &[usize]) -> Markup {
        html! {
            tr {
                td.text.wide { (self.words) }
                @for column in known { td { (self.cells[*column]) } }
            }
        }
    }
}

/// Returns a row per hop of a direction; a single row if traffic was carried without a queue.
fn direction_rows(subject: &Subject<'_>, direction: Direction) -> Vec<Row> {
    let hops = subject.summary.hops(direction);
    if hops.is_empty() {
        let carried = subject.summary.throughput(direction);
        return carried.map(|_| row(subject, direction, None)).into_iter().collect();
    }
    hops.into_iter().map(|queue| row(subject, direction, Some(queue))).collect()
}

fn row(subject: &Subject<'_>, direction: Direction, queue: Option<&VariantBottleneck>) -> Row {
    let carried = subject.summary.throughput(direction);
    let goodput = carried.and_then(|carried| carried.goodput_bit_per_s);
    // A link in a chain has its own rate; a single link has the direction's.
    let (link, used) = match queue.filter(|queue| !queue.hop.is_empty()) {
        Some(hop) => (hop.link_bit_per_s, hop.utilisation_percent),
        None => carried.map_or((None, None), |it| (it.link_bit_per_s, it.utilisation_percent)),
    };
    let rate = |rate: Option<Interval>| mean(rate.as_ref(), 1e6, Least::Zero);
    let cells = [
        html! { (rate(goodput)) (lines(&shares(carried))) },
        rate(link),
        mean(used.as_ref(), 1.0, Least::Zero),
        html! {
            (share(queue, VariantBottleneck::dropped_packets))
            @if let Some(queue) = queue { (lines(&reasons(queue))) }
        },
        html! {
            (share(queue, VariantBottleneck::marked_packets))
            @if let Some(queue) = queue { (lines(&remarks(queue))) }
        },
        sojourn(subject, direction, queue, Quantile::P50),
        sojourn(subject, direction, queue, Quantile::P99),
    ];
    Row { words: described(direction, queue), cells }
}

fn described(direction: Direction, queue: Option<&VariantBottleneck>) -> String {
    let Some(queue) = queue else { return format!("{direction}stream") };
    let VariantBottleneck { hop, link, phase, queue, .. } = queue;
    let gap = if hop.is_empty() { "" } else { " " };
    format!("{direction}{gap}{hop}: {queue} into {link}, {}", phase_words(*phase))
}

/// Renders the sojourn in the load phase, whatever phase the row shows.
fn sojourn(
    subject: &Subject<'_>,
    direction: Direction,
    queue: Option<&VariantBottleneck>,
    quantile: Quantile,
) -> Markup {
    let hop = queue.map_or("", |queue| &queue.hop);
    let is_load = |other: &&VariantBottleneck| {
        (other.direction, other.phase, other.hop.as_str()) == (direction, Phase::Load, hop)
    };
    let load = subject.summary.bottlenecks.iter().find(is_load).or(queue);
    mean(load.and_then(|queue| queue.sojourn.get(&quantile)), 1e6, Least::Zero)
}

fn share(queue: Option<&VariantBottleneck>, part: impl Fn(&VariantBottleneck) -> u64) -> String {
    let Some(queue) = queue else { return NOTHING.to_owned() };
    let percent = part(queue) as f64 * 100.0 / (queue.offered.packets as f64).max(1.0);
    format!("{}, {}", thousands(part(queue)), significant(percent))
}

fn reasons(queue: &VariantBottleneck) -> Vec<String> {
    let dropped = queue.drops.iter().filter(|(_, count)| count.packets > 0);
    dropped.map(|(reason, count)| format!("{} {reason}", thousands(count.packets))).collect()
}

fn remarks(queue: &VariantBottleneck) -> Vec<String> {
    let remarked = queue.remarked.iter();
    remarked.map(|(rule, changed)| format!("{} by {rule}", thousands(*changed))).collect()
}

fn lines(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            br;
            span.interval {
                @for (position, line) in lines.iter().enumerate() {
                    @if position > 0 { br; }
                    (line)
                }
            }
        }
    }
}
