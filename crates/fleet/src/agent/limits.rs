//! Limits of one home, which hold for every orchestrator.
//!
//! Orchestrators decide what is measured, where and when, so an attacker who controls one controls
//! the lines of all homes. The agent enforces these limits itself and no answer lifts them. Time
//! is that of a monotonic clock while the agent runs, so that setting a clock renews no allowance.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use underload_aqm::time::{Span, Time};

use crate::lease::LEASE_MAX;
use crate::message::{AssignedStep, ServerAddress};
use crate::outcome::RunResult;
use crate::plan::RUN_LASTS_MAX;
use crate::schedule::DAY;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest run to accept: the durations and warm-ups of all its steps.
    pub run_lasts: Span,
    /// Runs that may begin in any 24 hours. After the first [`ASK_BURST`], requests for runs are
    /// limited to four times this number.
    pub runs_per_day: u32,
    /// Bytes that runs may send and receive in any 24 hours.
    pub bytes_per_day: u64,
    /// Bytes that runs may send and receive in any 30 days.
    pub bytes_per_month: u64,
}

/// Maximum number of servers that one run tries.
pub const TRIES_MAX: usize = 4;
/// Pause between two attempts of one run.
pub const TRY_PAUSE: Span = Span::from_secs(3);
/// Requests for runs after the agent starts that are not paced.
pub const ASK_BURST: u64 = 60;
/// Maximum number of probes of a run: their samples are in memory until it ends.
const PROBES_MAX: u64 = 300_000;
/// Largest probe, with its headers.
const PROBE_BYTES_MAX: u32 = 1_500;
const ADDRESS_BYTES_MAX: usize = 256;
/// The traffic of an interrupted run is unknown; it counts as this fraction of the day's bytes.
const INTERRUPTED_PART: u64 = 10;

impl Default for Limits {
    /// The built-in plans move 264 MB a day and 7.9 GB a month (`low-latency-trial`), and 1.45 GB
    /// in a run a month (`comcast-study`); agents count 30 % more, for headers, losses and
    /// acknowledgements. A day allows two of the largest runs, a month four times the traffic of
    /// these plans, and runs may begin every five minutes.
    fn default() -> Self {
        Self {
            run_lasts: RUN_LASTS_MAX,
            runs_per_day: 300,
            bytes_per_day: 5_000_000_000,
            bytes_per_month: 50_000_000_000,
        }
    }
}

impl Limits {
    /// Returns why the steps of a run are rejected, `None` if they are accepted. Called before
    /// anything is summed or allocated.
    pub(super) fn fault(&self, steps: &[AssignedStep]) -> Option<String> {
        if steps.is_empty() || steps.len() > RunResult::STEPS_MAX {
            return Some(format!("{} steps; expected 1 to {}", steps.len(), RunResult::STEPS_MAX));
        }
        let (mut lasts_ms, mut probes) = (0_u64, 0_u64);
        for step in steps {
            let series = step.classes.len();
            let has_classes = (1..=RunResult::SERIES_MAX).contains(&series)
                && step.classes.iter().all(|dscp| *dscp <= 63);
            if !is_name(&step.name) {
                return Some("a step's name; expected 1 to 128 printable characters".to_owned());
            } else if !has_classes {
                let expected = "expected 1 to 64 of DSCP 0 to 63";
                return Some(format!("{series} series of probes; {expected}"));
            } else if step.interval_ms == 0 || step.probe_bytes > PROBE_BYTES_MAX {
                let expected = "expected an interval of 1 ms or more, and 1500 bytes or fewer";
                return Some(format!("probes; {expected}"));
            }
            let step_ms = step.warm_up_ms.saturating_add(step.duration_ms);
            lasts_ms = lasts_ms.saturating_add(step_ms);
            let each = step_ms / step.interval_ms + 1;
            probes = probes.saturating_add(each.saturating_mul(series as u64));
        }
        let most_ms = self.run_lasts.as_millis();
        if lasts_ms > most_ms {
            let (asked, most) = (lasts_ms / 1_000, most_ms / 1_000);
            return Some(format!("a run of {asked} s; this agent allows {most} s (--run-max)"));
        }
        (probes > PROBES_MAX)
            .then(|| format!("{probes} probes in a run; this agent sends at most {PROBES_MAX}"))
    }

    /// Mean interval between two requests for runs.
    pub(super) fn ask_interval(&self) -> Span {
        Span::from_nanos(DAY.as_nanos() / 4 / u64::from(self.runs_per_day.max(1)))
    }
}

/// Whether a result may carry this text as a name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && RunResult::is_name(text) && !text.chars().any(char::is_control)
}

pub(super) fn is_server(server: &ServerAddress) -> bool {
    let texts = [&server.address, &server.fingerprint];
    is_name(&server.name) && texts.iter().all(|text| text.len() <= ADDRESS_BYTES_MAX)
}

pub(super) fn is_lease(text: &str) -> bool {
    text.len() <= LEASE_MAX
}

/// Runs and traffic of the last day and month. Only time during which the agent runs counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Milliseconds of the present hour that have passed.
    hour_ms: u64,
    /// Hours of the present day that have passed.
    hours: u32,
    /// Runs and bytes of the present hour and of the 24 before, newest first.
    by_hour: VecDeque<(u32, u64)>,
    /// Bytes of the present day and of the 30 before, newest first.
    by_day: VecDeque<u64>,
}

const HOUR_MS: u64 = 3_600_000;
/// Hours that overlap the last 24 hours: the present hour and the 24 before it.
const HOURS: usize = 25;
const DAYS: usize = 31;

impl Usage {
    pub(super) fn pass(&mut self, span: Span) {
        let ms = self.hour_ms.saturating_add(span.as_millis());
        self.hour_ms = ms % HOUR_MS;
        // After this many hours all entries are new.
        for _ in 0..(ms / HOUR_MS).min(DAYS as u64 * 24) {
            self.by_hour.push_front((0, 0));
            self.by_hour.truncate(HOURS);
            self.hours += 1;
            if self.hours >= 24 {
                self.hours = 0;
                self.by_day.push_front(0);
                self.by_day.truncate(DAYS);
            }
        }
    }

    pub(super) fn add_run(&mut self) {
        self.present_hour().0 += 1;
    }

    pub(super) fn add_bytes(&mut self, bytes: u64) {
        let hour = &mut self.present_hour().1;
        *hour = hour.saturating_add(bytes);
        if self.by_day.is_empty() {
            self.by_day.push_front(0);
        }
        if let Some(day) = self.by_day.front_mut() {
            *day = day.saturating_add(bytes);
        }
    }

    /// Counts the traffic of a run that a kill or a power cut ended.
    pub(super) fn add_interrupted(&mut self, limits: &Limits) {
        self.add_bytes(limits.bytes_per_day / INTERRUPTED_PART);
    }

    fn present_hour(&mut self) -> &mut (u32, u64) {
        if self.by_hour.is_empty() {
            self.by_hour.push_front((0, 0));
        }
        &mut self.by_hour[0]
    }

    /// Bytes that a run may transfer now.
    pub(super) fn bytes_left(&self, limits: &Limits) -> u64 {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
        let day = sum(&mut self.by_hour.iter().map(|(_, bytes)| *bytes));
        let month = sum(&mut self.by_day.iter().copied());
        let of_day = limits.bytes_per_day.saturating_sub(day);
        of_day.min(limits.bytes_per_month.saturating_sub(month))
    }

    /// Returns the limit that prevents a run from beginning now.
    pub(super) fn exhausted(&self, limits: &Limits) -> Option<&'static str> {
        let runs = self.by_hour.iter().fold(0_u32, |sum, (runs, _)| sum.saturating_add(*runs));
        if runs >= limits.runs_per_day {
            return Some("this agent's limit of runs a day (--runs-max) is reached");
        }
        (self.bytes_left(limits) == 0).then_some(LIMIT_OF_BYTES)
    }
}

/// Reason of a run that did not begin, or ended early, because its bytes were used up.
pub const LIMIT_OF_BYTES: &str =
    "this agent's limit of bytes a day (--day-max) or a month (--month-max) is reached";

/// Limits requests for runs: at most [`ASK_BURST`] at once, and then one each
/// [`Limits::ask_interval`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When the next request would be due if requests had been sent at each interval.
    reached: Time,
}

impl Pace {
    pub(super) fn new(now: Time) -> Self {
        Self { reached: now }
    }

    pub(super) fn count(&mut self, now: Time, limits: &Limits) {
        self.reached = self.reached.max(now) + limits.ask_interval();
    }

    pub(super) fn next(self, limits: &Limits) -> Time {
        let burst = limits.ask_interval() * ASK_BURST;
        Time::from_nanos(self.reached.as_nanos().saturating_sub(burst.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{BUILT_IN, Kind, Load, Plan};

    const HOUR: Span = Span::from_secs(3_600);

    fn step() -> AssignedStep {
        AssignedStep {
            name: "loaded".to_owned(),
            kind: Kind::Upload,
            duration_ms: 7_000,
            warm_up_ms: 3_000,
            classes: vec![0, 8, 45],
            interval_ms: 20,
            probe_bytes: 100,
        }
    }

    #[test]
    fn steps_that_no_plan_has_are_refused_before_they_are_summed() {
        let limits = Limits::default();
        let told = |steps: Vec<AssignedStep>| limits.fault(&steps).unwrap_or_default();
        assert_eq!(told(vec![step()]), "");
        let longest = AssignedStep { duration_ms: 3_597_000, interval_ms: 100, ..step() };
        assert_eq!(told(vec![longest.clone()]), "");
        for (steps, words) in [
            (
                vec![AssignedStep { duration_ms: u64::MAX, ..step() }; 64],
                "this agent allows 3600 s",
            ),
            (vec![AssignedStep { duration_ms: 3_597_001, ..longest }], "this agent allows 3600 s"),
            (vec![AssignedStep { warm_up_ms: u64::MAX, ..step() }], "this agent allows 3600 s"),
            (vec![step(); 65], "65 steps; expected 1 to 64"),
            (Vec::new(), "0 steps; expected 1 to 64"),
            (vec![AssignedStep { classes: vec![0; 65], ..step() }], "65 series"),
            (vec![AssignedStep { classes: Vec::new(), ..step() }], "0 series"),
            (vec![AssignedStep { classes: vec![64], ..step() }], "DSCP 0 to 63"),
            (vec![AssignedStep { interval_ms: 0, ..step() }], "interval"),
            (vec![AssignedStep { probe_bytes: 65_535, ..step() }], "1500 bytes"),
            (vec![AssignedStep { name: "x".repeat(129), ..step() }], "name"),
            (vec![AssignedStep { name: "\u{20000}".repeat(65), ..step() }], "name"),
            (vec![AssignedStep { interval_ms: 1, duration_ms: 100_000, ..step() }], "probes"),
        ] {
            let found = told(steps);
            assert!(found.contains(words), "{found}, not {words}");
        }
    }

    #[test]
    fn no_24_hours_and_no_30_days_exceed_their_bytes() {
        let limits = Limits { bytes_per_day: 1_000, bytes_per_month: 9_000, ..Limits::default() };
        let (mut usage, mut moved) = (Usage::default(), Vec::new());
        // Uses all remaining bytes every 20 minutes for 100 days.
        for slot in 0..100 * 72_usize {
            let bytes = usage.bytes_left(&limits).min(if slot % 5 == 0 { 700 } else { 90 });
            usage.add_bytes(bytes);
            moved.push(bytes);
            let most = |slots: usize| moved.iter().rev().take(slots).sum::<u64>();
            assert!(most(72) <= 1_000 && most(72 * 30) <= 9_000, "slot {slot}");
            usage.pass(Span::from_secs(1_200));
        }
        let total: u64 = moved.iter().sum();
        assert!(total > 26_000, "and the allowance comes back: {total}");
    }

    #[test]
    fn the_limit_of_runs_per_day_is_lifted_after_a_day() {
        let limits = Limits { runs_per_day: 3, ..Limits::default() };
        let mut usage = Usage::default();
        for _ in 0..3 {
            assert_eq!(usage.exhausted(&limits), None);
            usage.add_run();
        }
        usage.pass(HOUR * 24);
        assert!(usage.exhausted(&limits).is_some_and(|why| why.contains("runs a day")));
        usage.pass(HOUR);
        assert_eq!(usage.exhausted(&limits), None);
        usage.pass(Span::from_nanos(u64::MAX));
        usage.add_interrupted(&limits);
        assert_eq!(usage.bytes_left(&limits), limits.bytes_per_day / 10 * 9);
    }

    #[test]
    fn the_defaults_are_well_above_what_the_built_in_plans_take() {
        let limits = Limits::default();
        for (name, text) in BUILT_IN {
            let plan = Plan::parse(text).expect(name);
            let load = Load::of(&plan);
            // Delivered payload, plus 25 % for headers and losses and 5 % for acknowledgements.
            let counted = |payload: f64| 1.3 * payload;
            let run: f64 = load.steps.iter().map(|step| step.bytes_per_run).sum();
            let day = counted(run) * plan.runs_per_day.max(1.0);
            assert!(2.0 * day < limits.bytes_per_day as f64, "{name}: {day} bytes a day");
            let month = counted(load.line_bytes_per_month);
            assert!(4.0 * month < limits.bytes_per_month as f64, "{name}: {month} a month");
            assert!(plan.runs_per_day * 40.0 < f64::from(limits.runs_per_day), "{name}");
        }
    }

    #[test]
    fn requests_are_paced_once_a_burst_is_used() {
        let limits = Limits { runs_per_day: 6, ..Limits::default() };
        let (mut now, mut asked) = (Time::ZERO + HOUR * 1_000, 0);
        let (mut pace, end) = (Pace::new(now), now + HOUR * 240);
        loop {
            now = now.max(pace.next(&limits));
            if now > end {
                break;
            }
            pace.count(now, &limits);
            asked += 1;
        }
        assert_eq!(asked, ASK_BURST + 240 + 1, "four times six a day for ten days");
    }
}
