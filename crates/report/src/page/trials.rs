//! A table of all trials, and whether they are valid.

use maud::{Markup, html};
use underload_record::schema::{
    Distribution, LatencySummary, Phase, Quantile, TrialRecord, Validity, World,
};

use super::parts::{NOTHING, folded, head, table, unit_head, words_head};
use crate::subject::run_suffix;
use crate::words::{mbit, ms, thousands};
use underload_store::RunData;

/// Most trials in the table; `trials.parquet` has more.
pub(crate) const MOST_TRIALS: usize = 200;

pub(super) fn section(runs: &[RunData]) -> Markup {
    let mut rows = Vec::new();
    // A measurement of a real line has no seed.
    let has_seeds = runs.iter().any(|run| run.record.world != World::Measured);
    for (number, run) in runs.iter().enumerate() {
        let suffix = run_suffix(runs, number);
        let listed = run.record.trials.iter().take(MOST_TRIALS);
        rows.extend(listed.map(|trial| row(trial, &suffix, has_seeds)));
    }
    let head = html! {
        (head("trial")) (words_head("variant")) (head("repeat"))
        @if has_seeds { (head("seed")) }
        (unit_head("load p50", "ms")) (unit_head("load p99", "ms"))
        (unit_head("goodput up/down", "Mbit/s"))
        (unit_head("lateness p99", "emulator/prober, ms")) (words_head("counts?"))
    };
    let all: usize = runs.iter().map(|run| run.record.trials.len()).sum();
    let content = html! {
        @if runs.iter().any(|run| run.record.trials.len() > MOST_TRIALS) {
            p.note { "The first " (MOST_TRIALS) " of each run; all are in trials.parquet." } "\n"
        }
        (table(&head, &rows))
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

fn row(trial: &TrialRecord, suffix: &str, has_seed: bool) -> Markup {
    let up: Vec<u64> = trial.flows.iter().filter_map(|flow| flow.goodput_up_bit_per_s).collect();
    let down: Vec<u64> =
        trial.flows.iter().filter_map(|flow| flow.goodput_down_bit_per_s).collect();
    let timeliness = &trial.timeliness;
    html! {
        tr {
            td { (trial.index) }
            td.text { (trial.variant) (suffix) }
            td { (trial.repeat) }
            @if has_seed { td { (trial.seed) } }
            td { (load(trial).map_or(NOTHING.to_owned(), |load| ms(load.p50_ns))) }
            td { (highest(load(trial))) }
            td { (sum(&up)) " / " (sum(&down)) }
            td {
                (highest(timeliness.emulator_lateness)) " / " (highest(timeliness.prober_lateness))
            }
            td.text.wide[!trial.validity.is_valid()] { (verdict(&trial.validity)) }
        }
    }
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
