//! Trends of one line that is measured repeatedly: baseline, change, hours and days.
//!
//! Each value has its time and step. The first days are the baseline; the latest runs are compared
//! with it by their medians, because single runs on a home's line depend on the home's other
//! traffic.

use serde::Serialize;

use crate::schema::Estimate;
use crate::stats::{hodges_lehmann_shift, nearest_rank};

const DAY_S: i64 = 86_400;
/// Minimum number of runs for a change.
pub const RUNS_MIN: usize = 3;
/// Confidence of the interval of a [`Contrast`]. At most one of a hundred trials of nothing shows
/// an effect, because a line stays shaped for months after such an error.
pub const CONTRAST_CONFIDENCE: f64 = 0.99;

underload_aqm::named! {
    /// A number of a line that is compared from run to run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Followed {
        LoadP99 = "load-p99",
        LoadP50 = "load-p50",
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
    /// In the unit of its [`Followed`].
    pub value: f64,
}

/// A dated remark about a line, such as "new router".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Seconds since 1970.
    pub at_s: i64,
    pub text: String,
}

/// A number of a step before and after a mark: from the mark before it, or the first run, to the
/// mark after it, or the latest run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub step: String,
    pub followed: Followed,
    pub before: Option<Level>,
    pub after: Option<Level>,
    /// Change of the median; `None` if either side has fewer than [`RUNS_MIN`] runs.
    pub change_percent: Option<f64>,
    /// Whether the median after the mark is outside of what four of five runs before it had.
    pub is_beyond: bool,
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

/// Returns the change of the median, percent; `None` if a level has fewer than [`RUNS_MIN`] runs.
fn change_percent(before: Option<Level>, after: Option<Level>) -> Option<f64> {
    let enough = |level: Option<Level>| level.filter(|level| level.runs >= RUNS_MIN);
    let (before, after) = enough(before).zip(enough(after))?;
    (before.p50 > 0.0).then(|| (after.p50 / before.p50 - 1.0) * 100.0)
}

/// The values of the runs with and without a treatment whose times were drawn by lot.
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

    /// Returns whether the values with the treatment are above those without it; `None` if the
    /// interval contains 0, so that no effect is shown.
    pub fn is_more(&self) -> Option<bool> {
        let is_above = self.shift.low.is_some_and(|low| low > 0.0);
        let is_below = self.shift.high.is_some_and(|high| high < 0.0);
        (is_above || is_below).then_some(is_above)
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
    /// Change of the median from the baseline to the latest runs; `None` if either has fewer than
    /// [`RUNS_MIN`] runs.
    pub change_percent: Option<f64>,
    /// Medians by hour of the day, UTC.
    pub hours: Vec<Option<Level>>,
    /// Medians by day of the week, Monday first, UTC.
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
        let change_percent = change_percent(baseline, recent);
        let of_hour = |hour: i64| level(&|point| point.at_s.rem_euclid(DAY_S) / 3600 == hour);
        // 1970 began on a Thursday.
        let of_day =
            |day: i64| level(&|point| (point.at_s.div_euclid(DAY_S) + 3).rem_euclid(7) == day);
        let (hours, days) = ((0..24).map(of_hour).collect(), (0..7).map(of_day).collect());
        let step = step.to_owned();
        Self { step, followed, points, baseline, recent, is_current, change_percent, hours, days }
    }

    /// Compares the runs on both sides of each mark; `marks` are in order of time. Returns `None`
    /// for a mark without a run on either side.
    pub fn around(&self, marks: &[Mark]) -> Vec<Option<Change>> {
        let at = |place: usize| marks.get(place).map(|mark| mark.at_s);
        let around = |(place, mark): (usize, &Mark)| {
            let from_s = place.checked_sub(1).and_then(at).unwrap_or(i64::MIN);
            let to_s = at(place + 1).unwrap_or(i64::MAX);
            let level = |range: std::ops::Range<i64>| {
                let inside = self.points.iter().filter(|it| range.contains(&it.at_s));
                Level::new(inside.map(|it| it.value))
            };
            let (before, after) = (level(from_s..mark.at_s), level(mark.at_s..to_s));
            before.or(after)?;
            let change_percent = change_percent(before, after);
            let is_beyond = before.zip(after).is_some_and(|(before, after)| {
                change_percent.is_some() && !(before.p10..=before.p90).contains(&after.p50)
            });
            let (step, followed) = (self.step.clone(), self.followed);
            Some(Change { step, followed, before, after, change_percent, is_beyond })
        };
        marks.iter().enumerate().map(around).collect()
    }

    /// Returns whether the latest runs are worse than the baseline by at least `percent`, and worse
    /// than 90 % of the baseline's runs.
    pub fn is_worse_by(&self, percent: f64) -> bool {
        let Some(((baseline, recent), change)) =
            self.baseline.zip(self.recent).zip(self.change_percent)
        else {
            return false;
        };
        if self.followed.more_is_worse() {
            change >= percent && recent.p50 > baseline.p90
        } else {
            change <= -percent && recent.p50 < baseline.p10
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Windows = Windows { baseline_s: 7 * DAY_S, recent_s: DAY_S };

    /// A run every six hours for `days`; the runs of the last day have the value `late`.
    fn points(days: i64, usual: impl Fn(i64) -> f64, late: f64) -> Vec<Point> {
        (0..days * 4)
            .map(|run| {
                let value = if run >= (days - 1) * 4 { late } else { usual(run) };
                Point { at_s: 1_790_000_000 + run * 6 * 3600, value }
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
        assert_eq!(worse.change_percent.map(f64::round), Some(50.0));
        assert!(worse.is_worse_by(50.0) && !worse.is_worse_by(51.0));
        // A value that one of ten baseline runs exceeds does not count as a change.
        let wide = trend(points(14, |run| if run % 5 == 0 { 90.0 } else { 42.0 }, 63.0));
        assert!(wide.change_percent.unwrap() >= 49.0 && !wide.is_worse_by(10.0));
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
        assert_eq!((young.recent, young.change_percent), (None, None));
        assert!(!young.is_worse_by(0.0));
        let empty = trend(Vec::new());
        assert_eq!((empty.baseline, empty.recent), (None, None));
        let strange = trend(vec![Point { at_s: i64::MAX, value: f64::NAN }]);
        assert!(strange.points.is_empty());
        let far =
            trend(vec![Point { at_s: i64::MIN, value: 1.0 }, Point { at_s: i64::MAX, value: 2.0 }]);
        assert_eq!(far.points.len(), 2);
    }

    #[test]
    fn a_mark_divides_the_runs_up_to_its_neighbours() {
        let trend = trend(points(14, |run| if run < 20 { 40.0 } else { 20.0 }, 20.0));
        let mark = |run: i64| Mark { at_s: 1_790_000_000 + run * 6 * 3600, text: String::new() };
        let [first, second] = &trend.around(&[mark(20), mark(40)])[..] else { panic!() };
        let first = first.as_ref().unwrap();
        assert_eq!((first.before.unwrap().runs, first.after.unwrap().runs), (20, 20));
        assert_eq!(first.change_percent, Some(-50.0));
        assert!(first.is_beyond);
        let second = second.as_ref().unwrap();
        assert_eq!(second.change_percent, Some(0.0));
        assert!(!second.is_beyond, "no other value than before");
        // After the last run, and with too few runs before.
        let [late] = &trend.around(&[mark(900)])[..] else { panic!() };
        assert!(late.as_ref().is_some_and(|it| it.after.is_none() && it.change_percent.is_none()));
        let [early] = &trend.around(&[mark(2)])[..] else { panic!() };
        assert_eq!(early.as_ref().unwrap().change_percent, None);
        assert_eq!(trend_of(Followed::LoadP99, Vec::new()).around(&[mark(1)]), [None]);
    }

    #[test]
    fn medians_by_hour_and_day_are_separate() {
        // 2026-11-23, a Monday, 13:30 UTC: date -ud '2026-11-23 13:30' +%s
        let trend = trend(vec![Point { at_s: 1_795_440_600, value: 5.0 }]);
        assert_eq!(trend.hours[13].map(|level| level.p50), Some(5.0));
        assert_eq!(trend.days[0].map(|level| level.runs), Some(1));
        assert_eq!(trend.hours.iter().flatten().count() + trend.days.iter().flatten().count(), 2);
    }
}
