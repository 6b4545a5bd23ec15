//! Estimates size and time of a sweep from a few of its trials.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use underload_report::{one_line, thousands};
use underload_run::sweep::Sweep;
use underload_terminal::console::{self, count, warning};

use crate::progress::words;

/// Number of units to compute, spread over the sweep.
const TRIED: u64 = 24;
/// Computes no further unit after this time.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

pub fn print(sweep: &Sweep, workers: Option<NonZeroUsize>) -> anyhow::Result<()> {
    let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = workers.map_or_else(cores, NonZeroUsize::get);
    let tried = Tried::new(sweep);
    let mut text = size(sweep);
    text.push(format!("time: {} on {}", tried.time(sweep, workers), count(workers, "worker")));
    console::print(&text.iter().map(|line| one_line(line) + "\n").collect::<String>())?;
    for name in &tried.missing {
        warning!("warning: none of the computed trials has the metric `{}`", one_line(name));
    }
    if let Some(error) = &tried.error {
        warning!("warning: a trial failed: {}", one_line(error));
    }
    Ok(())
}

/// Returns the number of values, cells and trials, a line each.
fn size(sweep: &Sweep) -> Vec<String> {
    let (scenario, manifest) = (&sweep.scenario, &sweep.manifest);
    let variants = count(scenario.variants.len(), "variant");
    let mut lines = vec![format!("scenario: {}, {variants}", scenario.name)];
    for (name, values) in sweep.axes() {
        let values = values
            .map_or("drawn from a range".to_owned(), |values| count(values as usize, "value"));
        lines.push(format!("axis {name}: {values}"));
    }
    let most = if sweep.file.stop.is_some() { "at most " } else { "" };
    let [cells, repeats, trials] =
        [manifest.cells, manifest.repeats, manifest.trials()].map(thousands);
    lines.push(format!("cells: {cells}, each of {most}{repeats} trials: {most}{trials} in all"));
    lines
}

/// The results of a few units.
struct Tried<'a> {
    /// Seconds of a unit on one worker.
    seconds: f64,
    /// Metrics that the sweep file names and none of the trials has.
    missing: Vec<&'a str>,
    /// The first error of a trial.
    error: Option<String>,
}

impl<'a> Tried<'a> {
    /// Computes units from the first to the last.
    fn new(sweep: &'a Sweep) -> Self {
        let metrics = || sweep.manifest.columns.metrics.iter().map(String::as_str);
        let mut missing: Vec<&str> = metrics().filter(|metric| sweep.requests(metric)).collect();
        let (mut error, mut tried) = (None, 0);
        let (go_on, begun, units) =
            (AtomicBool::new(false), Instant::now(), sweep.manifest.units());
        while tried < TRIED.min(units) && begun.elapsed() < LONG_ENOUGH {
            let unit = tried * (units - 1) / (TRIED.min(units) - 1).max(1);
            for row in sweep.compute(unit..unit + 1, &go_on).flat_map(|unit| unit.rows) {
                let has = |name: &&str| {
                    metrics()
                        .zip(&row.metrics)
                        .any(|(known, value)| known == *name && value.is_some())
                };
                missing.retain(|name| !has(name));
                error = error.or(row.error);
            }
            tried += 1;
        }
        Self { seconds: begun.elapsed().as_secs_f64() / tried as f64, missing, error }
    }

    fn time(&self, sweep: &Sweep, workers: usize) -> String {
        let seconds = self.seconds * sweep.manifest.units() as f64 / workers as f64;
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time < Duration::from_secs(1) => "less than 1 s".to_owned(),
            Ok(time) => format!("about {}", words(time)),
            Err(_) => "more than a human lifetime".to_owned(),
        }
    }
}
