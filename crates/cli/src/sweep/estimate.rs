//! Estimates size and time of a sweep from a few of its trials.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use underload_report::{one_line, thousands};
use underload_run::sweep::{Sweep, Tried};
use underload_terminal::console::{self, count, warning};

use crate::progress::words;

pub fn print(sweep: &Sweep, workers: Option<NonZeroUsize>) -> anyhow::Result<()> {
    let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = workers.map_or_else(cores, NonZeroUsize::get);
    let tried = Tried::new(sweep);
    let mut text = size(sweep);
    text.push(format!("time: {} on {}", time(&tried, sweep, workers), count(workers, "worker")));
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
        let values =
            values.map_or("drawn from a range".to_owned(), |values| count(values, "value"));
        lines.push(format!("axis {name}: {values}"));
    }
    let [cells, repeats, trials] =
        [manifest.cells, manifest.repeats, manifest.trials()].map(thousands);
    lines.push(format!("cells: {cells}, each of {repeats} trials: {trials} in all"));
    lines
}

fn time(tried: &Tried<'_>, sweep: &Sweep, workers: usize) -> String {
    let seconds = tried.seconds * sweep.manifest.trials() as f64 / workers as f64;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time < Duration::from_secs(1) => "less than 1 s".to_owned(),
        Ok(time) => format!("about {}", words(time)),
        Err(_) => "more than a human lifetime".to_owned(),
    }
}
