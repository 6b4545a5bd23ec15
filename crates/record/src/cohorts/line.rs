//! A line of a plan with the sums of its results, and all lines with what a study needs of each.

use std::collections::BTreeMap;

use crate::schema::ChangeStudy;
use crate::stats::{self, BinnedClusters};

/// The lines of a plan. [`Lines::add`] takes from a line what a study compares, so that memory does
/// not depend on the number of its bins.
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
    /// What changed, if the same lines are compared before and after; without series.
    pub change: Option<ChangeStudy>,
    /// The lines that were added.
    pub rows: Rows,
}

/// The parts of a line's results that a study uses.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// By index into [`Lines::cohorts`].
    cohorts: Vec<CohortRows>,
    /// The lines of each pair of a series and a dimension, which are given by their indices.
    strata: BTreeMap<(usize, usize), Vec<Member>>,
    /// By the index of a series: 99th percentiles and means.
    pub(super) pairs: BTreeMap<usize, [Pairs; 2]>,
    lines: u32,
}

/// A number of the same lines before and after.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs {
    /// After over before: of lines that changed, and of others.
    pub(super) ratios: [Vec<f64>; 2],
    /// Values after the change of lines that changed, ms.
    pub(super) after: Vec<f64>,
}

/// The lines of a cohort.
#[derive(Debug, Clone, Default)]
pub(super) struct CohortRows {
    pub(super) lines: u64,
    /// Lines with a successful run.
    pub(super) devices: u64,
    /// Lines on which runs were due and none was successful.
    pub(super) silent: u64,
    pub(super) tests: u64,
    /// Number of runs by outcome, of one line after the other.
    pub(super) outcomes: Vec<u32>,
    /// By index into [`Lines::series`].
    pub(super) series: BTreeMap<usize, SeriesRows>,
    pub(super) classes: BTreeMap<usize, ClassRows>,
    /// Means of the lines by step, percent.
    pub(super) uses: BTreeMap<String, Vec<f64>>,
    pub(super) qualities: BTreeMap<String, Vec<f64>>,
}

/// A series of the lines of a cohort, ms.
#[derive(Debug, Clone, Default)]
pub(super) struct SeriesRows {
    pub(super) p99s: Vec<f64>,
    pub(super) medians: Vec<f64>,
    pub(super) means: Vec<f64>,
    pub(super) maxima: Vec<f64>,
    pub(super) above_idle: Vec<f64>,
    pub(super) tests: u64,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// All round trips, microseconds, in at most [`CLUSTERS_MAX`] clusters of lines.
    pub(super) pooled: BinnedClusters,
    lines: usize,
}

/// Days of a class of the lines of a cohort.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassRows {
    pub(super) devices: u64,
    pub(super) days: u64,
    pub(super) days_lost: u64,
    pub(super) idle_p50_ms: Vec<f64>,
    pub(super) loaded_p99_ms: Vec<f64>,
    pub(super) lag_ms: Vec<f64>,
    pub(super) cut_percent: Vec<f64>,
}

/// A line in a stratum, of which it may be in several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Logarithm of the line's mean, ms.
    pub(super) value: f64,
    /// Number of the line; those of one line are consecutive.
    pub(super) line: u32,
    pub(super) cohort: u16,
    pub(super) stratum: u16,
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
    /// Adds a line. The order of lines must be unrelated to their results, since consecutive lines
    /// are in different clusters.
    pub fn add(&mut self, line: &Line) {
        let count = self.cohorts.len().max(line.cohort + 1);
        self.rows.cohorts.resize_with(count, CohortRows::default);
        let mut own = std::mem::take(&mut self.rows.cohorts[line.cohort]);
        own.add(line, self.outcomes.len());
        for (place, series) in &line.series {
            let idle = self.idle_of(*place).and_then(|idle| line.series.get(&idle)?.mean_ms());
            let [p50, p99] = [0.5, 0.99].map(|share| self.quantile_ms(series, share));
            let pooled = || BinnedClusters::new(self.bin_ratio, self.bins, 0);
            let empty = || SeriesRows { pooled: pooled(), ..SeriesRows::default() };
            own.series.entry(*place).or_insert_with(empty).add(series, p50, p99, idle);
            for ((by, stratum), (sum, tests)) in &series.strata {
                let mean_ms = sum / f64::from(*tests) / 1e3;
                if mean_ms > 0.0 {
                    self.rows.strata.entry((*place, *by)).or_default().push(Member {
                        value: mean_ms.ln(),
                        line: self.rows.lines,
                        cohort: line.cohort as u16,
                        stratum: *stratum as u16,
                    });
                }
            }
        }
        self.rows.cohorts[line.cohort] = own;
        self.rows.lines = self.rows.lines.wrapping_add(1);
    }

    /// Adds the same line before and after: its own change if `is_changed`, else that of others.
    pub fn add_pair(&mut self, before: &Line, after: &Line, is_changed: bool) {
        for (place, earlier) in &before.series {
            let Some(later) = after.series.get(place) else { continue };
            let values = |own: &LineSeries| [self.quantile_ms(own, 0.99), own.mean_ms()];
            let both = values(earlier).into_iter().zip(values(later));
            let rows = self.rows.pairs.entry(*place).or_default();
            for (pairs, (earlier, later)) in rows.iter_mut().zip(both) {
                let Some((earlier, later)) = earlier.zip(later).filter(|(it, _)| *it > 0.0) else {
                    continue;
                };
                pairs.ratios[usize::from(!is_changed)].push(later / earlier);
                pairs.after.extend(is_changed.then_some(later));
            }
        }
    }

    /// Returns the lines of a cohort; `None` if none was added.
    pub(super) fn of_cohort(&self, place: usize) -> Option<&CohortRows> {
        self.rows.cohorts.get(place)
    }

    pub(super) fn of_series(&self, cohort: usize, place: usize) -> Option<&SeriesRows> {
        self.of_cohort(cohort)?.series.get(&place)
    }

    /// Returns the strata of each line, in a series and by a dimension.
    pub(super) fn strata(&self, place: usize, by: usize) -> impl Iterator<Item = &[Member]> {
        let members = self.rows.strata.get(&(place, by)).map_or(&[][..], Vec::as_slice);
        members.chunk_by(|one, next| one.line == next.line)
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
    fn quantile_ms(&self, series: &LineSeries, share: f64) -> Option<f64> {
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
    fn mean_ms(&self) -> Option<f64> {
        mean_of(self.means_us, self.tests).map(|us| us / 1e3)
    }
}

/// Returns the mean of `count` values; `None` without a value.
fn mean_of(sum: f64, count: u32) -> Option<f64> {
    (count > 0).then(|| sum / f64::from(count))
}

impl CohortRows {
    fn add(&mut self, line: &Line, outcomes: usize) {
        self.lines += 1;
        self.devices += u64::from(line.tests > 0);
        self.silent += u64::from(line.is_silent());
        self.tests += u64::from(line.tests);
        let runs = |outcome| line.outcomes.get(outcome).copied().unwrap_or(0);
        self.outcomes.extend((0..outcomes).map(runs));
        for (place, days) in &line.classes {
            if days.days + days.days_lost > 0 {
                self.classes.entry(*place).or_default().add(days);
            }
        }
        for (all, own) in [(&mut self.uses, &line.uses), (&mut self.qualities, &line.qualities)] {
            for (step, (sum, tests)) in own {
                let mean = mean_of(*sum, *tests);
                match all.get_mut(step) {
                    Some(means) => means.extend(mean),
                    None => drop(all.insert(step.clone(), Vec::from_iter(mean))),
                }
            }
        }
    }

    /// Returns the number of runs with an outcome and of all runs, by line.
    pub(super) fn runs_with(&self, outcome: usize, outcomes: usize) -> Vec<(u64, u64)> {
        let of_line = self.outcomes.chunks_exact(outcomes.max(1));
        of_line.map(|runs| (u64::from(runs[outcome]), sum(runs))).collect()
    }
}

pub(super) fn sum(runs: &[u32]) -> u64 {
    runs.iter().map(|count| u64::from(*count)).sum()
}

impl SeriesRows {
    fn add(&mut self, line: &LineSeries, p50: Option<f64>, p99: Option<f64>, idle: Option<f64>) {
        let mean_ms = line.mean_ms();
        self.medians.extend(p50);
        self.p99s.extend(p99);
        self.means.extend(mean_ms);
        self.maxima.extend(mean_of(line.maxima_us, line.tests).map(|us| us / 1e3));
        self.above_idle.extend(mean_ms.zip(idle).map(|(loaded, idle)| loaded - idle));
        self.tests += u64::from(line.tests);
        self.sent += line.sent;
        self.lost += line.lost;
        let cluster = self.lines % CLUSTERS_MAX;
        self.lines += 1;
        for (bin, count) in &line.bins {
            self.pooled.add(cluster, usize::from(*bin), u64::from(*count));
        }
        self.pooled.add_beyond(cluster, line.lost);
    }
}

impl ClassRows {
    fn add(&mut self, line: &ClassDays) {
        let by_day = |sum_us| mean_of(sum_us, line.days).map(|us| us / 1e3);
        self.devices += 1;
        self.days += u64::from(line.days);
        self.days_lost += u64::from(line.days_lost);
        self.idle_p50_ms.extend(by_day(line.idle_p50_us));
        self.loaded_p99_ms.extend(by_day(line.loaded_p99_us));
        self.lag_ms.extend(by_day(line.loaded_p99_us - line.idle_p50_us));
        self.cut_percent.extend(mean_of(line.cut_percent, line.cut_days));
    }
}

/// More lines than this are combined at random into this number of clusters, whose sums vary like
/// those of the lines. Resampling then takes as long for a million lines as for a thousand.
const CLUSTERS_MAX: usize = 1_000;

/// A lost probe as a round trip: longer than any answer, and finite, so that ratios rank well.
pub(super) const LOST_MS: f64 = 1e24;

/// Name of the load of a step that loads nothing.
pub(super) const IDLE: &str = "latency";
