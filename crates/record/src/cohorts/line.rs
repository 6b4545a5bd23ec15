//! The lines of a plan, with the sums of their results.

use std::collections::BTreeMap;

use crate::stats;

#[derive(Debug, Clone, Default)]
pub struct Lines {
    pub cohorts: Vec<String>,
    /// Share of all lines that the plan draws for each cohort; `None` if it does not draw them.
    pub planned: Vec<Option<f64>>,
    /// The cohort that the others are compared with.
    pub reference: Option<usize>,
    pub series: Vec<SeriesName>,
    /// Name and possible values of each property that divides the lines into strata.
    pub dimensions: Vec<(String, Vec<String>)>,
    /// The possible outcomes of runs.
    pub outcomes: Vec<String>,
    /// Ratio of a bin's upper edge to its lower edge; the upper edge of bin 0 is 1 microsecond.
    pub bin_ratio: f64,
    /// Number of bins in the latency histogram of a series.
    pub bins: usize,
    /// Devices with successful runs in more than one cohort: a line in each.
    pub moved: u64,
    /// The lines, in an order that is unrelated to their results.
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesName {
    pub step: String,
    /// `latency` (no load), `upload`, `download`.
    pub load: &'static str,
    /// DSCP of the probes; 0 inside the load.
    pub dscp: u8,
    /// Whether the values are round trips of the loading connections instead of probes.
    pub is_inside: bool,
}

/// A line within its cohort.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Index into the list [`Lines::cohorts`].
    pub cohort: usize,
    /// Number of successful runs.
    pub tests: u32,
    /// Number of runs by index into [`Lines::outcomes`].
    pub outcomes: Vec<u32>,
    /// Results of the line, by index into [`Lines::series`].
    pub series: BTreeMap<usize, LineSeries>,
    /// Days of a loaded series, by index into [`Lines::series`].
    pub classes: BTreeMap<usize, ClassDays>,
    /// Percent of the tier that a step used, by the step: sum over tests, and number of tests.
    pub uses: BTreeMap<String, (f64, u32)>,
    /// Lowest Quality of Outcome under a load, percent, by step: sum over tests, and their number.
    pub qualities: BTreeMap<String, (f64, u32)>,
}

/// A series of one line: sums over its tests, microseconds.
#[derive(Debug, Clone, Default)]
pub struct LineSeries {
    /// Tests with an answered probe.
    pub tests: u32,
    /// Sum of the tests' means.
    pub means_us: f64,
    /// Sum of the tests' longest round trips.
    pub maxima_us: f64,
    pub sent: u64,
    pub lost: u64,
    /// Round trips by bin, ascending.
    pub bins: Vec<(u16, u32)>,
    /// Sum of the tests' means, and number of tests, by the indices in [`Lines::dimensions`] of the
    /// property and of its value. A line may have several values of one property.
    pub strata: BTreeMap<(usize, usize), (f64, u32)>,
}

/// Days of one class of a line: sums over days.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClassDays {
    pub days: u32,
    /// Days whose p99 under load or idle median fell on a lost probe.
    pub days_lost: u32,
    /// Sum of the idle medians.
    pub idle_p50_us: f64,
    /// Sum of the p99s under load.
    pub loaded_p99_us: f64,
    /// Sum of the lag reductions relative to the reference class.
    pub cut_percent: f64,
    /// Days with both classes.
    pub cut_days: u32,
}

impl Lines {
    pub(super) fn of_cohort(&self, place: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.cohort == place)
    }

    /// Returns the idle series with the same marking as this one, or any idle series.
    pub(super) fn idle_of(&self, place: usize) -> Option<usize> {
        let own = self.series.get(place)?;
        if own.load == IDLE {
            return None;
        }
        let is_idle = |name: &SeriesName| name.load == IDLE;
        let same_marking =
            self.series.iter().position(|name| is_idle(name) && name.dscp == own.dscp);
        same_marking.or_else(|| self.series.iter().position(is_idle))
    }

    /// Returns the quantile `share` of the probes that a line sent, where a lost probe counts as
    /// [`LOST_MS`]; `None` if it sent no probe.
    pub(super) fn quantile_ms(&self, series: &LineSeries, share: f64) -> Option<f64> {
        let answered: u64 = series.bins.iter().map(|(_, count)| u64::from(*count)).sum();
        let sent = answered.saturating_add(series.lost);
        let (rank, mut seen) = (stats::rank(sent as usize, share) as u64, 0);
        let found = series.bins.iter().find(|(_, count)| {
            seen += u64::from(*count);
            seen >= rank
        });
        let middle = 2.0 / (1.0 + self.bin_ratio);
        let ms = |bin: u16| self.bin_ratio.powi(i32::from(bin)) * middle / 1e3;
        (sent > 0).then(|| found.map_or(LOST_MS, |(bin, _)| ms(*bin)))
    }
}

impl LineSeries {
    /// Returns the mean of the tests' means, ms.
    pub(super) fn mean_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.means_us / f64::from(self.tests) / 1e3)
    }

    pub(super) fn maximum_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.maxima_us / f64::from(self.tests) / 1e3)
    }
}

/// A lost probe as a round trip: longer than any answer, and finite, so that ratios rank well.
pub(super) const LOST_MS: f64 = 1e24;

/// Name of the load of a step that loads nothing.
pub(super) const IDLE: &str = "latency";
