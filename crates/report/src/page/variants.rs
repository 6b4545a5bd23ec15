//! A table with a line per variant, for runs of many variants. The page's script sorts and filters it.

use maud::{Markup, html};
use underload_record::schema::{Direction, Phase, Quantile};

use super::parts::{NOTHING, sortable, unit_head, words_head};
use crate::subject::{Subject, usual_highest};
use crate::words::{mbit, ms, significant};

/// A number of each variant. A column without any number is not shown.
struct Column {
    name: String,
    unit: String,
    cells: Vec<String>,
}

pub(super) fn section(subjects: &[Subject<'_>]) -> Markup {
    let high = usual_highest(subjects.iter().filter_map(|it| it.summary.headline(Phase::Load)));
    let quantile = |phase, quantile: Quantile| {
        move |subject: &Subject<'_>| {
            let latency = subject.summary.headline(phase)?;
            latency.told_ns(quantile).map(ms)
        }
    };
    let rate = |direction| {
        move |subject: &Subject<'_>| {
            let carried = subject.summary.throughput(direction)?;
            let rate = carried.goodput_bit_per_s.or(carried.link_bit_per_s)?;
            Some(mbit(rate.mean))
        }
    };
    let of = |name: &str, unit: &str, number: &dyn Fn(&Subject<'_>) -> Option<String>| Column {
        name: name.to_owned(),
        unit: unit.to_owned(),
        cells: subjects
            .iter()
            .map(|subject| number(subject).unwrap_or_else(|| NOTHING.to_owned()))
            .collect(),
    };
    let columns = [
        of(high.name(), "ms under load", &quantile(Phase::Load, high)),
        of("p50", "ms under load", &quantile(Phase::Load, Quantile::P50)),
        of("idle p50", "ms", &quantile(Phase::Idle, Quantile::P50)),
        of(&application(subjects), "", &first_number),
        of("up", "Mbit/s", &rate(Direction::Up)),
        of("down", "Mbit/s", &rate(Direction::Down)),
        of("dropped", "%", &dropped),
    ];
    let is_known = |column: &&Column| column.cells.iter().any(|cell| cell != NOTHING);
    let known: Vec<&Column> = columns.iter().filter(is_known).collect();
    let heads = html! {
        (words_head("variant"))
        @for column in &known { (unit_head(&column.name, &column.unit)) }
    };
    let row = |(number, subject): (usize, &Subject<'_>)| {
        html! {
            tr {
                th.text title=(subject.variant.label) { (subject.name) }
                @for column in &known { td { (column.cells[number]) } }
            }
        }
    };
    let rows: Vec<Markup> = subjects.iter().enumerate().map(row).collect();
    html! {
        h2 { "All variants" } "\n"
        p.note {
            "Round-trip time of the headline probe, goodput of all flows under load (of the link, "
            "where no flow was counted), drops of the packets offered to the busiest queue."
        }
        "\n"
        (sortable("All variants", &heads, &rows))
    }
}

/// Returns the heading of the first application's first number: `call mos`.
fn application(subjects: &[Subject<'_>]) -> String {
    let named = |subject: &Subject<'_>| {
        let applications = subject.applications();
        let (flow, metrics) = applications.first()?;
        Some(format!("{flow} {}", metrics.first()?.name.replace('_', " ")))
    };
    subjects.iter().find_map(named).unwrap_or_default()
}

/// Formats the first number of the first application: `4.21 MOS`.
fn first_number(subject: &Subject<'_>) -> Option<String> {
    let applications = subject.applications();
    let metric = *applications.first()?.1.first()?;
    Some(format!("{} {}", significant(metric.value.mean), metric.unit))
}

fn dropped(subject: &Subject<'_>) -> Option<String> {
    let load = subject.summary.bottlenecks.iter().filter(|queue| queue.phase == Phase::Load);
    let percent = load
        .filter(|queue| queue.offered.packets > 0)
        .map(|queue| queue.dropped_packets() as f64 * 100.0 / queue.offered.packets as f64);
    percent.reduce(f64::max).map(significant)
}
