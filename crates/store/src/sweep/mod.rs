//! Sweep directories: tables of a million trials, stored while they are computed.
//!
//! During a sweep its directory has `sweep.json`, the manifest, and `rows.jsonl`, a journal with a
//! line per finished unit: a checksum, then the unit's rows. A *unit* is computed at once: a trial,
//! or all trials of a cell if their number depends on the cell. An incomplete line at the end is cut
//! off; a damaged line is reported, and its unit is computed again.
//!
//! [`SweepDir::finish`] reads the journal in the order of the trials and writes `trials.parquet`, a
//! row per trial, and `cells.parquet`, a row per cell. Their bytes depend on the rows alone, and
//! neither on who computed them in which order nor on interruptions. Memory grows by 16 bytes per
//! unit.

mod cells;
mod ranges;
mod rows;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access, GrowingFile, Journal};

use crate::error::{Result, StoreError};
use crate::files::{SWEEP, TRIALS, encode};
use crate::table::Column;
use crate::table_file::{self, NewTable, damaged};
use crate::{folder, table};

use cells::CellFold;
pub use cells::SweepCell;
pub use ranges::Ranges;
use rows::Layout;
pub use rows::{AxisColumn, AxisValue, SweepColumns, SweepRow, SweepUnit};

const CELLS: &str = "cells.parquet";
const JOURNAL: &str = "rows.jsonl";
/// The version of the directory's format; readers refuse another.
const SWEEP_VERSION: u32 = 1;
/// Bytes of lines in memory before they are written.
const MOST_PENDING: usize = 8 << 20;
/// Bytes of a line, at most.
const MOST_LINE: u64 = 1 << 30;
/// Rows of a row group of the tables.
const GROUP_ROWS: usize = 1 << 14;
const CHECKSUM_DIGITS: usize = 16;

/// The identity of a sweep, in `sweep.json`: sweeps with equal manifests have equal rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepManifest {
    /// The version of the format, set by [`SweepDir::open`].
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
    /// Maximum number of trials of a cell.
    pub repeats: u64,
    /// Whether a unit is a cell and not a trial.
    pub whole_cells: bool,
    pub columns: SweepColumns,
    /// Whether `trials.parquet` and `cells.parquet` are complete; ignored by [`SweepDir::open`].
    pub complete: bool,
}

impl SweepManifest {
    pub fn units(&self) -> u64 {
        if self.whole_cells { self.cells } else { self.cells * self.repeats }
    }

    /// Returns true if a unit has the rows of all its trials, in order, with the columns of the
    /// sweep.
    fn has(&self, unit: &SweepUnit) -> bool {
        let numbers = unit.rows.iter().map(SweepRow::number).collect::<Option<Vec<_>>>();
        let each = if self.whole_cells { self.repeats } else { 1 };
        let first = unit.number.saturating_mul(each);
        unit.number < self.units()
            && numbers.is_some_and(|numbers| {
                numbers.first() == Some(&first)
                    && numbers.is_sorted_by(|a, b| a < b)
                    && numbers.last().is_some_and(|last| last - first < each)
            })
            && unit.rows.iter().all(|row| row.cells(&self.columns).is_some())
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
    /// Units that are in the journal or in memory.
    units: Ranges,
    /// `None` once the tables are written.
    journal: Option<Journal>,
    /// Number and offset of each line of the journal, and of the lines in memory.
    lines: Vec<(u64, u64)>,
    /// Lines that were not written yet.
    pending: Vec<u8>,
    /// Prevents other programs from writing the directory.
    _lock: File,
}

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
        let journal = path.join(JOURNAL);
        for file in [SWEEP, TRIALS, CELLS, JOURNAL].map(|name| path.join(name)) {
            disk::refuse_links(path, &file).map_err(StoreError::io(&file, "change"))?;
        }
        remove_unfinished(path)?;
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
            journal: None,
            lines: Vec::new(),
            pending: Vec::new(),
            _lock: lock,
        };
        if directory.manifest.complete {
            directory.units.insert(0..directory.manifest.units());
            // The journal still exists if the program was killed after it wrote the tables.
            disk::remove(&journal).map_err(StoreError::io(&journal, "remove"))?;
            return Ok((directory, Vec::new()));
        }
        let notes = directory.scan(&journal)?;
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

    /// Returns the number of units on the disk, without those that were appended and not written.
    pub fn stored(&self) -> u64 {
        if self.manifest.complete {
            return self.manifest.units();
        }
        // A journal that somebody removed or cut has less than was written.
        let journal = fs::metadata(self.path.join(JOURNAL));
        let bytes = journal.map_or(0, |journal| journal.len());
        self.written_lines().filter(|(_, offset)| *offset < bytes).count() as u64
    }

    /// Returns the first missing units from `from` on; `None` if no unit is missing.
    pub fn next_missing(&self, from: u64) -> Option<Range<u64>> {
        self.units.next_gap(from, self.manifest.units())
    }

    /// Adds complete units; those that it has already are ignored. The next [`SweepDir::flush`]
    /// writes them.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] for units of another sweep.
    pub fn append(&mut self, units: &[SweepUnit]) -> Result<()> {
        for unit in units {
            let number = unit.number;
            if !self.manifest.has(unit) {
                let reason = format!("unit {number} is not of this sweep");
                return Err(StoreError::inconsistent(&self.path, reason));
            }
            if self.units.next_gap(number, number + 1).is_none() {
                continue;
            }
            let json = serde_json::to_string(unit).map_err(StoreError::json(&self.path))?;
            self.units.insert(number..number + 1);
            self.lines.push((number, self.stored_bytes() + self.pending.len() as u64));
            writeln!(self.pending, "{} {json}", checksum(json.as_bytes()))
                .map_err(StoreError::io(&self.path, "write"))?;
        }
        if self.pending.len() >= MOST_PENDING { self.flush() } else { Ok(()) }
    }

    /// Writes all units to the disk.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(journal) = &mut self.journal
            && !self.pending.is_empty()
        {
            let path = self.path.join(JOURNAL);
            let written = journal.append_synced(&self.pending);
            // Without its name the file would take units that cannot be read again.
            let written = written.and_then(|()| fs::metadata(&path).map(drop));
            written.map_err(StoreError::io(&path, "write"))?;
            self.pending.clear();
        }
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::bytes)
    }

    /// Returns number and offset of each line that was written.
    fn written_lines(&self) -> impl Iterator<Item = (u64, u64)> {
        let bytes = self.stored_bytes();
        self.lines.iter().copied().filter(move |(_, offset)| *offset < bytes)
    }

    /// Opens the journal and finds its units. Returns a note if lines are damaged, whose units are
    /// missing.
    fn scan(&mut self, path: &Path) -> Result<Vec<String>> {
        let file = open_journal(path).map_err(StoreError::io(path, "open"))?;
        let mut lines = JournalLines::open(path).map_err(StoreError::io(path, "open"))?;
        let (mut damaged, mut bytes) = (0, 0);
        while let Some(line) = lines.next().map_err(StoreError::io(path, "read"))? {
            let number = unit_of(line).and_then(|json| serde_json::from_slice::<Number>(json).ok());
            match number.filter(|unit| unit.number < self.manifest.units()) {
                Some(Number { number }) => {
                    self.units.insert(number..number + 1);
                    self.lines.push((number, bytes));
                }
                None => damaged += 1,
            }
            bytes = lines.offset;
        }
        if fs::metadata(path).map_err(StoreError::io(path, "read"))?.len() > bytes {
            file.cut(bytes).map_err(StoreError::io(path, "write"))?;
        }
        self.journal = Some(Journal::over(file, bytes));
        let note = format!("{}: {damaged} damaged lines; computed again", path.display());
        Ok(if damaged > 0 { vec![note] } else { Vec::new() })
    }

    /// Writes the tables of a sweep with all units, and removes its journal. Returns false if it was
    /// stopped; it can be called again.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if units are missing, and [`StoreError::Damaged`] if the
    /// journal was damaged since [`SweepDir::open`], which then finds the units that are left.
    pub fn finish(&mut self, stop: &AtomicBool) -> Result<bool> {
        self.flush()?;
        if self.manifest.complete {
            return Ok(true);
        }
        if let Some(missing) = self.next_missing(0) {
            let reason = format!("units from {} on are missing", missing.start);
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
            trials.push(row.cells(columns).into_iter().flatten())?;
            fold.add(row).map_or(Ok(()), |cell| cells.push(columns.cell_row(&cell)))
        })?;
        if !is_done {
            return Ok(false);
        }
        fold.finish().map_or(Ok(()), |cell| cells.push(columns.cell_row(&cell)))?;
        trials.replace()?;
        cells.replace()?;
        (self.manifest.complete, self.journal) = (true, None);
        let file = self.path.join(SWEEP);
        disk::write_whole(&file, &encode(&file, &self.manifest)?, Access::Usual)
            .map_err(StoreError::io(&file, "replace"))?;
        let journal = self.path.join(JOURNAL);
        disk::remove(&journal).map_err(StoreError::io(&journal, "remove"))?;
        Ok(true)
    }

    /// Calls `take` with every cell that has trials on disk, in order.
    pub fn cells(&self, take: &mut dyn FnMut(SweepCell)) -> Result<()> {
        if !self.manifest.complete {
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
        let mut lines: Vec<(u64, u64)> = self.written_lines().collect();
        lines.sort_unstable();
        if lines.is_empty() {
            return Ok(true);
        }
        let mut journal = JournalLines::open(&path).map_err(StoreError::io(&path, "open"))?;
        for (number, offset) in lines {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            journal.seek(offset).map_err(StoreError::io(&path, "read"))?;
            let line = journal.next().map_err(StoreError::io(&path, "read"))?;
            let unit = line.and_then(unit_of);
            let unit = unit.and_then(|json| serde_json::from_slice::<SweepUnit>(json).ok());
            let unit = unit.filter(|unit| unit.number == number && self.manifest.has(unit));
            let unit = unit.ok_or_else(|| {
                StoreError::damaged(&path, format!("the line of unit {number} was changed"))
            })?;
            unit.rows.iter().try_for_each(&mut *take)?;
        }
        Ok(true)
    }
}

/// Opens a journal to append to it, which is created if it is missing.
fn open_journal(path: &Path) -> io::Result<GrowingFile> {
    match disk::reopen(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = disk::create_new(path, Access::Usual)?;
            disk::sync_directory(disk::directory_of(path))?;
            Ok(file)
        }
        file => file,
    }
}

/// The lines of a journal, of which one is in memory.
struct JournalLines {
    file: BufReader<File>,
    line: Vec<u8>,
    /// Offset of the next line in the file.
    offset: u64,
}

impl JournalLines {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufReader::new(File::open(path)?), line: Vec::new(), offset: 0 })
    }

    /// Continues with the line at `offset`.
    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek_relative(offset.wrapping_sub(self.offset) as i64)?;
        self.offset = offset;
        Ok(())
    }

    /// Returns the next line; `None` at the end, also if an incomplete line is left, which a killed
    /// program wrote. A line that is too long is returned in pieces.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = (&mut self.file).take(MOST_LINE).read_until(b'\n', &mut self.line)?;
        let is_whole = self.line.last() == Some(&b'\n') || read as u64 == MOST_LINE;
        if is_whole {
            self.offset += read as u64;
        }
        Ok(is_whole.then_some(self.line.as_slice()))
    }
}

/// The number of a unit, without its rows.
#[derive(Deserialize)]
struct Number {
    number: u64,
}

/// Returns the unit of a line as JSON; `None` if its checksum does not match.
fn unit_of(line: &[u8]) -> Option<&[u8]> {
    let (sum, json) = line.strip_suffix(b"\n")?.split_at_checked(CHECKSUM_DIGITS + 1)?;
    (sum.strip_suffix(b" ")? == checksum(json).as_bytes()).then_some(json)
}

fn checksum(bytes: &[u8]) -> String {
    HEXLOWER.encode(&digest(&SHA256, bytes).as_ref()[..CHECKSUM_DIGITS / 2])
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
