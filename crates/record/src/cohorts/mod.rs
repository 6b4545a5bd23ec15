//! From the lines of a plan to what its cohorts show, compared by line.
//!
//! A line is one value, however often it was measured: its tests resemble each other, and taken as
//! independent they find differences where there are none. What varies over lines is told with an
//! interval over lines; quantiles of all round trips get theirs by drawing lines.

mod classes;
mod compare;
mod outcomes;
mod series;
mod strata;

use std::collections::BTreeMap;

use underload_aqm::rng::Rng;

use crate::schema::{CohortCount, CohortStudy};

pub use compare::compare;
pub use series::BIN_MS;

/// All lines of a plan.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// The cohorts, by name.
    pub cohorts: Vec<String>,
    /// The cohort that the others are compared with.
    pub reference: Option<usize>,
    /// The series of probes that lines may have.
    pub series: Vec<SeriesName>,
    /// What lines are told apart by, and the values that it has.
    pub dimensions: Vec<(String, Vec<String>)>,
    /// The ends that runs may come to.
    pub outcomes: Vec<String>,
    /// Ratio of a bin's upper edge to its lower one; the upper edge of bin 0 is 1 microsecond.
    pub bin_ratio: f64,
    /// Number of bins.
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
    /// The marking.
    pub dscp: u8,
}

/// A line within its cohort.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Place in [`Lines::cohorts`].
    pub cohort: usize,
    /// Runs that measured.
    pub tests: u32,
    /// Runs by their end, as [`Lines::outcomes`].
    pub outcomes: Vec<u32>,
    /// What it showed, by the place in [`Lines::series`].
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
    /// Days.
    pub days: u32,
    /// Medians without load, microseconds.
    pub idle_p50_us: f64,
    /// 99th percentiles under load, microseconds.
    pub loaded_p99_us: f64,
    /// Percent of the lag of the class that it is held against that it does not have.
    pub cut_percent: f64,
    /// Days with both classes.
    pub cut_days: u32,
}

/// Compares the cohorts. The same lines and seed give the same study.
pub fn study(lines: &Lines, seed: u64) -> CohortStudy {
    let root = Rng::new(seed).child("study");
    let reference = lines.reference.and_then(|place| lines.cohorts.get(place));
    let cohorts = lines.cohorts.iter().enumerate().map(|(place, name)| {
        let own = lines.of_cohort(place).filter(|line| line.tests > 0);
        let (devices, tests) =
            own.fold((0, 0), |(devices, tests), line| (devices + 1, tests + u64::from(line.tests)));
        CohortCount { name: name.clone(), devices, tests }
    });
    CohortStudy {
        reference: reference.cloned().unwrap_or_default(),
        results: lines.lines.iter().flat_map(|line| &line.outcomes).map(|n| u64::from(*n)).sum(),
        sampled: 1.0,
        cohorts: cohorts.collect(),
        series: (0..lines.series.len())
            .filter_map(|place| series::study(lines, place, &root))
            .collect(),
        outcomes: outcomes::study(lines),
        self_check: outcomes::self_check(lines, &mut root.child("halves")),
        classes: classes::study(lines),
        uses: classes::uses(lines),
        ..CohortStudy::default()
    }
}

impl Lines {
    fn of_cohort(&self, place: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.cohort == place)
    }

    /// The series that loads nothing and is probed as this one is, or at all.
    fn idle_of(&self, place: usize) -> Option<usize> {
        let own = self.series.get(place)?;
        if own.load == IDLE {
            return None;
        }
        let idle = |name: &SeriesName| name.load == IDLE;
        let alike = self.series.iter().position(|name| idle(name) && name.dscp == own.dscp);
        alike.or_else(|| self.series.iter().position(idle))
    }

    /// The series that says most at once: an upload, else a download, of the lowest marking.
    fn headline(&self) -> Option<usize> {
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
    fn mean_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.means_us / f64::from(self.tests) / 1e3)
    }

    fn maximum_ms(&self) -> Option<f64> {
        (self.tests > 0).then(|| self.maxima_us / f64::from(self.tests) / 1e3)
    }
}

impl CohortStudy {
    /// The series that says most at once: an upload, else a download, of the lowest marking.
    pub fn headline(&self) -> Option<&crate::schema::SeriesStudy> {
        let rank = |load: &str| match load {
            "upload" => 0,
            IDLE => 2,
            _ => 1,
        };
        self.series.iter().min_by_key(|series| (rank(&series.load), series.dscp))
    }
}

/// The load of a step without one.
const IDLE: &str = "latency";

#[cfg(test)]
mod tests;
