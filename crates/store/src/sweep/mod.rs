//! Sweep directories: a million trials in tables, written while they are computed.
//!
//! While a sweep goes on its directory holds `sweep.json`, which says what it is, and
//! `part-NUMBER-CHECKSUM.parquet`, each with the rows of some units in rising order. A *unit* is
//! what is computed at once: a trial, or all trials of a cell where the cell itself decides how
//! many it needs. A part is there whole or not at all, and named by its bytes: what a disk damaged
//! is found, told and removed, and its units are computed again.
//!
//! [`SweepDir::finish`] reads the parts in the order of the trials and writes `trials.parquet`, a
//! row per trial, and `cells.parquet`, a row per cell. Their bytes follow from the rows alone,
//! whoever computed them in whatever order, and however often that was interrupted. Memory is
//! bounded by the parts that lie over one another, not by the sweep.
//!
//! Where two programs compute the same unit, its rows are equal, and those that come later are left
//! out.

mod cells;
mod merge;
mod ranges;
mod rows;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};

use crate::columns::Value as _;
use crate::error::StoreError;
use crate::files::{SWEEP, TRIALS, encode};
use crate::values::guarded;
use crate::{folder, table_file};

pub use cells::SweepCell;
pub use merge::CellTable;
pub use ranges::Ranges;
pub use rows::{AxisColumn, AxisValue, SweepColumns, SweepRow, SweepRows};

const CELLS: &str = "cells.parquet";
/// The version of the directory's format; readers refuse another.
const SWEEP_VERSION: u32 = 1;
/// Rows that wait in memory for the next part, at most.
const MOST_PENDING: usize = 1 << 14;
/// Bytes of a part, at most.
const MOST_PART_BYTES: u64 = 1 << 30;

/// What a sweep is: two with the same have the same rows. The content of `sweep.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// The version of the format; filled in.
    #[serde(default)]
    pub format_version: u32,
    /// Version and commit of the program that computes it.
    pub program: String,
    /// Name of the sweep file.
    pub name: String,
    /// The sweep file, as it was when the sweep began.
    pub text: String,
    /// Digest of what in the sweep file the rows depend on: files that differ in nothing but their
    /// heading and pictures have the same.
    #[serde(default)]
    pub content: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The scenario file.
    pub scenario_text: String,
    /// SHA-256 of each file that the scenario or an axis names.
    pub files: BTreeMap<String, String>,
    /// Seed of the scenario and of what the sweep draws.
    pub seed: u64,
    /// Number of cells.
    pub cells: u64,
    /// Trials of a cell, at most.
    pub repeats: u64,
    /// Whether a unit is a cell, which has at most so many trials, and not a trial.
    pub whole_cells: bool,
    /// The columns of its rows.
    pub columns: SweepColumns,
    /// Whether all of it is in `trials.parquet` and `cells.parquet`; ignored when it begins.
    #[serde(default)]
    pub complete: bool,
}

impl SweepManifest {
    /// Number of units.
    pub fn units(&self) -> u64 {
        if self.whole_cells { self.cells } else { self.cells * self.repeats }
    }

    /// The unit of a trial.
    fn unit(&self, trial: u64) -> u64 {
        if self.whole_cells { trial / self.repeats.max(1) } else { trial }
    }

    /// What is not the same, for a message.
    fn difference(&self, other: &SweepManifest) -> Option<&'static str> {
        let differences = [
            (self.content != other.content, "the sweep file is another"),
            (self.scenario_text != other.scenario_text, "the scenario is another"),
            (self.files != other.files, "a file that the scenario names has changed"),
            (self.program != other.program, "another version of the program computed it"),
            (self.seed != other.seed, "the seed is another"),
            (
                self.columns.metrics != other.columns.metrics,
                "it has no column for a metric that is asked for now, or one more",
            ),
            (
                SweepManifest {
                    complete: other.complete,
                    text: other.text.clone(),
                    ..self.clone()
                } != *other,
                "it has other cells",
            ),
        ];
        differences.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
    }
}

/// The directory of a sweep.
#[derive(Debug)]
pub struct SweepDir {
    path: PathBuf,
    manifest: SweepManifest,
    /// Units that are stored, or wait to be.
    units: Ranges,
    parts: Vec<Part>,
    next_part: u64,
    pending: Vec<SweepRows>,
    pending_rows: usize,
    /// Holds off other programs as long as it is open.
    _lock: File,
}

/// A file with rows.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    segments: Vec<Segment>,
}

/// Units that follow one another, and their rows.
type Segment = (Range<u64>, Range<usize>);

impl SweepDir {
    /// Begins a sweep in a directory that is new or empty, or goes on with the same sweep. Also
    /// gives what the user should know of its files.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherSweep`] and [`StoreError::Busy`]; [`StoreError::Exists`] and
    /// [`StoreError::Foreign`] where something else is there; what the disk said.
    pub fn open(
        path: &Path,
        manifest: SweepManifest,
    ) -> Result<(SweepDir, Vec<String>), StoreError> {
        let wanted = SweepManifest { format_version: SWEEP_VERSION, complete: false, ..manifest };
        let file = path.join(SWEEP);
        if !file.exists() {
            folder::check_vacant(path)?;
            disk::create_directory(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        }
        let lock =
            disk::lock_directory(path, Duration::ZERO).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => StoreError::Busy { path: path.to_owned() },
                _ => StoreError::io(path, "lock")(error),
            })?;
        for file in [SWEEP, TRIALS, CELLS].map(|name| path.join(name)) {
            disk::refuse_links(path, &file).map_err(StoreError::io(&file, "change"))?;
        }
        let found = read_manifest(&file)?;
        if let Some(found) = &found {
            if let Some(difference) = found.difference(&wanted) {
                return Err(StoreError::OtherSweep { path: path.to_owned(), difference });
            }
        } else {
            disk::write_new(&file, &encode(&file, &wanted)?, Access::Usual)
                .map_err(StoreError::io(&file, "create"))?;
        }
        let mut directory = SweepDir {
            path: path.to_owned(),
            manifest: found.unwrap_or(wanted),
            units: Ranges::default(),
            parts: Vec::new(),
            next_part: 0,
            pending: Vec::new(),
            pending_rows: 0,
            _lock: lock,
        };
        let notes = directory.find_parts()?;
        Ok((directory, notes))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the sweep is.
    pub fn manifest(&self) -> &SweepManifest {
        &self.manifest
    }

    /// Whether nothing is left to be done.
    pub fn is_complete(&self) -> bool {
        self.manifest.complete
    }

    /// The units that are stored or were appended.
    pub fn units(&self) -> &Ranges {
        &self.units
    }

    /// The first units from `from` on that are missing, up to the next that is there; `None` where
    /// none is.
    pub fn next_missing(&self, from: u64) -> Option<Range<u64>> {
        if self.manifest.complete {
            return None;
        }
        self.units.next_gap(from, self.manifest.units())
    }

    /// Keeps the rows of whole units, in rising order of their trials; they are on the disk after
    /// the next [`SweepDir::flush`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Inconsistent`] for rows that are not of this sweep, else as
    /// [`SweepDir::flush`].
    pub fn append(&mut self, rows: SweepRows) -> Result<(), StoreError> {
        let wrong = |reason| StoreError::Inconsistent { path: self.path.clone(), reason };
        if rows.layout() != self.manifest.columns.layout() {
            return Err(wrong("rows of another sweep".to_owned()));
        }
        let segments = segments(&self.manifest, rows.trials()).map_err(wrong)?;
        let is_known = |units: &Range<u64>| self.units.next_gap(units.start, units.end).is_none();
        if segments.iter().all(|(units, _)| is_known(units)) {
            return Ok(());
        }
        for (units, _) in segments {
            self.units.insert(units);
        }
        self.pending_rows += rows.len();
        self.pending.push(rows);
        if self.pending_rows >= MOST_PENDING { self.flush() } else { Ok(()) }
    }

    /// Brings all rows to the disk.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pending.sort_by_key(|rows| rows.trials().first().copied());
        let rows = merge::in_order(&self.manifest, &self.pending);
        let segments = segments(&self.manifest, rows.trials());
        let told = |reason| StoreError::Table { path: self.path.clone(), reason };
        let (segments, bytes) = (segments.map_err(told)?, rows.to_parquet().map_err(told)?);
        let name = format!("part-{:06}-{}.parquet", self.next_part, rows::checksum(&bytes));
        let path = self.path.join(name);
        disk::write_new(&path, &bytes, Access::Usual).map_err(StoreError::io(&path, "write"))?;
        self.next_part += 1;
        self.parts.push(Part { path, segments });
        self.pending.clear();
        self.pending_rows = 0;
        Ok(())
    }

    /// Reads what the directory's files say of its units. What is damaged is told and removed.
    fn find_parts(&mut self) -> Result<Vec<String>, StoreError> {
        let mut notes = Vec::new();
        let mut names = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(StoreError::io(&self.path, "read"))?;
        for entry in entries {
            let name = entry.map_err(StoreError::io(&self.path, "read"))?.file_name();
            let name = name.to_string_lossy().into_owned();
            // Nobody else writes here: a killed program left it.
            if name.starts_with(disk::UNFINISHED) {
                remove(&self.path.join(&name))?;
            } else if let Some(number) = part_number(&name) {
                self.next_part = self.next_part.max(number + 1);
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let path = self.path.join(&name);
            if self.manifest.complete {
                // It was killed while it tidied up.
                remove(&path)?;
                continue;
            }
            match self.read_part(&path) {
                Ok(segments) => {
                    for (units, _) in &segments {
                        self.units.insert(units.clone());
                    }
                    self.parts.push(Part { path, segments });
                }
                Err(StoreError::Damaged { reason, .. }) => {
                    remove(&path)?;
                    let path = path.display();
                    notes.push(format!("{path}: {reason}; removed, to be computed again"));
                }
                Err(error) => return Err(error),
            }
        }
        if self.manifest.complete {
            self.units.insert(0..self.manifest.units());
        }
        Ok(notes)
    }

    fn read_part(&self, path: &Path) -> Result<Vec<Segment>, StoreError> {
        let damaged = |reason| StoreError::Damaged { path: path.to_owned(), reason };
        let bytes = read_whole(path)?;
        let layout = self.manifest.columns.layout();
        let reader = guarded(|| SerializedFileReader::new(Bytes::from(bytes)));
        let reader = reader.map_err(|error| damaged(error.to_string()))?;
        rows::check_schema(&reader, &layout).map_err(damaged)?;
        let mut trials = Vec::new();
        for position in 0..reader.num_row_groups() {
            let count = reader.metadata().row_group(position).num_rows();
            let count = usize::try_from(count).unwrap_or_default();
            let columns =
                guarded(|| table_file::read_group(&reader, position, &layout[..1], count));
            let columns = columns.map_err(|error| damaged(error.to_string()))?;
            trials.extend_from_slice(columns.first().and_then(i64::of).unwrap_or_default());
        }
        segments(&self.manifest, &trials).map_err(damaged)
    }
}

/// The bytes of a part, if they are those that its name stands for.
fn read_whole(path: &Path) -> Result<Vec<u8>, StoreError> {
    let damaged = |reason: &str| {
        Err(StoreError::Damaged { path: path.to_owned(), reason: reason.to_owned() })
    };
    let facts = fs::symlink_metadata(path).map_err(StoreError::io(path, "read"))?;
    if !facts.is_file() || facts.len() > MOST_PART_BYTES {
        return damaged("no file of ours");
    }
    let bytes = fs::read(path).map_err(StoreError::io(path, "read"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(&format!("-{}.", rows::checksum(&bytes))) {
        return Ok(bytes);
    }
    damaged("its bytes are not those that were written")
}

/// Units that follow one another, with their rows.
fn segments(manifest: &SweepManifest, trials: &[i64]) -> Result<Vec<Segment>, String> {
    let of = manifest.cells * manifest.repeats;
    let mut segments: Vec<Segment> = Vec::new();
    let mut before = None;
    for (row, trial) in trials.iter().enumerate() {
        let trial = u64::try_from(*trial).ok().filter(|trial| *trial < of);
        let trial = trial.ok_or("a trial that the sweep has not")?;
        if before.is_some_and(|before| trial <= before) {
            return Err(format!("trial {trial} out of order"));
        }
        before = Some(trial);
        let unit = manifest.unit(trial);
        match segments.last_mut() {
            Some((units, rows)) if unit <= units.end => {
                (units.end, rows.end) = (unit + 1, row + 1);
            }
            _ => segments.push((unit..unit + 1, row..row + 1)),
        }
    }
    Ok(segments)
}

fn part_number(name: &str) -> Option<u64> {
    let (number, _) = name.strip_prefix("part-")?.strip_suffix(".parquet")?.split_once('-')?;
    number.parse().ok()
}

fn remove(path: &Path) -> Result<(), StoreError> {
    disk::remove(path).map_err(StoreError::io(path, "remove"))
}

/// What every version has.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

fn read_manifest(path: &Path) -> Result<Option<SweepManifest>, StoreError> {
    let bytes = match fs::read(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => return Ok(None),
        read => read.map_err(StoreError::io(path, "read"))?,
    };
    let told = |error: serde_json::Error| StoreError::Damaged {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let Version { format_version } = serde_json::from_slice(&bytes).map_err(told)?;
    if format_version != SWEEP_VERSION {
        let difference = "its format is another version's";
        return Err(StoreError::OtherSweep { path: disk::directory_of(path).into(), difference });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(told)
}

#[cfg(test)]
mod tests;
