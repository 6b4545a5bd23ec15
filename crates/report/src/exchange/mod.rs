//! Files of other tools: read as runs, and runs written for them.
//!
//! | file | read | written |
//! |---|---|---|
//! | `.flent.gz` (flent, file versions 1 to 4) | yes | yes, [`flent_file`] |
//! | JSON of `irtt client -o`, also gzipped | yes | |
//! | JSON of `iperf3 -J` | yes | |
//! | `.crr` (crusader, versions 1 and 2) | yes | |
//!
//! What a file does not say stays unknown: an imported trial has no timeliness, so nobody can tell
//! whether its machine kept time; its title names the tool. A file of probes alone counts as idle.
//!
//! Files come from strangers. Limited are their size before and after decompression
//! ([`BYTES_MAX`]), their rows ([`rows::ROWS_MAX`]) and their series ([`rows::NAMES_MAX`]), which
//! together bound the memory that any file takes. Their words are cleaned before they are kept.

mod crusader;
mod flent;
mod flent_export;
mod iperf3;
mod irtt;
mod numbers;
mod rows;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use underload_record::schema::{
    ArmRecord, FlowRecord, HostFacts, PhaseWindow, RunRecord, Sample, ScenarioRecord, Series,
    TrialRecord, World,
};
use underload_record::{LatencyPools, conclude, trial_latencies};
use underload_store::RunData;

use crate::LoadError;
use crate::words::one_line;

pub use flent_export::flent_file;

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
    /// Damaged compression.
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
        /// What is missing or out of range.
        what: &'static str,
    },
}

/// Bytes of a file, before and after decompression, at most.
const BYTES_MAX: u64 = 256 << 20;

/// Reads a file of another tool as a run with one trial.
pub(crate) fn import_file(path: &Path) -> Result<RunData, LoadError> {
    let io = |action| move |source| LoadError::Io { path: path.to_owned(), action, source };
    let file = File::open(path).map_err(io("open"))?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(io("read"))?;
    import(&bytes).map_err(|source| LoadError::Import { path: path.to_owned(), source })
}

/// Reads the content of a file of another tool, whichever it is, as a run with one trial.
///
/// # Errors
///
/// [`ImportError`]: too large, damaged, of no tool that is known, or without anything to show.
pub fn import(bytes: &[u8]) -> Result<RunData, ImportError> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(ImportError::TooLarge);
    }
    rows::counted(|| {
        if bytes.starts_with(&GZIP_MAGIC) {
            return import_json(&limited(MultiGzDecoder::new(bytes))?);
        }
        if crusader::is_one(bytes) {
            return crusader::read(bytes).map(Imported::all_into_run);
        }
        import_json(bytes)
    })
}

fn import_json(bytes: &[u8]) -> Result<RunData, ImportError> {
    // The client writes lines for people before its JSON when both go to one place.
    let Some(start) = bytes.iter().position(|byte| *byte == b'{') else {
        return Err(ImportError::Unknown);
    };
    let text = &bytes[start..];
    let mut documents = serde_json::Deserializer::from_slice(text).into_iter::<Marks>();
    let Some(Ok(marks)) = documents.next() else { return Err(ImportError::Unknown) };
    // Text may follow, such as the lines that a server printed into the same file.
    let rest = text.get(documents.byte_offset()..).unwrap_or_default();
    if rest.trim_ascii_start().starts_with(b"{") {
        return Err(ImportError::Several);
    }
    let imported = match marks {
        Marks { round_trips: Some(_), .. } => irtt::read(text)?,
        Marks { intervals: Some(_), .. } => iperf3::read(text)?,
        Marks { raw_values: Some(_), .. } | Marks { results: Some(_), .. } => flent::read(text)?,
        _ => return Err(ImportError::Unknown),
    };
    Ok(imported.into_run())
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The keys that tell the formats apart.
#[derive(serde::Deserialize)]
struct Marks {
    round_trips: Option<serde::de::IgnoredAny>,
    intervals: Option<serde::de::IgnoredAny>,
    raw_values: Option<serde::de::IgnoredAny>,
    results: Option<serde::de::IgnoredAny>,
}

/// Reads to the end, or fails when there is more than is read.
fn limited(reader: impl Read) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ImportError::Compression)?;
    if bytes.len() as u64 > BYTES_MAX { Err(ImportError::TooLarge) } else { Ok(bytes) }
}

/// What was read from a file of another tool.
#[derive(Debug, Default)]
struct Imported {
    /// The tool and its version, as it is known.
    tool: String,
    /// The name of the test.
    name: String,
    /// What of the test this is; empty for all of it.
    arm: String,
    /// In the user's words; may be empty.
    title: String,
    /// RFC 3339; empty if it is unknown.
    started: String,
    phases: Vec<PhaseWindow>,
    flows: Vec<FlowRecord>,
    samples: Vec<Sample>,
    series: Vec<Series>,
}

impl Imported {
    fn into_run(self) -> RunData {
        Self::all_into_run(vec![self])
    }

    /// Several parts of one test, each as an arm of its own.
    fn all_into_run(mut parts: Vec<Self>) -> RunData {
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_nothing_is_told_what_would_be() {
        for bytes in [b"".as_slice(), b"hello", b"{}", b"{\"a\":", &[0x59, 1, 2], &[0xff; 100]] {
            let error = import(bytes).unwrap_err();
            assert!(error.to_string().contains("flent"), "{error}");
        }
        let error = import(&[0x1f, 0x8b, 8, 0]).unwrap_err();
        assert!(matches!(error, ImportError::Compression(_)));
    }

    fn gzipped(text: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn irtts_gzipped_file_is_read_as_its_plain_one() {
        let text = br#"{"version":{"irtt":"0.9.0"},"config":{"params":{}},"stats":{},
            "round_trips":[{"seqno":0,"timestamps":{"client":{"send":{"monotonic":1}}},
            "delay":{"rtt":7}}]}"#;
        let (plain, packed) = (import(text).unwrap(), import(&gzipped(text)).unwrap());
        assert_eq!(plain, packed);
        assert_eq!(packed.samples[0].rtt_ns, Some(7));
    }

    #[test]
    fn several_documents_in_one_file_are_told() {
        let one = r#"{"start":{},"intervals":[{"streams":[{"socket":5,"end":1.0,
            "bits_per_second":8e6}]}],"end":{}}"#;
        assert!(import(one.as_bytes()).is_ok());
        let with_text = format!("{one}\n[  5] 0.00-1.00 sec, printed by the server");
        assert_eq!(import(with_text.as_bytes()).unwrap(), import(one.as_bytes()).unwrap());
        let stream = r#"{"event":"start","data":{}} {"event":"end","data":{}}"#;
        for several in [format!("{one}\n{one}"), format!("{one}{{"), stream.to_owned()] {
            let error = import(several.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("several JSON documents"), "{error}");
        }
    }

    // 60 KB of compressed file would become 1 GB of values.
    #[test]
    fn a_file_of_millions_of_rows_is_refused() {
        let flent = format!(
            r#"{{"metadata":{{}},"raw_values":{{"Ping (ms) ICMP":[{}{{}}]}}}}"#,
            "{},".repeat(rows::ROWS_MAX)
        );
        let trip = r#"{"seqno":1}"#;
        let irtt = format!(
            r#"{{"version":{{"irtt":"0"}},"config":{{"params":{{}}}},"stats":{{}},
            "round_trips":[{}{trip}]}}"#,
            format!("{trip},").repeat(rows::ROWS_MAX)
        );
        for text in [flent, irtt] {
            let packed = gzipped(text.as_bytes());
            assert!(packed.len() < 200_000, "{}", packed.len());
            let error = import(&packed).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains("rows are not read"), "{source}");
        }
    }

    #[test]
    fn words_of_a_file_cannot_drive_a_terminal() {
        let text = r#"{"metadata":{"NAME":"a\nb","TITLE":"\u001b]0;own\u0007\u009b2J","LENGTH":1,
            "TOTAL_LENGTH":1},"x_values":[0.0],"results":{"Ping (ms) \u001b[2J":[1.0]}}"#;
        let run = import(text.as_bytes()).unwrap();
        for text in [crate::table(std::slice::from_ref(&run)), run.record.scenario.title] {
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        }
        assert_eq!(run.record.arms[0].name, "a\u{fffd}b");
    }

    #[test]
    fn decompression_stops_at_the_limit() {
        let endless = std::io::repeat(b' ');
        assert!(matches!(limited(endless), Err(ImportError::TooLarge)));
    }
}
