//! Trends of one line that is measured repeatedly: baseline, change, hours and days.
//!
//! Each value has its time and step. The first days are the baseline. The latest runs are compared
//! with the baseline's runs at the same hours of the day, because a line's latency depends on the
//! hour: evenings compared with mornings would show a change that did not happen.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::schema::Estimate;
use crate::stats::{hodges_lehmann_ratio, hodges_lehmann_shift, median, nearest_rank};
use crate::verdict::{Both, EffectRange, Verdict, is_noticed};

const DAY_S: i64 = 86_400;
/// Minimum number of runs for a change.
pub const RUNS_MIN: usize = 3;
/// Minimum number of days with a run at the worst hours: one bad evening is no habit of the line.
const WORST_DAYS_MIN: usize = 5;
/// Minimum number of runs that have a usual range, so that p10 and p90 leave some of them out.
const USUAL_RUNS_MIN: usize = 10;
/// Confidence of the range of a change, and of the interval of a [`Contrast`]. At most one of a
/// hundred trials of nothing shows an effect, because a line stays shaped for months after such an
/// error.
pub const CONTRAST_CONFIDENCE: f64 = 0.99;

underload_aqm::named! {
    /// A number of a line that is compared from run to run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Followed {
        LoadP99 = "load-p99",
        LoadP50 = "load-p50",
        /// The latency under load that another tool states, without its single round trips.
        StatedLoad = "stated-load",
        InsideP99 = "inside-p99",
        IdleP50 = "idle-p50",
        Qoo = "qoo",
        GoodputUp = "goodput-up",
        GoodputDown = "goodput-down",
    }
}

impl Followed {
    /// Returns a description and the unit.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::LoadP99 => ("p99 of latency under load", "ms"),
            Self::LoadP50 => ("median latency under load", "ms"),
            Self::StatedLoad => ("latency under load that the tool states", "ms"),
            Self::InsideP99 => ("p99 of round trips inside the load", "ms"),
            Self::IdleP50 => ("median idle latency", "ms"),
            Self::Qoo => ("lowest Quality of Outcome", "%"),
            Self::GoodputUp => ("goodput up", "Mbit/s"),
            Self::GoodputDown => ("goodput down", "Mbit/s"),
        }
    }

    pub fn more_is_worse(self) -> bool {
        !matches!(self, Self::Qoo | Self::GoodputUp | Self::GoodputDown)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Start of the run, seconds since 1970.
    pub at_s: i64,
    /// Local time minus UTC at that time, seconds.
    pub offset_s: i32,
    /// In the unit of its [`Followed`].
    pub value: f64,
}

impl Point {
    /// Returns the local time of its start as seconds since 1970 began there.
    pub fn local_s(&self) -> i64 {
        self.at_s.saturating_add(i64::from(self.offset_s))
    }

    /// Returns the hour of the day, local time, 0 to 23.
    fn hour(&self) -> usize {
        (self.local_s().rem_euclid(DAY_S) / 3600) as usize
    }

    /// Returns the local day, in days since 1970.
    fn day(&self) -> i64 {
        self.local_s().div_euclid(DAY_S)
    }
}

/// A dated remark about a line, such as "new router".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Seconds since 1970.
    pub at_s: i64,
    /// As [`Point::offset_s`].
    pub offset_s: i32,
    pub text: String,
}

impl Mark {
    /// As [`Point::local_s`].
    pub fn local_s(&self) -> i64 {
        self.at_s.saturating_add(i64::from(self.offset_s))
    }
}

/// A number of a step before and after a mark: from the mark before it, or the first run, to the
/// mark after it, or the latest run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub step: String,
    pub followed: Followed,
    pub before: Option<Level>,
    pub after: Option<Level>,
    pub comparison: LikeHours,
}

/// Runs compared with earlier runs at the same hours of the day.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LikeHours {
    /// `Lower` if the later runs are lower; `NotComparable` if too few runs have the same hours.
    pub verdict: Verdict,
    /// The earlier runs that are compared; `None` if no hour has both.
    pub earlier: Option<Level>,
    /// The later runs that are compared.
    pub later: Option<Level>,
    /// The ratio of the later values to the earlier ones. Before, each value is divided by the
    /// median of all runs around its hour of the day. `None` with fewer than [`RUNS_MIN`] runs to
    /// compare, or too few for a range.
    pub range: Option<EffectRange>,
    /// The hours of all earlier runs, and of all later runs.
    pub earlier_hours: BTreeSet<usize>,
    pub later_hours: BTreeSet<usize>,
}

impl LikeHours {
    /// Compares values in `unit`, in any order.
    pub fn new(earlier: &[Point], later: &[Point], unit: &str) -> Self {
        let hours = |points: &[Point]| points.iter().map(Point::hour).collect::<BTreeSet<usize>>();
        let (earlier_hours, later_hours) = (hours(earlier), hours(later));
        // The hours whose earlier runs are compared with later runs at `hour`: this one, or, as runs
        // may begin at random, the hours before and after it.
        let has = |hour: usize| earlier_hours.contains(&hour);
        let like = |hour: usize| match (before(hour), after(hour)) {
            _ if has(hour) => vec![hour],
            (before, after) if has(before) && has(after) => vec![before, after],
            _ => Vec::new(),
        };
        let used: BTreeSet<usize> = later_hours.iter().flat_map(|hour| like(*hour)).collect();
        let at_used = |point: &&Point| used.contains(&point.hour());
        let first: Vec<&Point> = earlier.iter().filter(at_used).collect();
        let last: Vec<&Point> = later.iter().filter(|it| !like(it.hour()).is_empty()).collect();
        let usual = |hour: usize| {
            let is_near = |it: &&Point| [before(hour), hour, after(hour)].contains(&it.hour());
            let near = earlier.iter().chain(later).filter(is_near).map(|point| point.value);
            median(&near.collect::<Vec<f64>>()).unwrap_or_default()
        };
        let usual: Vec<f64> = (0..24).map(usual).collect();
        // A value of 0 would have no ratio. A hundredth of any unit is too little to notice.
        let relative = |points: &[&Point]| -> Vec<f64> {
            points.iter().map(|it| it.value.max(0.01) / usual[it.hour()].max(0.01)).collect()
        };
        let level = |points: &[&Point]| Level::new(points.iter().map(|point| point.value));
        let range = (first.len().min(last.len()) >= RUNS_MIN).then(|| {
            let ratio =
                hodges_lehmann_ratio(&relative(&last), &relative(&first), CONTRAST_CONFIDENCE);
            ratio?.range(CONTRAST_CONFIDENCE)
        });
        let is_many = earlier.len().min(later.len()) >= RUNS_MIN;
        let (earlier, later) = (level(&first), level(&last));
        let verdict = match (range, earlier.zip(later)) {
            (Some(Some(range)), Some((before, after))) => {
                let values = Both { variant: after.p50, baseline: before.p50 };
                range.judge(values, unit, true)
            }
            (None, _) if is_many => Verdict::NotComparable,
            _ => Verdict::TooFew,
        };
        Self { verdict, earlier, later, range: range.flatten(), earlier_hours, later_hours }
    }
}

/// Returns the hour of the day before `hour`.
fn before(hour: usize) -> usize {
    (hour + 23) % 24
}

/// Returns the hour of the day after `hour`.
fn after(hour: usize) -> usize {
    (hour + 1) % 24
}

/// The hours of the day at which a line is worse than at the others: neighbours among the hours at
/// which runs began, at most half of these.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstHours {
    /// Local time, 0 to 23.
    pub hours: BTreeSet<usize>,
    /// All runs at these hours.
    pub within: Level,
    /// All runs at other hours.
    pub others: Level,
}

impl WorstHours {
    /// Returns `None` if no hours are worse by what a person notices, or if chance explains it.
    fn new(points: &[Point], followed: Followed) -> Option<Self> {
        let values = of_days(points);
        let sign = if followed.more_is_worse() { 1.0 } else { -1.0 };
        let (hours, tried) = worst_block(&values, sign)?;
        let days = values.iter().filter(|it| hours.contains(&it.hour)).map(|it| it.day);
        if days.collect::<BTreeSet<i64>>().len() < WORST_DAYS_MIN {
            return None;
        }
        let ratios = |is_within: bool| -> Vec<f64> {
            let of = values.iter().filter(|it| hours.contains(&it.hour) == is_within);
            of.map(|it| it.ratio).collect()
        };
        let level = |is_within: bool| {
            let of = points.iter().filter(|it| hours.contains(&it.hour()) == is_within);
            Level::new(of.map(|it| it.value))
        };
        // These hours are the worst of all that were tried, so the range must be surer by as much.
        let confidence = 1.0 - (1.0 - CONTRAST_CONFIDENCE) / tried as f64;
        let range = hodges_lehmann_ratio(&ratios(true), &ratios(false), confidence)?;
        let (within, others) = (level(true)?, level(false)?);
        let values = Both { variant: within.p50, baseline: others.p50 };
        let verdict = range.range(confidence)?.judge(values, followed.words().1, true);
        let worse = if followed.more_is_worse() { Verdict::Higher } else { Verdict::Lower };
        (verdict == worse).then_some(Self { hours, within, others })
    }
}

/// A run's value, divided by the median of its day, so that a bad day counts for no hour.
struct OfDay {
    day: i64,
    hour: usize,
    ratio: f64,
}

/// Returns runs of days with several.
fn of_days(points: &[Point]) -> Vec<OfDay> {
    let mut values = Vec::new();
    for of_day in points.chunk_by(|one, next| one.day() == next.day()) {
        // A value of 0 would have no ratio, as in `LikeHours`.
        let of: Vec<f64> = of_day.iter().map(|point| point.value.max(0.01)).collect();
        let usual = median(&of).filter(|_| of.len() > 1);
        values.extend(of_day.iter().zip(&of).filter_map(|(point, value)| {
            Some(OfDay { day: point.day(), hour: point.hour(), ratio: value / usual? })
        }));
    }
    values
}

/// Returns the neighbouring hours that differ most from the others, in the direction of `sign`, and
/// the number of those that were compared.
fn worst_block(values: &[OfDay], sign: f64) -> Option<(BTreeSet<usize>, usize)> {
    let of_hour = |hour: usize| {
        let ratios: Vec<f64> =
            values.iter().filter(|it| it.hour == hour).map(|it| it.ratio).collect();
        Some((hour, ratios.len() as f64, median(&ratios)?.ln() * sign))
    };
    let measured: Vec<(usize, f64, f64)> = (0..24).filter_map(of_hour).collect();
    let count = measured.len();
    let starts = (0..count).flat_map(|start| (1..=count / 2).map(move |length| (start, length)));
    let block = |(start, length): (usize, usize)| {
        let is_within = |place: usize| (place + count - start) % count < length;
        let mean = |wanted: bool| {
            let of = measured.iter().enumerate().filter(|(place, _)| is_within(*place) == wanted);
            let add = |(runs, sum), (_, it): (usize, &(usize, f64, f64))| {
                (runs + it.1, sum + it.1 * it.2)
            };
            let (runs, sum) = of.fold((0.0, 0.0), add);
            (runs, sum / runs)
        };
        let ((runs, within), (other_runs, others)) = (mean(true), mean(false));
        // The variance between the two groups.
        let apart = (within - others).max(0.0).powi(2) * runs * other_runs;
        let hours = (0..count).filter(|place| is_within(*place)).map(|place| measured[place].0);
        (apart, hours.collect::<BTreeSet<usize>>())
    };
    let blocks: Vec<(f64, BTreeSet<usize>)> = starts.map(block).collect();
    let tried = blocks.len();
    let (_, hours) = blocks.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((hours, tried))
}

/// The newest run beside all runs before it around its hour of the day.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Newest {
    pub value: f64,
    /// Local time, 0 to 23.
    pub hour: usize,
    /// The level of earlier runs of the same hour of the day. If these are fewer than ten, runs of
    /// the hour before and of the hour after count, too.
    pub usual: Level,
    /// `Higher` above p90 of these runs and `Lower` below p10, by what a person notices; else
    /// `Alike`.
    pub verdict: Verdict,
}

impl Newest {
    /// Returns `None` with fewer than ten runs around its hour.
    fn new(points: &[Point], unit: &str) -> Option<Self> {
        let (newest, earlier) = points.split_last()?;
        let (value, hour) = (newest.value, newest.hour());
        let around = |hours: &[usize]| {
            let of = earlier.iter().filter(|point| hours.contains(&point.hour()));
            Level::new(of.map(|point| point.value)).filter(|it| it.runs >= USUAL_RUNS_MIN)
        };
        let usual = around(&[hour]).or_else(|| around(&[before(hour), hour, after(hour)]))?;
        let verdict = if value > usual.p90 && is_noticed(value, usual.p90, unit) {
            Verdict::Higher
        } else if value < usual.p10 && is_noticed(value, usual.p10, unit) {
            Verdict::Lower
        } else {
            Verdict::Alike
        };
        Some(Self { value, hour, usual, verdict })
    }
}

/// A mark with the numbers around it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Marked {
    #[serde(flatten)]
    pub mark: Mark,
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Labelled {
    pub label: String,
    pub step: String,
    pub followed: Followed,
    pub level: Level,
}

/// The runs that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// The baseline: runs that started within this time after the first.
    pub baseline_s: i64,
    /// The recent runs: those that started within this time before the latest.
    pub recent_s: i64,
}

/// Quantiles of the values of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Level {
    pub runs: usize,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
}

impl Level {
    /// Returns `None` without a finite value.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |q| nearest_rank(&sorted, q);
        Some(Self { runs: sorted.len(), p10: at(0.1)?, p50: at(0.5)?, p90: at(0.9)? })
    }
}

/// The values of the runs with and without a treatment whose times were drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Contrast {
    pub with: Level,
    pub without: Level,
    /// Values with the treatment minus values without it, with an interval of
    /// [`CONTRAST_CONFIDENCE`].
    pub shift: Estimate,
}

impl Contrast {
    /// Returns `None` if either side has fewer than [`RUNS_MIN`] values, or one that is not finite.
    pub fn new(with: &[f64], without: &[f64]) -> Option<Self> {
        if with.len().min(without.len()) < RUNS_MIN {
            return None;
        }
        let shift = hodges_lehmann_shift(with, without, CONTRAST_CONFIDENCE)?;
        let level = |values: &[f64]| Level::new(values.iter().copied());
        Some(Self { with: level(with)?, without: level(without)?, shift })
    }

    /// Judges the values with the treatment, in `unit`, against those without it.
    pub fn verdict(&self, unit: &str) -> Verdict {
        let Estimate { value, low: Some(low), high } = self.shift else { return Verdict::TooFew };
        let range = EffectRange { low, high, middle: Some(value), confidence: CONTRAST_CONFIDENCE };
        let medians = Both { variant: self.with.p50, baseline: self.without.p50 };
        range.judge(medians, unit, false)
    }
}

/// A number of a step over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    pub step: String,
    pub followed: Followed,
    /// The runs' values, oldest first.
    pub points: Vec<Point>,
    /// Runs of the first days.
    pub baseline: Option<Level>,
    /// The latest runs; `None` while they belong to the baseline, or if the step is no longer
    /// measured.
    pub recent: Option<Level>,
    /// Whether the step was measured within [`Windows::recent_s`] before the line's latest run.
    pub is_current: bool,
    /// The latest runs compared with the baseline.
    pub comparison: LikeHours,
    pub worst_hours: Option<WorstHours>,
    pub newest: Option<Newest>,
    /// Medians by hour of the day, local time.
    pub hours: Vec<Option<Level>>,
    /// Medians by day of the week, Monday first, as `hours`.
    pub days: Vec<Option<Level>>,
}

impl Trend {
    /// `points` are in any order; `latest_s` is the start of the line's latest run of any step.
    pub fn of(
        step: &str,
        followed: Followed,
        mut points: Vec<Point>,
        windows: Windows,
        latest_s: i64,
    ) -> Self {
        points.retain(|point| point.value.is_finite());
        points.sort_by(|a, b| a.at_s.cmp(&b.at_s).then(a.value.total_cmp(&b.value)));
        let first = points.first().map_or(0, |point| point.at_s);
        let baseline_end = first.saturating_add(windows.baseline_s);
        let still_s = latest_s.saturating_sub(windows.recent_s);
        let is_current = points.last().is_some_and(|last| last.at_s >= still_s);
        let recent_start = still_s.max(baseline_end);
        let level = |wanted: &dyn Fn(&Point) -> bool| {
            Level::new(points.iter().filter(|point| wanted(point)).map(|point| point.value))
        };
        let baseline = level(&|point| point.at_s < baseline_end);
        let recent = level(&|point| point.at_s >= recent_start);
        let (first, later) = points.split_at(points.partition_point(|it| it.at_s < baseline_end));
        let latest = &later[later.partition_point(|point| point.at_s < recent_start)..];
        let comparison = LikeHours::new(first, latest, followed.words().1);
        let of_hour = |hour: usize| level(&|point| point.hour() == hour);
        // 1970 began on a Thursday.
        let of_day = |day: i64| level(&|point| (point.day() + 3).rem_euclid(7) == day);
        let (hours, days) = ((0..24).map(of_hour).collect(), (0..7).map(of_day).collect());
        let worst_hours = WorstHours::new(&points, followed);
        let newest = Newest::new(&points, followed.words().1);
        Self {
            step: step.to_owned(),
            followed,
            points,
            baseline,
            recent,
            is_current,
            comparison,
            worst_hours,
            newest,
            hours,
            days,
        }
    }

    /// Compares the runs on both sides of each mark; `marks` are in order of time. Returns `None`
    /// for a mark without a run on either side.
    pub fn around(&self, marks: &[Mark]) -> Vec<Option<Change>> {
        let at = |place: usize| marks.get(place).map(|mark| mark.at_s);
        let around = |(place, mark): (usize, &Mark)| {
            let from_s = place.checked_sub(1).and_then(at).unwrap_or(i64::MIN);
            let to_s = at(place + 1).unwrap_or(i64::MAX);
            let part = |from_s: i64, to_s: i64| {
                let place = |at_s| self.points.partition_point(|point| point.at_s < at_s);
                &self.points[place(from_s)..place(to_s)]
            };
            let level = |points: &[Point]| Level::new(points.iter().map(|it| it.value));
            let [earlier, later] = [part(from_s, mark.at_s), part(mark.at_s, to_s)];
            let (before, after) = (level(earlier), level(later));
            before.or(after)?;
            let comparison = LikeHours::new(earlier, later, self.followed.words().1);
            let (step, followed) = (self.step.clone(), self.followed);
            Some(Change { step, followed, before, after, comparison })
        };
        marks.iter().enumerate().map(around).collect()
    }

    /// Returns whether the latest runs are worse than the baseline by at least `percent`, and worse
    /// than 90 % of the baseline's runs at their hours.
    pub fn is_worse_by(&self, percent: f64) -> bool {
        let LikeHours { verdict, earlier: Some(earlier), later: Some(later), .. } = self.comparison
        else {
            return false;
        };
        let middle = self.comparison.range.and_then(|range| range.middle).unwrap_or(1.0);
        let is_worse = if self.followed.more_is_worse() {
            verdict == Verdict::Higher && later.p50 > earlier.p90
        } else {
            verdict == Verdict::Lower && later.p50 < earlier.p10
        };
        is_worse && (middle - 1.0).abs() * 100.0 >= percent
    }
}

#[cfg(test)]
mod tests {
    use underload_aqm::rng::Rng;

    use super::*;

    const WEEK: Windows = Windows { baseline_s: 7 * DAY_S, recent_s: DAY_S };

    /// A run every six hours for `days`; those of the last 24 hours have the value `late`.
    fn points(days: i64, usual: impl Fn(i64) -> f64, late: f64) -> Vec<Point> {
        (0..days * 4)
            .map(|run| {
                let value = if run >= (days - 1) * 4 - 1 { late } else { usual(run) };
                Point { at_s: 1_790_000_000 + run * 6 * 3600, offset_s: 0, value }
            })
            .collect()
    }

    fn trend(points: Vec<Point>) -> Trend {
        trend_of(Followed::LoadP99, points)
    }

    fn trend_of(followed: Followed, points: Vec<Point>) -> Trend {
        let latest_s = points.iter().map(|point| point.at_s).max().unwrap_or(0);
        Trend::of("loaded", followed, points, WEEK, latest_s)
    }

    #[test]
    fn a_change_compares_medians_and_exceeds_the_baselines_range() {
        let usual = |run: i64| 40.0 + (run % 5) as f64;
        let worse = trend(points(14, usual, 63.0));
        assert_eq!(worse.baseline.unwrap().runs, 28);
        assert_eq!(worse.comparison.verdict, Verdict::Higher);
        let range = worse.comparison.range.unwrap();
        assert!((1.45..1.55).contains(&range.middle.unwrap()) && range.low > 1.4, "{range:?}");
        assert!(worse.is_worse_by(45.0) && !worse.is_worse_by(55.0));
        // A value that one of ten baseline runs exceeds does not count as a change.
        let wide = trend(points(14, |run| if run % 5 == 0 { 90.0 } else { 42.0 }, 63.0));
        assert!(!wide.is_worse_by(10.0));
        let better = trend(points(14, usual, 20.0));
        assert!(!better.is_worse_by(0.0));
    }

    #[test]
    fn less_throughput_is_worse_and_more_is_not() {
        let is_worse =
            |late| trend_of(Followed::GoodputUp, points(14, |_| 10.0, late)).is_worse_by(20.0);
        assert!(is_worse(7.9) && !is_worse(8.5) && !is_worse(13.0));
    }

    #[test]
    fn a_step_without_recent_runs_has_no_change() {
        let points = || points(14, |_| 40.0, 90.0);
        let last_s = points().last().map_or(0, |point| point.at_s);
        let of = |latest_s| Trend::of("up", Followed::LoadP99, points(), WEEK, latest_s);
        assert!(of(last_s).is_current && of(last_s).is_worse_by(50.0));
        let before = of(last_s + DAY_S + 1);
        assert!(!before.is_current && before.baseline.is_some());
        assert!(before.recent.is_none() && !before.is_worse_by(0.0));
    }

    #[test]
    fn few_runs_have_no_change_and_the_baseline_is_not_compared_with_itself() {
        let young = trend(points(5, |_| 40.0, 400.0));
        assert_eq!((young.recent, young.comparison.verdict), (None, Verdict::TooFew));
        assert!(!young.is_worse_by(0.0));
        let empty = trend(Vec::new());
        assert_eq!((empty.baseline, empty.recent), (None, None));
        let strange = trend(vec![Point { at_s: i64::MAX, offset_s: 0, value: f64::NAN }]);
        assert!(strange.points.is_empty());
        let point = |at_s| Point { at_s, offset_s: 0, value: 1.0 };
        let far = trend(vec![point(i64::MIN), point(i64::MAX)]);
        assert_eq!(far.points.len(), 2);
    }

    #[test]
    fn a_mark_divides_the_runs_up_to_its_neighbours() {
        let trend = trend(points(14, |run| if run < 20 { 40.0 } else { 20.0 }, 20.0));
        let mark = |run: i64| Mark {
            at_s: 1_790_000_000 + run * 6 * 3600,
            offset_s: 0,
            text: String::new(),
        };
        let [first, second] = &trend.around(&[mark(20), mark(40)])[..] else { panic!() };
        let first = first.as_ref().unwrap();
        assert_eq!((first.before.unwrap().runs, first.after.unwrap().runs), (20, 20));
        assert_eq!(first.comparison.verdict, Verdict::Lower);
        assert_eq!(first.comparison.range.and_then(|range| range.middle), Some(0.5));
        let second = second.as_ref().unwrap();
        assert_eq!(second.comparison.verdict, Verdict::Alike, "no other value than before");
        // The first mark is after the last run; the second has too few runs before it.
        let [late] = &trend.around(&[mark(900)])[..] else { panic!() };
        assert!(late.as_ref().is_some_and(|it| it.after.is_none()));
        let [early] = &trend.around(&[mark(2)])[..] else { panic!() };
        assert_eq!(early.as_ref().unwrap().comparison.verdict, Verdict::TooFew);
        assert_eq!(trend_of(Followed::LoadP99, Vec::new()).around(&[mark(1)]), [None]);
    }

    #[test]
    fn medians_by_hour_and_day_are_separate() {
        // 2026-11-23, a Monday, 13:30 UTC: date -ud '2026-11-23 13:30' +%s
        let trend = trend(vec![Point { at_s: 1_795_440_600, offset_s: 0, value: 5.0 }]);
        assert_eq!(trend.hours[13].map(|level| level.p50), Some(5.0));
        assert_eq!(trend.days[0].map(|level| level.runs), Some(1));
        assert_eq!(trend.hours.iter().flatten().count() + trend.days.iter().flatten().count(), 2);
    }

    const MONDAY_S: i64 = 1_795_392_000;

    fn at_hour(day: i64, hour: i64, value: f64) -> Point {
        Point { at_s: MONDAY_S + day * DAY_S + hour * 3600, offset_s: 0, value }
    }

    #[test]
    fn evenings_are_not_compared_with_mornings() {
        let mut all: Vec<Point> = (0..14).map(|day| at_hour(day, 20, 230.0 + day as f64)).collect();
        all.extend((8..12).map(|hour| at_hour(14, hour, 58.0)));
        let found = trend(all.clone());
        assert_eq!(found.comparison.verdict, Verdict::NotComparable);
        assert_eq!(found.comparison.range, None);
        assert_eq!(found.comparison.earlier_hours, [20].into());
        assert_eq!(found.comparison.later_hours, [8, 9, 10, 11, 20].into());
        assert!(!found.is_worse_by(0.0));
        let local = all.into_iter().map(|point| Point { offset_s: 5 * 3600, ..point }).collect();
        assert_eq!(trend(local).comparison.earlier_hours, [1].into());
    }

    /// Runs at drawn hours of 28 days, with the latency of a day and noise of a fifth; on each day
    /// three hours are three times as bad, which begin at `bad` or at a drawn hour.
    fn line_with_bad_hours(rng: &mut Rng, runs: u32, bad: Option<u32>) -> Vec<Point> {
        let mut all = Vec::new();
        for day in 0..28 {
            let of_day = 20.0 * (1.0 + uniform(rng));
            let from = bad.unwrap_or_else(|| rng.below(24));
            for _ in 0..runs {
                let hour = rng.below(24);
                let factor = if (hour + 24 - from) % 24 < 3 { 3.0 } else { 1.0 };
                let noise = (1..=4).map(|_| uniform(rng) - 0.5).sum::<f64>() * 0.35;
                all.push(at_hour(day, i64::from(hour), of_day * factor * noise.exp()));
            }
        }
        all
    }

    #[test]
    fn the_worst_hours_are_found_and_a_line_without_any_names_none() {
        let (mut alarms, mut found, lines) = (0, 0, 300);
        for seed in 0..lines {
            let rng = Rng::new(seed).child("hours");
            let hours = |points| trend(points).worst_hours.map(|it| it.hours);
            let none = hours(line_with_bad_hours(&mut rng.child("none"), 8, None));
            alarms += u32::from(none.is_some());
            let evenings = hours(line_with_bad_hours(&mut rng.child("bad"), 4, Some(22)));
            found += u32::from(evenings == Some([22, 23, 0].into()));
        }
        assert!(alarms <= 3, "{alarms} of {lines}");
        assert!(found >= 270, "{found} of {lines}");
    }

    #[test]
    fn less_throughput_makes_hours_bad_and_one_bad_evening_does_not() {
        let all = |days: i64| {
            let at = |(day, hour): (i64, i64)| {
                at_hour(day, hour, if hour == 18 && day < days { 20.0 } else { 50.0 })
            };
            (0..14).flat_map(|day| [0, 6, 12, 18].map(|hour| (day, hour))).map(at).collect()
        };
        let worst = |followed, days| trend_of(followed, all(days)).worst_hours;
        let found = worst(Followed::GoodputDown, 14).unwrap();
        assert_eq!((found.hours, found.within.p50, found.others.p50), ([18].into(), 20.0, 50.0));
        assert_eq!(worst(Followed::GoodputDown, 1), None);
        assert_eq!(worst(Followed::GoodputDown, 0), None);
        let latency = worst(Followed::LoadP99, 14);
        assert_eq!(latency, None, "more than half of the hours are no exception");
    }

    #[test]
    fn the_newest_run_is_compared_with_its_hour() {
        let newest = |days: i64, hour: i64, value: f64| {
            let usual = |day: i64| {
                [(8, 40.0), (20, 200.0)].map(|(hour, ms)| at_hour(day, hour, ms + (day % 7) as f64))
            };
            let mut all: Vec<Point> = (0..days).flat_map(usual).collect();
            all.push(at_hour(days, hour, value));
            trend(all).newest
        };
        let verdict = |hour, value| newest(14, hour, value).unwrap().verdict;
        assert_eq!((verdict(20, 202.0), verdict(8, 202.0)), (Verdict::Alike, Verdict::Higher));
        assert_eq!((verdict(8, 47.0), verdict(20, 40.0)), (Verdict::Alike, Verdict::Lower));
        let beside = newest(14, 9, 42.0).unwrap();
        assert_eq!((beside.hour, beside.usual.runs, beside.verdict), (9, 14, Verdict::Alike));
        assert_eq!((newest(14, 13, 42.0), newest(9, 8, 42.0)), (None, None));
    }

    fn uniform(rng: &mut Rng) -> f64 {
        f64::from(rng.next_u32()) / f64::from(u32::MAX)
    }

    /// Latency that depends on the hour, up to four times, with noise of a fifth.
    fn random_line(rng: &mut Rng, noise: f64, factor: f64) -> Vec<Point> {
        let mut levels: Vec<f64> = vec![20.0 + 60.0 * uniform(rng)];
        while levels.len() < 24 {
            levels.push((levels[levels.len() - 1] * (0.7 + 0.6 * uniform(rng))).clamp(20.0, 80.0));
        }
        let (mut all, is_evening) = (Vec::new(), rng.below(2) == 1);
        for day in 0..12 {
            for _ in 0..6 {
                // The latest runs may all be from the evening.
                let hour = if day == 11 && is_evening { 18 + rng.below(6) } else { rng.below(24) };
                let hour = i64::from(hour);
                let wave = (1..=4).map(|_| uniform(rng) - 0.5).sum::<f64>();
                let change = if day == 11 { factor } else { 1.0 };
                let value = levels[hour as usize] * (noise * wave).exp() * change;
                all.push(at_hour(day, hour, value));
            }
        }
        all
    }

    #[test]
    fn hours_in_another_order_are_never_a_change_and_changes_have_their_direction() {
        let windows = Windows { baseline_s: 7 * DAY_S, recent_s: DAY_S };
        let (mut alarms, mut found, lines) = (0, 0, 2_000);
        for seed in 0..lines {
            let rng = Rng::new(seed).child("history");
            for (factor, count) in [(1.0, &mut alarms), (2.5, &mut found)] {
                let all = random_line(&mut rng.child("line"), 0.35, factor);
                let latest_s = all.iter().map(|point| point.at_s).max().unwrap();
                let it = Trend::of("up", Followed::LoadP99, all, windows, latest_s).comparison;
                let is_change = matches!(it.verdict, Verdict::Lower | Verdict::Higher);
                *count += u32::from(is_change);
                let Some(range) = it.range.filter(|_| is_change) else { continue };
                let is_lower = it.verdict == Verdict::Lower;
                assert_eq!(it.later.unwrap().p50 < it.earlier.unwrap().p50, is_lower);
                let ends = [Some(range.low), range.middle, range.high].map(Option::unwrap);
                assert!(ends.iter().all(|end| (*end < 1.0) == is_lower), "{range:?}");
            }
        }
        assert!(alarms <= 20, "{alarms} of {lines}");
        assert!(found >= 1_500, "{found} of {lines}");
    }
}
