//! What to measure, on which lines, how often, and what that costs.

mod cohort;
mod error;
mod file;
mod load;
mod mistakes;
mod place;
mod preset;
mod values;

use serde::{Deserialize, Serialize};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::schedule::Window;

pub use cohort::{Cohort, CohortRule};
pub use error::PlanError;
pub(crate) use file::{ENTRIES_MAX, RUN_LASTS_MAX};
pub use load::{Directions, Excess, Load, ROW_BYTES, StepLoad, servers_for};
pub use preset::{PRESETS, preset};
pub use values::traffic_bytes;

/// A file of more bytes is no plan.
pub const BYTES_MAX: usize = 1 << 20;
/// Bytes of a plan's or a cohort's name at most.
pub const NAME_MAX: usize = 64;
/// Lines at most: a day of them is simulated within a few gigabytes.
pub const LINES_MAX: u32 = 100_000_000;
/// Servers at most.
pub const SERVERS_MAX: u32 = 100_000;

/// A plan that has been read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Lower-case letters, digits and hyphens; unique among the plans of a fleet. Empty in a file
    /// that is only looked at.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Whose study it repeats and what it assumes; may be empty.
    pub description: String,
    /// Runs of a line on an average day, more than 0.
    pub runs_per_day: f64,
    /// When runs may begin.
    pub window: Window,
    /// No run begins from then on, milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// A run that is refused asks again for so long, and then counts as refused.
    pub start_within: Span,
    /// The lines.
    pub lines: Lines,
    /// Groups that are compared; none for one group.
    pub cohorts: Vec<Cohort>,
    /// The tiers that they are sold, at least one; their shares add up to 1.
    pub tiers: Vec<Tier>,
    /// What a run does, one after the other; at least one step.
    pub steps: Vec<Step>,
    /// Where it measures to.
    pub servers: Servers,
    /// What it may cost.
    pub budget: Budget,
}

/// The lines of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lines {
    /// Lines that there are.
    pub count: u32,
    /// Lines that are measured, drawn at random.
    pub sample: u32,
    /// Lines that share a segment of the access network, such as a CMTS service group.
    pub per_segment: u32,
    /// Probability that a line carries traffic of its home when it is to be measured.
    pub busy: f64,
}

/// What a line is sold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tier {
    /// Share of the lines, from 0 to 1.
    pub share: f64,
    /// Upstream.
    pub up: Rate,
    /// Downstream.
    pub down: Rate,
}

/// What a step of a run sends besides its probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing.
    Latency,
    /// As much as the upstream takes.
    Upload,
    /// As much as the downstream takes.
    Download,
}

impl Kind {
    /// As plans and results write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Upload => "upload",
            Self::Download => "download",
        }
    }
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// The load beside the probes.
    pub kind: Kind,
    /// How long it measures.
    pub duration: Span,
    /// How long it loads before that; nothing of it is measured.
    pub warm_up: Span,
    /// Marking of each series of probes, DSCP.
    pub classes: Vec<u8>,
    /// From one probe of a series to the next.
    pub interval: Span,
    /// Bytes of a probe, and of its answer.
    pub probe_bytes: u32,
}

impl Step {
    /// Probes of one of its series.
    pub fn probes(&self) -> u64 {
        self.duration.as_nanos() / self.interval.as_nanos().max(1) + 1
    }

    /// How long a line is at it.
    pub fn lasts(&self) -> Span {
        self.warm_up + self.duration
    }

    /// What its probes send each way, bit/s.
    pub fn probes_bit_per_s(&self) -> u64 {
        let series = self.classes.len() as u128;
        let bits = u128::from(self.probe_bytes) * 8 * series * 1_000_000_000;
        u64::try_from(bits / u128::from(self.interval.as_nanos().max(1))).unwrap_or(u64::MAX)
    }

    /// What it sends through a line of that tier: up and down, bit/s.
    pub fn bit_per_s(&self, tier: &Tier) -> (u64, u64) {
        let probes = self.probes_bit_per_s();
        match self.kind {
            Kind::Latency => (probes, probes),
            Kind::Upload => (tier.up.bits_per_second(), probes),
            Kind::Download => (probes, tier.down.bits_per_second()),
        }
    }
}

/// The servers of a plan, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Servers {
    /// How many.
    pub count: u32,
    /// What each takes and each sends.
    pub capacity: Rate,
}

/// What a plan may cost; nothing is limited that is not said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Bytes that a line sends and receives in 30 days.
    pub line_bytes_per_month: Option<u64>,
    /// Mean of all servers together, up and down each, bit/s.
    pub servers_bit_per_s: Option<u64>,
    /// Requests to whoever admits runs, per second on average.
    pub requests_per_s: Option<f64>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong, with its line where it has one.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        file::parse(text)
    }

    /// A plan that is built in, by its name; see [`BUILT_IN`].
    pub fn built_in(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Whether its last day is over, so that it would measure nothing, milliseconds since 1970.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until| now_ms >= until)
    }

    /// The step of that name and load; `None` if the plan has none.
    pub fn step(&self, name: &str, kind: Kind) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name && step.kind == kind)
    }

    /// How long a run takes.
    pub fn run_lasts(&self) -> Span {
        self.steps.iter().fold(Span::ZERO, |sum, step| sum + step.lasts())
    }

    /// The most that a run sends at once through a line of that tier: up and down, bit/s.
    pub fn peak_bit_per_s(&self, tier: &Tier) -> (u64, u64) {
        let peaks = self.steps.iter().map(|step| step.bit_per_s(tier));
        peaks.fold((0, 0), |most, rates| (most.0.max(rates.0), most.1.max(rates.1)))
    }

    /// Whether a run fills a line, which it must not do while a neighbour does.
    pub fn loads_lines(&self) -> bool {
        self.steps.iter().any(|step| step.kind != Kind::Latency)
    }
}

/// The plans that are built in, and their texts.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("comcast-study", include_str!("../../plans/comcast-study.toml")),
    ("low-latency-trial", include_str!("../../plans/low-latency-trial.toml")),
];
