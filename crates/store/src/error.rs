//! Errors of run directories; every message names the file.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use underload_record::schema::FORMAT_VERSION;

/// The result of reading or writing a run directory.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a run directory could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("{}: has a run already; name another directory or remove this one", path.display())]
    Exists { path: PathBuf },
    #[error(
        "{}: not empty, and not a run directory; expected an empty or new directory",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error("{}: {why}", path.display())]
    NoRun { path: PathBuf, why: &'static str },
    #[error("{}: cannot be resumed: {reason}", path.display())]
    Unresumable { path: PathBuf, reason: String },
    #[error(
        "{}: has another sweep: {difference}; name another directory or remove this one",
        path.display()
    )]
    OtherSweep { path: PathBuf, difference: &'static str },
    #[error("{}: another program is writing it; wait for that program, or end it", path.display())]
    Busy { path: PathBuf },
    #[error("{}: cannot {action}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("{}: not a run record", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    #[error(
        "{}: format version {found}; this program reads version {FORMAT_VERSION}",
        path.display()
    )]
    Version { path: PathBuf, found: u64 },
    #[error("{}: cannot write: {reason}", path.display())]
    Table { path: PathBuf, reason: String },
    #[error("{}: damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    Inconsistent { path: PathBuf, reason: String },
    #[error(
        "{}: more than {row_limit} rows; read fewer trials, or the file with a query engine",
        path.display()
    )]
    TooLarge { path: PathBuf, row_limit: u64 },
}

impl StoreError {
    /// Whether the request is possible in another directory.
    pub fn is_occupied(&self) -> bool {
        matches!(
            self,
            StoreError::Exists { .. }
                | StoreError::Foreign { .. }
                | StoreError::OtherSweep { .. }
                | StoreError::Unresumable { .. }
                | StoreError::Busy { .. }
                | StoreError::Json { .. }
                | StoreError::Version { .. }
                | StoreError::Damaged { .. }
        )
    }

    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), action, source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> StoreError {
        move |source| StoreError::Json { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, reason: impl fmt::Display) -> StoreError {
        StoreError::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn inconsistent(path: &Path, reason: impl Into<String>) -> StoreError {
        StoreError::Inconsistent { path: path.to_owned(), reason: reason.into() }
    }
}
