//! Estimates size and time of a sweep from a few of its trials.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use serde::Serialize;
use underload_report::{one_line, thousands};
use underload_run::sweep::Sweep;
use underload_terminal::console::{self, count, warning};

use crate::progress::words;

#[derive(Debug, Serialize)]
struct Estimate<'a> {
    scenario: &'a str,
    axes: Vec<AxisEstimate<'a>>,
    variants: usize,
    cells: u64,
    repeats: u64,
    trials: u64,
    /// Whether the sweep has a stopping rule, so that cells may have fewer trials.
    may_stop: bool,
    /// Time on `workers`. `None` if no trial was computed.
    seconds: Option<f64>,
    workers: usize,
    /// Metrics that none of the computed trials has.
    unknown_metrics: Vec<&'a str>,
    /// The first error of a trial.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct AxisEstimate<'a> {
    name: &'a str,
    /// `None` for values that are drawn from a range.
    values: Option<u64>,
}

/// Number of units to compute, spread over the sweep.
const TRIED: u64 = 24;
/// Computes no further unit after this time.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

pub fn print(sweep: &Sweep, workers: Option<NonZeroUsize>, json: bool) -> anyhow::Result<()> {
    let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = workers.map_or_else(cores, NonZeroUsize::get);
    let (mut tried, mut missing) = (0_u64, asked_for(sweep));
    let mut error = None;
    let begun = Instant::now();
    let units = sweep.units();
    for number in 0..TRIED.min(units) {
        // From the first to the last unit.
        let unit = number * (units - 1) / (TRIED.min(units) - 1).max(1);
        let computed = sweep.compute(unit..unit + 1, &AtomicBool::new(false));
        tried += 1;
        for row in computed.iter().flat_map(|unit| &unit.rows) {
            let known = sweep.columns.metrics.iter().zip(&row.metrics);
            let known: Vec<&str> =
                known.filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str()).collect();
            missing.retain(|name| !known.contains(name));
            error = error.or_else(|| row.error.clone());
        }
        if begun.elapsed() >= LONG_ENOUGH {
            break;
        }
    }
    let each = begun.elapsed().as_secs_f64() / tried.max(1) as f64;
    let axis = |(name, values)| AxisEstimate { name, values };
    let estimate = Estimate {
        scenario: &sweep.scenario.name,
        axes: sweep.axes().map(axis).collect(),
        variants: sweep.scenario.variants.len(),
        cells: sweep.cells(),
        repeats: sweep.repeats,
        trials: sweep.trials(),
        may_stop: sweep.file.stop.is_some(),
        seconds: (tried > 0).then(|| each * units as f64 / workers as f64),
        workers,
        unknown_metrics: missing,
        error,
    };
    if json {
        return console::print_json(&estimate);
    }
    let lines = estimate.lines().into_iter();
    console::print(&lines.map(|line| one_line(&line) + "\n").collect::<String>())?;
    for name in &estimate.unknown_metrics {
        warning!("warning: none of the computed trials has the metric `{}`", one_line(name));
    }
    if let Some(error) = &estimate.error {
        warning!("warning: a trial failed: {}", one_line(error));
    }
    Ok(())
}

impl Estimate<'_> {
    fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("scenario: {}, {}", self.scenario, count(self.variants, "variant"))];
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
                Err(_) => "more than a human lifetime".to_owned(),
            };
            lines.push(format!("time: {time} on {}", count(self.workers, "worker")));
        }
        lines
    }
}

/// Returns the metrics that the sweep file names.
fn asked_for(sweep: &Sweep) -> Vec<&str> {
    let metrics = sweep.columns.metrics.iter().map(String::as_str);
    metrics.filter(|metric| sweep.requests(metric)).collect()
}
