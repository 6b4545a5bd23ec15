//! The lines of a plan, and what each has shown.

use std::collections::BTreeMap;

use crate::stats;

/// All lines of a plan.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The cohorts, by name.
    pub cohorts: Vec<String>,
    /// The cohort that the others are compared with.
    pub reference: Option<usize>,
    /// The series of probes that lines may have.
    pub series: Vec<SeriesName>,
    /// Name and possible values of each property that divides the lines into strata.
    pub dimensions: Vec<(String, Vec<String>)>,
    /// The ends that runs may come to.
    pub outcomes: Vec<String>,
    /// Ratio of a bin's upper edge to its lower one; the upper edge of bin 0 is 1 microsecond.
    pub bin_ratio: f64,
    /// Number of bins in the latency histogram of a series.
    pub bins: usize,
    /// The lines, in an order that says nothing about them.
    pub lines: Vec<Line>,
}

/// A series of probes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesName {
    /// The step of the run.
    pub step: String,
    /// `latency` (nothing), `upload`, `download`.
    pub load: &'static str,
    /// DSCP of the probes.
    pub dscp: u8,
}

/// A line within its cohort.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Place in [`Lines::cohorts`].
    pub cohort: usize,
    /// Number of runs that produced a measurement.
    pub tests: u32,
    /// Runs by their end, as [`Lines::outcomes`].
    pub outcomes: Vec<u32>,
    /// Results of the line, by index into [`Lines::series`].
    pub series: BTreeMap<usize, LineSeries>,
    /// The days of a loaded series, by the place in [`Lines::series`].
    pub classes: BTreeMap<usize, ClassDays>,
    /// Percent of the tier that a step filled, by the step: sum over tests, and tests.
    pub uses: BTreeMap<String, (f64, u32)>,
}

/// A series of one line: sums over its tests, microseconds.
#[derive(Debug, Clone, Default)]
pub struct LineSeries {
    /// Tests with an answered probe.
    pub tests: u32,
    /// Of each test's mean.
    pub means_us: f64,
    /// Of each test's longest.
    pub maxima_us: f64,
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that were lost.
    pub lost: u64,
    /// Round trips by bin, rising.
    pub bins: Vec<(u16, u32)>,
    /// By the places in [`Lines::dimensions`] of what was asked for and of the value that it had
    /// at a test: sum of the tests' means, and tests. A line may have had several values.
    pub strata: BTreeMap<(usize, usize), (f64, u32)>,
}

/// Days of one class of a line: sums over days.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClassDays {
    /// Days with a number.
    pub days: u32,
    /// Days whose 99th percentile, or median without load, was a lost probe.
    pub days_lost: u32,
    /// Medians without load, microseconds.
    pub idle_p50_us: f64,
    /// 99th percentiles under load, microseconds.
    pub loaded_p99_us: f64,
    /// Percent of the lag of the class that it is held against that it does not have.
    pub cut_percent: f64,
    /// Days with both classes.
    pub cut_days: u32,
}

impl Lines {
    pub(super) fn of_cohort(&self, place: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.cohort == place)
    }

    /// The series that loads nothing and is probed as this one is, or at all.
    pub(super) fn idle_of(&self, place: usize) -> Option<usize> {
        let own = self.series.get(place)?;
        if own.load == IDLE {
            return None;
        }
        let idle = |name: &SeriesName| name.load == IDLE;
        let alike = self.series.iter().position(|name| idle(name) && name.dscp == own.dscp);
        alike.or_else(|| self.series.iter().position(idle))
    }

    /// The quantile `share` of the probes that a line sent, of which a lost one counts as
    /// [`LOST_MS`]; `None` if it sent none.
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

    /// The series that says most at once: an upload, else a download, of the lowest marking.
    pub(super) fn headline(&self) -> Option<usize> {
        let rank = |(_, name): &(usize, &SeriesName)| {
            let load = match name.load {
                "upload" => 0,
                IDLE => 2,
                _ => 1,
            };
            (load, name.dscp)
        };
        self.series.iter().enumerate().min_by_key(rank).map(|(place, _)| place)
    }
}

impl LineSeries {
    /// The mean of the tests' means, ms.
    pub(super) fn mean_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.means_us / f64::from(self.tests) / 1e3)
    }

    pub(super) fn maximum_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.maxima_us / f64::from(self.tests) / 1e3)
    }
}

/// A lost probe as a round trip: longer than every answer, and finite, so that ratios with one rank
/// correctly.
pub(super) const LOST_MS: f64 = 1e24;

/// The load of a step without one.
pub(super) const IDLE: &str = "latency";
