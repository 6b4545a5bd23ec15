//! A file of JSON documents, one per line, beside the runs.

use std::path::Path;
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_disk::{Access, Journal};

/// A longer file is not one of this program.
const BYTES_MAX: u64 = 64 << 20;

/// Opens or creates a file and returns its documents. Skips damaged lines.
///
/// # Errors
/// Returns the error of the system call; [`io::ErrorKind::InvalidData`] for a file that this
/// program did not write.
pub(super) fn open<T: DeserializeOwned>(path: &Path) -> io::Result<(Journal, Vec<T>)> {
    let not_ours = || {
        let what = format!("{}: not written by this program", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    if fs::symlink_metadata(path).is_ok_and(|facts| !facts.is_file()) {
        return Err(not_ours());
    }
    let opened = Journal::open(path, BYTES_MAX, Access::Usual);
    let (journal, lines) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => not_ours(),
        _ => error,
    })?;
    let documents: Vec<T> = lines.iter().filter_map(|it| serde_json::from_slice(it).ok()).collect();
    if documents.is_empty() && !lines.is_empty() {
        Err(not_ours())
    } else {
        Ok((journal, documents))
    }
}

pub(super) fn line(document: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(document).map_err(io::Error::other)? + "\n")
}
