//! Detects that a file was replaced or changed, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The state of a file. Two equal stamps mean equal content and mode, unless a program deliberately
/// restores the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Reads the current stamp, through symbolic links; `None` if the file cannot be accessed.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let facts = fs::metadata(path).ok()?;
        Some(Self {
            file: (facts.dev(), facts.ino()),
            len: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        })
    }
}
