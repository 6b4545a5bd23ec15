//! Files of other tools: read as runs, and runs written for them.
//!
//! | file | read | written |
//! |---|---|---|
//! | `.flent.gz` (flent, file versions 1 to 4) | yes | yes, [`flent_file`] |
//! | JSON of `irtt client -o` | yes | |
//! | JSON of `iperf3 -J` | yes | |
//! | `.crr` (crusader, versions 1 and 2) | yes | |
//!
//! What a file does not say stays unknown: an imported trial has no timeliness, so nobody can tell
//! whether its machine kept time; its title names the tool. A file of probes alone counts as idle.
//!
//! Files come from strangers: their size is limited before and after decompression.

mod crusader;
mod flent;
mod flent_export;
mod iperf3;
mod irtt;
mod numbers;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::schema::{
    ArmRecord, FlowRecord, HostFacts, PhaseWindow, RunRecord, Sample, ScenarioRecord, Series,
    TrialRecord, World,
};
use crate::summarise::{LatencyPools, trial_latencies};
use crate::{RunData, StoreError, conclude};

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
    /// Larger than is read.
    #[error("more than {} MiB, compressed or not, is not read", OCTETS_MAX >> 20)]
    TooLarge,
    /// Damaged compression.
    #[error("cannot be decompressed")]
    Compression(#[source] std::io::Error),
    /// Not JSON, or not this JSON.
    #[error("not a file of {tool}")]
    Json {
        /// Whose file it seemed to be.
        tool: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
    /// Not MessagePack, or not this.
    #[error("not a file of crusader")]
    MessagePack(#[from] rmp_serde::decode::Error),
    /// A version that is not known.
    #[error("{tool} file version {found}; accepted is {accepted}")]
    Version {
        /// Whose file it is.
        tool: &'static str,
        /// Its version.
        found: u64,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// It holds nothing to show.
    #[error("{tool}: {what}")]
    Content {
        /// Whose file it is.
        tool: &'static str,
        /// What is missing or out of range.
        what: &'static str,
    },
}

/// Octets of a file, before and after decompression, at most.
const OCTETS_MAX: u64 = 256 << 20;

/// Reads a file of another tool as a run with one trial.
pub(crate) fn import_file(path: &Path) -> Result<RunData, StoreError> {
    let file = File::open(path).map_err(StoreError::io(path, "open"))?;
    let mut octets = Vec::new();
    let read = file.take(OCTETS_MAX + 1).read_to_end(&mut octets);
    read.map_err(StoreError::io(path, "read"))?;
    let failed = |source| StoreError::Import { path: path.to_owned(), source };
    import(&octets).map_err(failed)
}

/// Reads the content of a file of another tool, whichever it is, as a run with one trial.
///
/// # Errors
///
/// [`ImportError`]: too large, damaged, of no tool that is known, or without anything to show.
pub fn import(octets: &[u8]) -> Result<RunData, ImportError> {
    if octets.len() as u64 > OCTETS_MAX {
        return Err(ImportError::TooLarge);
    }
    if octets.starts_with(&GZIP_MAGIC) {
        let text = limited(MultiGzDecoder::new(octets))?;
        return flent::read(&text).map(Imported::into_run);
    }
    if crusader::is_one(octets) {
        return crusader::read(octets).map(Imported::into_run);
    }
    // The client writes lines for people before its JSON when both go to one place.
    let Some(start) = octets.iter().position(|octet| *octet == b'{') else {
        return Err(ImportError::Unknown);
    };
    let text = &octets[start..];
    let Ok(marks) = serde_json::from_slice::<Marks>(text) else { return Err(ImportError::Unknown) };
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
    let mut octets = Vec::new();
    reader.take(OCTETS_MAX + 1).read_to_end(&mut octets).map_err(ImportError::Compression)?;
    if octets.len() as u64 > OCTETS_MAX { Err(ImportError::TooLarge) } else { Ok(octets) }
}

/// What a file told.
#[derive(Debug, Default)]
struct Imported {
    /// The tool and its version, as it is known.
    tool: String,
    /// The name of the test.
    name: String,
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
        let title = match self.title.as_str() {
            "" => format!("imported from {}", self.tool),
            title => format!("{title} (imported from {})", self.tool),
        };
        let arm = ArmRecord { name: self.name.clone(), label: title.clone() };
        let latencies = trial_latencies(&self.samples, &self.flows, &self.phases);
        let end_ns = self.phases.last().map_or(0, |window| window.end_ns);
        let trial = TrialRecord {
            arm: arm.name.clone(),
            phases: self.phases,
            flows: self.flows,
            latencies,
            ..TrialRecord::default()
        };
        let mut pools = LatencyPools::default();
        pools.add(&trial, &self.samples);
        let mut record = RunRecord {
            format_version: crate::schema::FORMAT_VERSION,
            tool_version: self.tool,
            commit: "unknown".to_owned(),
            scenario: ScenarioRecord { name: self.name, title, text: String::new() },
            seed: 0,
            world: World::Measured,
            complete: true,
            arms: vec![arm],
            trials: vec![trial],
            summaries: Vec::new(),
            expectations: Vec::new(),
            host: HostFacts {
                started: self.started,
                duration_s: end_ns as f64 / 1e9,
                ..HostFacts::default()
            },
        };
        conclude(&mut record, &pools);
        RunData { record, samples: self.samples, series: self.series, left_out: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nothing_is_told_what_would_be() {
        for octets in [b"".as_slice(), b"hello", b"{}", b"{\"a\":", &[0x59, 1, 2], &[0xff; 100]] {
            let error = import(octets).unwrap_err();
            assert!(error.to_string().contains("flent"), "{error}");
        }
        let error = import(&[0x1f, 0x8b, 8, 0]).unwrap_err();
        assert!(matches!(error, ImportError::Compression(_)));
    }

    #[test]
    fn decompression_stops_at_the_limit() {
        let endless = std::io::repeat(b' ');
        assert!(matches!(limited(endless), Err(ImportError::TooLarge)));
    }
}
