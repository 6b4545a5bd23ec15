//! The record of a run and its provenance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Expectation, Headline, PlotRecord, StudyRecord, TrialRecord, VariantSummary};
use crate::comparison::{Comparison, Modes, Overload};
use crate::judgement::Judgement;

/// The version of the run directory's format whose `run.json` contains all of [`RunRecord`]. A
/// directory that stores the trials in a table has the next version and is read into the same type.
pub const FORMAT_VERSION: u32 = 1;

/// All trials of one scenario: the content of `run.json`.
///
/// In the `sim` world all but [`RunRecord::host`] depends on scenario, seed and commit alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT_VERSION`]; on disk the version of the directory.
    pub format_version: u32,
    /// Version of the program that ran it, for example `0.1.0`.
    pub tool_version: String,
    /// Commit of the program; `unknown` if it was built outside a checkout, with the suffix
    /// `-dirty` if the tree had changes.
    pub commit: String,
    pub scenario: ScenarioRecord,
    /// Every trial's seed derives from this seed.
    pub seed: u64,
    pub world: World,
    /// False until the run has ended; remains false if it was interrupted.
    pub complete: bool,
    /// The variants compared, in scenario order. The others are compared with the first.
    pub variants: Vec<VariantRecord>,
    /// Every finished trial, in the order of [`TrialRecord::index`].
    pub trials: Vec<TrialRecord>,
    /// Summaries of the variants, in scenario order; empty until the run is complete.
    pub summaries: Vec<VariantSummary>,
    /// Each variant compared with its baseline; empty until the run is complete, for a measured line, and
    /// for a run whose trials do not fit in memory together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// Variants whose AQM slept (RFC 8034, appendix A) under load in some trials and not in others, with a
    /// difference that a person notices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<Modes>,
    /// Directions that carry less than a variant's applications need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overloads: Vec<Overload>,
    /// The comparison of lines that are each measured several times a day; `None` without a study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyRecord>,
    /// Published numbers and how this run compares with them.
    pub expectations: Vec<Expectation>,
    /// Grade, added delay, uses and cure of a measured line; `None` in other worlds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// The findings of `underload measure` in sentences; for other runs they are computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdict: Vec<String>,
    /// The user's words about a measurement, such as "wifi"; empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The only part of a simulated run that may differ between two executions.
    pub host: HostFacts,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScenarioRecord {
    /// Name, for example `comcast/upstream`.
    pub name: String,
    /// A line for headings; may be empty.
    pub title: String,
    /// The whole file, so that the run can be repeated from its record alone.
    pub text: String,
    /// The main comparison; `None` if the scenario declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<PlotRecord>,
}

/// The worlds that can execute a scenario.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    #[default]
    Sim,
    /// Network namespaces, the kernel's own TCP, real time, our queue.
    Live,
    /// Linux's own TCP and queues, in the virtual time of a guest kernel.
    Kernel,
    /// Linux's own TCP before our queue, in the virtual time of a guest kernel.
    KernelTcp,
    /// A real network, measured from end to end.
    Measured,
}

impl World {
    const fn name_and_description(self) -> (&'static str, &'static str) {
        match self {
            World::Sim => ("sim", "simulated in virtual time"),
            World::Live => ("live", "emulated live with the kernel's own TCP"),
            World::Kernel => ("kernel", "run by Linux's own TCP and queues in virtual time"),
            World::KernelTcp => {
                ("kernel-tcp", "emulated with the kernel's own TCP in virtual time")
            }
            World::Measured => ("measured", "measured on a real network"),
        }
    }

    pub fn name(self) -> &'static str {
        self.name_and_description().0
    }

    /// Returns a description for readers who do not know the names.
    pub fn description(self) -> &'static str {
        self.name_and_description().1
    }
}

/// A variant of the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VariantRecord {
    /// Name in the scenario, for example `docsis-pie`.
    pub name: String,
    /// Queues with their profiles, for example `docsis-pie:profile=rfc`.
    pub label: String,
    /// Keys of the scenario whose values differ between the variants, with the values of this variant.
    /// Empty if the run does not know them, as for a measured line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, String>,
}

/// The machine and the time of a run, without names of persons or addresses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// When the run began, RFC 3339 with offset, for example `2026-11-21T01:04:00Z`.
    pub started: String,
    /// When the run was resumed after an interruption, as `started`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Duration of the run, or of its last part if it was resumed.
    pub duration_s: f64,
    /// Operating system and its version, for example `Debian GNU/Linux 13`.
    pub operating_system: String,
    /// Kernel release, for example `6.18.5`.
    pub kernel: String,
    /// Processor model, empty when unknown.
    pub processor: String,
    /// Logical processors available to the program.
    pub cores: u32,
    /// Clock source behind the time stamps, for example `tsc`; `virtual` in the sim world.
    pub clock: String,
    /// The only network interface that a measurement used; empty for those of the routes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
}
