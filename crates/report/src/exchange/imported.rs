//! The data read from a file of another tool, and its conversion to a run.

use std::io::Read;

use underload_record::schema::{
    ArmRecord, FlowRecord, HostFacts, PhaseWindow, RunRecord, Sample, ScenarioRecord, Series,
    TrialRecord, World,
};
use underload_record::{LatencyPools, conclude, trial_latencies};
use underload_store::RunData;

use crate::words::one_line;

/// Why a file of another tool cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// None of the formats.
    #[error(
        "neither a run directory nor a file of flent (.flent.gz), irtt or iperf3 (JSON), or \
         crusader (.crr)"
    )]
    Unknown,
    /// More than one test.
    #[error(
        "several JSON documents in one file; expected one (of iperf3: one test, and -J without \
         --json-stream)"
    )]
    Several,
    /// Larger than is read.
    #[error("more than {} MiB, compressed or not, is not read", BYTES_MAX >> 20)]
    TooLarge,
    /// The file cannot be read or decompressed.
    #[error("cannot be decompressed")]
    Compression(#[source] std::io::Error),
    /// The file is not JSON, or lacks what this tool's files have.
    #[error("not a file of {tool}")]
    Json {
        /// The tool whose file it seemed to be.
        tool: &'static str,
        /// The JSON error with its place.
        source: serde_json::Error,
    },
    /// The file is not MessagePack, or lacks what this tool's files have.
    #[error("not a file of crusader")]
    MessagePack(#[from] rmp_serde::decode::Error),
    /// A version that is not known.
    #[error("{tool} file version {found}; accepted is {accepted}")]
    Version {
        /// The tool whose file it is.
        tool: &'static str,
        /// Version of the file.
        found: u64,
        /// The versions that would be accepted.
        accepted: &'static str,
    },
    /// The file has no measurement to show.
    #[error("{tool}: {what}")]
    Content {
        /// The tool whose file it is.
        tool: &'static str,
        /// A clause that names the missing, damaged or out-of-range part.
        what: &'static str,
    },
}

/// Bytes of a file, before and after decompression, at most.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

/// Reads to the end, or fails when there is more than is read.
pub(super) fn limited(reader: impl Read) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ImportError::Compression)?;
    if bytes.len() as u64 > BYTES_MAX { Err(ImportError::TooLarge) } else { Ok(bytes) }
}

/// A test, or one part of a test, read from a file of another tool.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// The tool and its version, as it is known.
    pub(super) tool: String,
    /// The name of the test.
    pub(super) name: String,
    /// Name of the part, which becomes the name of the arm; empty for a whole test.
    pub(super) arm: String,
    /// In the user's words; may be empty.
    pub(super) title: String,
    /// RFC 3339; empty if it is unknown.
    pub(super) started: String,
    pub(super) phases: Vec<PhaseWindow>,
    pub(super) flows: Vec<FlowRecord>,
    pub(super) samples: Vec<Sample>,
    pub(super) series: Vec<Series>,
}

impl Imported {
    pub(super) fn into_run(self) -> RunData {
        Self::all_into_run(vec![self])
    }

    /// Converts the parts of one test to a run with one arm per part.
    pub(super) fn all_into_run(mut parts: Vec<Self>) -> RunData {
        parts.iter_mut().for_each(Self::clean);
        let first = parts.first();
        let said = |of: fn(&Self) -> &String| first.map(of).cloned().unwrap_or_default();
        let (tool, name) = (said(|it| &it.tool), said(|it| &it.name));
        let title = match said(|it| &it.title).as_str() {
            "" => format!("imported from {tool}"),
            title => format!("{title} (imported from {tool})"),
        };
        let started = said(|it| &it.started);
        let phases = || parts.iter().flat_map(|part| &part.phases);
        let end_ns = phases().map(|window| window.end_ns).max().unwrap_or(0);
        let mut record = RunRecord {
            format_version: underload_record::schema::FORMAT_VERSION,
            tool_version: tool,
            commit: "unknown".to_owned(),
            scenario: ScenarioRecord { name, title: title.clone(), ..ScenarioRecord::default() },
            seed: 0,
            world: World::Measured,
            complete: true,
            arms: Vec::new(),
            trials: Vec::new(),
            summaries: Vec::new(),
            study: None,
            expectations: Vec::new(),
            verdict: Vec::new(),
            host: HostFacts { started, duration_s: end_ns as f64 / 1e9, ..HostFacts::default() },
        };
        let mut pools = LatencyPools::default();
        let (mut samples, mut series) = (Vec::new(), Vec::new());
        for (index, part) in parts.into_iter().enumerate() {
            let (trial, mut own_samples, mut own_series) = part.into_trial(index as u32);
            let label = title.clone();
            record.arms.push(ArmRecord { name: trial.arm.clone(), label, ..ArmRecord::default() });
            pools.add(&trial, &own_samples);
            record.trials.push(trial);
            samples.append(&mut own_samples);
            series.append(&mut own_series);
        }
        conclude(&mut record, &pools);
        RunData { record, samples, series, left_out: Vec::new() }
    }

    fn into_trial(mut self, index: u32) -> (TrialRecord, Vec<Sample>, Vec<Series>) {
        self.samples.iter_mut().for_each(|sample| sample.trial = index);
        self.series.iter_mut().for_each(|series| series.trial = index);
        let latencies = trial_latencies(&self.samples, &self.flows, &self.phases);
        let trial = TrialRecord {
            index,
            arm: if self.arm.is_empty() { self.name } else { self.arm },
            phases: self.phases,
            flows: self.flows,
            latencies,
            ..TrialRecord::default()
        };
        (trial, self.samples, self.series)
    }

    /// A stranger's words may hold what moves a terminal's cursor or forges a line.
    fn clean(&mut self) {
        for text in [&mut self.tool, &mut self.name, &mut self.title, &mut self.started] {
            *text = one_line(text);
        }
        self.flows.iter_mut().for_each(|flow| flow.name = one_line(&flow.name));
        self.series.iter_mut().for_each(|series| series.name = one_line(&series.name));
    }
}
