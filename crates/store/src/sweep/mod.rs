//! Sweep directories: tables of a million trials, written while they are computed.
//!
//! During a sweep its directory has `sweep.json`, the manifest, and files
//! `part-NUMBER-CHECKSUM.parquet`, each with the rows of some units in ascending order. A *unit* is
//! computed at once: a trial, or all trials of a cell if their number depends on the cell. A part
//! is written completely or not at all, and its name has a checksum: a damaged part is reported and
//! removed, and its units are computed again.
//!
//! [`SweepDir::finish`] reads the parts in the order of the trials and writes `trials.parquet`, a
//! row per trial, and `cells.parquet`, a row per cell. Their bytes depend on the rows alone, and
//! neither on who computed them in which order nor on interruptions. Memory is bounded by the parts
//! that overlap, not by the sweep.
//!
//! If two programs compute the same unit, its rows are equal, and the later ones are dropped.

mod cells;
mod merge;
mod ranges;
mod rows;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};

use crate::error::{Result, StoreError};
use crate::files::{SWEEP, TRIALS, encode};
use crate::folder;
use crate::table::{TableReader, Values as _};

pub use cells::SweepCell;
pub use merge::CellTable;
pub use ranges::Ranges;
pub use rows::{AxisColumn, AxisValue, SweepColumns, SweepRow, SweepRows};

const CELLS: &str = "cells.parquet";
/// The version of the directory's format; readers refuse another.
const SWEEP_VERSION: u32 = 1;
/// Maximum number of rows in memory before the next part is written.
const MOST_PENDING: usize = 1 << 14;
/// Maximum number of bytes of a part.
const MOST_PART_BYTES: u64 = 1 << 30;

/// The identity of a sweep, in `sweep.json`: sweeps with equal manifests have equal rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// The version of the format, set by [`SweepDir::open`].
    #[serde(default)]
    pub format_version: u32,
    /// Version and commit of the program that computes the sweep.
    pub program: String,
    pub name: String,
    /// The sweep file when the sweep began.
    pub text: String,
    /// Digest of the parts of the sweep file on which the rows depend: all but heading and
    /// pictures.
    #[serde(default)]
    pub content: String,
    pub scenario: String,
    pub scenario_text: String,
    /// SHA-256 of each file that the scenario or an axis names.
    pub files: BTreeMap<String, String>,
    /// Seed of the scenario and of the sweep's draws.
    pub seed: u64,
    pub cells: u64,
    /// Maximum number of trials of a cell.
    pub repeats: u64,
    /// Whether a unit is a cell and not a trial.
    pub whole_cells: bool,
    pub columns: SweepColumns,
    /// Whether `trials.parquet` and `cells.parquet` are complete; ignored by [`SweepDir::open`].
    #[serde(default)]
    pub complete: bool,
}

impl SweepManifest {
    pub fn units(&self) -> u64 {
        if self.whole_cells { self.cells } else { self.cells * self.repeats }
    }

    fn unit(&self, trial: u64) -> u64 {
        if self.whole_cells { trial / self.repeats.max(1) } else { trial }
    }

    /// Returns the first difference, for a message.
    fn difference(&self, other: &SweepManifest) -> Option<&'static str> {
        let differences = [
            (self.content != other.content, "the sweep file differs"),
            (self.scenario_text != other.scenario_text, "the scenario differs"),
            (self.files != other.files, "a file that the scenario names has changed"),
            (self.program != other.program, "another version of the program computed it"),
            (self.seed != other.seed, "the seed differs"),
            (self.columns.metrics != other.columns.metrics, "its columns have other metrics"),
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

#[derive(Debug)]
pub struct SweepDir {
    path: PathBuf,
    manifest: SweepManifest,
    /// Units that are stored or in memory.
    units: Ranges,
    parts: Vec<Part>,
    next_part: u64,
    pending: Vec<SweepRows>,
    pending_rows: usize,
    /// Prevents other programs from writing the directory.
    _lock: File,
}

/// A file with rows.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    segments: Vec<Segment>,
}

/// Consecutive units, and their rows.
type Segment = (Range<u64>, Range<usize>);

impl SweepDir {
    /// Begins a sweep in a new or empty directory, or continues the same sweep. Also returns notes
    /// for the user.
    ///
    /// # Errors
    /// Returns [`StoreError::OtherSweep`], [`StoreError::Exists`] or [`StoreError::Foreign`] if the
    /// directory has another content, and [`StoreError::Busy`] if another program writes it.
    pub fn open(path: &Path, manifest: SweepManifest) -> Result<(SweepDir, Vec<String>)> {
        let wanted = SweepManifest { format_version: SWEEP_VERSION, complete: false, ..manifest };
        let file = path.join(SWEEP);
        if !file.exists() {
            folder::check_vacant(path)?;
            disk::create_directory(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        }
        let lock = folder::lock(path)?;
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manifest(&self) -> &SweepManifest {
        &self.manifest
    }

    /// Whether all units are computed and the tables are written.
    pub fn is_complete(&self) -> bool {
        self.manifest.complete
    }

    /// Returns the units that are stored or were appended.
    pub fn units(&self) -> &Ranges {
        &self.units
    }

    /// Returns the first missing units from `from` on; `None` if no unit is missing.
    pub fn next_missing(&self, from: u64) -> Option<Range<u64>> {
        if self.manifest.complete {
            return None;
        }
        self.units.next_gap(from, self.manifest.units())
    }

    /// Adds the rows of complete units, in ascending order of their trials. The next
    /// [`SweepDir::flush`] writes them.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] for rows of another sweep.
    pub fn append(&mut self, rows: SweepRows) -> Result<()> {
        if rows.layout() != self.manifest.columns.layout() {
            return Err(StoreError::inconsistent(&self.path, "rows of another sweep"));
        }
        let segments = segments(&self.manifest, rows.trials())
            .map_err(|reason| StoreError::inconsistent(&self.path, reason))?;
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

    /// Writes all rows to the disk.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pending.sort_by_key(|rows| rows.trials().first().copied());
        let rows = merge::in_order(&self.manifest, &self.pending);
        let segments = segments(&self.manifest, rows.trials());
        let error = |reason| StoreError::Table { path: self.path.clone(), reason };
        let (segments, bytes) = (segments.map_err(error)?, rows.to_parquet().map_err(error)?);
        let name = format!("part-{:06}-{}.parquet", self.next_part, rows::checksum(&bytes));
        let path = self.path.join(name);
        disk::write_new(&path, &bytes, Access::Usual).map_err(StoreError::io(&path, "write"))?;
        self.next_part += 1;
        self.parts.push(Part { path, segments });
        self.pending.clear();
        self.pending_rows = 0;
        Ok(())
    }

    /// Reads which units the directory's files have. Removes and returns notes on damaged files.
    fn find_parts(&mut self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let mut names = Vec::new();
        let entries = fs::read_dir(&self.path).map_err(StoreError::io(&self.path, "read"))?;
        for entry in entries {
            let name = entry.map_err(StoreError::io(&self.path, "read"))?.file_name();
            let name = name.to_string_lossy().into_owned();
            // Only this process has the lock, so the file was left by a killed program.
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
                // The program was killed while it removed parts.
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
                    notes.push(format!("{path}: {reason}; removed, computed again"));
                }
                Err(error) => return Err(error),
            }
        }
        if self.manifest.complete {
            self.units.insert(0..self.manifest.units());
        }
        Ok(notes)
    }

    fn read_part(&self, path: &Path) -> Result<Vec<Segment>> {
        let bytes = Bytes::from(read_whole(path)?);
        let layout = self.manifest.columns.layout();
        let read = || {
            let reader = TableReader::new(bytes, &layout, |column| column == "trial");
            let mut reader = reader.map_err(|error| error.to_string())?;
            let mut trials = Vec::new();
            while let Some(columns) =
                reader.next(rows::BATCH_ROWS).map_err(|error| error.to_string())?
            {
                let read = columns.first().and_then(<&[i64]>::of);
                trials.extend_from_slice(read.unwrap_or_default());
            }
            segments(&self.manifest, &trials)
        };
        read().map_err(|reason| StoreError::damaged(path, reason))
    }
}

/// Reads a part, and compares its bytes with the checksum in its name.
fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let facts = fs::symlink_metadata(path).map_err(StoreError::io(path, "read"))?;
    if !facts.is_file() || facts.len() > MOST_PART_BYTES {
        return Err(StoreError::damaged(path, "not a file of a sweep"));
    }
    let bytes = fs::read(path).map_err(StoreError::io(path, "read"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(&format!("-{}.", rows::checksum(&bytes))) {
        return Ok(bytes);
    }
    Err(StoreError::damaged(path, "its checksum does not match"))
}

/// Groups rows by consecutive units.
fn segments(manifest: &SweepManifest, trials: &[i64]) -> Result<Vec<Segment>, String> {
    let of = manifest.cells * manifest.repeats;
    let mut segments: Vec<Segment> = Vec::new();
    let mut before = None;
    for (row, trial) in trials.iter().enumerate() {
        let trial = u64::try_from(*trial).ok().filter(|trial| *trial < of);
        let trial = trial.ok_or("a trial that is not in the sweep")?;
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

fn remove(path: &Path) -> Result<()> {
    disk::remove(path).map_err(StoreError::io(path, "remove"))
}

/// The key of every version of the format.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

fn read_manifest(path: &Path) -> Result<Option<SweepManifest>> {
    let bytes = match fs::read(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => return Ok(None),
        read => read.map_err(StoreError::io(path, "read"))?,
    };
    let damaged = |error: serde_json::Error| StoreError::damaged(path, error);
    let Version { format_version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if format_version != SWEEP_VERSION {
        let difference = "its format has another version";
        return Err(StoreError::OtherSweep { path: disk::directory_of(path).into(), difference });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests;
