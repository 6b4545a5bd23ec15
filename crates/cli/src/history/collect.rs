//! From run directories to numbers over time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use underload_record::history::{Followed, Point, Trend, Windows};
use underload_record::schema::{
    LatencyMeasure, LatencySummary, Phase, Quantile, RunRecord, TrialRecord, World,
};
use underload_store::RunDir;

/// Runs that are read, the latest ones: five years, every two hours.
const RUNS_MAX: usize = 22_000;

/// The runs of a directory.
#[derive(Debug, Default)]
pub struct Collected {
    /// Oldest first.
    pub runs: Vec<Run>,
    /// What could not be used, each with its reason.
    pub skipped: Vec<String>,
}

/// A step's name and its values.
pub type Step = (String, Vec<(Followed, f64)>);

/// One run.
#[derive(Debug)]
pub struct Run {
    /// When it began, seconds since 1970.
    pub at_s: i64,
    /// Valid steps.
    pub steps: Vec<Step>,
}

impl Collected {
    /// Every number of every step over time, steps by name.
    pub fn trends(&self, windows: Windows) -> Vec<Trend> {
        let names: BTreeSet<&str> = self
            .runs
            .iter()
            .flat_map(|run| run.steps.iter().map(|(name, _)| name.as_str()))
            .collect();
        let mut points: BTreeMap<(usize, &str), Vec<Point>> = BTreeMap::new();
        for run in &self.runs {
            for (name, values) in &run.steps {
                for (followed, value) in values {
                    let position = Followed::ALL.iter().position(|it| it == followed).unwrap_or(0);
                    let point = Point { at_s: run.at_s, value: *value };
                    points.entry((position, name.as_str())).or_default().push(point);
                }
            }
        }
        let mut trends = Vec::new();
        for (position, followed) in Followed::ALL.into_iter().enumerate() {
            for name in &names {
                if let Some(points) = points.remove(&(position, *name)) {
                    trends.push(Trend::of(name, followed, points, windows));
                }
            }
        }
        trends
    }
}

/// Reads all runs below a directory; what is broken is named and left out.
pub fn collect(directory: &Path) -> anyhow::Result<Collected> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.retain(|path| path.file_name().is_none_or(|name| name != "plots"));
    folders.sort();
    let mut collected = Collected::default();
    if folders.len() > RUNS_MAX {
        let older = folders.len() - RUNS_MAX;
        collected.skipped.push(format!("the {older} oldest of {} runs", folders.len()));
        folders.drain(..older);
    }
    if folders.is_empty() {
        bail!("{}: there are no runs in it", directory.display());
    }
    let mut records = Vec::new();
    for folder in folders {
        let read = RunDir::read_record(&folder).map_err(anyhow::Error::from);
        match read.and_then(|record| started(&record).map(|at_s| (at_s, record))) {
            Ok(found) => records.push(found),
            Err(error) => {
                // Errors of files name them already.
                let words = format!("{error:#}");
                let name = folder.display().to_string();
                let is_named = words.contains(&name);
                collected.skipped.push(if is_named { words } else { format!("{name}: {words}") });
            }
        }
    }
    // Steps of several presets may share a name.
    let presets: BTreeSet<String> =
        records.iter().map(|(_, record)| record.scenario.name.clone()).collect();
    for (at_s, record) in &records {
        let prefix = if presets.len() > 1 {
            format!("{}: ", record.scenario.name.trim_start_matches("measure/"))
        } else {
            String::new()
        };
        let valid = record.trials.iter().filter(|trial| trial.validity.is_valid());
        let steps: Vec<Step> =
            valid.map(|trial| (format!("{prefix}{}", trial.arm), values(trial))).collect();
        if steps.is_empty() {
            let time = &record.host.started;
            collected.skipped.push(format!("the run of {time}: none of its steps is valid"));
        } else {
            collected.runs.push(Run { at_s: *at_s, steps });
        }
    }
    collected.runs.sort_by_key(|run| run.at_s);
    Ok(collected)
}

/// When a measured run began.
fn started(record: &RunRecord) -> anyhow::Result<i64> {
    if record.world != World::Measured {
        bail!("it is simulated or emulated, and no line");
    }
    let time: jiff::Timestamp =
        record.host.started.parse().context("the time at which it began")?;
    Ok(time.as_second())
}

fn values(trial: &TrialRecord) -> Vec<(Followed, f64)> {
    let headline = |phase: Phase| {
        let is = |it: &&LatencySummary| {
            it.measure == LatencyMeasure::RoundTrip && !it.closed_loop && it.window.phase == phase
        };
        trial.latencies.iter().find(is)?.distribution
    };
    let (idle, load) = (headline(Phase::Idle), headline(Phase::Load));
    let ms = |ns: u64| ns as f64 / 1e6;
    let sum = |rates: Vec<u64>| (!rates.is_empty()).then(|| rates.iter().sum::<u64>() as f64 / 1e6);
    let up = trial.flows.iter().filter_map(|flow| flow.goodput_up_bit_per_s).collect();
    let down = trial.flows.iter().filter_map(|flow| flow.goodput_down_bit_per_s).collect();
    let enough = load.filter(|found| found.count >= Quantile::P99.fewest_samples());
    let found = [
        (Followed::LoadP99, enough.map(|found| ms(found.p99_ns))),
        (Followed::LoadP50, load.map(|found| ms(found.p50_ns))),
        (Followed::IdleP50, idle.map(|found| ms(found.p50_ns))),
        (Followed::GoodputUp, sum(up)),
        (Followed::GoodputDown, sum(down)),
    ];
    found.into_iter().filter_map(|(followed, value)| Some((followed, value?))).collect()
}
