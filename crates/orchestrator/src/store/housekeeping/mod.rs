//! Background work: folds results into sums, and moves aging days to files and to sums.
//!
//! A day moves from the database to files in parts of [`PART`] results. Each part is written and
//! synced, then a manifest that names it replaces the earlier one, and only then its results are
//! deleted from the database, a few thousand at a time. A process that is killed in between leaves
//! files that no manifest names, which the next process removes, or results that are in both
//! places, which readers read from the files and the next process deletes. Late results become
//! another part. Small parts of a day are merged; an old day is reduced to sums, and its parts are
//! deleted.

mod days;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use underload_fleet::retention::{Form, Retention};
use underload_fleet::store::{Result, StoreError};

use super::encode::Encoded;
use super::files::{self, Location, Manifest, Numbered, Part, Rows, RunsWriter};
use super::keeper::Keeper;
use super::rollup::{Batch, RolledUp};
use super::tables::{BATCH, LOCATION, put_setting, setting};
pub use work::Work;
use work::go_on;

/// The background work on a store. A program calls [`Housekeeping::step`] again and again.
pub struct Housekeeping {
    keeper: Keeper,
    archive: Option<Archive>,
    retention: Retention,
    /// When to look for aged days, milliseconds since 1970.
    due_ms: u64,
    /// When the log was last moved to the database, milliseconds since 1970.
    checkpoint_ms: u64,
    /// The number up to which all results are stored and folded; `None` if not yet read in this
    /// round.
    settled: Option<i64>,
    part: usize,
    /// Size of the next batch; `None` before the first.
    batch: Option<usize>,
    /// The stored size of the next process's first batch.
    stored_batch: Option<usize>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Archive {
    folder: PathBuf,
    /// Files to delete once no reader holds the lock, because the manifest does not name them.
    garbage: Vec<PathBuf>,
    /// Whether `garbage` includes the files that other processes left.
    is_swept: bool,
}

/// The work that a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Did {
    pub what: Work,
    /// When to call again, milliseconds since 1970.
    pub next_ms: u64,
}

impl Housekeeping {
    /// Moves days to `folder`, or leaves them in the database if it is `None`.
    pub(super) fn new(
        mut keeper: Keeper,
        folder: Option<&Path>,
        retention: Retention,
    ) -> Result<Self> {
        let archive = folder.map(|folder| locate(&mut keeper, folder)).transpose()?;
        let stop = keeper.stop_flag();
        Ok(Self {
            keeper,
            archive,
            retention,
            due_ms: 0,
            checkpoint_ms: 0,
            settled: None,
            part: PART,
            batch: None,
            stored_batch: None,
            stop,
        })
    }

    /// A flag that ends the current step early. That step may have done nothing.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    #[cfg(test)]
    pub(super) fn with_parts_of(mut self, results: usize) -> Self {
        self.part = results;
        self
    }

    /// Looks for aged days with the next step.
    #[cfg(test)]
    pub(super) fn look_again(&mut self) {
        self.due_ms = 0;
    }

    /// Does a piece of work, which takes about a second, or longer for merging or summing a day.
    /// `now_ms` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the piece failed: no result is lost or duplicated. The caller may
    /// retry after [`StoreError::Temporary`].
    pub fn step(&mut self, now_ms: u64) -> Result<Did> {
        // First, because it frees room on a full disk.
        if now_ms.abs_diff(self.checkpoint_ms) >= CHECKPOINT_MS {
            self.keeper.database.checkpoint()?;
            self.checkpoint_ms = now_ms;
        }
        let RolledUp { results: count, has_more } = self.roll_up()?;
        if has_more {
            return Ok(Did { what: Work::PutTogether(count), next_ms: now_ms });
        }
        let mut idle = Work::Nothing;
        if now_ms >= self.due_ms || self.due_ms > now_ms.saturating_add(2 * ROUND_MS) {
            let done = self.archive_step(now_ms);
            if done.is_err() {
                self.settled = None;
                self.archive.iter_mut().for_each(|archive| archive.is_swept = false);
            }
            idle = done?;
            if !matches!(idle, Work::Nothing | Work::Locked) {
                return Ok(Did { what: idle, next_ms: now_ms });
            }
            self.settled = None;
            self.due_ms = now_ms.saturating_add(ROUND_MS);
        }
        let what = if count > 0 { Work::PutTogether(count) } else { idle };
        Ok(Did { what, next_ms: now_ms.saturating_add(PAUSE_MS) })
    }

    /// Folds a batch of results. After a process that died while folding, the next one begins with
    /// half as many, until a batch fits into memory.
    fn roll_up(&mut self) -> Result<RolledUp> {
        let size = match self.batch {
            Some(size) => size,
            None => {
                let stored: Option<usize> = setting(&mut *self.keeper.database, BATCH)?;
                stored.unwrap_or(Batch::RESULTS_MAX).clamp(1, Batch::RESULTS_MAX)
            }
        };
        let for_next = Batch::size_after_death(size);
        // A size a little below `for_next` is not worth a write.
        if self.stored_batch.is_none_or(|stored| stored > for_next || stored < for_next / 4) {
            put_setting(&mut *self.keeper.database, BATCH, &for_next)?;
            self.stored_batch = Some(for_next);
        }
        let start = Instant::now();
        let done = self.keeper.roll_up(size)?;
        self.batch = Some(Batch::next_size(size, done, start.elapsed()));
        Ok(done)
    }

    fn archive_step(&mut self, now_ms: u64) -> Result<Work> {
        let Some(Archive { folder, .. }) = &self.archive else { return Ok(Work::Nothing) };
        let folder = folder.clone();
        let _lock = match underload_disk::lock_directory(&folder, Duration::ZERO) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok(Work::Locked);
            }
            Err(error) => return Err(temporary(&folder, error)),
        };
        let mut manifest = files::manifest(&folder)?;
        let today = u32::try_from(now_ms / 86_400_000).unwrap_or(u32::MAX);
        let removed = self.remove_garbage(&folder, &manifest)?;
        if removed > 0 {
            return Ok(Work::Removed(removed));
        }
        let moved = self.move_day(&folder, &mut manifest, today)?;
        if moved != Work::Nothing {
            return Ok(moved);
        }
        let (done, replaced) =
            days::step(&folder, &mut manifest, self.retention, today, &self.stop)?;
        if let Some(archive) = &mut self.archive {
            archive.garbage.extend(replaced);
        }
        Ok(done)
    }

    /// Removes files that the manifest does not name, unless there are readers.
    fn remove_garbage(&mut self, folder: &Path, manifest: &Manifest) -> Result<usize> {
        let Some(archive) = &mut self.archive else { return Ok(0) };
        if !archive.is_swept {
            // The manifest may not be synced if its writer died. Its predecessor, which a power cut
            // could bring back, may name these files.
            files::sync_manifest(folder)?;
            archive.garbage = files::unnamed(folder, manifest)?;
            archive.is_swept = true;
        }
        if archive.garbage.is_empty() {
            return Ok(0);
        }
        let Some(_alone) = files::without_readers(folder)? else { return Ok(0) };
        let count = archive.garbage.len();
        while let Some(path) = archive.garbage.pop() {
            underload_disk::remove(&path).map_err(|error| temporary(&path, error))?;
        }
        Ok(count)
    }

    /// Takes the next step of moving a day out of the database.
    fn move_day(&mut self, folder: &Path, manifest: &mut Manifest, today: u32) -> Result<Work> {
        let mut after = None;
        while let Some((day, plan)) = self.keeper.day_after(after.as_ref())? {
            if self.retention.form(day, today) != Form::Raw {
                let work = self.move_part(folder, manifest, (&plan, day))?;
                if work != Work::Nothing {
                    return Ok(work);
                }
            }
            after = Some((day, plan));
        }
        Ok(Work::Nothing)
    }

    fn move_part(
        &mut self,
        folder: &Path,
        manifest: &mut Manifest,
        (plan, day): (&str, u32),
    ) -> Result<Work> {
        let settled = match self.settled {
            Some(settled) => settled,
            None => *self.settled.insert(self.keeper.database.settled()?),
        };
        let moved = manifest.day(plan, day).map_or(0, |known| known.up_to);
        if moved > 0
            && let Some(_alone) = files::without_readers(folder)?
        {
            let count = self.keeper.delete((plan, day), moved.min(settled), DELETED_AT_ONCE)?;
            if count > 0 {
                return Ok(Work::Deleted(count as usize));
            }
        }
        let rows = self.keeper.results((plan, day), (moved, settled), self.part)?;
        let Some(last) = rows.iter().map(|row| row.number).max() else { return Ok(Work::Nothing) };
        let count = rows.len();
        let part = write_part(folder, manifest, (plan, day), &rows, &self.stop)?;
        let known = manifest.day_mut(plan, day);
        known.up_to = last;
        known.parts.push(part);
        manifest.write(folder)?;
        Ok(Work::Moved(count))
    }
}

impl std::fmt::Debug for Housekeeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeping").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// Writes results, sorted, to a new file.
fn write_part(
    folder: &Path,
    manifest: &mut Manifest,
    (plan, day): (&str, u32),
    rows: &[Encoded],
    stop: &AtomicBool,
) -> Result<Part> {
    // Decoded twice, because encoded results take a tenth of the memory.
    let order = |row: &Encoded| {
        let result = row.decode()?;
        Ok(Numbered { number: row.number, result }.order())
    };
    let places = rows.iter().enumerate().map(|(place, row)| Ok((order(row)?, place)));
    let mut places: Vec<_> = places.collect::<Result<_>>()?;
    places.sort();
    let file = manifest.name(plan, day, Rows::Runs);
    let mut writer = RunsWriter::new(&folder.join(&file))?;
    for (_, place) in places {
        go_on(stop)?;
        let row = &rows[place];
        let result = row.decode()?;
        writer.add(&Numbered { number: row.number, result })?;
    }
    let (of, written) = writer.finish()?;
    Ok(Part::new(file, Rows::Runs, of, written))
}

/// Finds or creates the archive of a store, and stores its location.
fn locate(keeper: &mut Keeper, folder: &Path) -> Result<Archive> {
    underload_disk::private_directory(folder).map_err(|error| temporary(folder, error))?;
    // If several programs start at once, one creates the archive and the others wait.
    let stored = |keeper: &mut Keeper| -> Result<Option<Location>> {
        setting(&mut *keeper.database, LOCATION)
    };
    let is_ready = match stored(keeper)? {
        Some(known) => files::archive_in(folder)? == Some(known.archive),
        None => false,
    };
    let lock = || underload_disk::lock_directory(folder, LOCK_PATIENCE);
    let _lock = if is_ready { None } else { Some(lock().map_err(|it| temporary(folder, it))?) };
    let known = stored(keeper)?;
    if let Some(known) = &known {
        let before = files::resolve(&known.folder, keeper.database.folder());
        let is_in = |folder: &Path| -> Result<bool> {
            Ok(files::archive_in(folder)?.as_ref() == Some(&known.archive))
        };
        let is_here = is_in(folder)?;
        let is_empty = || Ok(Manifest::read(&before)?.is_some_and(|it| it.days.is_empty()));
        if !is_here && !is_empty()? {
            let is_there = is_in(&before)?;
            let (before, folder) = (before.display(), folder.display());
            let what = if is_there {
                format!(
                    "the archive of this store is in {before}, not in {folder}: give --archive \
                     {before}, or move the files to {folder}"
                )
            } else {
                format!(
                    "the archive of this store is no longer in {before}: restore it from a copy, \
                     or name the directory that it was moved to with --archive"
                )
            };
            return Err(StoreError::broken(what));
        }
    }
    let manifest = files::prepare(folder)?;
    let is_known = known.as_ref().is_some_and(|known| known.archive == manifest.archive);
    if !is_known && !manifest.days.is_empty() {
        let what = format!("{} contains the archive of another store", folder.display());
        return Err(StoreError::broken(what));
    }
    let folder = std::fs::canonicalize(folder).map_err(|error| temporary(folder, error))?;
    let below = keeper.database.folder().and_then(|root| folder.strip_prefix(root).ok());
    let written = below.map_or_else(|| folder.clone(), Path::to_owned);
    let location = Location { archive: manifest.archive.clone(), folder: written };
    if known.as_ref() != Some(&location) {
        put_setting(&mut *keeper.database, LOCATION, &location)?;
    }
    // A database that was restored from a copy must not reuse the numbers of moved results.
    keeper.database.count_from(manifest.last())?;
    Ok(Archive { folder, garbage: Vec::new(), is_swept: false })
}

fn temporary(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::temporary(path.display().to_string()).because(error)
}

/// How long to wait for another program that creates the archive.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// Results of a part, which take tens of megabytes encoded.
const PART: usize = 32_768;
/// Results that are deleted in one transaction, for which uploads wait some milliseconds.
const DELETED_AT_ONCE: usize = 2_000;
/// Interval at which aged days are looked for.
const ROUND_MS: u64 = 3_600_000;
/// Interval at which the database's log is moved to its file.
const CHECKPOINT_MS: u64 = 10_000;
/// Interval at which new results are looked for.
const PAUSE_MS: u64 = 1_000;

#[cfg(test)]
pub(super) mod tests;
