//! A table of all trials, and whether they are valid.

use maud::{Markup, html};
use underload_record::schema::{
    Distribution, LatencySummary, Phase, Quantile, TrialRecord, Validity, World,
};

use super::parts::{Column, NOTHING, folded, table_of};
use crate::subject::run_suffix;
use crate::words::{mbit, ms, thousands};
use underload_store::RunData;

/// Maximum number of trials in the table; `trials.parquet` has more.
pub(crate) const MOST_TRIALS: usize = 200;

pub(super) fn section(runs: &[RunData]) -> Markup {
    let mut rows = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        let listed = run.record.trials.iter().take(MOST_TRIALS);
        rows.extend(listed.map(|trial| Row { trial, variant: trial.variant.clone() + &suffix }));
    }
    let all: usize = runs.iter().map(|run| run.record.trials.len()).sum();
    let content = html! {
        @if runs.iter().any(|run| run.record.trials.len() > MOST_TRIALS) {
            p.note { "The first " (MOST_TRIALS) " of each run; all are in trials.parquet." } "\n"
        }
        (table_of("Trials", &columns(runs), &rows))
    };
    // Without a valid trial, the table is all that the reader can see.
    let mut trials = runs.iter().flat_map(|run| &run.record.trials);
    let nothing_counts = !trials.any(|trial| trial.validity.is_valid());
    let summary = match all {
        1 => "The trial".to_owned(),
        _ => format!("All {} trials", thousands(all as u64)),
    };
    html! {
        h2 { "Trials and provenance" } "\n"
        (folded(&summary, nothing_counts, &content))
    }
}

struct Row<'a> {
    trial: &'a TrialRecord,
    /// With the run's suffix if there are several.
    variant: String,
}

fn columns<'a>(runs: &[RunData]) -> Vec<Column<'static, Row<'a>>> {
    type Cells<'c, 'r> = Column<'c, Row<'r>>;
    let mut columns = vec![
        Cells::numbers("trial", |row| row.trial.index),
        Cells::words("variant", |row| row.variant.clone()),
        Cells::numbers("repeat", |row| row.trial.repeat),
    ];
    // A measurement of a real line has no seed.
    if runs.iter().any(|run| run.record.world != World::Measured) {
        columns.push(Cells::numbers("seed", |row| row.trial.seed));
    }
    columns.extend([
        Cells::units("load p50", "ms", |row: &Row<'_>| {
            load(row.trial).map_or(NOTHING.to_owned(), |load| ms(load.p50_ns))
        }),
        Cells::units("load p99", "ms", |row| highest(load(row.trial))),
        Cells::units("goodput up/down", "Mbit/s", |row| {
            let flows = || row.trial.flows.iter();
            let up: Vec<u64> = flows().filter_map(|flow| flow.goodput_up_bit_per_s).collect();
            let down: Vec<u64> = flows().filter_map(|flow| flow.goodput_down_bit_per_s).collect();
            format!("{} / {}", sum(&up), sum(&down))
        }),
        Cells::units("lateness p99", "emulator/prober, ms", |row| {
            let timeliness = &row.trial.timeliness;
            let late = [timeliness.emulator_lateness, timeliness.prober_lateness].map(highest);
            late.join(" / ")
        }),
    ]);
    let mut trials = runs.iter().flat_map(|run| &run.record.trials);
    let verdict = |row: &Row<'_>| verdict(&row.trial.validity);
    columns.push(if trials.any(|trial| !trial.validity.is_valid()) {
        Cells::wide_words("counts?", verdict)
    } else {
        Cells::words("counts?", verdict)
    });
    columns
}

fn load(trial: &TrialRecord) -> Option<Distribution> {
    let mut latencies = trial.latencies.iter();
    let is_load = |it: &&LatencySummary| it.window.phase == Phase::Load && !it.closed_loop;
    latencies.find(is_load)?.distribution
}

/// Formats the 99th percentile, or the highest that has enough samples, with its name.
fn highest(distribution: Option<Distribution>) -> String {
    match distribution.map(|all| all.highest_told()) {
        None => NOTHING.to_owned(),
        Some((Quantile::P99, ns)) => ms(ns),
        Some((other, ns)) => format!("{} ({})", ms(ns), other.name()),
    }
}

fn sum(rates: &[u64]) -> String {
    if rates.is_empty() { NOTHING.to_owned() } else { mbit(rates.iter().sum::<u64>() as f64) }
}

fn verdict(validity: &Validity) -> Markup {
    html! {
        @if validity.is_valid() { "yes" }
        @else { span.missed { "no" } ": " (validity.reasons_in_words().join("; ")) }
    }
}
