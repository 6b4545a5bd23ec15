//! What a sweep would be, from a few of its trials.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use underload_report::{one_line, thousands};
use underload_run::sweep::Sweep;
use underload_store::sweep::SweepRows;
use underload_terminal::console::{count, warning};

use crate::progress::words;

/// What is told.
#[derive(Debug, Serialize)]
struct Estimate<'a> {
    scenario: &'a str,
    axes: Vec<AxisEstimate<'a>>,
    arms: usize,
    cells: u64,
    repeats: u64,
    trials: u64,
    /// Whether cells end once they know enough: then there may be fewer trials.
    may_stop: bool,
    /// Seconds on so many workers; null where no trial could be tried out.
    seconds: Option<f64>,
    workers: usize,
    /// Metrics that no trial had that was tried out.
    unknown_metrics: Vec<&'a str>,
    /// What went wrong in the first that failed.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct AxisEstimate<'a> {
    name: &'a str,
    /// Null where any value between two may be drawn.
    values: Option<u64>,
}

/// Units that are tried out, spread over the sweep, and how long that may take.
const TRIED: u64 = 24;
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// Tells what a sweep would be.
pub fn tell(sweep: &Sweep, workers: Option<NonZeroUsize>, json: bool) -> anyhow::Result<()> {
    let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = workers.map_or_else(cores, NonZeroUsize::get);
    let (mut tried, mut missing) = (0_u64, asked_for(sweep));
    let mut error = None;
    let begun = Instant::now();
    let units = sweep.units();
    for number in 0..TRIED.min(units) {
        // From both ends and between.
        let unit = number * (units - 1) / (TRIED.min(units) - 1).max(1);
        let rows = sweep.compute(unit..unit + 1, &AtomicBool::new(false));
        tried += 1;
        missing.retain(|name| !has(&rows, name));
        error = error.or_else(|| first_error(&rows));
        if begun.elapsed() >= LONG_ENOUGH {
            break;
        }
    }
    let each = begun.elapsed().as_secs_f64() / tried.max(1) as f64;
    let axis = |(name, values)| AxisEstimate { name, values };
    let estimate = Estimate {
        scenario: &sweep.scenario().name,
        axes: sweep.axes().map(axis).collect(),
        arms: sweep.scenario().arms.len(),
        cells: sweep.cells(),
        repeats: sweep.repeats(),
        trials: sweep.trials(),
        may_stop: sweep.file().stop.is_some(),
        seconds: (tried > 0).then(|| each * units as f64 / workers as f64),
        workers,
        unknown_metrics: missing,
        error,
    };
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &estimate).context("writing JSON")?;
        return writeln!(out).context("writing JSON");
    }
    for line in estimate.lines() {
        writeln!(out, "{}", one_line(&line)).context("writing the estimate")?;
    }
    for name in &estimate.unknown_metrics {
        warning!("warning: no trial that was tried out has the metric `{}`", one_line(name));
    }
    if let Some(error) = &estimate.error {
        warning!("warning: a trial failed: {}", one_line(error));
    }
    Ok(())
}

impl Estimate<'_> {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("scenario: {}, {}", self.scenario, count(self.arms, "arm"))];
        for AxisEstimate { name, values } in &self.axes {
            let values = values
                .map_or("drawn from a range".to_owned(), |values| count(values as usize, "value"));
            lines.push(format!("axis {name}: {values}"));
        }
        let most = if self.may_stop { "at most " } else { "" };
        let (cells, trials) = (thousands(self.cells), thousands(self.trials));
        let repeats = thousands(self.repeats);
        lines
            .push(format!("cells: {cells}, each of {most}{repeats} trials: {most}{trials} in all"));
        if let Some(seconds) = self.seconds {
            let time = match Duration::try_from_secs_f64(seconds) {
                Ok(time) if time < Duration::from_secs(1) => "less than 1 s".to_owned(),
                Ok(time) => format!("about {}", words(time)),
                Err(_) => "longer than anybody waits".to_owned(),
            };
            lines.push(format!("time: {time} on {}", count(self.workers, "worker")));
        }
        lines
    }
}

/// The metrics that the file names.
fn asked_for(sweep: &Sweep) -> Vec<&str> {
    let metrics = sweep.columns().metrics.iter().map(String::as_str);
    metrics.filter(|metric| sweep.requests(metric)).collect()
}

/// Whether a row has a metric.
fn has(rows: &SweepRows, metric: &str) -> bool {
    let values = rows.column::<Option<f64>>(metric).unwrap_or_default();
    values.iter().any(Option::is_some)
}

fn first_error(rows: &SweepRows) -> Option<String> {
    rows.texts("error")?.into_iter().flatten().next().map(str::to_owned)
}
