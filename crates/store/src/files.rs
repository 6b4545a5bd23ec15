//! Names of the files of a run directory, and functions that read and encode them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde::de::Error as _;
use underload_disk as disk;
use underload_record::schema::TrialRecord;

use crate::error::StoreError;

pub(crate) const RECORD: &str = "run.json";
pub(crate) const JOURNAL: &str = "trials.jsonl";
pub(crate) const PARTS: &str = "parts";
pub(crate) const SAMPLES: &str = "samples.parquet";
pub(crate) const SERIES: &str = "series.parquet";
pub(crate) const TRIALS: &str = "trials.parquet";
/// The manifest of a sweep's directory.
pub(crate) const SWEEP: &str = "sweep.json";

/// Returns the path of a trial's rows of a table during the run.
pub(crate) fn part(directory: &Path, trial: usize, name: &str) -> PathBuf {
    directory.join(PARTS).join(format!("{trial:07}-{name}"))
}

/// Opens a regular file. A pipe would block until another program writes to it, and a device may be
/// endless.
pub(crate) fn open_file(path: &Path) -> Result<File, StoreError> {
    let facts = fs::metadata(path).map_err(StoreError::io(path, "open"))?;
    if !facts.is_file() {
        return Err(StoreError::inconsistent(path, "not a regular file"));
    }
    File::open(path).map_err(StoreError::io(path, "open"))
}

/// Reads a file of at most [`TEXT_LIMIT`] bytes. Returns `None` if the file does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let file = match open_file(path) {
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        file => file?,
    };
    if file.metadata().map_err(StoreError::io(path, "read"))?.len() > TEXT_LIMIT {
        return Err(StoreError::inconsistent(path, format!("larger than {TEXT_LIMIT} bytes")));
    }
    disk::read_at_most(file, TEXT_LIMIT).map(Some).map_err(StoreError::io(path, "read"))
}

/// Returns the text of a JSON file.
pub(crate) fn encode(path: &Path, value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut json = serde_json::to_vec_pretty(value).map_err(StoreError::json(path))?;
    json.push(b'\n');
    Ok(json)
}

/// Maximum number of bytes of `run.json`, of `trials.jsonl` and of the trials in `trials.parquet`:
/// enough for 700,000 trials of a study.
pub(crate) const TEXT_LIMIT: u64 = 3 << 30;

/// Returns a line of a journal: a checksum of the JSON, a space and the JSON.
pub(crate) fn checked_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let json = serde_json::to_string(value)?;
    Ok(format!("{} {json}\n", checksum(json.as_bytes())).into_bytes())
}

/// Returns the JSON of a line without its line break; `None` if the checksum does not match.
pub(crate) fn json_of_line(line: &[u8]) -> Option<&[u8]> {
    let (sum, json) = line.split_at_checked(CHECKSUM_DIGITS + 1)?;
    (sum.strip_suffix(b" ")? == checksum(json).as_bytes()).then_some(json)
}

/// Returns the trial of a line of [`JOURNAL`].
pub(crate) fn trial_of_line(line: &[u8]) -> serde_json::Result<TrialRecord> {
    let changed = "its checksum differs: the line was changed or cut";
    let json = json_of_line(line).ok_or_else(|| serde_json::Error::custom(changed))?;
    serde_json::from_slice(json)
}

fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(&digest(&SHA256, bytes).as_ref()[..CHECKSUM_DIGITS / 2])
}

const CHECKSUM_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_and_endless_files_are_refused_unread() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        // A sparse file, which uses no space on the disk.
        File::create(&large).unwrap().set_len(TEXT_LIMIT + 1).unwrap();
        let error = read_text(&large).unwrap_err().to_string();
        assert!(error.contains("larger than 3221225472 bytes"), "{error}");
        let endless = folder.path().join("endless");
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        let error = read_text(&endless).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        // Opening a pipe would block for ever.
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let error = read_text(&pipe).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
