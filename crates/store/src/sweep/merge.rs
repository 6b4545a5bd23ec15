//! Merges parts in any order to tables in the order of the trials.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use underload_disk::{self as disk, Access};

use super::cells::{self, CellFold, CellRows, SweepCell};
use super::rows::{self, SweepRows};
use super::{CELLS, SweepDir, SweepManifest, read_whole, remove};
use crate::error::{Result, StoreError};
use crate::files::{SWEEP, TRIALS, encode};
use crate::table::{Column, Kind};
use crate::table_file::{self, NewTable};

const GROUP_ROWS: usize = 1 << 14;

type Take<'a, T> = &'a mut dyn FnMut(T) -> Result<()>;
/// Names and kinds of columns, and their values.
pub type CellTable = (std::sync::Arc<[(String, Kind)]>, Vec<Column>);

impl SweepDir {
    /// Writes the tables of a sweep with all units, and removes its parts. Returns false if it was
    /// stopped; it can be called again.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if units are missing, and [`StoreError::Damaged`] if a
    /// part was damaged since [`SweepDir::open`], which then finds the units that are left.
    pub fn finish(&mut self, stop: &AtomicBool) -> Result<bool> {
        self.flush()?;
        if self.manifest.complete {
            return Ok(true);
        }
        if let Some(missing) = self.next_missing(0) {
            let reason = format!("units from {} on are missing", missing.start);
            return Err(StoreError::inconsistent(&self.path, reason));
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

    /// Calls `take` with every cell that has trials on disk, in order. False if it was stopped.
    pub fn cells(&self, stop: &AtomicBool, take: Take<'_, SweepCell>) -> Result<bool> {
        if self.manifest.complete {
            let (path, columns) = (self.path.join(CELLS), &self.manifest.columns);
            let layout = cells::layout(columns);
            return table(&path, &layout, stop, &mut |values| {
                let cells = cells::from_columns(columns, &layout, &values);
                let cells = cells.map_err(|reason| StoreError::damaged(&path, reason))?;
                cells.into_iter().try_for_each(&mut *take)
            });
        }
        let mut fold = CellFold::new(&self.manifest.columns);
        let done = self.ordered(stop, &mut |rows| fold.add(&rows, take))?;
        if done {
            fold.finish(take)?;
        }
        Ok(done)
    }

    /// Returns the cells as a table with the columns of `cells.parquet`.
    pub fn cell_columns(&self, stop: &AtomicBool) -> Result<CellTable> {
        let mut rows = CellRows::new(&self.manifest.columns);
        self.cells(stop, &mut |cell| {
            rows.push(&cell);
            Ok(())
        })?;
        Ok((rows.layout(), rows.take()))
    }

    /// Calls `take` with all rows on the disk, in the order of their trials, some at a time.
    /// Returns false if it was stopped.
    pub fn ordered(&self, stop: &AtomicBool, take: Take<'_, SweepRows>) -> Result<bool> {
        if self.manifest.complete {
            let layout = self.manifest.columns.layout();
            return table(&self.path.join(TRIALS), &layout, stop, &mut |columns| {
                take(SweepRows::from_columns(&layout, columns))
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

    fn load(&self, number: usize) -> Result<SweepRows> {
        let path = &self.parts[number].path;
        let rows = SweepRows::from_parquet(&self.manifest.columns, read_whole(path)?);
        rows.map_err(|reason| StoreError::damaged(path, reason))
    }
}

/// Calls `take` with the row groups of a table. Returns false if it was stopped.
fn table(
    path: &Path,
    layout: &rows::Layout,
    stop: &AtomicBool,
    take: Take<'_, Vec<Column>>,
) -> Result<bool> {
    let mut reader = table_file::open(path, layout, |_| true)?;
    while let Some(columns) = reader.next(GROUP_ROWS).map_err(table_file::damaged(path))? {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        take(columns)?;
    }
    Ok(true)
}

impl SweepManifest {
    /// Returns the rows of `range` from a unit on.
    fn rows_from(&self, rows: &SweepRows, range: Range<usize>, unit: u64) -> Range<usize> {
        let trials = &rows.trials()[range.clone()];
        let earlier = |trial: &i64| self.unit(u64::try_from(*trial).unwrap_or_default()) < unit;
        range.start + trials.partition_point(earlier)..range.end
    }
}

/// Merges rows that are sorted by their first trial, each unit once.
pub(super) fn in_order(manifest: &SweepManifest, pending: &[SweepRows]) -> SweepRows {
    let mut all = SweepRows::new(&manifest.columns);
    for rows in pending {
        let last = all.trials().last().and_then(|trial| u64::try_from(*trial).ok());
        let next = last.map_or(0, |trial| manifest.unit(trial) + 1);
        all.extend(rows, manifest.rows_from(rows, 0..rows.len(), next));
    }
    all
}
