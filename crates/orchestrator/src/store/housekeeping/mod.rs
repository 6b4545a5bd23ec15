//! What is done in the background: results are put together, and days age from form to form.
//!
//! A day that is to be kept as columns goes from the database to files in parts of [`PART`]
//! results. Each part is written and synced, then the manifest that names it takes the place of
//! the one before, and only then the database forgets those results, a few thousand at a time.
//! Whoever is killed in between has files that no manifest names, which the next one removes, or
//! results that are in the files and still in the database, which readers take from the files and
//! the next one deletes. Results that come late become another part. Small parts of a day are
//! merged; a day that is old is added up and its parts go away.

mod days;
mod unplanned;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use underload_fleet::retention::{Form, Retention};
use underload_fleet::store::StoreError;

use super::encode::Encoded;
use super::files::{self, Location, Manifest, Numbered, Part, Rows, RunsWriter};
use super::keeper::Keeper;
use super::rollup::{Batch, RolledUp};
use unplanned::Unplanned;
pub use work::Work;
use work::go_on;

/// Keeps a store in order, step by step. A program calls [`Housekeeping::step`] in the background
/// of everything else.
pub struct Housekeeping {
    keeper: Keeper,
    archive: Option<Archive>,
    retention: Retention,
    /// When to look for days that have aged, milliseconds since 1970.
    due_ms: u64,
    /// Up to which number results are all there and put together, as known in this round.
    settled: Option<i64>,
    part: usize,
    /// Results of the next batch; `None` before the first.
    batch: Option<usize>,
    /// The size of the next process's first batch, as the store has it.
    stored_batch: Option<usize>,
    unplanned: Unplanned,
    stop: Arc<AtomicBool>,
}

/// The folder that days go to.
#[derive(Debug)]
struct Archive {
    folder: PathBuf,
    /// Files that are no longer named and can go away when nobody reads.
    garbage: Vec<PathBuf>,
    /// Whether what others left behind was looked for.
    is_swept: bool,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Did {
    /// What.
    pub what: Work,
    /// When to call again, milliseconds since 1970.
    pub next_ms: u64,
}

impl Housekeeping {
    /// With days going to that folder, or staying in the database.
    pub(super) fn new(
        mut keeper: Keeper,
        folder: Option<&Path>,
        retention: Retention,
    ) -> Result<Self, StoreError> {
        let archive = folder.map(|folder| locate(&mut keeper, folder)).transpose()?;
        let stop = keeper.stop_flag();
        Ok(Self {
            keeper,
            archive,
            retention,
            due_ms: 0,
            settled: None,
            part: PART,
            batch: None,
            stored_batch: None,
            unplanned: Unplanned::default(),
            stop,
        })
    }

    /// A flag that ends the current step early. That step may have done nothing.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// With parts of so many results, for tests.
    #[cfg(test)]
    pub(super) fn with_parts_of(mut self, results: usize) -> Self {
        self.part = results;
        self
    }

    /// Looks for days that have aged with the next step, for tests.
    #[cfg(test)]
    pub(super) fn look_again(&mut self) {
        self.due_ms = 0;
    }

    /// Does a piece of work, which takes a second or so, or some more where a day is merged or
    /// added up. `now_ms` is in milliseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`]: the piece was not done, nothing is lost and nothing twice. After
    /// [`StoreError::Temporary`] it can be called again, after a minute for example.
    pub fn step(&mut self, now_ms: u64) -> Result<Did, StoreError> {
        let RolledUp { results: count, has_more } = self.roll_up()?;
        if has_more {
            return Ok(Did { what: Work::PutTogether(count), next_ms: now_ms });
        }
        if let Some(deleted) = self.unplanned.step(&mut self.keeper)? {
            return Ok(Did { what: Work::DeletedSums(deleted), next_ms: now_ms });
        }
        if now_ms >= self.due_ms || self.due_ms > now_ms.saturating_add(2 * ROUND_MS) {
            let done = self.archive_step(now_ms);
            if done.is_err() {
                self.settled = None;
                self.archive.iter_mut().for_each(|archive| archive.is_swept = false);
            }
            match done? {
                Work::Nothing => {
                    self.settled = None;
                    self.due_ms = now_ms.saturating_add(ROUND_MS);
                }
                what => return Ok(Did { what, next_ms: now_ms }),
            }
        }
        let what = if count > 0 { Work::PutTogether(count) } else { Work::Nothing };
        Ok(Did { what, next_ms: now_ms.saturating_add(PAUSE_MS) })
    }

    /// Folds a batch of results. A process that dies while it folds is followed by one that begins
    /// with half as many, until what is left fits into memory.
    fn roll_up(&mut self) -> Result<RolledUp, StoreError> {
        let size = match self.batch {
            Some(size) => size,
            None => self.keeper.batch()?.unwrap_or(Batch::RESULTS_MAX).clamp(1, Batch::RESULTS_MAX),
        };
        let for_next = Batch::size_after_death(size);
        // A size a little below `for_next` is not worth a write.
        if self.stored_batch.is_none_or(|stored| stored > for_next || stored < for_next / 4) {
            self.keeper.put_batch(for_next)?;
            self.stored_batch = Some(for_next);
        }
        let start = Instant::now();
        let done = self.keeper.roll_up(size)?;
        self.batch = Some(Batch::next_size(size, done, start.elapsed()));
        Ok(done)
    }

    fn archive_step(&mut self, now_ms: u64) -> Result<Work, StoreError> {
        let Some(Archive { folder, .. }) = &self.archive else { return Ok(Work::Nothing) };
        let folder = folder.clone();
        let _lock = match underload_disk::lock_directory(&folder, Duration::ZERO) {
            Ok(lock) => lock,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Ok(Work::Nothing);
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

    /// Removes files that the manifest does not name, where nobody reads.
    fn remove_garbage(&mut self, folder: &Path, manifest: &Manifest) -> Result<usize, StoreError> {
        let Some(archive) = &mut self.archive else { return Ok(0) };
        if !archive.is_swept {
            // Whoever wrote the manifest may have died before its name was on disk. Nothing is
            // deleted for the sake of what a power cut would take back.
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

    /// Takes the next step of a day that is to leave the database.
    fn move_day(
        &mut self,
        folder: &Path,
        manifest: &mut Manifest,
        today: u32,
    ) -> Result<Work, StoreError> {
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
    ) -> Result<Work, StoreError> {
        let settled = match self.settled {
            Some(settled) => settled,
            None => *self.settled.insert(self.keeper.settled()?),
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

/// Writes results in their order to a new file.
fn write_part(
    folder: &Path,
    manifest: &mut Manifest,
    (plan, day): (&str, u32),
    rows: &[Encoded],
    stop: &AtomicBool,
) -> Result<Part, StoreError> {
    // Bytes take a tenth of the memory of what they are read as.
    let order = |row: &Encoded| {
        let result = row.decode()?;
        Ok(Numbered { number: row.number, result }.order())
    };
    let places = rows.iter().enumerate().map(|(place, row)| Ok((order(row)?, place)));
    let mut places: Vec<_> = places.collect::<Result<_, StoreError>>()?;
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

/// Finds or begins the archive of a store, and has the store write down where it is.
fn locate(keeper: &mut Keeper, folder: &Path) -> Result<Archive, StoreError> {
    underload_disk::private_directory(folder).map_err(|error| temporary(folder, error))?;
    // Of several programs that start at once, one creates the archive and the others wait.
    let is_ready = match keeper.location()? {
        Some(known) => files::archive_in(folder)? == Some(known.archive),
        None => false,
    };
    let lock = || underload_disk::lock_directory(folder, LOCK_PATIENCE);
    let _lock = if is_ready { None } else { Some(lock().map_err(|it| temporary(folder, it))?) };
    let known = keeper.location()?;
    if let Some(known) = &known {
        let before = files::resolve(&known.folder, keeper.root());
        let there = |folder: &Path| files::archive_in(folder);
        let is_here = there(folder)?.as_ref() == Some(&known.archive);
        let is_empty = || Ok(Manifest::read(&before)?.is_some_and(|it| it.days.is_empty()));
        if !is_here && !is_empty()? {
            let is_there = there(&before)?.as_ref() == Some(&known.archive);
            let (before, folder) = (before.display(), folder.display());
            let what = if is_there {
                format!(
                    "the archive of this store is in {before}, not in {folder}: name that folder, \
                     or move what is in it"
                )
            } else {
                format!(
                    "the archive of this store was in {before} and is there no longer: restore it \
                     from a copy, or name the folder that it was moved to by --archive"
                )
            };
            return Err(StoreError::broken(what));
        }
    }
    let manifest = files::prepare(folder)?;
    let is_known = known.as_ref().is_some_and(|known| known.archive == manifest.archive);
    if !is_known && !manifest.days.is_empty() {
        let what = format!("{} has the archive of another store", folder.display());
        return Err(StoreError::broken(what));
    }
    let folder = std::fs::canonicalize(folder).map_err(|error| temporary(folder, error))?;
    let below = keeper.root().and_then(|root| folder.strip_prefix(root).ok());
    let written = below.map_or_else(|| folder.clone(), Path::to_owned);
    let location = Location { archive: manifest.archive.clone(), folder: written };
    if known.as_ref() != Some(&location) {
        keeper.put_location(&location)?;
    }
    // A database that was restored from a copy counts on behind what was moved since.
    keeper.count_from(manifest.last())?;
    Ok(Archive { folder, garbage: Vec::new(), is_swept: false })
}

fn temporary(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::temporary(path.display().to_string()).because(error)
}

/// How long to wait for another program that creates the archive.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// Results of a part: as bytes they take tens of megabytes.
const PART: usize = 32_768;
/// Results that are deleted with one change: uploads wait for some milliseconds.
const DELETED_AT_ONCE: usize = 2_000;
/// From one round of the days to the next.
const ROUND_MS: u64 = 3_600_000;
/// From one look for new results to the next.
const PAUSE_MS: u64 = 1_000;

#[cfg(test)]
pub(super) mod tests;
