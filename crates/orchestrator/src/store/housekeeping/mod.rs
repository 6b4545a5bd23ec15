//! Background work: folds results into sums, moves aging days to files, and deletes the runs of old
//! days.
//!
//! A day moves from the database to files in parts of [`PART`] results. Each part is written and
//! synced; then one transaction adds it to the catalogue and deletes its results from the database.
//! A process that is killed in between leaves a file that does not belong to the archive, which is
//! deleted later. Late results become another part. Small parts of a day are merged. Of an old day
//! the sums remain, which the database has of every day.

mod days;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use underload_fleet::retention::Retention;
use underload_fleet::store::{Result, StoreError};

use super::files;
use super::keeper::Keeper;
use super::rollup::{Batch, RolledUp};
use super::tables::{ARCHIVE, BATCH, put_setting, setting};
pub use days::Work;
pub(super) use days::{Days, Rewritten};

/// The background work on a store. A program calls [`Housekeeping::step`] again and again.
pub struct Housekeeping {
    keeper: Keeper,
    has_archive: bool,
    retention: Retention,
    /// When to look for aged days, milliseconds since 1970.
    due_ms: u64,
    /// When the log was last moved to the database, milliseconds since 1970.
    checkpoint_ms: u64,
    part: usize,
    /// Size of the next batch; `None` before the first.
    batch: Option<usize>,
    /// The stored size of the next process's first batch.
    stored_batch: Option<usize>,
    stop: Arc<AtomicBool>,
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
        folder.map(|folder| locate(&mut keeper, folder)).transpose()?;
        let stop = keeper.stop_flag();
        Ok(Self {
            keeper,
            has_archive: folder.is_some(),
            retention,
            due_ms: 0,
            checkpoint_ms: 0,
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
            idle = self.archive_step(now_ms)?;
            if !matches!(idle, Work::Nothing | Work::Locked) {
                return Ok(Did { what: idle, next_ms: now_ms });
            }
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
        // Another orchestrator may have moved the archive.
        let folder = files::folder(&mut *self.keeper.database)?;
        let Some(folder) = folder.filter(|_| self.has_archive) else { return Ok(Work::Nothing) };
        let _lock = match underload_disk::lock_directory(&folder, Duration::ZERO) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok(Work::Locked);
            }
            Err(error) => return Err(temporary(&folder, error)),
        };
        let (keeper, retention, part) = (&mut self.keeper, self.retention, self.part);
        let stop = &self.stop;
        Days { keeper, folder: &folder, retention, part, now_ms, stop }.step()
    }
}

impl std::fmt::Debug for Housekeeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeping")
            .field("has_archive", &self.has_archive)
            .finish_non_exhaustive()
    }
}

/// Finds or creates the archive of a store, and stores its folder.
fn locate(keeper: &mut Keeper, folder: &Path) -> Result<()> {
    let database = &mut *keeper.database;
    let known = files::folder(database)?;
    let parts = files::parts(database)?;
    let mut of_runs = parts.iter().filter(|part| part.has_runs()).peekable();
    if of_runs.peek().is_some() && !of_runs.any(|part| part.in_folder(folder).exists()) {
        let before = known.unwrap_or_default();
        return Err(StoreError::broken(format!(
            "the archive of this store is not in {}: its files were in {}. Name their directory \
             with --archive, or move or restore them",
            folder.display(),
            before.display()
        )));
    }
    underload_disk::private_directory(folder).map_err(|error| temporary(folder, error))?;
    let folder = std::fs::canonicalize(folder).map_err(|error| temporary(folder, error))?;
    if known.as_ref() == Some(&folder) {
        return Ok(());
    }
    let below = database.folder().and_then(|root| folder.strip_prefix(root).ok());
    let stored = below.unwrap_or(&folder).to_owned();
    put_setting(database, ARCHIVE, &stored)
}

pub(super) fn temporary(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::temporary(path.display().to_string()).because(error)
}

/// Results of a part, which take tens of megabytes encoded.
const PART: usize = 32_768;
/// Interval at which aged days are looked for.
const ROUND_MS: u64 = 3_600_000;
/// Interval at which the database's log is moved to its file.
const CHECKPOINT_MS: u64 = 10_000;
/// Interval at which new results are looked for.
const PAUSE_MS: u64 = 1_000;

#[cfg(test)]
pub(super) mod tests;
