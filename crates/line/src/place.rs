//! The location of a measurement's run directory.

use std::path::{Path, PathBuf};

use underload_record::schema::RunRecord;
use underload_store::{RunDir, StoreError};

/// The location of a measurement's run directory.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// This directory, which must be new or empty.
    Directory(&'a Path),
    /// A new directory below this one, named by the time.
    In(&'a Path),
    /// A new directory below `runs`, named by preset and time.
    Default,
}

impl Place<'_> {
    /// Checks that a directory named by the caller has no run yet, before anything is measured.
    ///
    /// # Errors
    /// Returns an error if the directory is occupied or cannot be read.
    pub fn check_vacant(self) -> Result<(), StoreError> {
        match self {
            Self::Directory(path) => RunDir::check_vacant(path),
            _ => Ok(()),
        }
    }

    /// Creates the run directory. `name` is the preset's name.
    ///
    /// # Errors
    /// Returns an error if the directory is occupied or cannot be written.
    pub fn create(self, name: &str, record: RunRecord) -> Result<RunDir, StoreError> {
        // File names have no colons, and dates no hyphens: 20261121T013500Z.
        let time: String = record.host.started.chars().filter(|c| !"-:".contains(*c)).collect();
        let path = match self {
            Self::Directory(path) => return RunDir::create(path, record),
            Self::In(series) => series.join(time),
            Self::Default => PathBuf::from("runs").join(format!("measure-{name}-{time}")),
        };
        RunDir::create_unused(&path, &record)
    }
}
