//! Progress of a run on stderr: a bar on a terminal, otherwise lines.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use underload_record::schema::{Distribution, Phase, Quantile, TrialRecord};
use underload_report::one_line;
use underload_run::Progress;
use underload_scenario::Scenario;
use underload_terminal::console::{self, note, warning};

use crate::present::print_line;

#[derive(Debug)]
pub struct Terminal {
    /// Hidden before the first trial, too.
    bar: ProgressBar,
    all: usize,
    done: usize,
    /// Number of done trials that were not in the cache.
    computed: usize,
    start: Instant,
    /// Time of the last line.
    reported: Instant,
}

/// Longer runs print a line every [`BETWEEN_LINES`] instead of one per trial.
const MOST_LINES: usize = 100;
pub const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// A bar for `length` units, hidden by --quiet and without a terminal.
pub fn bar(length: u64) -> ProgressBar {
    let bar = if console::is_quiet() { ProgressBar::hidden() } else { ProgressBar::new(length) };
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed_precise} {msg}")
    {
        bar.set_style(style);
    }
    bar
}

impl Progress for Terminal {
    fn world(&mut self, scenario: &Scenario, world: &str) {
        note!("{}: {}", scenario.name, one_line(&scenario.title));
        note!("{world}");
    }

    fn start(&mut self, trials: usize, estimate: Option<Duration>) {
        *self = Self { bar: bar(trials as u64), all: trials, ..Self::new() };
        let time = estimate.map_or(String::new(), |time| format!(", about {}", words(time)));
        self.say(&format!("{}{time}", console::count(trials, "trial")));
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn say(&mut self, line: &str) {
        print_line(&self.bar, line);
    }

    fn warn(&mut self, line: &str) {
        if self.bar.is_hidden() {
            warning!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    fn show(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn computed(&mut self, computed: usize) {
        self.computed += computed;
    }

    fn finished(&mut self, trial: &TrialRecord) {
        self.bar.inc(1);
        self.done += 1;
        let is_brief = self.all > MOST_LINES && !console::is_verbose();
        if is_brief && trial.validity.is_valid() {
            self.report();
            return;
        }
        let TrialRecord { variant, repeat, .. } = trial;
        let latency = headline(trial).map_or(String::new(), |text| format!(": {text}"));
        let verdict = if trial.validity.is_valid() {
            String::new()
        } else {
            format!(" INVALID: {}", trial.validity.reasons_in_words().join("; "))
        };
        // Counts done trials instead of using the trial's number, which starts higher in a resumed
        // run.
        let (done, all, repeat) = (self.done, self.all, repeat + 1);
        self.say(&format!("[{done}/{all}] {variant} #{repeat}{latency}{verdict}"));
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
        let found = self.done.saturating_sub(self.computed);
        if found > 0 {
            note!("{found} of {} came from the cache", console::count(self.done, "trial"));
        }
    }
}

impl Terminal {
    pub fn new() -> Self {
        let now = Instant::now();
        let bar = ProgressBar::hidden();
        Self { bar, all: 0, done: 0, computed: 0, start: now, reported: now }
    }

    fn report(&mut self) {
        let left = remaining(self.start.elapsed(), self.computed, self.all - self.done);
        let left = left.map_or(String::new(), |left| format!(", about {} left", words(left)));
        self.bar.set_message(left.trim_start_matches(", ").to_owned());
        if self.bar.is_hidden() && self.reported.elapsed() >= BETWEEN_LINES {
            self.reported = Instant::now();
            note!("[{}/{}]{left}", self.done, self.all);
        }
    }
}

/// Formats the working latency of a trial, or its idle latency if the trial has no load.
fn headline(trial: &TrialRecord) -> Option<String> {
    let (word, latency) = match trial.headline(Phase::Load) {
        Some(latency) => ("working", latency),
        None => ("idle", trial.headline(Phase::Idle)?),
    };
    Some(format!("{word} latency {}", quantiles(&latency.distribution?)))
}

/// Formats `p50 12.3 ms, p99 45.6 ms`, or the highest percentile for which the samples suffice.
fn quantiles(latency: &Distribution) -> String {
    let milliseconds = |ns: i64| ns as f64 / 1e6;
    let p50 = milliseconds(latency.p50_ns);
    match latency.highest_told() {
        (Quantile::P50, _) => format!("p50 {p50:.1} ms"),
        (high, ns) => format!("p50 {p50:.1} ms, {} {:.1} ms", high.name(), milliseconds(ns)),
    }
}

/// Estimates the time for `left` trials from the computed ones, as if none of them were in the
/// cache. `None` before enough are computed.
fn remaining(elapsed: Duration, computed: usize, left: usize) -> Option<Duration> {
    const FEWEST: usize = 10;
    let known = computed >= FEWEST && elapsed >= Duration::from_secs(1);
    known.then(|| elapsed.mul_f64(left as f64 / computed as f64))
}

/// Formats a duration such as `1 min 52 s`.
pub fn words(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_estimated_from_computed_trials() {
        let ten_seconds = Duration::from_secs(10);
        assert_eq!(remaining(ten_seconds, 100, 50), Some(Duration::from_secs(5)));
        assert_eq!(remaining(ten_seconds, 9, 50), None);
        assert_eq!(remaining(Duration::from_millis(900), 100, 50), None);
    }

    #[test]
    fn a_line_has_no_percentile_of_too_few_samples() {
        let of = |count| {
            let latency = Distribution {
                count,
                p50_ns: 12_300_000,
                p90_ns: 40_000_000,
                p95_ns: 43_000_000,
                p99_ns: 45_600_000,
                ..Distribution::default()
            };
            quantiles(&latency)
        };
        assert_eq!(of(500), "p50 12.3 ms, p99 45.6 ms");
        assert_eq!(of(499), "p50 12.3 ms, p95 43.0 ms");
        assert_eq!(of(99), "p50 12.3 ms, p90 40.0 ms");
        assert_eq!(of(49), "p50 12.3 ms");
    }

    #[test]
    fn durations_read_well() {
        for (seconds, text) in
            [(0.4, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (112.0, "1 min 52 s")]
        {
            assert_eq!(words(Duration::from_secs_f64(seconds)), text);
        }
    }
}
