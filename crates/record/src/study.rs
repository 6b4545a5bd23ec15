//! The latency of each class on many lines that are measured repeatedly, and the latency reduction
//! of one class relative to another.
//!
//! A line is measured several times a day: round trips of every class without load, then during an
//! upload. A run whose upload did not fill the line shows no working latency: it is void if its
//! rate is below a share of the line's highest rate in any run. The round trips of a day's runs are
//! pooled; percentiles are never averaged over runs. The lag of a class on a day is its p99 under
//! load minus its idle median, both of all probes sent; the cut is the reduction of the lag of one
//! class relative to another. A line's days are averaged first, so that an interval is over lines,
//! which are independent, and not over the days of one line, which are not.

use std::collections::BTreeMap;

use crate::schema::{
    FlowDirection, Interval, LatencyMeasure, Phase, Sample, StudyClass, StudyGroup, StudyRecord,
    TrialRecord,
};
use crate::stats::{CONFIDENCE, mean_interval, nearest_rank_of};
use crate::verdict::Verdict;

/// The condition with the number of the line.
pub const LINE: &str = "line";
/// The condition with the number of the day.
pub const DAY: &str = "day";

/// The round trips of all runs of all lines.
#[derive(Debug)]
pub(crate) struct StudyPools {
    lines: BTreeMap<(String, u32), Line>,
    /// Number of round trips that can still be stored.
    capacity: usize,
    runs_left_out: u64,
}

impl Default for StudyPools {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), capacity: SAMPLES_MOST, runs_left_out: 0 }
    }
}

/// Maximum number of stored round trips: a quarter of a gigabyte. Further runs are left out whole
/// and counted: a part of a run would shift its percentiles.
const SAMPLES_MOST: usize = 1 << 26;

#[derive(Debug, Default)]
struct Line {
    conditions: BTreeMap<String, String>,
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    day: u32,
    /// Sum of all bulk flows.
    upload_bit_per_s: u64,
    classes: BTreeMap<String, Delays>,
}

#[derive(Debug, Clone, Default)]
struct Delays {
    idle: Probes,
    loaded: Probes,
}

#[derive(Debug, Clone, Default)]
struct Probes {
    /// Round trips of the answered probes.
    answered_us: Vec<u32>,
    sent: usize,
}

/// A class of a line: means over its days, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the unit is part of a name")]
struct LineClass {
    idle_p50_ns: f64,
    loaded_p99_ns: f64,
    lag_ns: f64,
}

/// A variant, and the conditions that lines of a group share.
type GroupKey<'a> = (&'a str, Vec<(String, String)>);

#[derive(Debug, Default)]
struct LineResult {
    runs: u32,
    runs_void: u32,
    classes: BTreeMap<String, LineClass>,
    /// Per class, the number of days without a result because a percentile fell on a lost probe.
    days_lost: BTreeMap<String, u64>,
    cut_percent: Option<f64>,
}

impl StudyPools {
    /// Adds a run; ignores trials without line and day, and invalid trials.
    pub(crate) fn add(&mut self, trial: &TrialRecord, samples: &[Sample]) {
        let number = |key| trial.conditions.get(key).and_then(|text| text.parse::<u32>().ok());
        let (Some(line), Some(day)) = (number(LINE), number(DAY)) else { return };
        if !trial.validity.is_valid() {
            return;
        }
        if samples.len() > self.capacity {
            self.runs_left_out += 1;
            return;
        }
        let mut classes: BTreeMap<String, Delays> = BTreeMap::new();
        for sample in samples {
            let Some(flow) = trial.flows.get(usize::from(sample.flow)) else { continue };
            let delays = classes.entry(flow.name.clone()).or_default();
            let probes = match sample.phase {
                Phase::Idle => &mut delays.idle,
                Phase::Load => &mut delays.loaded,
                _ => continue,
            };
            probes.sent += 1;
            let Some(rtt_ns) = LatencyMeasure::RoundTrip.of(sample) else { continue };
            probes.answered_us.push(u32::try_from(rtt_ns / 1_000).unwrap_or(u32::MAX));
            self.capacity -= 1;
        }
        let bulk = trial.flows.iter().filter(|flow| flow.congestion_control.is_some());
        let up = bulk.filter(|flow| flow.direction != FlowDirection::Down);
        let upload_bit_per_s = up.filter_map(|flow| flow.goodput_up_bit_per_s).sum();
        let line = self.lines.entry((trial.variant.clone(), line)).or_default();
        line.conditions.clone_from(&trial.conditions);
        line.runs.push(Run { day, upload_bit_per_s, classes });
    }

    /// Computes the groups: all lines of a variant first, then each combination of conditions.
    pub(crate) fn conclude(&self, study: &mut StudyRecord) {
        let mut groups: BTreeMap<GroupKey<'_>, Vec<LineResult>> = BTreeMap::new();
        for ((variant, _), line) in &self.lines {
            let shared = study.by.iter().map(|name| {
                let value = line.conditions.get(name).cloned().unwrap_or_default();
                (name.clone(), value)
            });
            let shared: Vec<_> = shared.collect();
            if !shared.is_empty() {
                groups.entry((variant, shared)).or_default().push(line.result(study));
            }
            groups.entry((variant, Vec::new())).or_default().push(line.result(study));
        }
        let groups = groups.into_iter().map(|(key, lines)| group(study, key, &lines)).collect();
        study.groups = groups;
        study.runs_left_out = self.runs_left_out;
    }
}

impl StudyRecord {
    /// Returns `cut`, or `cut.DRAW=VALUE` for lines with that condition: mean over lines, percent.
    pub(crate) fn cut(&self, variant: &str, metric: &str) -> Option<f64> {
        let wanted = match metric.strip_prefix("cut")? {
            "" => None,
            condition => Some(condition.strip_prefix('.')?.split_once('=')?),
        };
        let is_wanted = |group: &&StudyGroup| {
            let mut conditions = group.conditions.iter().map(|(name, value)| (&**name, &**value));
            group.variant == variant
                && match wanted {
                    None => group.conditions.is_empty(),
                    Some(wanted) => conditions.any(|condition| condition == wanted),
                }
        };
        let cuts = self.groups.iter().filter(is_wanted).filter_map(|group| group.cut_percent);
        let (sum, lines) = cuts.fold((0.0, 0), |(sum, lines), cut| {
            (sum + cut.mean * f64::from(cut.repeats), lines + cut.repeats)
        });
        (lines > 0).then(|| sum / f64::from(lines))
    }
}

impl Line {
    fn result(&self, study: &StudyRecord) -> LineResult {
        let most = self.runs.iter().map(|run| run.upload_bit_per_s).max().unwrap_or(0) as f64;
        let is_full = |run: &&Run| {
            run.upload_bit_per_s > 0
                && run.upload_bit_per_s as f64 * 100.0 >= most * study.full_percent
        };
        let full: Vec<&Run> = self.runs.iter().filter(is_full).collect();
        let mut days: BTreeMap<u32, BTreeMap<&str, Delays>> = BTreeMap::new();
        for run in &full {
            let day = days.entry(run.day).or_default();
            for (class, delays) in &run.classes {
                let pooled = day.entry(class).or_default();
                pooled.idle.add(&delays.idle);
                pooled.loaded.add(&delays.loaded);
            }
        }
        let mut by_class: BTreeMap<String, Vec<LineClass>> = BTreeMap::new();
        let mut days_lost: BTreeMap<String, u64> = BTreeMap::new();
        let mut cuts = Vec::new();
        for day in days.into_values() {
            let mut of_day: BTreeMap<&str, LineClass> = BTreeMap::new();
            for (class, delays) in day {
                let is_measured = delays.idle.sent > 0 && delays.loaded.sent > 0;
                match delays.line_class() {
                    Some(values) => drop(of_day.insert(class, values)),
                    None if is_measured => *days_lost.entry(class.to_owned()).or_default() += 1,
                    None => {}
                }
            }
            let lag = |class: &str| of_day.get(class).map(|class| class.lag_ns);
            if let (Some(class), Some(against)) = (lag(&study.class), lag(&study.against))
                && against > 0.0
            {
                cuts.push((1.0 - class / against) * 100.0);
            }
            for (class, values) in of_day {
                by_class.entry(class.to_owned()).or_default().push(values);
            }
        }
        LineResult {
            runs: full.len() as u32,
            runs_void: (self.runs.len() - full.len()) as u32,
            classes: by_class.into_iter().map(|(class, days)| (class, mean_day(&days))).collect(),
            days_lost,
            cut_percent: mean(&cuts),
        }
    }
}

impl Probes {
    fn add(&mut self, more: &Self) {
        self.answered_us.extend(&more.answered_us);
        self.sent += more.sent;
    }

    /// Returns the quantile of all probes sent, ns; `None` if it falls on a lost probe.
    fn quantile_ns(&mut self, share: f64) -> Option<f64> {
        self.answered_us.sort_unstable();
        Some(f64::from(nearest_rank_of(&self.answered_us, self.sent, share)?) * 1e3)
    }
}

impl Delays {
    /// Returns `None` if a phase has no round trips, or a percentile falls on a lost probe.
    fn line_class(mut self) -> Option<LineClass> {
        let idle_p50_ns = self.idle.quantile_ns(0.5)?;
        let loaded_p99_ns = self.loaded.quantile_ns(0.99)?;
        Some(LineClass { idle_p50_ns, loaded_p99_ns, lag_ns: loaded_p99_ns - idle_p50_ns })
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn mean_day(days: &[LineClass]) -> LineClass {
    let over = |field: fn(&LineClass) -> f64| {
        let values: Vec<f64> = days.iter().map(field).collect();
        mean(&values).unwrap_or_default()
    };
    LineClass {
        idle_p50_ns: over(|day| day.idle_p50_ns),
        loaded_p99_ns: over(|day| day.loaded_p99_ns),
        lag_ns: over(|day| day.lag_ns),
    }
}

fn group(
    study: &StudyRecord,
    (variant, conditions): GroupKey<'_>,
    lines: &[LineResult],
) -> StudyGroup {
    let mut classes: BTreeMap<String, (Vec<LineClass>, u64)> = BTreeMap::new();
    for line in lines {
        for (class, values) in &line.classes {
            classes.entry(class.clone()).or_default().0.push(*values);
        }
        for (class, days) in &line.days_lost {
            classes.entry(class.clone()).or_default().1 += days;
        }
    }
    let cuts: Vec<f64> = lines.iter().filter_map(|line| line.cut_percent).collect();
    let cut_percent = mean_interval(&cuts, CONFIDENCE).map(Interval::capped);
    let classes: BTreeMap<String, StudyClass> =
        classes.into_iter().map(|(class, (of, lost))| (class, over_lines(&of, lost))).collect();
    let lag_ms = |class: &str| Some(classes.get(class)?.lag_ns?.mean / 1e6);
    let verdict = Verdict::of_cut(cut_percent, lag_ms(&study.class), lag_ms(&study.against));
    StudyGroup {
        variant: variant.to_owned(),
        conditions,
        lines: lines.iter().filter(|line| line.runs > 0).count() as u32,
        runs: lines.iter().map(|line| line.runs).sum(),
        runs_void: lines.iter().map(|line| line.runs_void).sum(),
        classes,
        cut_percent,
        verdict,
    }
}

fn over_lines(lines: &[LineClass], days_lost: u64) -> StudyClass {
    let over = |field: fn(&LineClass) -> f64| -> Option<Interval> {
        let values: Vec<f64> = lines.iter().map(field).collect();
        mean_interval(&values, CONFIDENCE)
    };
    StudyClass {
        idle_p50_ns: over(|line| line.idle_p50_ns),
        loaded_p99_ns: over(|line| line.loaded_p99_ns),
        lag_ns: over(|line| line.lag_ns),
        days_lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{FlowRecord, Validity};

    const MS: u64 = 1_000_000;

    fn study(by: &[&str]) -> StudyRecord {
        StudyRecord {
            class: "low".to_owned(),
            against: "bulk".to_owned(),
            full_percent: 95.0,
            by: by.iter().map(ToString::to_string).collect(),
            ..StudyRecord::default()
        }
    }

    /// A run with `idle` and `loaded` round trips in ms of the classes `low` and `bulk`.
    fn add(
        pools: &mut StudyPools,
        (line, day, model): (u32, u32, &str),
        upload_mbit: u64,
        [low, bulk]: [(u64, &[u64]); 2],
    ) {
        let conditions = [(LINE, line.to_string()), (DAY, day.to_string())];
        let conditions = conditions.into_iter().chain([("model", model.to_owned())]);
        let flow = |name: &str| FlowRecord { name: name.to_owned(), ..FlowRecord::default() };
        let upload = FlowRecord {
            congestion_control: Some("cubic".to_owned()),
            goodput_up_bit_per_s: Some(upload_mbit * 1_000_000),
            ..flow("upload")
        };
        let trial = TrialRecord {
            variant: "lld".to_owned(),
            conditions: conditions.map(|(key, value)| (key.to_owned(), value)).collect(),
            validity: Validity::Valid,
            flows: vec![upload, flow("low"), flow("bulk")],
            ..TrialRecord::default()
        };
        let mut samples = Vec::new();
        for (number, (idle, loaded)) in [(1, low), (2, bulk)] {
            let sample = |phase, ms| Sample {
                flow: number,
                phase,
                rtt_ns: Some(ms * MS),
                ..Sample::default()
            };
            samples.extend((0..3).map(|_| sample(Phase::Idle, idle)));
            samples.extend(loaded.iter().map(|ms| sample(Phase::Load, *ms)));
            // Samples of the ramp are ignored.
            samples.push(sample(Phase::Ramp, 900));
        }
        pools.add(&trial, &samples);
    }

    fn close(found: Option<Interval>, want: f64) {
        let found = found.expect("an interval").mean;
        assert!((found - want).abs() < 1e-6, "{found} is not {want}");
    }

    #[test]
    fn the_round_trips_of_a_day_are_pooled_and_days_averaged_by_line() {
        let mut pools = StudyPools::default();
        // Day 0: the pooled delays of `bulk` are 10 to 109 ms, whose 99th percentile is 108. The
        // mean of the runs' 99th percentiles would be (59 + 109) / 2.
        let (first, second): (Vec<u64>, Vec<u64>) = ((10..60).collect(), (60..110).collect());
        add(&mut pools, (1, 0, "a"), 10, [(8, &[20; 50]), (8, &first)]);
        add(&mut pools, (1, 0, "a"), 10, [(8, &[20; 50]), (8, &second)]);
        // Day 1: 58.
        add(&mut pools, (1, 1, "a"), 10, [(8, &[33; 50]), (8, &[58; 50])]);
        let mut study = study(&[]);
        pools.conclude(&mut study);
        let [all] = study.groups.as_slice() else { panic!("one group: {study:?}") };
        assert_eq!((all.lines, all.runs, all.runs_void), (1, 3, 0));
        let bulk = &all.classes["bulk"];
        close(bulk.idle_p50_ns, 8e6);
        close(bulk.loaded_p99_ns, f64::midpoint(108.0, 58.0) * 1e6);
        close(bulk.lag_ns, f64::midpoint(100.0, 50.0) * 1e6);
        // Day 0: 12 of 100; day 1: 25 of 50.
        close(all.cut_percent, f64::midpoint(88.0, 50.0));
    }

    #[test]
    fn a_run_below_its_lines_rate_is_void() {
        let mut pools = StudyPools::default();
        let run = |low: &'static [u64]| [(10, low), (10, &[110][..])];
        add(&mut pools, (1, 0, "a"), 100, run(&[20]));
        add(&mut pools, (1, 0, "a"), 95, run(&[20]));
        add(&mut pools, (1, 0, "a"), 94, run(&[500]));
        add(&mut pools, (1, 1, "a"), 0, run(&[500]));
        // A slow line is compared only with its own highest rate.
        add(&mut pools, (2, 0, "a"), 5, run(&[20]));
        let mut study = study(&[]);
        pools.conclude(&mut study);
        let all = &study.groups[0];
        assert_eq!((all.lines, all.runs, all.runs_void), (2, 3, 2));
        close(all.cut_percent, 90.0);
    }

    #[test]
    fn groups_are_by_condition_and_intervals_over_lines() {
        let mut pools = StudyPools::default();
        for (line, model, low) in [(1, "a", &[20_u64]), (2, "a", &[30]), (3, "b", &[110])] {
            for day in 0..9 {
                add(&mut pools, (line, day, model), 10, [(10, low), (10, &[110])]);
            }
        }
        let mut study = study(&["model"]);
        pools.conclude(&mut study);
        let named: Vec<_> = study
            .groups
            .iter()
            .map(|group| group.conditions.first().map_or("all", |(_, value)| value.as_str()))
            .collect();
        assert_eq!(named, ["all", "a", "b"]);
        let a = study.groups[1].cut_percent.expect("a cut");
        assert_eq!(a.repeats, 2, "lines, not days");
        assert!((a.mean - 85.0).abs() < 1e-9 && a.low.is_none(), "two lines have no interval");
        close(study.groups[2].cut_percent, 0.0);
        close(study.groups[0].cut_percent, (90.0 + 80.0 + 0.0) / 3.0);
    }

    #[test]
    fn a_metric_names_the_cut_of_all_lines_or_of_one_condition() {
        let group = |variant: &str, model: &str, home: &str, cuts: &[f64]| StudyGroup {
            variant: variant.to_owned(),
            conditions: [("model", model), ("home", home)]
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            cut_percent: mean_interval(cuts, CONFIDENCE),
            ..StudyGroup::default()
        };
        let groups = vec![
            group("lld", "", "", &[90.0, 80.0, 70.0, 4.0]),
            group("lld", "a", "open", &[90.0, 80.0]),
            group("lld", "b", "open", &[70.0]),
            group("lld", "b", "bleach", &[4.0]),
            group("lld", "c", "open", &[]),
            group("pie", "", "", &[1.0]),
        ];
        let study = StudyRecord { groups, ..study(&["model", "home"]) };
        assert_eq!(study.cut("lld", "cut"), Some(61.0));
        assert_eq!(study.cut("pie", "cut"), Some(1.0));
        // The mean is over lines, not over groups: (90 + 80 + 70) / 3.
        assert_eq!(study.cut("lld", "cut.home=open"), Some(80.0));
        assert_eq!(study.cut("lld", "cut.model=b"), Some(37.0));
        for unknown in ["cut.model=c", "cut.model=d", "cut.open", "cut.", "cuts", "cut=b", "lag"] {
            assert_eq!(study.cut("lld", unknown), None, "{unknown}");
        }
        assert_eq!(study.cut("pie", "cut.model=b"), None);
    }

    #[test]
    fn runs_beyond_the_memory_limit_are_left_out_and_counted() {
        // A run has 12 samples, which must fit together with the ramp's, although the ramp's are
        // not stored.
        let mut pools = StudyPools { capacity: 24, ..StudyPools::default() };
        for day in 0..4 {
            add(&mut pools, (1, day, "a"), 10, [(10, &[20, 20]), (10, &[110, 110])]);
        }
        let mut study = study(&[]);
        pools.conclude(&mut study);
        assert_eq!((study.groups[0].runs, study.runs_left_out), (2, 2));
        close(study.groups[0].cut_percent, 90.0);
    }

    #[test]
    fn trials_that_do_not_belong_to_a_line_add_nothing() {
        let mut pools = StudyPools::default();
        pools.add(&TrialRecord::default(), &[Sample::default()]);
        let mut empty = study(&["model"]);
        pools.conclude(&mut empty);
        assert_eq!(empty.groups, []);
        // The loaded probes are missing: the line has no lag, and the study no result.
        add(&mut pools, (1, 0, "a"), 10, [(10, &[]), (10, &[])]);
        pools.conclude(&mut empty);
        assert!(empty.groups[0].cut_percent.is_none() && empty.groups[0].classes.is_empty());
    }
}
