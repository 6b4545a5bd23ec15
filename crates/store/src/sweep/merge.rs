//! From parts in any order to tables in the order of the trials.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use underload_disk::{self as disk, Access};

use super::cells::{self, CellFold, CellRows, SweepCell};
use super::rows::{self, SweepRows};
use super::{CELLS, SweepDir, SweepManifest, read_whole, remove};
use crate::columns::{Column, Kind};
use crate::error::StoreError;
use crate::files::{SWEEP, TRIALS, encode};
use crate::table_file::NewTable;
use crate::values::guarded;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 14;

/// Takes rows, or says why it cannot.
type Take<'a, T> = &'a mut dyn FnMut(T) -> Result<(), StoreError>;
/// Names and kinds of columns, and their values.
pub type CellTable = (std::sync::Arc<[(String, Kind)]>, Vec<Column>);

impl SweepDir {
    /// Writes the tables of a sweep whose units are all there, and removes its parts. `Ok(false)`:
    /// it was stopped, and can be called again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Inconsistent`] where units are missing, [`StoreError::Damaged`] for a part
    /// that was right when it was found: [`SweepDir::open`] finds what is left. Else what the disk
    /// said.
    pub fn finish(&mut self, stop: &AtomicBool) -> Result<bool, StoreError> {
        self.flush()?;
        if self.manifest.complete {
            return Ok(true);
        }
        if let Some(missing) = self.next_missing(0) {
            let reason = format!("units from {} on are missing", missing.start);
            return Err(StoreError::Inconsistent { path: self.path.clone(), reason });
        }
        let columns = self.manifest.columns.clone();
        let mut trials = NewTable::begin(&self.path.join(TRIALS), &columns.layout())?;
        let mut cells = CellRows::new(&columns);
        let mut cell_table = NewTable::begin(&self.path.join(CELLS), &cells.layout())?;
        let (mut fold, mut waiting) = (CellFold::new(&columns), SweepRows::new(&columns));
        let mut keep = |cell: SweepCell| {
            cells.push(&cell);
            if cells.count() == GROUP_ROWS {
                cell_table.write(&cells.take())?;
            }
            Ok(())
        };
        let done = self.ordered(stop, &mut |rows| {
            fold.add(&rows, &mut keep)?;
            let mut from = 0;
            while from < rows.len() {
                let until = rows.len().min(from + GROUP_ROWS - waiting.len());
                waiting.extend(&rows, from..until);
                from = until;
                if waiting.len() == GROUP_ROWS {
                    trials.write(waiting.raw())?;
                    waiting = SweepRows::new(&columns);
                }
            }
            Ok(())
        })?;
        if !done {
            return Ok(false);
        }
        fold.finish(&mut keep)?;
        if !waiting.is_empty() {
            trials.write(waiting.raw())?;
        }
        if cells.count() > 0 {
            cell_table.write(&cells.take())?;
        }
        trials.replace()?;
        cell_table.replace()?;
        self.manifest.complete = true;
        let file = self.path.join(SWEEP);
        disk::write_whole(&file, &encode(&file, &self.manifest)?, Access::Usual)
            .map_err(StoreError::io(&file, "replace"))?;
        for part in std::mem::take(&mut self.parts) {
            remove(&part.path)?;
        }
        Ok(true)
    }

    /// Gives `take` every cell of which trials are on the disk, in order. `Ok(false)`: stopped.
    ///
    /// # Errors
    ///
    /// As [`SweepDir::finish`].
    pub fn cells(&self, stop: &AtomicBool, take: Take<'_, SweepCell>) -> Result<bool, StoreError> {
        if self.manifest.complete {
            let (path, columns) = (self.path.join(CELLS), &self.manifest.columns);
            let layout = cells::layout(columns);
            return table(&path, &layout, stop, &mut |values| {
                let cells = cells::from_columns(columns, &layout, &values);
                let damaged = |reason| StoreError::Damaged { path: path.clone(), reason };
                cells.map_err(damaged)?.into_iter().try_for_each(&mut *take)
            });
        }
        let mut fold = CellFold::new(&self.manifest.columns);
        let done = self.ordered(stop, &mut |rows| fold.add(&rows, take))?;
        if done {
            fold.finish(take)?;
        }
        Ok(done)
    }

    /// The cells as a table: names and kinds of the columns of `cells.parquet`, and its rows.
    ///
    /// # Errors
    ///
    /// As [`SweepDir::finish`].
    pub fn cell_columns(&self, stop: &AtomicBool) -> Result<CellTable, StoreError> {
        let mut rows = CellRows::new(&self.manifest.columns);
        self.cells(stop, &mut |cell| {
            rows.push(&cell);
            Ok(())
        })?;
        Ok((rows.layout(), rows.take()))
    }

    /// Gives `take` all rows that are on the disk, in the order of their trials, some at a time.
    /// `Ok(false)`: stopped.
    ///
    /// # Errors
    ///
    /// As [`SweepDir::finish`].
    pub fn ordered(
        &self,
        stop: &AtomicBool,
        take: Take<'_, SweepRows>,
    ) -> Result<bool, StoreError> {
        if self.manifest.complete {
            let layout = self.manifest.columns.layout();
            return table(&self.path.join(TRIALS), &layout, stop, &mut |columns| {
                take(SweepRows::of(&layout, columns))
            });
        }
        let mut order: Vec<(Range<u64>, usize, Range<usize>)> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let segments = part.segments.iter().cloned();
            order.extend(segments.map(|(units, rows)| (units, number, rows)));
        }
        order.sort_by_key(|(units, number, _)| (units.start, *number));
        let mut left: Vec<usize> = self.parts.iter().map(|part| part.segments.len()).collect();
        let mut loaded: BTreeMap<usize, SweepRows> = BTreeMap::new();
        let mut next = 0;
        for (units, number, range) in order {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if units.end > next {
                let rows = match loaded.entry(number) {
                    Entry::Occupied(loaded) => loaded.into_mut(),
                    Entry::Vacant(place) => place.insert(self.load(number)?),
                };
                let new = self.manifest.rows_from(rows, range, next);
                let mut some = SweepRows::new(&self.manifest.columns);
                some.extend(rows, new);
                take(some)?;
                next = units.end;
            }
            left[number] -= 1;
            if left[number] == 0 {
                loaded.remove(&number);
            }
        }
        Ok(true)
    }

    fn load(&self, number: usize) -> Result<SweepRows, StoreError> {
        let path = &self.parts[number].path;
        let rows = SweepRows::from_parquet(&self.manifest.columns, read_whole(path)?);
        rows.map_err(|reason| StoreError::Damaged { path: path.clone(), reason })
    }
}

/// Gives `take` the row groups of a table. `Ok(false)`: stopped.
fn table(
    path: &Path,
    layout: &rows::Layout,
    stop: &AtomicBool,
    take: Take<'_, Vec<Column>>,
) -> Result<bool, StoreError> {
    let damaged = |reason: String| StoreError::Damaged { path: path.to_owned(), reason };
    let file = File::open(path).map_err(StoreError::io(path, "open"))?;
    let reader = guarded(|| SerializedFileReader::new(file));
    let reader = reader.map_err(|error| damaged(error.to_string()))?;
    rows::check_schema(&reader, layout).map_err(damaged)?;
    for position in 0..reader.num_row_groups() {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        take(rows::group(&reader, position, layout).map_err(damaged)?)?;
    }
    Ok(true)
}

impl SweepManifest {
    /// Of these rows those from a unit on.
    fn rows_from(&self, rows: &SweepRows, range: Range<usize>, unit: u64) -> Range<usize> {
        let trials = &rows.trials()[range.clone()];
        let earlier = |trial: &i64| self.unit(u64::try_from(*trial).unwrap_or_default()) < unit;
        range.start + trials.partition_point(earlier)..range.end
    }
}

/// Rows that are sorted by their first trial, each unit once.
pub(super) fn in_order(manifest: &SweepManifest, pending: &[SweepRows]) -> SweepRows {
    let mut all = SweepRows::new(&manifest.columns);
    for rows in pending {
        let last = all.trials().last().and_then(|trial| u64::try_from(*trial).ok());
        let next = last.map_or(0, |trial| manifest.unit(trial) + 1);
        all.extend(rows, manifest.rows_from(rows, 0..rows.len(), next));
    }
    all
}
