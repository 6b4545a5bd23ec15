//! How far a sweep is, on stderr: a bar on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use underload_report::thousands;
use underload_run::sweep::{Sweep, SweepProgress};
use underload_terminal::console::{self, note};

use crate::progress::words;

const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows the progress of a sweep.
#[derive(Debug)]
pub struct Terminal {
    bar: ProgressBar,
    /// `cell` or `trial`.
    unit: &'static str,
    cells: u64,
    units: u64,
    stored: u64,
    computed: u64,
    trials: u64,
    start: Instant,
    said: Instant,
}

impl Terminal {
    /// Of a sweep that is about to begin.
    pub fn new(sweep: &Sweep) -> Self {
        let unit = if sweep.file().stop.is_some() { "cell" } else { "trial" };
        let now = Instant::now();
        let (cells, units) = (sweep.cells(), sweep.units());
        let bar = ProgressBar::hidden();
        Self { bar, unit, cells, units, stored: 0, computed: 0, trials: 0, start: now, said: now }
    }

    /// `1234 trials/s, about 5 min left`.
    fn pace(&self) -> String {
        let elapsed = self.start.elapsed();
        if self.computed == 0 || elapsed < Duration::from_secs(1) {
            return String::new();
        }
        let seconds = elapsed.as_secs_f64();
        let left = self.units.saturating_sub(self.stored + self.computed);
        let left = elapsed.mul_f64(left as f64 / self.computed as f64);
        let cells = self.computed as f64 / seconds * self.cells as f64 / self.units as f64;
        let trials = self.trials as f64 / seconds;
        let (cells, trials) = (rate(cells), rate(trials));
        format!("{cells} cells/s, {trials} trials/s, about {} left", words(left))
    }
}

/// Some per second.
fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.2}") } else { thousands(rate.round() as u64) }
}

impl SweepProgress for Terminal {
    fn start(&mut self, stored: u64, units: u64) {
        (self.stored, self.units) = (stored, units);
        (self.computed, self.trials) = (0, 0);
        self.start = Instant::now();
        let cells = thousands(self.cells);
        if stored == 0 {
            note!("{cells} cells, {} {}s", thousands(units), self.unit);
        } else {
            let (stored, units) = (thousands(stored), thousands(units));
            note!("{cells} cells; going on after {stored} of {units} {}s", self.unit);
        }
        if !console::is_quiet() {
            self.bar = ProgressBar::new(units);
            let style =
                ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed_precise} {msg}");
            if let Ok(style) = style {
                self.bar.set_style(style);
            }
            self.bar.set_position(stored);
        }
    }

    fn say(&mut self, line: &str) {
        if self.bar.is_hidden() {
            note!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    fn computed(&mut self, units: u64, trials: u64) {
        self.computed += units;
        self.trials += trials;
        self.bar.set_position(self.stored + self.computed);
    }

    fn tick(&mut self) {
        if !self.bar.is_hidden() {
            self.bar.set_message(self.pace());
        } else if self.said.elapsed() >= BETWEEN_LINES {
            self.said = Instant::now();
            let (done, of) = (thousands(self.stored + self.computed), thousands(self.units));
            note!("[{done}/{of}] {}", self.pace());
        }
    }

    fn merging(&mut self) {
        note!("writing the tables");
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
