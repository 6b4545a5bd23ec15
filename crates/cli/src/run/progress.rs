//! How far the run is, on stderr: a bar on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use underload_report::schema::{LatencyMeasure, Phase, TrialRecord, Validity};

/// The progress of a run's trials.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    trials: usize,
}

impl Progress {
    /// Of a run of so many trials, which will about take so long where that is known.
    pub fn start(trials: usize, estimate: Option<Duration>) -> Self {
        let bar = ProgressBar::new(trials as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed_precise} {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        let progress = Self { bar, trials };
        let plural = if trials == 1 { "" } else { "s" };
        let time = estimate.map_or(String::new(), |time| format!(", about {}", words(time)));
        progress.say(&format!("{trials} trial{plural}{time}"));
        progress.bar.enable_steady_tick(Duration::from_millis(500));
        progress
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// What is under way now; not kept.
    pub fn show(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A trial is finished.
    pub fn finished(&self, trial: &TrialRecord) {
        self.bar.inc(1);
        let TrialRecord { index, arm, repeat, .. } = trial;
        let latency = headline(trial).map_or(String::new(), |text| format!(": {text}"));
        let verdict = match &trial.validity {
            Validity::Valid => String::new(),
            Validity::Invalid { reasons } => {
                let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                format!(" INVALID: {}", reasons.join("; "))
            }
        };
        let (done, of, repeat) = (index + 1, self.trials, repeat + 1);
        self.say(&format!("[{done}/{of}] {arm} #{repeat}{latency}{verdict}"));
    }

    /// Takes the bar off the screen.
    pub fn end(&self) {
        self.bar.finish_and_clear();
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
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let latency = latency.distribution?;
    let (p50, p99) = (milliseconds(latency.p50_ns), milliseconds(latency.p99_ns));
    Some(format!("{word} latency p50 {p50:.1} ms, p99 {p99:.1} ms"))
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
    fn durations_read_well() {
        for (seconds, text) in
            [(0.4, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (112.0, "1 min 52 s")]
        {
            assert_eq!(words(Duration::from_secs_f64(seconds)), text);
        }
    }
}
