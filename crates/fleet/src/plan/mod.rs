//! Plans: what to measure, on which lines and how often, and the load that this causes.

mod cohort;
mod error;
mod file;
mod load;
pub(crate) mod mistakes;
mod place;
mod preset;
mod values;

use serde::{Deserialize, Serialize};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::schedule::Window;

pub(crate) use cohort::drawn;
pub use cohort::{Cohort, CohortRule};
pub use error::PlanError;
pub(crate) use file::{ENTRIES_MAX, RUN_LASTS_MAX, error, name, within};
pub use load::{Directions, Excess, Load, ROW_BYTES, StepLoad, servers_for};
pub use preset::{PRESETS, preset};
pub use values::traffic_bytes;

pub const BYTES_MAX: usize = 1 << 20;
/// Longest name of a plan or a cohort, in bytes.
pub const NAME_MAX: usize = 64;
/// Maximum number of lines: a day of them is simulated within a few gigabytes of memory.
pub const LINES_MAX: u32 = 100_000_000;
pub const SERVERS_MAX: u32 = 100_000;

/// A plan that was parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Lower-case letters, digits and hyphens; unique among the plans of a fleet. May be empty in a
    /// file that is not applied.
    pub name: String,
    /// A line for people.
    pub title: String,
    /// The study that the plan repeats, and its assumptions; may be empty.
    pub description: String,
    /// Mean runs of a line per day, more than 0.
    pub runs_per_day: f64,
    /// Part of the day in which runs may begin.
    pub window: Window,
    /// No run begins at or after this time, milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// A run that is refused for this long after it was due counts as refused.
    pub start_within: Span,
    pub lines: Lines,
    /// Groups that are compared; empty for a single group.
    pub cohorts: Vec<Cohort>,
    /// Tiers of the lines, at least one; their shares add up to 1.
    pub tiers: Vec<Tier>,
    /// Steps of a run, in order, at least one.
    pub steps: Vec<Step>,
    pub servers: Servers,
    pub budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lines {
    pub count: u32,
    /// Lines that are measured, drawn at random.
    pub sample: u32,
    /// Lines that share a segment of the access network, such as a CMTS service group.
    pub per_segment: u32,
    /// Probability that a line carries traffic of its home when it is to be measured.
    pub busy: f64,
}

/// The rates that a line is sold with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tier {
    /// Share of the lines, from 0 to 1.
    pub share: f64,
    pub up: Rate,
    pub down: Rate,
}

underload_aqm::named! {
    /// The load of a step besides its probes. Stored results have the position in this list: a new
    /// load goes to its end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Kind {
        Latency = "latency",
        Upload = "upload",
        Download = "download",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    /// Load beside the probes.
    pub kind: Kind,
    /// Time that is measured.
    pub duration: Span,
    /// Time of load before the measurement.
    pub warm_up: Span,
    /// DSCP of each series of probes.
    pub classes: Vec<u8>,
    /// Interval between probes of a series.
    pub interval: Span,
    /// Size of a probe and of its answer.
    pub probe_bytes: u32,
}

/// Interval at which the one connection of a load is read.
const READING_NS: u64 = 10_000_000;

impl Step {
    /// Number of probes in each series.
    pub fn probes(&self) -> u64 {
        self.duration.as_nanos() / self.interval.as_nanos().max(1) + 1
    }

    /// Number of readings of the load's own round trips.
    pub fn readings(&self) -> u64 {
        if self.kind == Kind::Latency {
            return 0;
        }
        self.duration.as_nanos() / READING_NS + 1
    }

    /// Time that the step takes.
    pub fn lasts(&self) -> Span {
        self.warm_up + self.duration
    }

    /// Rate of its probes in each direction, bit/s.
    pub fn probes_bit_per_s(&self) -> u64 {
        let series = self.classes.len() as u128;
        let bits = u128::from(self.probe_bytes) * 8 * series * 1_000_000_000;
        u64::try_from(bits / u128::from(self.interval.as_nanos().max(1))).unwrap_or(u64::MAX)
    }

    /// Rates through a line of this tier: up and down, bit/s.
    pub fn bit_per_s(&self, tier: &Tier) -> (u64, u64) {
        let probes = self.probes_bit_per_s();
        match self.kind {
            Kind::Latency => (probes, probes),
            Kind::Upload => (tier.up.bits_per_second(), probes),
            Kind::Download => (probes, tier.down.bits_per_second()),
        }
    }
}

/// Servers of a plan, all equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Servers {
    pub count: u32,
    /// Capacity of one server in each direction.
    pub capacity: Rate,
}

/// Limits of a plan's load; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Bytes that a line sends and receives in 30 days.
    pub line_bytes_per_month: Option<u64>,
    /// Mean of all servers together in each direction, bit/s.
    pub servers_bit_per_s: Option<u64>,
    /// Requests to the orchestrator, mean per second.
    pub requests_per_s: Option<f64>,
}

impl Plan {
    /// Parses and checks a plan.
    ///
    /// # Errors
    /// Returns all errors of the text, with their lines.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        file::parse(text)
    }

    pub fn built_in(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Whether the plan's last day has ended at `now_ms`, milliseconds since 1970.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until| now_ms >= until)
    }

    pub fn step(&self, name: &str, kind: Kind) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name && step.kind == kind)
    }

    /// Time that a run takes.
    pub fn run_lasts(&self) -> Span {
        self.steps.iter().fold(Span::ZERO, |sum, step| sum + step.lasts())
    }

    /// Highest rates of a run through a line of this tier: up and down, bit/s.
    pub fn peak_bit_per_s(&self, tier: &Tier) -> (u64, u64) {
        let peaks = self.steps.iter().map(|step| step.bit_per_s(tier));
        peaks.fold((0, 0), |most, rates| (most.0.max(rates.0), most.1.max(rates.1)))
    }

    /// Whether a run fills its line. Such runs of one segment must not overlap.
    pub fn loads_lines(&self) -> bool {
        self.steps.iter().any(|step| step.kind != Kind::Latency)
    }
}

/// Names and texts of the built-in plans.
pub const BUILT_IN: [(&str, &str); 3] = [
    ("buffer-control-trial", include_str!("../../plans/buffer-control-trial.toml")),
    ("comcast-study", include_str!("../../plans/comcast-study.toml")),
    ("low-latency-trial", include_str!("../../plans/low-latency-trial.toml")),
];
