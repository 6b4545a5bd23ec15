//! How far the run is, on stderr: a bar on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use underload_record::schema::{Distribution, LatencyMeasure, Phase, Quantile, TrialRecord};
use underload_report::one_line;
use underload_run::Progress;
use underload_run::scenario::Scenario;
use underload_terminal::console::{self, note, warning};

/// Shows the progress of a run on stderr.
#[derive(Debug, Default)]
pub struct Terminal {
    trials: Option<Trials>,
}

/// The trials of a run under way.
#[derive(Debug)]
struct Trials {
    bar: ProgressBar,
    of: usize,
    done: usize,
    /// Of the trials done, those that were not found in the cache.
    computed: usize,
    start: Instant,
    said: Instant,
}

/// Trials that get a line each, at most; a longer run says now and then how far it is.
const MOST_LINES: usize = 100;
const BETWEEN_LINES: Duration = Duration::from_secs(5);

impl Progress for Terminal {
    fn world(&mut self, scenario: &Scenario, world: &str) {
        note!("{}: {}", scenario.name, one_line(&scenario.title));
        note!("{world}");
    }

    fn start(&mut self, trials: usize, estimate: Option<Duration>) {
        self.trials = Some(Trials::start(trials, estimate));
    }

    fn say(&mut self, line: &str) {
        match &self.trials {
            Some(trials) => trials.say(line),
            None => note!("{line}"),
        }
    }

    fn warn(&mut self, line: &str) {
        match &self.trials {
            Some(trials) if !trials.bar.is_hidden() => trials.bar.println(line),
            _ => warning!("{line}"),
        }
    }

    fn show(&mut self, what: &str) {
        if let Some(trials) = &self.trials {
            trials.bar.set_message(what.to_owned());
        }
    }

    fn computed(&mut self, computed: usize) {
        if let Some(trials) = &mut self.trials {
            trials.computed += computed;
        }
    }

    fn finished(&mut self, trial: &TrialRecord) {
        if let Some(trials) = &mut self.trials {
            trials.finished(trial);
        }
    }

    fn end(&mut self) {
        if let Some(trials) = &self.trials {
            trials.end();
        }
    }
}

impl Trials {
    /// Of a run of so many trials, which will about take so long where that is known.
    fn start(trials: usize, estimate: Option<Duration>) -> Self {
        let hidden = console::is_quiet();
        let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(trials as u64) };
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed_precise} {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        let now = Instant::now();
        let progress = Self { bar, of: trials, done: 0, computed: 0, start: now, said: now };
        let time = estimate.map_or(String::new(), |time| format!(", about {}", words(time)));
        progress.say(&format!("{}{time}", console::count(trials, "trial")));
        progress.bar.enable_steady_tick(Duration::from_millis(500));
        progress
    }

    /// A line that stays.
    fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            note!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// A trial is finished.
    fn finished(&mut self, trial: &TrialRecord) {
        self.bar.inc(1);
        self.done += 1;
        let is_brief = self.of > MOST_LINES && !console::is_verbose();
        if is_brief && trial.validity.is_valid() {
            self.say_how_far();
            return;
        }
        let TrialRecord { arm, repeat, .. } = trial;
        let latency = headline(trial).map_or(String::new(), |text| format!(": {text}"));
        let verdict = if trial.validity.is_valid() {
            String::new()
        } else {
            format!(" INVALID: {}", trial.validity.reasons_in_words().join("; "))
        };
        // Counted here: a run that is resumed begins in the middle of its trials.
        let (done, of, repeat) = (self.done, self.of, repeat + 1);
        self.say(&format!("[{done}/{of}] {arm} #{repeat}{latency}{verdict}"));
    }

    fn say_how_far(&mut self) {
        let left = remaining(self.start.elapsed(), self.computed, self.of - self.done);
        let left = left.map_or(String::new(), |left| format!(", about {} left", words(left)));
        self.bar.set_message(left.trim_start_matches(", ").to_owned());
        if self.bar.is_hidden() && self.said.elapsed() >= BETWEEN_LINES {
            self.said = Instant::now();
            note!("[{}/{}]{left}", self.done, self.of);
        }
    }

    /// Takes the bar off the screen.
    fn end(&self) {
        self.bar.finish_and_clear();
        let found = self.done.saturating_sub(self.computed);
        if found > 0 {
            note!("{found} of {} came from the cache", console::count(self.done, "trial"));
        }
    }
}

/// The working latency of a trial in a few words; the idle one where nothing loads.
fn headline(trial: &TrialRecord) -> Option<String> {
    let of = |phase| {
        trial.latencies.iter().find(|latency| {
            !latency.closed_loop
                && latency.measure == LatencyMeasure::RoundTrip
                && latency.window.phase == phase
        })
    };
    let (word, latency) = match of(Phase::Load) {
        Some(latency) => ("working", latency),
        None => ("idle", of(Phase::Idle)?),
    };
    Some(format!("{word} latency {}", quantiles(&latency.distribution?)))
}

/// `p50 12.3 ms, p99 45.6 ms`, or the highest percentile that the samples tell.
fn quantiles(latency: &Distribution) -> String {
    let milliseconds = |ns: i64| ns as f64 / 1e6;
    let p50 = milliseconds(latency.p50_ns);
    match latency.highest_told() {
        (Quantile::P50, _) => format!("p50 {p50:.1} ms"),
        (high, ns) => format!("p50 {p50:.1} ms, {} {:.1} ms", high.name(), milliseconds(ns)),
    }
}

/// How long the trials left will take if each takes as long as those computed so far: the cache may
/// hold some, which nobody knows before looking. `None` until there is something to go by.
fn remaining(elapsed: Duration, computed: usize, left: usize) -> Option<Duration> {
    const FEWEST: usize = 10;
    let known = computed >= FEWEST && elapsed >= Duration::from_secs(1);
    known.then(|| elapsed.mul_f64(left as f64 / computed as f64))
}

/// `1 min 52 s`.
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
    fn the_remaining_time_goes_by_what_was_computed() {
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
