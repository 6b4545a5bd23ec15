//! Days in files: moves results to files, merges small files, and deletes the runs of old days.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs::read_dir;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use underload_fleet::device::DeviceId;
use underload_fleet::retention::{Form, Retention};
use underload_fleet::store::{Result, StoreError, StoredResult};

use super::temporary;
use crate::store::database::values;
use crate::store::encode::Encoded;
use crate::store::files::{self, Numbered, Order, Part, RunsReader, RunsWriter};
use crate::store::keeper::Keeper;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// No work was due, or another keeper is folding.
    Nothing,
    /// Another process is working on the archive.
    Locked,
    /// This many results were folded into the roll-up.
    PutTogether(usize),
    /// This many results were moved to files.
    Moved(usize),
    /// This many files were merged into one.
    Merged(usize),
    /// This many results of one day were deleted; its sums remain.
    Expired(u64),
    /// This many files that do not belong to the archive were deleted.
    Removed(usize),
}

/// Files without the results of some devices, which do not belong to the archive yet.
#[derive(Default)]
pub(in crate::store) struct Rewritten {
    /// The files that they replace.
    pub(in crate::store) old: Vec<Part>,
    pub(in crate::store) new: Vec<Part>,
    pub(in crate::store) left_out: Vec<StoredResult>,
}

/// The work on the days of an archive, whose folder is locked.
pub(in crate::store) struct Days<'a> {
    pub(in crate::store) keeper: &'a mut Keeper,
    pub(in crate::store) folder: &'a Path,
    pub(in crate::store) retention: Retention,
    /// Maximum number of results to move at once.
    pub(in crate::store) part: usize,
    pub(in crate::store) now_ms: u64,
    /// Ends a step early, with an error.
    pub(in crate::store) stop: &'a AtomicBool,
}

impl Days<'_> {
    /// Does the next piece of work.
    pub(super) fn step(&mut self) -> Result<Work> {
        let removed = self.remove_unused()?;
        if removed > 0 {
            return Ok(Work::Removed(removed));
        }
        let mut after = None;
        while let Some((day, plan)) = self.keeper.day_after(after.as_ref())? {
            let work = match self.form(day) {
                Form::Raw => Work::Nothing,
                Form::Bins => self.move_part(&plan, day)?,
                Form::Sums => self.expire(&plan, day, &[])?,
            };
            if work != Work::Nothing {
                return Ok(work);
            }
            after = Some((day, plan));
        }
        let parts = files::parts(&mut *self.keeper.database)?;
        let mut days = parts.chunk_by(|a, b| (a.day, &a.plan) == (b.day, &b.plan));
        let is_old = |part: &Part| self.form(part.day) == Form::Sums && part.has_runs();
        if let Some(old) = days.clone().find(|day| day.iter().any(is_old)) {
            return self.expire(&old[0].plan, old[0].day, old);
        }
        match days.find_map(small_parts) {
            Some(small) => self.merge(&small),
            None => Ok(Work::Nothing),
        }
    }

    fn form(&self, day: u32) -> Form {
        let today = u32::try_from(self.now_ms / 86_400_000).unwrap_or(u32::MAX);
        self.retention.form(day, today)
    }

    /// Removes files that do not belong to the archive, and unfinished files beside them, unless
    /// there are readers.
    pub(in crate::store) fn remove_unused(&mut self) -> Result<usize> {
        let paths = files::unused(&mut *self.keeper.database, self.now_ms)?;
        if paths.is_empty() {
            return Ok(0);
        }
        let Some(_alone) = files::without_readers(self.folder)? else { return Ok(0) };
        for path in &paths {
            let path = self.folder.join(path);
            let failed = |error| temporary(&path, error);
            underload_disk::remove(&path).map_err(failed)?;
            for entry in read_dir(underload_disk::directory_of(&path)).into_iter().flatten() {
                let entry = entry.map_err(failed)?;
                if entry.file_name().to_string_lossy().starts_with(underload_disk::UNFINISHED) {
                    underload_disk::remove(&entry.path()).map_err(failed)?;
                }
            }
        }
        files::forget(&mut *self.keeper.database, &paths)?;
        Ok(paths.len())
    }

    fn move_part(&mut self, plan: &str, day: u32) -> Result<Work> {
        let rows = self.keeper.folded((plan, day), self.part)?;
        if rows.is_empty() {
            return Ok(Work::Nothing);
        }
        // Decoded twice, because encoded results take a tenth of the memory.
        let decode = |row: &Encoded| {
            let result = row.decode()?;
            Ok(Numbered { number: row.number, result })
        };
        let order = |(place, row)| Ok((decode(row)?.order(), place));
        let mut places = rows.iter().enumerate().map(order).collect::<Result<Vec<_>>>()?;
        places.sort();
        let stop = self.stop;
        let part = self.write(plan, day, |writer| {
            for (_, place) in places {
                go_on(stop)?;
                writer.add(&decode(&rows[place])?)?;
            }
            Ok(())
        })?;
        self.replace(&[], &[part], &rows)?;
        Ok(Work::Moved(rows.len()))
    }

    fn merge(&mut self, parts: &[Part]) -> Result<Work> {
        let (folder, stop) = (self.folder, self.stop);
        let merged = self.write(&parts[0].plan, parts[0].day, |writer| {
            in_order(folder, parts, &mut |kept| {
                go_on(stop)?;
                writer.add(kept)
            })
        })?;
        self.replace(parts, &[merged], &[])?;
        Ok(Work::Merged(parts.len()))
    }

    /// Writes the files that have results of `devices` again, without these results.
    pub(in crate::store) fn rewrite_without(
        &mut self,
        devices: &BTreeSet<DeviceId>,
    ) -> Result<Rewritten> {
        let mut rewritten = Rewritten::default();
        for part in files::parts(&mut *self.keeper.database)? {
            let is_it = |id: &[u8]| id.try_into().is_ok_and(|id| devices.contains(&DeviceId(id)));
            let (folder, parts) = (self.folder, std::slice::from_ref(&part));
            if !part.has_runs() || !files::has_device(&part.in_folder(folder), is_it)? {
                continue;
            }
            let left_out = &mut rewritten.left_out;
            let new = self.write(&part.plan, part.day, |writer| {
                in_order(folder, parts, &mut |kept| {
                    if devices.contains(&kept.result.device) {
                        left_out.push(kept.result.clone());
                        return Ok(());
                    }
                    writer.add(kept)
                })
            })?;
            rewritten.new.extend(new.has_runs().then_some(new));
            rewritten.old.push(part);
        }
        Ok(rewritten)
    }

    /// Deletes the results of a day, in the database or in files.
    fn expire(&mut self, plan: &str, day: u32, parts: &[Part]) -> Result<Work> {
        let rows = self.keeper.folded((plan, day), self.part)?;
        let results = parts.iter().map(|part| part.results).sum::<u64>() + rows.len() as u64;
        if results == 0 {
            return Ok(Work::Nothing);
        }
        self.replace(parts, &[Part::without_runs(plan, day)], &rows)?;
        Ok(Work::Expired(results))
    }

    /// Writes results to a new file, which does not belong to the archive yet.
    fn write(
        &mut self,
        plan: &str,
        day: u32,
        add: impl FnOnce(&mut RunsWriter) -> Result<()>,
    ) -> Result<Part> {
        let part = Part::new(plan, day)?;
        files::announce(&mut *self.keeper.database, &part, self.now_ms)?;
        let mut writer = RunsWriter::new(self.folder, part)?;
        add(&mut writer)?;
        writer.finish()
    }

    fn replace(&mut self, old: &[Part], new: &[Part], moved: &[Encoded]) -> Result<()> {
        let numbers: Vec<_> = moved.iter().map(|row| values![row.number]).collect();
        files::replace(&mut *self.keeper.database, (old, new), &numbers, self.now_ms)
    }
}

/// Returns an error if `stop` is set.
fn go_on(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(StoreError::temporary("stopped"));
    }
    Ok(())
}

/// Returns parts of a day to merge: each has at most [`GROWTH`] times the rows of the smaller ones
/// together, so that a row is rewritten only a few times.
fn small_parts(day: &[Part]) -> Option<Vec<Part>> {
    let mut runs: Vec<&Part> = day.iter().filter(|part| part.has_runs()).collect();
    runs.sort_by_key(|part| part.rows);
    let mut sum = 0;
    let mut count = 0;
    for part in runs.iter().take(MERGED_AT_ONCE) {
        let is_near = count == 0 || part.rows <= sum * GROWTH;
        if !is_near || sum + part.rows > ROWS_MOST {
            break;
        }
        sum += part.rows;
        count += 1;
    }
    (count > 1).then(|| runs[..count].iter().map(|part| (*part).clone()).collect())
}

/// Merges the results of all parts in their order. Verifies the parts first, so that damaged rows
/// are not rewritten with a valid hash.
fn in_order(
    folder: &Path,
    parts: &[Part],
    see: &mut dyn FnMut(&Numbered) -> Result<()>,
) -> Result<()> {
    let mut readers = Vec::with_capacity(parts.len());
    let mut heads: BinaryHeap<Reverse<(Order, usize)>> = BinaryHeap::new();
    let mut next = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        files::verify(folder, part)?;
        let mut reader = RunsReader::open(&part.in_folder(folder), &part.plan)?;
        let first = reader.next()?;
        heads.extend(first.as_ref().map(|kept| Reverse((kept.order(), place))));
        next.push(first);
        readers.push(reader);
    }
    while let Some(Reverse((_, place))) = heads.pop() {
        if let Some(kept) = next[place].take() {
            see(&kept)?;
        }
        next[place] = readers[place].next()?;
        heads.extend(next[place].as_ref().map(|kept| Reverse((kept.order(), place))));
    }
    Ok(())
}

/// Maximum number of parts to merge at once.
const MERGED_AT_ONCE: usize = 16;
/// How many times larger a part may be than the smaller ones together.
const GROWTH: u64 = 4;
/// Maximum number of rows of a merged file.
const ROWS_MOST: u64 = 2_000_000;
