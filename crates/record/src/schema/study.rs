//! A study of many lines, each measured several times a day.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Interval, is_zero};
use crate::verdict::Verdict;

/// The settings of a study of lines, and its results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyRecord {
    /// The probe whose latency is expected to be shorter, for example `probe-dscp-45`.
    pub class: String,
    /// The probe to compare with, for example `probe-dscp-8`.
    pub against: String,
    /// A run is counted if its upload rate is at least this share of the line's highest, percent.
    pub full_percent: f64,
    /// Conditions that lines are grouped by.
    pub by: Vec<String>,
    /// Lines that were drawn.
    pub lines: u32,
    /// Lines that were not eligible and not measured.
    pub ineligible: u32,
    /// Runs left out because the round trips of earlier runs filled the memory limit of a study.
    pub runs_left_out: u64,
    /// Results by variant and group; empty until the run is complete.
    pub groups: Vec<StudyGroup>,
}

/// Lines with the same conditions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyGroup {
    pub variant: String,
    /// The shared conditions, in the order of [`StudyRecord::by`]; empty for all lines.
    pub conditions: Vec<(String, String)>,
    /// Lines with at least one counted run.
    pub lines: u32,
    /// Runs of these lines that are counted.
    pub runs: u32,
    /// Runs that are not counted because the upload did not fill the line.
    pub runs_void: u32,
    /// Every class that was probed, by its name.
    pub classes: BTreeMap<String, StudyClass>,
    /// Reduction of the lag of `class` relative to `against`, percent, over lines; at most 100.
    pub cut_percent: Option<Interval>,
    /// Whether the lag of `class` is lower than that of `against`, or higher.
    pub verdict: Verdict,
}

/// Round trips of one class: per line and day, averaged over the line's days, then over lines.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StudyClass {
    /// Median of the idle round trips.
    pub idle_p50_ns: Option<Interval>,
    /// 99th percentile of all probes under load in a day; a lost one counts as the longest.
    pub loaded_p99_ns: Option<Interval>,
    /// `loaded_p99_ns` minus `idle_p50_ns`, day by day.
    pub lag_ns: Option<Interval>,
    /// Days, not in the means, whose p99 under load or idle median fell on a lost probe.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub days_lost: u64,
}
