//! What can go wrong with a run directory; every message names the file.

use std::io;
use std::path::{Path, PathBuf};

/// The newest version of the format of runs that is read: their trials are in a table.
pub(crate) const NEWEST_VERSION: u32 = 2;

/// Why a run directory could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory is taken.
    #[error("{}: already holds a run; name another directory or remove this one", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has other things in it.
    #[error(
        "{}: not empty, and what is in it is no run; name a directory that is empty or new",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to read.
    #[error("{}: {why}", path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// A run that cannot be gone on with, as it is asked for.
    #[error("{}: cannot be resumed: {reason}", path.display())]
    Unresumable {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The directory holds another sweep.
    #[error(
        "{}: holds another sweep: {difference}; name another directory or remove this one",
        path.display()
    )]
    OtherSweep {
        /// The directory.
        path: PathBuf,
        /// What is not the same.
        difference: &'static str,
    },
    /// Another program is writing it.
    #[error("{}: another program is at work in it; wait for that, or end it", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed, for the message.
        action: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The file is not JSON, or not a run record.
    #[error("{}: not a run record", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The JSON error with its place.
        source: serde_json::Error,
    },
    /// Written by a newer program.
    #[error(
        "{}: format version {found}; this program reads versions 1 to {NEWEST_VERSION}",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u64,
    },
    /// A table that cannot be written.
    #[error("{}: cannot write: {reason}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A table that cannot be read.
    #[error("{}: damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Parts that contradict one another.
    #[error("{}: {reason}", path.display())]
    Inconsistent {
        /// The file or directory.
        path: PathBuf,
        /// The contradiction.
        reason: String,
    },
    /// More than fits in memory.
    #[error(
        "{}: more than {row_limit} rows; read fewer trials, or the file with a query engine",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Rows that are read at most.
        row_limit: u64,
    },
}

impl StoreError {
    /// Whether another directory would do.
    pub fn is_occupied(&self) -> bool {
        matches!(
            self,
            StoreError::Exists { .. }
                | StoreError::Foreign { .. }
                | StoreError::OtherSweep { .. }
                | StoreError::Unresumable { .. }
                | StoreError::Busy { .. }
        )
    }

    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), action, source }
    }
}
