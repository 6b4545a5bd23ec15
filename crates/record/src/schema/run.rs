//! Provenance: what was run, by what, where and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ArmSummary, Expectation, Headline, PlotRecord, StudyRecord, TrialRecord};

/// The version of the run directory's format whose `run.json` is all of [`RunRecord`]. A directory
/// that holds the trials in a table has the next one, and is read into the same record.
pub const FORMAT_VERSION: u32 = 1;

/// A run: all trials of one scenario. The content of `run.json`.
///
/// In the `sim` world everything outside [`RunRecord::host`] depends only on the scenario, the seed
/// and the commit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT_VERSION`]; on disk that of the directory.
    pub format_version: u32,
    /// Version of the program that ran it, for example `0.1.0`.
    pub tool_version: String,
    /// Commit of the program, `unknown` when it was built outside a checkout; ends in `-dirty` when
    /// the tree had changes.
    pub commit: String,
    /// The scenario, as it was given.
    pub scenario: ScenarioRecord,
    /// The run's seed; every trial's seed derives from it.
    pub seed: u64,
    /// The world that executed it.
    pub world: World,
    /// False while the run is under way, and for ever when it was cut short.
    pub complete: bool,
    /// The variants compared, in scenario order. The first is the one others are compared with.
    pub arms: Vec<ArmRecord>,
    /// Every trial that was finished, in the order of [`TrialRecord::index`].
    pub trials: Vec<TrialRecord>,
    /// One summary per arm, in scenario order; empty until the run is complete.
    pub summaries: Vec<ArmSummary>,
    /// Lines that are each measured several times a day; `None` where the scenario has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyRecord>,
    /// Published numbers and how this run compares with them.
    pub expectations: Vec<Expectation>,
    /// The findings of `underload measure` in sentences, for whatever shows the run; empty, and not
    /// written, for other runs, whose sentences follow from their arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdict: Vec<String>,
    /// Facts of the machine and the hour, the only part of a simulated run that may differ between
    /// two executions.
    pub host: HostFacts,
}

/// The scenario as it was given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScenarioRecord {
    /// The scenario's name, for example `comcast/upstream`.
    pub name: String,
    /// One line for headings; empty when the scenario has none.
    #[serde(default)]
    pub title: String,
    /// The whole file, so that the run can be repeated from its record alone.
    pub text: String,
    /// The comparison that it is about; `None` where it declares none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
    /// The pictures that it asks for; not written where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<PlotRecord>,
}

/// The worlds that can execute a scenario.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Virtual time.
    #[default]
    Sim,
    /// Network namespaces, the kernel's own TCP, real time, our queue.
    Live,
    /// Live, with the queue as a Linux qdisc.
    Kernel,
    /// A real network, measured from end to end.
    Measured,
}

impl World {
    /// The name used in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Live => "live",
            World::Kernel => "kernel",
            World::Measured => "measured",
        }
    }

    /// What a reader who does not know the names should see.
    pub fn description(self) -> &'static str {
        match self {
            World::Sim => "simulated in virtual time",
            World::Live => "emulated live with the kernel's own TCP",
            World::Kernel => "live with the queue as a Linux qdisc",
            World::Measured => "measured on a real network",
        }
    }
}

/// One variant of the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArmRecord {
    /// Its name in the scenario, for example `docsis-pie`.
    pub name: String,
    /// What a reader sees: disciplines with their profiles, for example `docsis-pie:profile=rfc`.
    pub label: String,
    /// Keys of the scenario that differ between its arms, with this arm's values: what it may be
    /// compared in. Empty where the run does not know them, as that of a measured line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, String>,
}

/// The machine and the hour. Nothing here names a person or an address.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// When the run began, RFC 3339 with offset, for example `2026-11-21T01:04:00Z`.
    pub started: String,
    /// When it was gone on with after it had been cut short, as `started`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Duration of the whole run, seconds; of its last part where it was resumed.
    pub duration_s: f64,
    /// Operating system and its version, for example `Debian GNU/Linux 13`.
    pub operating_system: String,
    /// Kernel release, for example `6.18.5`.
    pub kernel: String,
    /// Processor model, empty when unknown.
    pub processor: String,
    /// Logical processors the program could use.
    pub cores: u32,
    /// Clock source behind the time stamps, for example `tsc`; `virtual` in the sim world.
    pub clock: String,
}
