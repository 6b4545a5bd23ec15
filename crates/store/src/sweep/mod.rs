//! Sweep directories: tables of a million trials, stored while they are computed.
//!
//! During a sweep its directory has `sweep.json`, the manifest, and `rows.jsonl`, a journal with a
//! line per finished trial: a checksum, then its row. An incomplete line at the end is cut off; a
//! damaged line is reported, and its trial is computed again.
//!
//! [`SweepDir::finish`] reads the journal in the order of the trials and writes `trials.parquet`, a
//! row per trial, and then `cells.parquet`, a row per cell, with which the sweep is complete. Their
//! bytes depend on the rows alone, and neither on who computed them in which order nor on
//! interruptions. Memory grows by about 30 bytes per trial.

mod cells;
mod rows;
mod subject;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access, Journal};

use crate::error::{Result, StoreError};
use crate::files::{SWEEP, TRIALS, checked_line, encode, json_of_line, read_text};
use crate::table::Column;
use crate::table_file::{self, NewTable, damaged};
use crate::{folder, table};

use cells::CellFold;
pub use cells::SweepCell;
use rows::Layout;
pub use rows::{AxisColumn, AxisValue, SweepColumns, SweepRow};
pub use subject::{SweepPlot, SweepSubject};

const CELLS: &str = "cells.parquet";
const JOURNAL: &str = "rows.jsonl";
/// The version of the directory's format; readers refuse another.
pub const SWEEP_VERSION: u32 = 1;
/// Bytes of lines in memory before they are written.
const MOST_PENDING: usize = 8 << 20;
/// Maximum size of a line, bytes.
const MOST_LINE: u64 = 1 << 30;
/// Rows of a row group of the tables.
const GROUP_ROWS: usize = 1 << 14;

/// The identity of a sweep, in `sweep.json`: sweeps with equal manifests have equal rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// Version of the format, [`SWEEP_VERSION`].
    pub format_version: u32,
    /// Version and commit of the program that computes the sweep.
    pub program: String,
    pub name: String,
    /// The sweep file when the sweep began.
    pub text: String,
    /// Digest of the parts of the sweep file on which the rows depend: all but heading and
    /// pictures.
    pub content: String,
    pub scenario: String,
    pub scenario_text: String,
    /// SHA-256 of each file that the scenario or an axis names.
    pub files: BTreeMap<String, String>,
    /// Seed of the scenario and of the sweep's draws.
    pub seed: u64,
    pub cells: u64,
    /// Number of trials of a cell.
    pub repeats: u64,
    pub columns: SweepColumns,
}

impl SweepManifest {
    pub fn trials(&self) -> u64 {
        self.cells * self.repeats
    }

    /// Returns the first difference, for a message.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let differences = [
            (self.content != other.content, "the sweep file differs"),
            (self.scenario_text != other.scenario_text, "the scenario differs"),
            (self.files != other.files, "a file that the scenario names has changed"),
            (self.program != other.program, "another version of the program computed it"),
            (self.seed != other.seed, "the seed differs"),
            (self.columns.metrics != other.columns.metrics, "its columns have other metrics"),
            (Self { text: other.text.clone(), ..self.clone() } != *other, "it has other cells"),
        ];
        differences.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
    }
}

#[derive(Debug)]
pub struct SweepDir {
    path: PathBuf,
    manifest: SweepManifest,
    /// The offset of the line of each finished trial in the journal, or behind it while the line is
    /// pending.
    trials: BTreeMap<u64, u64>,
    /// `None` once the tables are written.
    journal: Option<Journal>,
    /// Lines that were not written yet.
    pending: Vec<u8>,
    /// Prevents other programs from writing the directory.
    _lock: File,
}

impl SweepDir {
    /// Begins a sweep in a new or empty directory, or continues the same sweep. Also returns a note
    /// for the user if the journal has damaged lines, whose trials are missing.
    ///
    /// # Errors
    /// Returns [`StoreError::OtherSweep`], [`StoreError::Exists`] or [`StoreError::Foreign`] if the
    /// directory has another content, and [`StoreError::Busy`] if another program writes it.
    pub fn open(path: &Path, wanted: &SweepManifest) -> Result<(SweepDir, Option<String>)> {
        let [file, trials, cells, journal] =
            [SWEEP, TRIALS, CELLS, JOURNAL].map(|name| path.join(name));
        if !file.exists() {
            folder::check_vacant(path)?;
            disk::create_directory(path, Access::Usual).map_err(StoreError::io(path, "create"))?;
        }
        let lock = folder::lock(path)?;
        for file in [&file, &trials, &cells, &journal] {
            disk::refuse_links(path, file).map_err(StoreError::io(file, "change"))?;
        }
        remove_unfinished(path)?;
        let found = read_manifest(&file)?;
        if let Some(difference) = found.as_ref().and_then(|found| found.difference(wanted)) {
            return Err(StoreError::OtherSweep { path: path.to_owned(), difference });
        }
        if found.is_none() {
            disk::write_new(&file, &encode(&file, wanted)?, Access::Usual)
                .map_err(StoreError::io(&file, "create"))?;
        }
        let mut directory = SweepDir {
            path: path.to_owned(),
            manifest: found.unwrap_or_else(|| wanted.clone()),
            trials: BTreeMap::new(),
            journal: None,
            pending: Vec::new(),
            _lock: lock,
        };
        if cells.exists() {
            // The journal still exists if the program was killed after it wrote the tables.
            if journal.exists() {
                disk::remove(&journal).map_err(StoreError::io(&journal, "remove"))?;
            }
            return Ok((directory, None));
        }
        let damaged = directory.scan(&journal).map_err(StoreError::io(&journal, "read"))?;
        let note = format!("{}: {damaged} damaged lines; computed again", journal.display());
        Ok((directory, (damaged > 0).then_some(note)))
    }

    pub fn manifest(&self) -> &SweepManifest {
        &self.manifest
    }

    /// Whether all trials are computed and the tables are written.
    pub fn is_complete(&self) -> bool {
        self.journal.is_none()
    }

    /// Returns the number of trials on the disk, without those that were appended and not written.
    pub fn stored(&self) -> u64 {
        if self.is_complete() {
            return self.manifest.trials();
        }
        // A journal that was removed or truncated has fewer lines than were written.
        let journal = fs::metadata(self.path.join(JOURNAL));
        let bytes = journal.map_or(0, |journal| journal.len()).min(self.written_bytes());
        self.trials.values().filter(|offset| **offset < bytes).count() as u64
    }

    /// Returns the trials that were neither stored nor appended.
    pub fn missing(&self) -> Vec<Range<u64>> {
        let (mut missing, mut next) = (Vec::new(), 0);
        let end = self.manifest.trials();
        if !self.is_complete() {
            for trial in self.trials.keys().copied().chain([end]) {
                if next < trial {
                    missing.push(next..trial);
                }
                next = trial + 1;
            }
        }
        missing
    }

    /// Adds a row, unless its trial has one already. The next [`SweepDir::flush`] writes it.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] for a row of another sweep.
    pub fn append(&mut self, row: &SweepRow) -> Result<()> {
        let trial = row.trial;
        if trial >= self.manifest.trials() || !row.has(&self.manifest.columns) {
            let reason = format!("trial {trial} is not of this sweep");
            return Err(StoreError::inconsistent(&self.path, reason));
        }
        if self.is_complete() || self.trials.contains_key(&trial) {
            return Ok(());
        }
        let line = checked_line(row).map_err(StoreError::json(&self.path))?;
        self.trials.insert(trial, self.written_bytes() + self.pending.len() as u64);
        self.pending.extend(line);
        if self.pending.len() >= MOST_PENDING { self.flush() } else { Ok(()) }
    }

    /// Writes all rows to the disk.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(journal) = &mut self.journal
            && !self.pending.is_empty()
        {
            let path = self.path.join(JOURNAL);
            let written = journal.append_synced(&self.pending);
            // If the file was removed, rows would be appended to a file that cannot be opened
            // again.
            let written = written.and_then(|()| fs::metadata(&path).map(drop));
            written.map_err(StoreError::io(&path, "write"))?;
            self.pending.clear();
        }
        Ok(())
    }

    fn written_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::bytes)
    }

    /// Opens the journal and finds its rows. Returns the number of damaged lines.
    fn scan(&mut self, path: &Path) -> io::Result<u64> {
        let mut damaged = 0;
        let mut lines = JournalLines::open(path)?;
        loop {
            let offset = lines.offset;
            let Some(line) = lines.next()? else { break };
            let number = row_of(line).and_then(|json| serde_json::from_slice::<Number>(json).ok());
            match number.filter(|row| row.trial < self.manifest.trials()) {
                Some(Number { trial }) => {
                    self.trials.insert(trial, offset);
                }
                None => damaged += 1,
            }
        }
        self.journal = Some(Journal::behind(path, lines.offset, Access::Usual));
        Ok(damaged)
    }

    /// Writes the tables of a sweep with all rows, and removes its journal. Returns false if it was
    /// stopped; it can be called again.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if rows are missing, and [`StoreError::Damaged`] if the
    /// journal was damaged since [`SweepDir::open`]. Opening the directory again finds the rows
    /// that are left.
    pub fn finish(&mut self, stop: &AtomicBool) -> Result<bool> {
        self.flush()?;
        if self.is_complete() {
            return Ok(true);
        }
        if let Some(missing) = self.missing().first() {
            let reason = format!("trials from {} on are missing", missing.start);
            return Err(StoreError::inconsistent(&self.path, reason));
        }
        let columns = &self.manifest.columns;
        let begin = |name: &str, layout: &Layout| {
            let table = NewTable::begin(&self.path.join(name), layout)?;
            Ok(table.with_group_rows(GROUP_ROWS))
        };
        let mut trials = begin(TRIALS, &columns.layout())?;
        let mut cells = begin(CELLS, &columns.cell_layout())?;
        let mut fold = CellFold::default();
        let is_done = self.each_row(stop, &mut |row| {
            trials.push(row.cells(columns))?;
            fold.add(row).map_or(Ok(()), |cell| cells.push(columns.cell_row(&cell)))
        })?;
        if !is_done {
            return Ok(false);
        }
        fold.finish().map_or(Ok(()), |cell| cells.push(columns.cell_row(&cell)))?;
        trials.replace()?;
        cells.replace()?;
        self.journal = None;
        let journal = self.path.join(JOURNAL);
        disk::remove(&journal).map_err(StoreError::io(&journal, "remove"))?;
        Ok(true)
    }

    /// Calls `take` with every cell that has trials on disk, in order.
    pub fn cells(&self, take: &mut dyn FnMut(SweepCell)) -> Result<()> {
        if !self.is_complete() {
            let mut fold = CellFold::default();
            self.each_row(&AtomicBool::new(false), &mut |row| {
                fold.add(row).into_iter().for_each(&mut *take);
                Ok(())
            })?;
            fold.finish().into_iter().for_each(take);
            return Ok(());
        }
        let (path, columns) = (self.path.join(CELLS), &self.manifest.columns);
        let mut reader = table_file::open(&path, &columns.cell_layout(), |_| true)?;
        while let Some(values) = reader.next(GROUP_ROWS).map_err(damaged(&path))? {
            for row in 0..values.first().map_or(0, Column::rows) {
                let cell = columns.cell_at(&values, row);
                take(cell.ok_or_else(|| StoreError::damaged(&path, "a row is not of a cell"))?);
            }
        }
        Ok(())
    }

    /// Returns the cells as a table with the columns of `cells.parquet`.
    pub fn cell_columns(&self) -> Result<(Layout, Vec<Column>)> {
        let columns = &self.manifest.columns;
        let layout = columns.cell_layout();
        let mut values = table::empty(&layout);
        self.cells(&mut |cell| table::push(&mut values, columns.cell_row(&cell)))?;
        Ok((layout, values))
    }

    /// Calls `take` with all rows of the journal, in the order of their trials. Returns false if it
    /// was stopped.
    fn each_row(
        &self,
        stop: &AtomicBool,
        take: &mut dyn FnMut(&SweepRow) -> Result<()>,
    ) -> Result<bool> {
        let path = self.path.join(JOURNAL);
        let mut journal = JournalLines::open(&path).map_err(StoreError::io(&path, "open"))?;
        let bytes = self.written_bytes();
        for (trial, offset) in self.trials.iter().filter(|(_, offset)| **offset < bytes) {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let line = journal.line_at(*offset).map_err(StoreError::io(&path, "read"))?;
            let row = line.and_then(row_of);
            let row = row.and_then(|json| serde_json::from_slice::<SweepRow>(json).ok());
            let row = row.filter(|row| row.trial == *trial).ok_or_else(|| {
                StoreError::damaged(&path, format!("the line of trial {trial} was changed"))
            })?;
            take(&row)?;
        }
        Ok(true)
    }
}

/// The lines of a journal, of which one is in memory. A missing journal has no lines.
struct JournalLines {
    file: Option<BufReader<File>>,
    line: Vec<u8>,
    /// Offset of the next line in the file.
    offset: u64,
}

impl JournalLines {
    fn open(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(BufReader::new(file?)),
        };
        Ok(Self { file, line: Vec::new(), offset: 0 })
    }

    fn line_at(&mut self, offset: u64) -> io::Result<Option<&[u8]>> {
        if let Some(file) = &mut self.file {
            file.seek_relative(offset.wrapping_sub(self.offset) as i64)?;
        }
        self.offset = offset;
        self.next()
    }

    /// Returns the next line; `None` at the end, also if an incomplete line is left, which a killed
    /// program wrote. A line that is too long is returned in pieces.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let Some(file) = &mut self.file else { return Ok(None) };
        let read = file.take(MOST_LINE).read_until(b'\n', &mut self.line)?;
        let is_whole = self.line.last() == Some(&b'\n') || read as u64 == MOST_LINE;
        if is_whole {
            self.offset += read as u64;
        }
        Ok(is_whole.then_some(self.line.as_slice()))
    }
}

/// The number of a row's trial, without the rest of the row.
#[derive(Deserialize)]
struct Number {
    trial: u64,
}

/// Returns the row of a complete line as JSON; `None` if its checksum does not match.
fn row_of(line: &[u8]) -> Option<&[u8]> {
    json_of_line(line.strip_suffix(b"\n")?)
}

/// Removes files that a killed program did not finish: only this process has the lock.
fn remove_unfinished(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(StoreError::io(path, "read"))? {
        let name = entry.map_err(StoreError::io(path, "read"))?.file_name();
        if name.to_string_lossy().starts_with(disk::UNFINISHED) {
            let file = path.join(name);
            disk::remove(&file).map_err(StoreError::io(&file, "remove"))?;
        }
    }
    Ok(())
}

fn read_manifest(path: &Path) -> Result<Option<SweepManifest>> {
    let Some(bytes) = read_text(path)? else { return Ok(None) };
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged(path))?;
    if json["format_version"] != SWEEP_VERSION {
        let difference = "its format has another version";
        return Err(StoreError::OtherSweep { path: disk::directory_of(path).into(), difference });
    }
    serde_json::from_value(json).map(Some).map_err(damaged(path))
}

#[cfg(test)]
mod tests;
