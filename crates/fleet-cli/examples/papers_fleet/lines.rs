//! Simulated lines: a scenario's trials as results of runs.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use underload_fleet::bins::Bins;
use underload_fleet::outcome::{SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_record::schema::{Ecn, Phase, Sample, TrialRecord};
use underload_run::{Destination, Settings, run};
use underload_scenario::{Scenario, builtin};

/// A simulated line, and the results of each of its runs.
pub struct SimulatedLine {
    pub variant: String,
    /// The conditions that were drawn for it.
    pub conditions: BTreeMap<String, String>,
    /// The steps of each of its runs.
    pub runs: Vec<Vec<StepResult>>,
}

/// Names of a plan's steps without and under load.
pub struct Steps {
    pub idle: &'static str,
    pub loaded: &'static str,
}

/// Simulates a built-in scenario with the given changes of its text. A line of the
/// scenario is identified by its number; without numbers each trial is a line.
pub fn simulate(
    name: &str,
    changes: &[(&str, String)],
    steps: &Steps,
) -> anyhow::Result<Vec<SimulatedLine>> {
    let mut text = builtin::find(name).context("it is built in")?.text.to_owned();
    for (from, to) in changes {
        ensure!(text.contains(from), "{name} has no {from}");
        text = text.replacen(from, to, 1);
    }
    let scenario = Scenario::parse(&text, name)?;
    let folder = tempfile::tempdir()?;
    let directory = folder.path().join("run");
    let destination = Destination::Directory(directory.clone());
    let settings = Settings { destination, ..Settings::default() };
    run(&scenario, &settings, &mut ())?;
    let data = underload_report::load(&[directory])?;
    let data = data.first().context("a run")?;
    let mut lines: BTreeMap<(String, String), SimulatedLine> = BTreeMap::new();
    for trial in &data.record.trials {
        let number = trial.conditions.get("line");
        let number = number.cloned().unwrap_or_else(|| format!("trial {}", trial.index));
        let line = lines.entry((trial.variant.clone(), number)).or_insert_with(|| SimulatedLine {
            variant: trial.variant.clone(),
            conditions: trial.conditions.clone(),
            runs: Vec::new(),
        });
        line.runs.push(steps_of(trial, data.samples_of(trial.index), steps));
    }
    Ok(lines.into_values().collect())
}

fn steps_of(trial: &TrialRecord, samples: &[Sample], steps: &Steps) -> Vec<StepResult> {
    let bulk = trial.flows.iter().filter(|flow| flow.congestion_control.is_some());
    let goodput: u64 = bulk.filter_map(|flow| flow.goodput_up_bit_per_s).sum();
    let tier =
        trial.conditions.get("tier").and_then(|tier| tier.strip_suffix("mbit")?.parse().ok());
    let tier_percent = tier.map(|mbit: f64| goodput as f64 / mbit / 1e4);
    vec![
        StepResult {
            step: steps.idle.to_owned(),
            inside: None,
            kind: Kind::Latency,
            goodput_bit_per_s: None,
            tier_percent: None,
            grade: None,
            series: series_of(samples, Phase::Idle),
        },
        StepResult {
            step: steps.loaded.to_owned(),
            inside: None,
            kind: Kind::Upload,
            goodput_bit_per_s: Some(goodput),
            tier_percent,
            grade: None,
            series: series_of(samples, Phase::Load),
        },
    ]
}

fn series_of(samples: &[Sample], phase: Phase) -> Vec<SeriesResult> {
    let mut classes: BTreeMap<u8, Vec<Option<u64>>> = BTreeMap::new();
    let is_classic = |sample: &&Sample| sample.marking_sent.ecn == Ecn::NotEct;
    for sample in samples.iter().filter(|sample| sample.phase == phase).filter(is_classic) {
        let rtt_us = sample.rtt_ns.map(|ns| ns / 1_000);
        classes.entry(sample.marking_sent.dscp).or_default().push(rtt_us);
    }
    classes.into_iter().map(|(dscp, round_trips)| of_class(dscp, &round_trips)).collect()
}

fn of_class(dscp: u8, round_trips: &[Option<u64>]) -> SeriesResult {
    let mut answered: Vec<u64> = round_trips.iter().flatten().copied().collect();
    answered.sort_unstable();
    let mut bins = Bins::default();
    for us in &answered {
        bins.add(*us as f64);
    }
    // A lost probe counts as longer than all others.
    let quantile = |share: f64| {
        let rank = (share * round_trips.len() as f64).ceil().max(1.0) as usize;
        answered.get(rank - 1).copied()
    };
    SeriesResult {
        dscp,
        sent: round_trips.len() as u64,
        lost: (round_trips.len() - answered.len()) as u64,
        bins,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        mean_us: answered.iter().sum::<u64>().checked_div(answered.len() as u64),
        max_us: answered.last().copied(),
    }
}
