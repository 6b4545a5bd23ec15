//! Folds results into sums of each line, one line after the other.

use std::collections::{BTreeMap, BTreeSet};

use underload_fleet::bins::{BIN_MAX, Bins, GAMMA};
use underload_fleet::device::Pseudonym;
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult};
use underload_fleet::plan::{Cohort, Kind, Plan};
use underload_fleet::store::{Result, StoredResult};
use underload_record::cohorts::{Line, LineSeries, Lines, Rows, SeriesName};

use super::change::SIDES;
use super::days::{Days, place_of};
use super::quality::lowest_score;
use super::sort::Sorter;

/// Dimensions that are no attributes of a line: the hour of the day, and the month such as
/// `2020-10`, in which a test began, UTC.
pub(super) const TIMES: [&str; 2] = ["hour", "month"];
/// Bytes of results that are sorted in memory.
pub const SORTED_IN_MEMORY: usize = 1 << 25;
/// Maximum number of values of an attribute; further values are one group.
const VALUES_MOST: usize = 4_096;

pub(super) struct Collected {
    pub(super) lines: Lines,
    pub(super) results: u64,
    pub(super) late_runs: u64,
    pub(super) first_ms: Option<u64>,
    pub(super) last_ms: Option<u64>,
}

/// Folds results into lines.
pub(super) struct Collector {
    cohorts: Vec<String>,
    /// Share of all lines that the plan draws for a cohort, by the index in `cohorts`.
    planned: Vec<Option<f64>>,
    is_change: bool,
    series: Vec<SeriesName>,
    dimensions: Vec<(String, Vec<String>)>,
    places: Vec<BTreeMap<String, usize>>,
    sorter: Sorter,
    /// The cohorts with lines, by their indices in `cohorts`.
    used: BTreeSet<usize>,
    results: u64,
    first_ms: Option<u64>,
    last_ms: Option<u64>,
}

/// Lines with results, by pseudonym and the index of the cohort.
type OpenLines = BTreeMap<(Pseudonym, usize), OpenLine>;

#[derive(Default)]
struct OpenLine {
    line: Line,
    days: Days,
}

impl Collector {
    /// Creates a collector for the steps of a plan. `by` names the dimensions of groups. If
    /// `is_change`, the cohorts are the [`SIDES`] of a change, else those of the plan.
    pub(super) fn new(plan: &Plan, by: &[String], is_change: bool) -> Self {
        let probes = plan.steps.iter().flat_map(|step| {
            step.classes.iter().map(|dscp| SeriesName {
                step: step.name.clone(),
                load: step.kind.name(),
                dscp: *dscp,
                is_inside: false,
            })
        });
        // These series follow all series of probes, because the headline is about the first series
        // of a load.
        let loaded = plan.steps.iter().filter(|step| step.kind != Kind::Latency);
        let inside = loaded.map(|step| SeriesName {
            step: step.name.clone(),
            load: step.kind.name(),
            dscp: 0,
            is_inside: true,
        });
        let cohorts = if is_change { &[][..] } else { &plan.cohorts };
        let sides = SIDES.iter().filter(|_| is_change).map(|side| (*side).to_owned());
        Self {
            cohorts: sides.chain(cohorts.iter().map(|cohort| cohort.name.clone())).collect(),
            planned: cohorts.iter().map(Cohort::share).collect(),
            is_change,
            series: probes.chain(inside).collect(),
            dimensions: by.iter().map(|name| (name.clone(), Vec::new())).collect(),
            places: vec![BTreeMap::new(); by.len()],
            sorter: Sorter::new(SORTED_IN_MEMORY),
            used: BTreeSet::new(),
            results: 0,
            first_ms: None,
            last_ms: None,
        }
    }

    #[cfg(test)]
    pub(super) fn with_room_for(mut self, bytes: usize) -> Self {
        self.sorter = Sorter::new(bytes);
        self
    }

    pub(super) fn see(&mut self, kept: &StoredResult) -> Result<()> {
        self.results += 1;
        // Numbers cohorts and values in the order of arrival.
        let cohort = self.cohort(&kept.cohort);
        self.used.insert(cohort);
        self.strata(kept);
        if kept.result.outcome == Outcome::Measured {
            let at_ms = kept.result.at_ms;
            self.first_ms = Some(self.first_ms.map_or(at_ms, |first| first.min(at_ms)));
            self.last_ms = Some(self.last_ms.map_or(at_ms, |last| last.max(at_ms)));
        }
        self.sorter.add(kept)
    }

    fn fold(&mut self, lines: &mut OpenLines, kept: &StoredResult) {
        let cohort = self.cohort(&kept.cohort);
        let strata = self.strata(kept);
        let OpenLine { line, days } = lines.entry((kept.pseudonym, cohort)).or_default();
        if kept.was_due() {
            line.outcomes.resize(Outcome::ALL.len(), 0);
            if let Some(place) = Outcome::ALL.iter().position(|it| *it == kept.result.outcome) {
                line.outcomes[place] += 1;
            }
        }
        if kept.result.outcome == Outcome::Measured {
            line.tests += 1;
            add_test(line, &self.series, &kept.result, &strata);
            days.add(line, &self.series, kept);
        }
    }

    fn cohort(&mut self, name: &str) -> usize {
        let known = self.cohorts.iter().position(|cohort| cohort == name);
        known.unwrap_or_else(|| {
            self.cohorts.push(name.to_owned());
            self.cohorts.len() - 1
        })
    }

    /// Returns the index of the line's value in each dimension at the time of the test.
    fn strata(&mut self, kept: &StoredResult) -> Vec<usize> {
        let dimensions = self.dimensions.iter_mut().zip(&mut self.places);
        let of = |((name, values), places): (&mut (String, Vec<String>), &mut BTreeMap<_, _>)| {
            let value = match name.as_str() {
                "hour" => format!("{:02}", kept.hour()),
                "month" => month(kept.result.at_ms),
                attribute => kept.attributes.get(attribute).unwrap_or_default(),
            };
            if let Some(place) = places.get(&value) {
                return *place;
            }
            let value = if values.len() < VALUES_MOST { value } else { "(others)".to_owned() };
            *places.entry(value).or_insert_with_key(|value| {
                values.push(value.clone());
                values.len() - 1
            })
        };
        dimensions.map(of).collect()
    }

    /// Returns all lines, ordered by pseudonym, and the cohorts with lines, in the order of the
    /// plan.
    pub(super) fn finish(mut self) -> Result<Collected> {
        let used = std::mem::take(&mut self.used);
        let mut lines = Lines {
            reference: None,
            planned: used.iter().map(|place| self.planned.get(*place).copied().flatten()).collect(),
            moved: 0,
            change: None,
            rows: Rows::default(),
            cohorts: used.iter().map(|place| self.cohorts[*place].clone()).collect(),
            series: self.series.clone(),
            dimensions: self.dimensions.clone(),
            outcomes: Outcome::ALL.iter().map(|outcome| outcome.name().to_owned()).collect(),
            bin_ratio: GAMMA,
            bins: usize::from(BIN_MAX) + 1,
        };
        let mut sorter = std::mem::replace(&mut self.sorter, Sorter::new(0));
        let mut late_runs = 0;
        for first in 0..=Sorter::RANGES {
            let mut open = OpenLines::new();
            sorter.visit(first, |kept| self.fold(&mut open, kept))?;
            let measured = open.iter().filter(|(_, open)| open.line.tests > 0);
            let devices: Vec<Pseudonym> = measured.map(|((device, _), _)| *device).collect();
            let cohorts = devices.chunk_by(Pseudonym::eq);
            if !self.is_change {
                lines.moved += cohorts.filter(|cohorts| cohorts.len() > 1).count() as u64;
            }
            let mut earlier: Option<((Pseudonym, usize), Line)> = None;
            for ((device, cohort), OpenLine { mut line, mut days }) in open {
                late_runs += days.finish(&mut line, &self.series);
                line.cohort = used.iter().position(|place| *place == cohort).unwrap_or(0);
                lines.add(&line);
                if !self.is_change {
                    continue;
                }
                // Both sides of a line follow each other.
                if let Some((own, before)) = &earlier
                    && *own == (device, cohort.wrapping_sub(1))
                    && cohort % 2 == 1
                {
                    lines.add_pair(before, &line, cohort == 1);
                }
                earlier = Some(((device, cohort), line));
            }
        }
        let Self { results, first_ms, last_ms, .. } = self;
        Ok(Collected { lines, results, late_runs, first_ms, last_ms })
    }
}

/// Adds a test to a line.
fn add_test(line: &mut Line, names: &[SeriesName], result: &RunResult, strata: &[usize]) {
    for step in result.distinct_steps() {
        let mut is_known = false;
        let probes = step.distinct_series().map(|series| (series, false));
        for (series, is_inside) in probes.chain(step.inside.iter().map(|inside| (inside, true))) {
            let Some(place) = place_of(names, step, series.dscp, is_inside) else { continue };
            is_known = true;
            let sums = line.series.entry(place).or_default();
            add_means(sums, series, strata);
            // Quantiles of all round trips include only scheduled runs, as on the pages.
            if result.run > 0 {
                sums.sent = sums.sent.saturating_add(series.sent);
                sums.lost = sums.lost.saturating_add(series.lost);
                add_bins(&mut sums.bins, &series.bins);
            }
        }
        if let Some(percent) = step.tier_percent.filter(|_| is_known) {
            let (sum, tests) = line.uses.entry(step.step.clone()).or_default();
            *sum += percent;
            *tests += 1;
        }
        if let Some(score) = lowest_score(step).filter(|_| is_known) {
            let (sum, tests) = line.qualities.entry(step.step.clone()).or_default();
            *sum += score;
            *tests += 1;
        }
    }
}

/// Adds the mean and the maximum of a test.
fn add_means(sums: &mut LineSeries, series: &SeriesResult, strata: &[usize]) {
    if let (Some(mean), Some(max)) = (series.mean_us, series.max_us) {
        sums.tests += 1;
        sums.means_us += mean as f64;
        sums.maxima_us += max as f64;
        for place in strata.iter().copied().enumerate() {
            let (sum, tests) = sums.strata.entry(place).or_default();
            *sum += mean as f64;
            *tests += 1;
        }
    }
}

/// Adds a histogram to ascending `sums`, which have most of its bins already.
fn add_bins(sums: &mut Vec<(u16, u32)>, bins: &Bins) {
    let (known, mut place) = (sums.len(), 0);
    for (bin, count) in bins.iter() {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        while place < known && sums[place].0 < bin {
            place += 1;
        }
        if place < known && sums[place].0 == bin {
            sums[place].1 = sums[place].1.saturating_add(count);
        } else {
            sums.push((bin, count));
        }
    }
    if sums.len() > known {
        sums.sort_by_key(|(bin, _)| *bin);
    }
}

/// Returns the month of a time, such as `2020-10`, UTC; empty beyond the calendar.
fn month(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| at.strftime("%Y-%m").to_string())
}
