//! Progress of a sweep on stderr: a bar on a terminal, otherwise lines.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use underload_report::thousands;
use underload_run::sweep::{Sweep, SweepProgress};
use underload_terminal::console::note;

use crate::present::print_line;
use crate::progress::{BETWEEN_LINES, bar, words};

#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    cells: u64,
    trials: u64,
    /// Trials on the disk at the start, and once no more are computed; `None` before the start.
    stored: Option<u64>,
    computed: u64,
    start: Instant,
    /// Time of the last line.
    reported: Instant,
}

impl Terminal {
    pub fn new(sweep: &Sweep) -> Self {
        let now = Instant::now();
        Self {
            bar: ProgressBar::hidden(),
            cells: sweep.manifest.cells,
            trials: sweep.manifest.trials(),
            stored: None,
            computed: 0,
            start: now,
            reported: now,
        }
    }

    /// Returns the count of trials on the disk, such as `12 of 64 trials`; `None` if the directory
    /// was not opened.
    pub fn stored(&self) -> Option<String> {
        let trials = thousands(self.trials);
        self.stored.map(|stored| format!("{} of {trials} trials", thousands(stored)))
    }

    fn done(&self) -> u64 {
        self.stored.unwrap_or_default() + self.computed
    }

    /// Formats the speed, such as `12 cells/s, 1234 trials/s, about 5 min left`.
    fn pace(&self) -> String {
        let elapsed = self.start.elapsed();
        if self.computed == 0 || elapsed < Duration::from_secs(1) {
            return String::new();
        }
        let left = self.trials.saturating_sub(self.done());
        let left = elapsed.mul_f64(left as f64 / self.computed as f64);
        let trials = self.computed as f64 / elapsed.as_secs_f64();
        let cells = trials * self.cells as f64 / self.trials as f64;
        let (cells, trials) = (rate(cells), rate(trials));
        format!("{cells} cells/s, {trials} trials/s, about {} left", words(left))
    }
}

fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.2}") } else { thousands(rate.round() as u64) }
}

impl SweepProgress for Terminal {
    fn start(&mut self, stored: u64, trials: u64) {
        (self.stored, self.trials, self.computed) = (Some(stored), trials, 0);
        self.start = Instant::now();
        let [cells, done, all] = [self.cells, stored, trials].map(thousands);
        if stored == 0 {
            note!("{cells} cells, {all} trials");
        } else {
            note!("{cells} cells; continuing after {done} of {all} trials");
        }
        self.bar = bar(trials);
        self.bar.set_position(self.done());
    }

    fn say(&mut self, line: &str) {
        print_line(&self.bar, line);
    }

    fn computed(&mut self) {
        self.computed += 1;
        self.bar.set_position(self.done());
    }

    fn tick(&mut self) {
        if !self.bar.is_hidden() {
            self.bar.set_message(self.pace());
        } else if self.reported.elapsed() >= BETWEEN_LINES {
            self.reported = Instant::now();
            let (done, all) = (thousands(self.done()), thousands(self.trials));
            note!("[{done}/{all}] {}", self.pace());
        }
    }

    fn merging(&mut self) {
        note!("writing the tables");
    }

    fn end(&mut self, stored: u64) {
        (self.stored, self.computed) = (Some(stored), 0);
        self.bar.finish_and_clear();
    }
}
