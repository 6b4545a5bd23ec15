//! The data read from a file of another tool, and its conversion to a run.

use std::io::Read;

use serde::de::DeserializeOwned;
use underload_record::schema::{
    Direction, FlowDirection, FlowRecord, HostFacts, Phase, PhaseWindow, RunRecord, Sample,
    ScenarioRecord, Series, TrialRecord, VariantRecord, World,
};
use underload_record::text::one_line;
use underload_record::{LatencyPools, conclude, trial_latencies};
use underload_store::RunData;

/// An error while reading a file of another tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error(
        "neither a run directory nor a file of flent (.flent.gz), irtt or iperf3 (JSON), or \
         crusader (.crr)"
    )]
    Unknown,
    #[error(
        "several JSON documents in one file; expected one (of iperf3: one test, and -J without \
         --json-stream)"
    )]
    Several,
    #[error("more than {} MiB, compressed or not, is not read", BYTES_MAX >> 20)]
    TooLarge,
    #[error("cannot be decompressed: the file is damaged or cut short")]
    Compression(#[source] std::io::Error),
    /// The file is not JSON, or lacks a key that this tool's files have.
    #[error("not a file of {tool}")]
    Json { tool: &'static str, source: serde_json::Error },
    /// The file is not MessagePack, or lacks a key that this tool's files have.
    #[error("not a file of crusader")]
    MessagePack(#[from] rmp_serde::decode::Error),
    #[error("{tool} file version {found}; accepted is {accepted}")]
    Version { tool: &'static str, found: u64, accepted: &'static str },
    /// The file has no measurement, or a damaged one.
    #[error("{tool}: {what}")]
    Content {
        tool: &'static str,
        /// A clause that names the missing, damaged or out-of-range part.
        what: &'static str,
    },
}

impl ImportError {
    pub(super) fn content(tool: &'static str, what: &'static str) -> Self {
        Self::Content { tool, what }
    }
}

/// Largest file in bytes, before and after decompression.
pub const BYTES_MAX: u64 = 256 << 20;

/// Decompresses a whole file of at most [`BYTES_MAX`].
pub(super) fn decompress(decoder: impl Read) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    decoder.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ImportError::Compression)?;
    if bytes.len() as u64 > BYTES_MAX { Err(ImportError::TooLarge) } else { Ok(bytes) }
}

/// Parses the first JSON document of a text. Lines for people may follow.
pub(super) fn first_document<T: DeserializeOwned>(
    text: &[u8],
    tool: &'static str,
) -> Result<T, ImportError> {
    match serde_json::Deserializer::from_slice(text).into_iter().next() {
        Some(document) => document.map_err(|source| ImportError::Json { tool, source }),
        None => Err(ImportError::Unknown),
    }
}

pub(super) fn window(phase: Phase, start_ns: u64, end_ns: u64) -> PhaseWindow {
    PhaseWindow { phase, start_ns, end_ns }
}

pub(super) fn probe_flow(name: &str) -> FlowRecord {
    FlowRecord {
        name: name.to_owned(),
        kind: "probe".to_owned(),
        direction: FlowDirection::Both,
        ..FlowRecord::default()
    }
}

/// Makes the record of a flow that loads one direction; `goodput` in bit/s.
pub(super) fn load_flow(
    name: String,
    kind: &str,
    direction: Direction,
    goodput: Option<u64>,
) -> FlowRecord {
    let is_up = direction == Direction::Up;
    FlowRecord {
        name,
        kind: kind.to_owned(),
        direction: if is_up { FlowDirection::Up } else { FlowDirection::Down },
        goodput_up_bit_per_s: goodput.filter(|_| is_up),
        goodput_down_bit_per_s: goodput.filter(|_| !is_up),
        ..FlowRecord::default()
    }
}

/// A test, or one part of a test, read from a file of another tool.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// Name and version of the tool.
    pub(super) tool: String,
    pub(super) name: String,
    /// Name of the variant; empty for a whole test, whose variant is called like the test.
    pub(super) variant: String,
    /// Title in the user's words; may be empty.
    pub(super) title: String,
    /// Start as RFC 3339; empty if unknown.
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

    /// Converts the parts of one test to a run with one variant per part.
    pub(super) fn all_into_run(mut parts: Vec<Self>) -> RunData {
        parts.iter_mut().for_each(Self::clean);
        let first_text = |text: fn(&Self) -> &String| parts.first().map(text).cloned();
        let text = |of| first_text(of).unwrap_or_default();
        let (tool, name) = (text(|part| &part.tool), text(|part| &part.name));
        let label = text(|part| &part.title);
        let title = match label.as_str() {
            "" => format!("imported from {tool}"),
            title => format!("{title} (imported from {tool})"),
        };
        let started = text(|part| &part.started);
        let phases = || parts.iter().flat_map(|part| &part.phases);
        let end_ns = phases().map(|window| window.end_ns).max().unwrap_or(0);
        let mut record = RunRecord {
            format_version: underload_record::schema::FORMAT_VERSION,
            tool_version: tool,
            commit: "unknown".to_owned(),
            scenario: ScenarioRecord { name, title: title.clone(), ..ScenarioRecord::default() },
            world: World::Measured,
            complete: true,
            label,
            host: HostFacts { started, duration_s: end_ns as f64 / 1e9, ..HostFacts::default() },
            ..RunRecord::default()
        };
        let mut pools = LatencyPools::default();
        let (mut samples, mut series) = (Vec::new(), Vec::new());
        for (index, part) in parts.into_iter().enumerate() {
            let (trial, mut own_samples, mut own_series) = part.into_trial(index as u32);
            let label = title.clone();
            record.variants.push(VariantRecord {
                name: trial.variant.clone(),
                label,
                ..VariantRecord::default()
            });
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
            variant: if self.variant.is_empty() { self.name } else { self.variant },
            phases: self.phases,
            flows: self.flows,
            latencies,
            ..TrialRecord::default()
        };
        (trial, self.samples, self.series)
    }

    /// Removes control characters, which could move a terminal's cursor or forge a line.
    fn clean(&mut self) {
        for text in [&mut self.tool, &mut self.name, &mut self.title, &mut self.started] {
            *text = one_line(text);
        }
        self.flows.iter_mut().for_each(|flow| flow.name = one_line(&flow.name));
        self.series.iter_mut().for_each(|series| series.name = one_line(&series.name));
    }
}
