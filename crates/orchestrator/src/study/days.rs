//! The days of a line: lag of each class, as in the study of lines of the crate `run`.
//!
//! The round trips of a day's runs are pooled; percentiles are not averaged. A run counts if its
//! goodput reached 95 % of the highest that the line had in that step up to the end of the day:
//! with less load the line has no working latency. Runs may arrive late, so a day is closed when a
//! run of the third day after it arrives. Later runs count everywhere but here; the study reports
//! their number.

use std::collections::{BTreeMap, VecDeque};

use underload_fleet::bins::{BIN_MAX, value_of};
use underload_fleet::outcome::StepResult;
use underload_fleet::store::StoredResult;
use underload_record::cohorts::{ClassDays, Line, SeriesName};

/// Days that are open besides the newest.
const DAYS_OPEN: u32 = 2;
/// Share of the line's highest goodput in a step from which a load is full.
const FULL_SHARE: f64 = 0.95;
/// Maximum number of runs of a line and day, which bounds the memory.
const RUNS_MOST: usize = 48;

#[derive(Default)]
pub(super) struct Days {
    open: VecDeque<(u32, Vec<Run>)>,
    /// Earlier days are closed.
    from_day: u32,
    /// Highest goodput in each step, bit/s.
    most: BTreeMap<String, u64>,
    late: u64,
}

struct Run {
    /// Goodput of each loaded step, bit/s.
    moved: Vec<(String, u64)>,
    series: Vec<RunSeries>,
}

struct RunSeries {
    /// Index of the series in [`underload_record::cohorts::Lines`].
    place: usize,
    /// Round trips by bin.
    bins: Box<[(u16, u16)]>,
    lost: u64,
}

impl Days {
    /// Adds a measured run.
    pub(super) fn add(&mut self, line: &mut Line, names: &[SeriesName], kept: &StoredResult) {
        let day = kept.day();
        if day < self.from_day {
            self.late += 1;
            return;
        }
        // Only loads have lag, and only steps of the plan count, so that devices cannot use up
        // memory by invented names.
        let is_loaded = |step: &StepResult| {
            let kind = step.kind.name();
            kind != IDLE && names.iter().any(|name| name.step == step.step && name.load == kind)
        };
        let steps = || kept.result.distinct_steps();
        if steps().all(|step| step.goodput_bit_per_s.is_none() || !is_loaded(step)) {
            return;
        }
        let mut run = Run { moved: Vec::new(), series: Vec::new() };
        for step in steps() {
            if let Some(goodput) = step.goodput_bit_per_s.filter(|_| is_loaded(step)) {
                let most = self.most.entry(step.step.clone()).or_default();
                *most = goodput.max(*most);
                run.moved.push((step.step.clone(), goodput));
            }
            for series in step.distinct_series() {
                let Some(place) = place_of(names, step, series.dscp, false) else { continue };
                let count =
                    |(bin, count): (u16, u64)| (bin, u16::try_from(count).unwrap_or(u16::MAX));
                let bins = series.bins.iter().map(count).collect();
                run.series.push(RunSeries { place, bins, lost: series.lost });
            }
        }
        while self.open.front().is_some_and(|(oldest, _)| oldest + DAYS_OPEN < day) {
            self.close_oldest(line, names);
        }
        self.from_day = self.from_day.max(day.saturating_sub(DAYS_OPEN));
        let place = self.open.partition_point(|(open, _)| *open < day);
        if self.open.get(place).is_none_or(|(open, _)| *open != day) {
            self.open.insert(place, (day, Vec::new()));
        }
        let runs = &mut self.open[place].1;
        if runs.len() < RUNS_MOST {
            runs.push(run);
        }
    }

    /// Closes all days. Returns the number of runs that arrived too late.
    pub(super) fn finish(&mut self, line: &mut Line, names: &[SeriesName]) -> u64 {
        while !self.open.is_empty() {
            self.close_oldest(line, names);
        }
        self.late
    }

    fn close_oldest(&mut self, line: &mut Line, names: &[SeriesName]) {
        let Some((_, runs)) = self.open.pop_front() else { return };
        let mut steps: Vec<&str> =
            names.iter().filter(|name| name.load != IDLE).map(|name| name.step.as_str()).collect();
        steps.dedup();
        for step in steps {
            let most = self.most.get(step).copied().unwrap_or(0);
            let is_full = |run: &&Run| {
                let moved = run.moved.iter().find(|(name, _)| name == step);
                moved.is_some_and(|(_, moved)| {
                    *moved > 0 && *moved as f64 >= most as f64 * FULL_SHARE
                })
            };
            let full: Vec<&Run> = runs.iter().filter(is_full).collect();
            let classes = names.iter().enumerate();
            let classes = classes.filter(|(_, name)| name.step == step && !name.is_inside);
            let mut of_day: Vec<(usize, Class)> = Vec::new();
            for (place, name) in classes {
                let idle =
                    names.iter().position(|other| other.load == IDLE && other.dscp == name.dscp);
                let Some(idle) = idle else { continue };
                let is_measured = |place| full.iter().any(|run| run.has(place));
                match Class::from_runs(&full, idle, place) {
                    Some(class) => of_day.push((place, class)),
                    None if is_measured(idle) && is_measured(place) => {
                        line.classes.entry(place).or_default().days_lost += 1;
                    }
                    None => {}
                }
            }
            let beside = names.iter().filter(|name| name.step == step && !name.is_inside);
            let least = beside.map(|name| name.dscp).min();
            note(line, names, &of_day, least);
        }
    }
}

impl Run {
    fn has(&self, place: usize) -> bool {
        self.series.iter().any(|series| series.place == place)
    }
}

/// A class of a day, microseconds.
struct Class {
    idle_p50: f64,
    loaded_p99: f64,
}

impl Class {
    fn from_runs(runs: &[&Run], idle: usize, loaded: usize) -> Option<Self> {
        let idle_p50 = quantile(runs, idle, 0.5)?;
        Some(Self { idle_p50, loaded_p99: quantile(runs, loaded, 0.99)? })
    }

    fn lag(&self) -> f64 {
        self.loaded_p99 - self.idle_p50
    }
}

/// The index of a series, of probes or inside the load; `None` if the plan does not have it.
pub(super) fn place_of(
    names: &[SeriesName],
    step: &StepResult,
    dscp: u8,
    is_inside: bool,
) -> Option<usize> {
    let load = step.kind.name();
    names.iter().position(|name| {
        let of_step = name.step == step.step && name.load == load;
        of_step && name.dscp == dscp && name.is_inside == is_inside
    })
}

/// The quantile of the probes sent in a series; `None` without probes, or if it is a lost one.
fn quantile(runs: &[&Run], place: usize, share: f64) -> Option<f64> {
    let (mut counts, mut lost) = ([0_u64; BIN_MAX as usize + 1], 0_u64);
    let all = runs.iter().flat_map(|run| &run.series);
    for series in all.filter(|series| series.place == place) {
        for (bin, count) in &series.bins {
            counts[usize::from(*bin)] += u64::from(*count);
        }
        lost = lost.saturating_add(series.lost);
    }
    let answered: u64 = counts.iter().sum();
    let rank = (share * answered.saturating_add(lost) as f64).ceil().max(1.0);
    let mut seen = 0;
    let found = (0..).zip(counts).find(|(_, count)| {
        seen += count;
        seen as f64 >= rank
    });
    found.map(|(bin, _)| value_of(bin))
}

/// Adds a day. Compares classes with the lowest marking of their step.
fn note(line: &mut Line, names: &[SeriesName], of_day: &[(usize, Class)], least: Option<u8>) {
    let against = of_day.iter().find(|(place, _)| Some(names[*place].dscp) == least);
    let lag = against.map(|(_, class)| class.lag()).filter(|lag| *lag > 0.0);
    for (place, class) in of_day {
        let days: &mut ClassDays = line.classes.entry(*place).or_default();
        days.days += 1;
        days.idle_p50_us += class.idle_p50;
        days.loaded_p99_us += class.loaded_p99;
        let is_other = Some(names[*place].dscp) != least;
        if let Some(lag) = lag.filter(|_| is_other) {
            days.cut_percent += (1.0 - class.lag() / lag) * 100.0;
            days.cut_days += 1;
        }
    }
}

const IDLE: &str = "latency";
