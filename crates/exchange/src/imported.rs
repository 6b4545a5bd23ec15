//! The data read from a file of another tool, and its conversion to a run.

use std::io::Read;

use serde::de::DeserializeOwned;
use underload_record::judgement::LoadedStep;
use underload_record::schema::{
    BottleneckSummary, Direction, Finding, FlowDirection, FlowRecord, HostFacts, InsideLatency,
    LatencyMeasure, Metric, Phase, PhaseWindow, RunRecord, Sample, ScenarioRecord, Series,
    TrialRecord, Unmeasured, VariantRecord, World,
};
use underload_record::text::one_line;
use underload_record::{LatencyPools, conclude, trial_latencies};
use underload_store::RunData;

/// An error while reading a file of another tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Field 0 describes what the file looks like.
    #[error("it looks like {0}; {READ}")]
    Unknown(&'static str),
    /// The text is JSON up to a place.
    #[error("it looks like {looks}, but at line {line}, column {column} {what}; {READ}")]
    Damaged { looks: &'static str, line: usize, column: usize, what: String },
    /// The tool stored why its test failed.
    #[error("{tool}: the test failed, and says: {said}")]
    Failed { tool: &'static str, said: String },
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

/// Names the kinds of results that can be read, for messages.
const READ: &str = "a run directory is read, and a file of flent (.flent.gz), irtt, iperf3, mtr, \
                    networkQuality or speedtest (JSON), crusader (.crr), or the lines of ping, mtr \
                    or mm-link";

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
        None => Err(ImportError::Unknown("JSON")),
    }
}

pub(super) fn window(phase: Phase, start_ns: u64, end_ns: u64) -> PhaseWindow {
    PhaseWindow { phase, start_ns, end_ns }
}

pub(super) fn probe_flow(name: &str) -> FlowRecord {
    numbers_flow(name, "probe", &[])
}

/// Makes the record of a flow with the numbers that a file has, given by name, unit and value.
pub(super) fn numbers_flow(
    name: &str,
    kind: &str,
    numbers: &[(&str, &str, Option<f64>)],
) -> FlowRecord {
    let known = numbers.iter().filter(|(.., value)| value.is_some_and(f64::is_finite));
    let metric = |(name, unit, value): &(&str, &str, Option<f64>)| Metric {
        name: (*name).to_owned(),
        unit: (*unit).to_owned(),
        value: *value,
    };
    let metrics = known.map(metric).collect();
    let (name, kind, direction) = (name.to_owned(), kind.to_owned(), FlowDirection::Both);
    FlowRecord { name, kind, direction, metrics, ..FlowRecord::default() }
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

/// Returns a probe that was sent at a time, and its round trip; `None` if it was lost.
pub(super) fn probe(sequence: u64, sent_ns: u64, rtt_ns: Option<u64>) -> Sample {
    Sample { sequence, scheduled_ns: sent_ns, sent_ns, rtt_ns, ..Sample::default() }
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
    pub(super) inside: Vec<InsideLatency>,
    pub(super) bottlenecks: Vec<BottleneckSummary>,
}

impl Imported {
    /// Makes a test whose probes count as idle.
    pub(super) fn of_probes(tool: &str, flows: Vec<FlowRecord>, samples: Vec<Sample>) -> Self {
        let end_ns =
            samples.iter().map(|sample| sample.sent_ns).max().unwrap_or(0).saturating_add(1);
        let phases = vec![window(Phase::Idle, 0, end_ns)];
        let (tool, name) = (tool.to_owned(), tool.to_owned());
        Self { tool, name, phases, flows, samples, ..Self::default() }
    }

    pub(super) fn into_run(self) -> RunData {
        Self::all_into_run(vec![self])
    }

    /// Converts parts of one test to a run with a variant for each name; parts of one name are its
    /// repeats.
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
            let (mut trial, mut own_samples, mut own_series) = part.into_trial(index as u32);
            let repeats = record.trials.iter().filter(|other| other.variant == trial.variant);
            trial.repeat = repeats.count() as u32;
            if trial.repeat == 0 {
                let (name, label) = (trial.variant.clone(), title.clone());
                record.variants.push(VariantRecord { name, label, ..VariantRecord::default() });
            }
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
        let mut trial = TrialRecord {
            index,
            variant: if self.variant.is_empty() { self.name } else { self.variant },
            phases: self.phases,
            flows: self.flows,
            latencies,
            inside: self.inside,
            bottlenecks: self.bottlenecks,
            ..TrialRecord::default()
        };
        trial.finding = finding(&trial).map(Box::new);
        (trial, self.samples, self.series)
    }

    /// Removes control characters, which could move a terminal's cursor or forge a line.
    fn clean(&mut self) {
        for text in [&mut self.tool, &mut self.name, &mut self.title, &mut self.started] {
            *text = one_line(text);
        }
        self.flows.iter_mut().for_each(|flow| flow.name = one_line(&flow.name));
        self.series.iter_mut().for_each(|series| series.name = one_line(&series.name));
        for text in self.bottlenecks.iter_mut().flat_map(|it| [&mut it.queue, &mut it.link]) {
            *text = one_line(text);
        }
    }
}

/// Returns the finding of a trial, which is judged as that of a measurement; `None` if its numbers
/// are not enough for a grade.
fn finding(trial: &TrialRecord) -> Option<Finding> {
    let mbit_s = |goodput: fn(&FlowRecord) -> Option<u64>| {
        let goodputs = trial.flows.iter().filter_map(goodput);
        goodputs.reduce(u64::saturating_add).map(|bit_s| bit_s as f64 / 1e6)
    };
    let has_one_way = trial.latencies.iter().any(|it| it.measure != LatencyMeasure::RoundTrip);
    let finding = Finding {
        step: trial.variant.clone(),
        valid: true,
        latencies: trial.latencies.clone(),
        inside: trial.inside.clone(),
        goodput_up_mbit_s: mbit_s(|flow| flow.goodput_up_bit_per_s),
        goodput_down_mbit_s: mbit_s(|flow| flow.goodput_down_bit_per_s),
        cannot_tell: (!has_one_way)
            .then_some(Unmeasured::OneWay)
            .into_iter()
            .chain([Unmeasured::Markings, Unmeasured::Timeliness])
            .collect(),
        ..Finding::default()
    };
    LoadedStep::from(&finding).judge().grade.map(|_| finding)
}
