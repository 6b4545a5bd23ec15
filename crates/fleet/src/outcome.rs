//! What became of a run, and what it measured.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::bins::{Bins, bin_of};
use crate::device::is_within;
use crate::plan::{Kind, Plan};

/// What became of a run that was due. Every run that was due has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It measured, and what it measured may be believed.
    Measured,
    /// It measured, but the device was too busy for its numbers to be believed.
    Invalid,
    /// Nobody had room for it until its time was over.
    Refused,
    /// The home used its line, before or during the run.
    CrossTraffic,
    /// It began and did not end: a server that vanished, a connection that broke.
    Failed,
    /// It was due, and the device did not ask, or asked and was not heard of again.
    Missed,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] = [
        Self::Measured,
        Self::Invalid,
        Self::Refused,
        Self::CrossTraffic,
        Self::Failed,
        Self::Missed,
    ];

    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::CrossTraffic => "cross traffic",
            Self::Failed => "failed",
            Self::Missed => "missed",
        }
    }
}

/// What a run handed in. No address is part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The plan, by its name.
    pub plan: String,
    /// Which run of the device under this plan, from 1; 0 for one that nobody scheduled, made while
    /// no orchestrator answered ([`crate::message::Alone`]).
    pub run: u64,
    /// When it began, or should have; milliseconds since 1970 by the device's clock, set right by
    /// what the orchestrator's showed.
    pub at_ms: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, in words; empty where it measured.
    #[serde(default)]
    pub reason: String,
    /// The server that it measured to, by its name; empty where it reached none.
    #[serde(default)]
    pub server: String,
    /// The program that measured, with its version.
    #[serde(default)]
    pub version: String,
    /// What each step showed.
    #[serde(default)]
    pub steps: Vec<StepResult>,
}

/// What a step of a run showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StepResult {
    /// Its name in the plan.
    pub step: String,
    /// What it loaded.
    pub kind: Kind,
    /// Payload that arrived through the loaded direction, bit/s; `None` without load.
    #[serde(default)]
    pub goodput_bit_per_s: Option<u64>,
    /// The same in percent of the tier; `None` where no tier is known.
    #[serde(default)]
    pub tier_percent: Option<f64>,
    /// The series of probes, one for each marking.
    pub series: Vec<SeriesResult>,
}

/// What one series of probes showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SeriesResult {
    /// Its marking.
    pub dscp: u8,
    /// Probes that were sent.
    pub sent: u64,
    /// Probes that no answer came to in time. Quantiles take them as longer than all others.
    pub lost: u64,
    /// Round trips of the others, in bins.
    pub bins: Bins,
    /// Half of all probes took at most so long, microseconds; `None` where that one was lost.
    pub p50_us: Option<u64>,
    /// 99 of 100 probes took at most so long, microseconds; `None` where that one was lost.
    pub p99_us: Option<u64>,
    /// Mean of the round trips, microseconds; `None` where all were lost.
    pub mean_us: Option<u64>,
    /// The longest round trip, microseconds; `None` where all were lost.
    pub max_us: Option<u64>,
}

impl SeriesResult {
    /// Whether its numbers can be of the round trips that its bins have: each between the least and
    /// the greatest of them, as far as rounding to microseconds lets one tell, and all above the
    /// first bin, whose microsecond no answer of another machine takes.
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
    /// The series, the first one of each marking.
    pub fn distinct_series(&self) -> impl Iterator<Item = &SeriesResult> {
        let mut markings = 0;
        self.series.iter().filter(move |series| is_first_of(&mut markings, series.dscp))
    }
}

/// Whether `markings`, a set of DSCP values, was without `dscp`, which it then contains.
fn is_first_of(markings: &mut u64, dscp: u8) -> bool {
    let bit = 1 << (dscp & 63);
    let is_first = *markings & bit == 0;
    *markings |= bit;
    is_first
}

/// Returns a reason without its numbers: `waited for a CPU 33 % of the time` and `38 %` are one
/// kind, `waited for a CPU … % of the time`. Addresses and times count as numbers.
pub fn kind_of_reason(reason: &str) -> String {
    let mut kind = String::with_capacity(reason.len());
    let mut letters = reason.chars().peekable();
    let mut before = None;
    while let Some(letter) = letters.next() {
        let is_part_of_word = before.is_some_and(|it: char| it.is_alphabetic() || it == '-');
        if letter.is_ascii_digit() && !is_part_of_word {
            let is_number = |it: &char| it.is_ascii_digit() || matches!(it, '.' | ',' | ':' | ' ');
            let mut rest = letters.clone();
            // Separators count where a digit follows.
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
    /// The steps of a run that measured, the first one of each name.
    pub fn distinct_steps(&self) -> impl Iterator<Item = &StepResult> {
        let steps = if self.outcome == Outcome::Measured { &self.steps[..] } else { &[] };
        let is_first = move |(place, step): &(usize, &StepResult)| {
            !steps[..*place].iter().any(|earlier| earlier.step == step.step)
        };
        steps.iter().enumerate().filter(is_first).map(|(_, step)| step)
    }

    /// The series that count in pooled numbers, with their steps. Each step and marking counts
    /// once, and only in a run that the orchestrator scheduled: a device cannot add weight by
    /// repeating series or by making further runs.
    pub fn pooled_series(&self) -> impl Iterator<Item = (&StepResult, &SeriesResult)> {
        let steps = self.distinct_steps().filter(|_| self.run > 0);
        steps.flat_map(|step| step.distinct_series().map(move |series| (step, series)))
    }

    /// Removes everything that the plan does not measure: steps of another name or load, markings
    /// that the step does not probe, repetitions, series of more than [`Self::PROBES_EXCESS`]
    /// times the probes of the step, and throughput without load.
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
                (step.goodput_bit_per_s, step.tier_percent) = (None, None);
            }
            true
        });
    }

    /// A series may have this many times the probes that its step sends, for clocks that differ.
    pub const PROBES_EXCESS: u64 = 2;
    /// Steps of a run at most.
    pub const STEPS_MAX: usize = 64;
    /// Series of a step at most.
    pub const SERIES_MAX: usize = 64;
    /// Probes of a series at most, so that sums of many series do not overflow.
    pub const PROBES_MAX: u64 = 1 << 40;
    /// The longest round trip: no run lasts longer than this hour.
    pub const DELAY_MAX_US: u64 = 3_600_000_000;
    /// The greatest share of its tier that a line may reach: ten thousand times what it was sold.
    pub const PERCENT_MAX: f64 = 1e6;
    /// Characters of a name at most.
    pub const NAME_MAX: usize = 128;
    /// Bytes of a name at most: 64 characters of a server's name take up to 256.
    pub const NAME_BYTES_MAX: usize = 256;

    /// Whether a plan, a step, a server, a version or a reason may have this text. No database
    /// stores the character 0.
    pub fn is_name(text: &str) -> bool {
        let is_short = is_within(text, Self::NAME_MAX) && text.len() <= Self::NAME_BYTES_MAX;
        is_short && !text.contains('\0')
    }

    /// What is wrong with it that its type lets through; `None` where nothing is.
    pub fn fault(&self) -> Option<&'static str> {
        let names = [&self.plan, &self.reason, &self.server, &self.version];
        let steps = self.steps.iter().map(|step| &step.step);
        let mut names = names.into_iter().chain(steps);
        if !names.all(|name| Self::is_name(name)) {
            return Some(
                "a name is longer than 128 characters or 256 bytes, or holds the character 0",
            );
        }
        let too_many = self.steps.iter().any(|step| step.series.len() > Self::SERIES_MAX);
        if self.steps.len() > Self::STEPS_MAX || too_many {
            return Some("more than 64 steps, or series of a step");
        }
        let mut series = self.steps.iter().flat_map(|step| &step.series);
        if series.clone().any(|series| series.dscp > 63) {
            return Some("a DSCP is above 63");
        }
        if series.clone().any(|series| series.sent > Self::PROBES_MAX) {
            return Some("more than a trillion probes");
        }
        if series.any(|series| series.bins.count().checked_add(series.lost) != Some(series.sent)) {
            return Some("answered and lost probes are not those that were sent");
        }
        let mut series = self.steps.iter().flat_map(|step| &step.series);
        if series.any(|series| !series.is_of_its_bins()) {
            return Some("a delay is not within the bins of its series, or not above 1 us");
        }
        let mut rates = self.steps.iter().filter_map(|step| step.goodput_bit_per_s);
        if rates.any(|rate| rate > i64::MAX as u64) {
            return Some("a rate is above 2^63");
        }
        let percent = self.steps.iter().filter_map(|step| step.tier_percent);
        if !percent.clone().all(|percent| (0.0..=Self::PERCENT_MAX).contains(&percent)) {
            return Some("a percentage of the tier is not a number from 0 to 1,000,000");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_of_one_kind() {
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
    fn numbers_of_a_series_are_of_its_bins() {
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
