//! Outcomes and results of runs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use underload_record::judgement::Grade;

use crate::bins::{Bins, bin_of};
use crate::device::is_within;
use crate::plan::{Kind, Plan};

underload_aqm::named! {
    /// The outcome of a run that was due. Each such run has exactly one. Stored results have the
    /// position in this list: a new outcome goes to its end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Outcome {
        /// The run measured and its numbers are valid.
        Measured = "measured",
        /// The run measured, but the device was too busy for its numbers to be valid.
        Invalid = "invalid",
        /// No capacity was free before the time to begin the run had passed.
        Refused = "refused",
        /// The home used its line before or during the run.
        CrossTraffic = "cross traffic",
        /// The run began and did not end, for example because the server vanished.
        Failed = "failed",
        /// The device did not request the run, or requested it and sent no result.
        Missed = "missed",
    }
}

/// The result of a run. It contains no address. Stored results have the fields in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// Name of the plan.
    pub plan: String,
    /// Number of the device's run under this plan, from 1; 0 for a run without an assignment, made
    /// while no orchestrator answered ([`crate::message::Alone`]).
    pub run: u64,
    /// When the run began, or was due; milliseconds since 1970 by the device's clock, corrected by
    /// the orchestrator's.
    pub at_ms: u64,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Reason in words; empty if the run measured.
    #[serde(default)]
    pub reason: String,
    /// Name of the server that was measured to; empty if none was reached.
    #[serde(default)]
    pub server: String,
    /// Program that measured, with its version.
    #[serde(default)]
    pub version: String,
    /// Results of the steps.
    #[serde(default)]
    pub steps: Vec<StepResult>,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StepResult {
    /// Name of the step in the plan.
    pub step: String,
    /// Load of the step.
    pub kind: Kind,
    /// Payload received in the loaded direction, bit/s; `None` without load.
    pub goodput_bit_per_s: Option<u64>,
    /// Goodput in percent of the tier; `None` if the tier is unknown.
    pub tier_percent: Option<f64>,
    /// Grade of the step as [`underload_record::judgement`] decides it on the device, from the first
    /// class and the idle median of the same run; `None` without load, without such a median, and for
    /// a step that is not valid.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub grade: Option<Grade>,
    /// Series of probes, one for each DSCP.
    pub series: Vec<SeriesResult>,
    /// Round trips of the TCP connections that load the line, as a series of readings of which none
    /// is lost; `None` without load and if they are unknown.
    #[serde(default)]
    pub inside: Option<SeriesResult>,
}

/// The result of one series of probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SeriesResult {
    /// DSCP of the probes.
    pub dscp: u8,
    pub sent: u64,
    /// Probes without an answer in time. Quantiles count them as longer than all others.
    pub lost: u64,
    /// Round-trip times of the other probes.
    pub bins: Bins,
    /// Median over all probes, microseconds; `None` if that probe was lost.
    pub p50_us: Option<u64>,
    /// 99th percentile over all probes, microseconds; `None` if that probe was lost.
    pub p99_us: Option<u64>,
    /// Mean of the round-trip times, microseconds; `None` if all probes were lost.
    pub mean_us: Option<u64>,
    /// Longest round-trip time, microseconds; `None` if all probes were lost.
    pub max_us: Option<u64>,
}

impl SeriesResult {
    /// Whether the quantiles and the mean are possible for the bins: each within the bins with
    /// counts, allowing for rounding to microseconds, and above the first bin, because no other
    /// machine answers within a microsecond.
    fn is_of_its_bins(&self) -> bool {
        let (mut bins, numbers) =
            (self.bins.iter(), [self.p50_us, self.p99_us, self.mean_us, self.max_us]);
        let Some((least, _)) = bins.next() else {
            return numbers.iter().all(Option::is_none);
        };
        let greatest = bins.last().map_or(least, |(bin, _)| bin);
        let is_within = |us: u64| {
            let (before, after) = (us.saturating_sub(1), us.saturating_add(1));
            let is_near = bin_of(before as f64) <= greatest && bin_of(after as f64) >= least;
            is_near && us <= RunResult::DELAY_MAX_US
        };
        let has_mean = self.mean_us.is_some() && self.max_us.is_some();
        least > 0 && has_mean && numbers.into_iter().flatten().all(is_within)
    }
}

impl StepResult {
    /// Returns the first series of each DSCP.
    pub fn distinct_series(&self) -> impl Iterator<Item = &SeriesResult> {
        let mut markings = 0;
        self.series.iter().filter(move |series| is_first_of(&mut markings, series.dscp))
    }
}

/// Adds `dscp` to a set of DSCP values. Returns whether it was missing.
fn is_first_of(markings: &mut u64, dscp: u8) -> bool {
    let bit = 1 << (dscp & 63);
    let is_first = *markings & bit == 0;
    *markings |= bit;
    is_first
}

/// Returns a reason with its numbers replaced, so that reasons of one kind are equal: `waited for a
/// CPU 33 % of the time` becomes `waited for a CPU … % of the time`. Addresses and times count as
/// numbers.
pub fn kind_of_reason(reason: &str) -> String {
    let mut kind = String::with_capacity(reason.len());
    let mut letters = reason.chars().peekable();
    let mut before = None;
    while let Some(letter) = letters.next() {
        let is_part_of_word = before.is_some_and(|it: char| it.is_alphabetic() || it == '-');
        if letter.is_ascii_digit() && !is_part_of_word {
            let is_number = |it: &char| it.is_ascii_digit() || matches!(it, '.' | ',' | ':' | ' ');
            let mut rest = letters.clone();
            // Separators are part of the number if a digit follows.
            while let Some(next) = rest.next_if(is_number) {
                if next.is_ascii_digit() {
                    letters = rest.clone();
                }
            }
            kind.push('…');
            before = Some('…');
            continue;
        }
        kind.push(letter);
        before = Some(letter);
    }
    kind
}

impl RunResult {
    /// Returns the first step of each name; none if the run did not measure.
    pub fn distinct_steps(&self) -> impl Iterator<Item = &StepResult> {
        let steps = if self.outcome == Outcome::Measured { &self.steps[..] } else { &[] };
        let is_first = move |(place, step): &(usize, &StepResult)| {
            !steps[..*place].iter().any(|earlier| earlier.step == step.step)
        };
        steps.iter().enumerate().filter(is_first).map(|(_, step)| step)
    }

    /// Returns the series that count in sums, with their steps. Each step and DSCP counts once, and
    /// only in runs that the orchestrator scheduled: a device cannot gain weight by repeating
    /// series or by making more runs.
    pub fn pooled_series(&self) -> impl Iterator<Item = (&StepResult, &SeriesResult)> {
        let steps = self.distinct_steps().filter(|_| self.run > 0);
        steps.flat_map(|step| step.distinct_series().map(move |series| (step, series)))
    }

    /// Removes what the plan does not measure: steps with another name or load, other DSCPs,
    /// repetitions, series with more than [`Self::PROBES_EXCESS`] times the step's probes, and
    /// goodput, grade and round trips of a load without load.
    pub fn keep_planned(&mut self, plan: &Plan) {
        let mut names = BTreeSet::new();
        self.steps.retain_mut(|step| {
            let Some(planned) = plan.step(&step.step, step.kind) else { return false };
            if !names.insert(planned.name.as_str()) {
                return false;
            }
            let (probes_max, mut markings) = (Self::PROBES_EXCESS * planned.probes(), 0);
            step.series.retain(|series| {
                planned.classes.contains(&series.dscp)
                    && series.sent <= probes_max
                    && is_first_of(&mut markings, series.dscp)
            });
            if step.kind == Kind::Latency {
                (step.goodput_bit_per_s, step.tier_percent, step.grade) = (None, None, None);
            }
            let readings_max = Self::PROBES_EXCESS * planned.readings();
            step.inside = step.inside.take().filter(|it| it.dscp == 0 && it.sent <= readings_max);
            true
        });
    }

    /// Factor by which the probes of a series may exceed the plan's, because clocks differ.
    pub const PROBES_EXCESS: u64 = 2;
    /// Maximum number of steps of a run.
    pub const STEPS_MAX: usize = 64;
    /// Maximum number of series of a step.
    pub const SERIES_MAX: usize = 64;
    /// Maximum number of probes of a series; sums of many series do not overflow.
    pub const PROBES_MAX: u64 = 1 << 40;
    /// Longest round-trip time: no run lasts longer than this hour.
    pub const DELAY_MAX_US: u64 = 3_600_000_000;
    /// Highest goodput in percent of the tier.
    pub const PERCENT_MAX: f64 = 1e6;
    /// Maximum number of characters of a name.
    pub const NAME_MAX: usize = 128;
    /// Maximum number of bytes of a name: 64 characters of a server's name take up to 256.
    pub const NAME_BYTES_MAX: usize = 256;

    /// Whether a text is valid as a plan, step, server, version or reason. No database stores NUL.
    pub fn is_name(text: &str) -> bool {
        let is_short = is_within(text, Self::NAME_MAX) && text.len() <= Self::NAME_BYTES_MAX;
        is_short && !text.contains('\0')
    }

    /// Returns why a result is invalid; `None` if it is valid.
    pub fn fault(&self) -> Option<&'static str> {
        let steps = || self.steps.iter();
        let series = || steps().flat_map(|step| step.series.iter().chain(&step.inside));
        let names = [&self.plan, &self.reason, &self.server, &self.version];
        let mut names = names.into_iter().chain(steps().map(|step| &step.step));
        let is_short = |step: &StepResult| step.series.len() <= Self::SERIES_MAX;
        let mut rates = steps().filter_map(|step| step.goodput_bit_per_s);
        let mut percents = steps().filter_map(|step| step.tier_percent);
        let checks = [
            (
                names.all(|name| Self::is_name(name)),
                "a name is longer than 128 characters or 256 bytes, or contains the character 0",
            ),
            (
                self.steps.len() <= Self::STEPS_MAX && steps().all(is_short),
                "more than 64 steps, or series of a step",
            ),
            (series().all(|it| it.dscp <= 63), "a DSCP is above 63"),
            (series().all(|it| it.sent <= Self::PROBES_MAX), "more than a trillion probes"),
            (
                series().all(|it| it.bins.count().checked_add(it.lost) == Some(it.sent)),
                "the numbers of answered and lost probes do not add up to those sent",
            ),
            (
                series().all(SeriesResult::is_of_its_bins),
                "a delay is not within the bins of its series, or not above 1 us",
            ),
            (rates.all(|rate| i64::try_from(rate).is_ok()), "a rate is above 2^63"),
            (
                percents.all(|percent| (0.0..=Self::PERCENT_MAX).contains(&percent)),
                "a percentage of the tier is not a number from 0 to 1,000,000",
            ),
        ];
        checks.into_iter().find(|(is_valid, _)| !is_valid).map(|(_, fault)| fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_only_in_numbers_are_one_kind() {
        for (reason, kind) in [
            ("waited for a CPU 33 % of the time", "waited for a CPU … % of the time"),
            ("waited for a CPU 4.5 % of the time", "waited for a CPU … % of the time"),
            ("sent 1 234 of 5,678 probes.", "sent … of … probes."),
            ("east at 192.0.2.1:4862 refused", "east at … refused"),
            ("server cmts-1 and IPv6", "server cmts-1 and IPv6"),
            ("", ""),
        ] {
            assert_eq!(kind_of_reason(reason), kind);
        }
    }

    #[test]
    fn numbers_of_a_series_follow_from_its_bins() {
        let series = |bins: Vec<(u16, u64)>, numbers: [Option<u64>; 4]| {
            let bins = Bins::try_from(bins).expect("they are bins");
            let [p50_us, p99_us, mean_us, max_us] = numbers;
            let sent = bins.count();
            SeriesResult { dscp: 0, sent, lost: 0, bins, p50_us, p99_us, mean_us, max_us }
        };
        // From 20.0 to 20.4 ms, and from 103.6 to 105.7.
        let two = vec![(bin_of(20_100.0), 9), (bin_of(104_000.0), 1)];
        let good = [Some(20_100), Some(104_000), Some(28_490), Some(104_000)];
        assert!(series(two.clone(), good).is_of_its_bins());
        for (place, wrong) in [(0, 19_000), (1, 110_000), (2, 0), (3, u64::MAX), (3, 200)] {
            let mut numbers = good;
            numbers[place] = Some(wrong);
            assert!(!series(two.clone(), numbers).is_of_its_bins(), "{place}: {wrong}");
        }
        let lost = [None; 4];
        assert!(series(Vec::new(), lost).is_of_its_bins());
        assert!(!series(Vec::new(), good).is_of_its_bins());
        assert!(!series(two, lost).is_of_its_bins(), "answers have a mean");
        let longest = |us| series(vec![(crate::bins::BIN_MAX, 1)], [Some(us); 4]).is_of_its_bins();
        assert_eq!([200_000_000, RunResult::DELAY_MAX_US + 1].map(longest), [true, false]);
        assert!(!series(vec![(0, 1)], [Some(1); 4]).is_of_its_bins(), "none is so near");
        // Rounding moves a number into the next bin.
        let edge_us = (1..u32::MAX).find(|us| bin_of(f64::from(*us)) == 300).expect("there is one");
        let below = [Some(u64::from(edge_us) - 1); 4];
        assert!(series(vec![(300, 1)], below).is_of_its_bins());
    }
}
