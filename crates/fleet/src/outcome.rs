//! What became of a run, and what it measured.

use serde::{Deserialize, Serialize};

use crate::bins::Bins;
use crate::device::is_within;
use crate::plan::Kind;

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

impl RunResult {
    /// Steps of a run at most.
    pub const STEPS_MAX: usize = 64;
    /// Series of a step at most.
    pub const SERIES_MAX: usize = 64;
    /// Probes of a series at most, so that sums of many series do not overflow.
    pub const PROBES_MAX: u64 = 1 << 40;
    /// Characters of a name at most.
    pub const NAME_MAX: usize = 128;

    /// What is wrong with it that its type lets through; `None` where nothing is.
    pub fn fault(&self) -> Option<&'static str> {
        let names = [&self.plan, &self.reason, &self.server, &self.version];
        let steps = self.steps.iter().map(|step| &step.step);
        let mut names = names.into_iter().chain(steps);
        if !names.clone().all(|name| is_within(name, Self::NAME_MAX)) {
            return Some("a name is longer than 128 characters");
        }
        if names.any(|name| name.contains('\0')) {
            return Some("a name holds the character 0, which no database takes");
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
        let rates = self.steps.iter().filter_map(|step| step.goodput_bit_per_s);
        let delays = self.steps.iter().flat_map(|step| &step.series);
        let of = |it: &SeriesResult| [it.p50_us, it.p99_us, it.mean_us, it.max_us];
        if rates.chain(delays.flat_map(of).flatten()).any(|number| number > i64::MAX as u64) {
            return Some("a rate or a delay is above 2^63");
        }
        let percent = self.steps.iter().filter_map(|step| step.tier_percent);
        if percent.clone().any(|percent| !percent.is_finite() || percent < 0.0) {
            return Some("a percentage is not a number of at least 0");
        }
        None
    }
}
