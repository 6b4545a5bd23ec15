//! A study of many lines, each measured several times a day.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Interval, is_zero};

/// How the lines of a study are compared, and what came of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyRecord {
    /// The probe whose latency is to be shorter, for example `probe-dscp-45`.
    pub class: String,
    /// The probe that it is compared with, for example `probe-dscp-8`.
    pub against: String,
    /// A run counts from this share of the most that its line uploaded in any run, percent.
    pub full_percent: f64,
    /// Conditions that lines are grouped by.
    pub by: Vec<String>,
    /// Lines that were drawn.
    pub lines: u32,
    /// Lines that are not eligible and were not measured.
    pub ineligible: u32,
    /// Runs that no group counts, because the round trips of those before filled the memory that
    /// a study may take.
    #[serde(default)]
    pub runs_left_out: u64,
    /// Results by arm and group; empty until the run is complete.
    pub groups: Vec<StudyGroup>,
}

/// Lines that have the same conditions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyGroup {
    /// The arm.
    pub arm: String,
    /// The conditions that they share, in the order of [`StudyRecord::by`]; empty for all lines.
    pub conditions: Vec<(String, String)>,
    /// Lines with at least one run that counts.
    pub lines: u32,
    /// Runs that count.
    pub runs: u32,
    /// Runs that do not, because the upload did not fill the line.
    pub runs_void: u32,
    /// Every class that was probed, by its name.
    pub classes: BTreeMap<String, StudyClass>,
    /// What [`StudyRecord::class`] saves of the lag of [`StudyRecord::against`], percent, over
    /// lines.
    pub cut_percent: Option<Interval>,
}

/// Round trips of one class: of each line and day, their mean over the line's days, then over
/// lines.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyClass {
    /// Median without load, ns.
    pub idle_p50_ns: Option<Interval>,
    /// 99th percentile of the day's loaded probes together, ns: of all that were sent, a lost one
    /// being longer than every answer.
    pub loaded_p99_ns: Option<Interval>,
    /// The second less the first, ns.
    pub lag_ns: Option<Interval>,
    /// Days of all lines whose 99th percentile, or median without load, was a lost probe: they have
    /// no number, and the means above are without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub days_lost: u64,
}
