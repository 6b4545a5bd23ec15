//! The archive: Parquet files of results beside the database.
//!
//! A directory with `manifest.json` (see `manifest`) and Parquet files in `plan=NAME/day=DATE/`.
//! One process at a time writes, with a lock of the directory. Readers share another lock; while
//! one holds it, no file is deleted, and no result that was moved to a file is deleted from the
//! database. So a reader sees each result once: in the files if the manifest, which it reads once,
//! says so, and otherwise in the database.

mod manifest;
mod runs;
mod sums;
mod table;

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use serde::{Deserialize, Serialize};
use underload_disk::Access;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{Filter, StoreError, StoredResult, Summed};
use underload_store::Column;

use crate::random;
pub(super) use manifest::{Manifest, Part, PlanDay, Rows};
pub(super) use runs::{Numbered, Order, RunsReader, RunsWriter};
pub(super) use sums::Sums;
use table::{damaged, failed};

/// `95 days before 2026-11-23`
pub(crate) fn summed_words(summed: Summed) -> String {
    let days = if summed.days == 1 { "day" } else { "days" };
    format!("{} {days} before {}", summed.days, manifest::date(summed.until_day))
}

/// The location of a store's archive, which the store has among its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Location {
    pub(super) archive: String,
    /// Absolute, or relative to the store's directory.
    pub(super) folder: PathBuf,
}

/// The files of an archive at the time of one query.
pub(super) struct Files {
    folder: PathBuf,
    manifest: Manifest,
    _lock: File,
}

impl Files {
    /// Opens the archive of a store in the directory `root`.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if it is missing, damaged, or of another store.
    pub(super) fn open(location: &Location, root: Option<&Path>) -> Result<Self, StoreError> {
        let folder = resolve(&location.folder, root);
        let path = folder.join(READERS);
        let away = |error: std::io::Error| {
            let folder = folder.display();
            let what = format!("the archive of this store, expected in {folder}: {error}");
            StoreError::broken(what)
        };
        let lock = File::open(&path).map_err(away)?;
        lock.lock_shared().map_err(failed(&path))?;
        let manifest = Manifest::read(&folder)?
            .ok_or_else(|| damaged(&folder.join(manifest::NAME), "it is missing"))?;
        if manifest.archive != location.archive {
            return Err(damaged(&folder.join(manifest::NAME), "it belongs to another store"));
        }
        Ok(Self { folder, manifest, _lock: lock })
    }

    /// Returns whether a result of the database is also in the files.
    pub(super) fn has(&self, kept: &StoredResult, number: i64) -> bool {
        self.manifest.has(&kept.result.plan, kept.day(), number)
    }

    /// Calls `see` with each result that meets the filter, day by day. Once `see` returns false,
    /// stops and returns false. `attributes` has the meaning that it has in
    /// [`Archive::visit_measured`];
    /// `None` fills in all fields.
    ///
    /// [`Archive::visit_measured`]: underload_fleet::store::Archive::visit_measured
    pub(super) fn visit(
        &self,
        filter: &Filter,
        attributes: Option<&[&str]>,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<bool, StoreError> {
        // Decompresses the next batch of rows while the results of earlier ones are visited.
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(BATCHES);
            let paths: Vec<_> =
                self.runs(filter).map(|(_, part)| part.path(&self.folder)).collect();
            scope.spawn(move || send_batches(&paths, attributes, &sender));
            for (day, part) in self.runs(filter) {
                let batches = Box::new(|| receiver.recv().unwrap_or(Ok(None)));
                let mut reader = RunsReader::new(&part.path(&self.folder), &day.plan, batches);
                while let Some(kept) = reader.next_of(filter)? {
                    if filter.meets(&kept.result) && !see(&kept.result) {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })
    }

    /// Adds the newest results of a device, so that `found` has the `limit` newest.
    pub(super) fn add_results_of(
        &self,
        device: DeviceId,
        limit: usize,
        found: &mut Vec<Numbered>,
    ) -> Result<(), StoreError> {
        let filter = Filter::default();
        let mut parts: Vec<_> = self.runs(&filter).collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.last));
        for (day, part) in parts {
            newest_first(found, limit);
            let is_full = found.len() == limit;
            if is_full && found.last().is_none_or(|oldest| oldest.number > part.last) {
                break;
            }
            let path = part.path(&self.folder);
            if !runs::has_device(&path, device)? {
                continue;
            }
            let mut reader = RunsReader::open(&path, &day.plan)?;
            while let Some(kept) = reader.next()? {
                if kept.result.device == device {
                    found.push(kept);
                }
            }
        }
        newest_first(found, limit);
        Ok(())
    }

    /// Returns the days of the filter of which only sums remain.
    pub(super) fn summed(&self, filter: &Filter) -> Summed {
        let has_sums = |day: &&PlanDay| day.parts.iter().any(|part| part.rows_are == Rows::Sums);
        let days: BTreeSet<u32> = self.days(filter).filter(has_sums).map(|day| day.day).collect();
        let until_day = days.last().map_or(0, |last| last.saturating_add(1));
        Summed { days: days.len() as u32, until_day }
    }

    fn days(&self, filter: &Filter) -> impl Iterator<Item = &PlanDay> {
        let (from, until) = (filter.from_day.unwrap_or(0), filter.until_day);
        let plan = filter.plan.clone();
        self.manifest.days.iter().filter(move |day| {
            day.day >= from
                && until.is_none_or(|until| day.day < until)
                && plan.as_ref().is_none_or(|plan| *plan == day.plan)
        })
    }

    fn runs(&self, filter: &Filter) -> impl Iterator<Item = (&PlanDay, &Part)> {
        self.days(filter)
            .flat_map(|day| day.parts.iter().map(move |part| (day, part)))
            .filter(|(_, part)| part.rows_are == Rows::Runs)
    }
}

/// Sends the batches of files, `None` after each file. Stops after an error, or when the receiver
/// is dropped.
fn send_batches(
    paths: &[PathBuf],
    attributes: Option<&[&str]>,
    sender: &SyncSender<Result<Option<Vec<Column>>, StoreError>>,
) {
    for path in paths {
        let mut reader = match runs::columns_of(path, attributes) {
            Ok(reader) => reader,
            Err(error) => return drop(sender.send(Err(error))),
        };
        loop {
            let batch = reader.next();
            let has_more = matches!(batch, Ok(Some(_)));
            if sender.send(batch).is_err() {
                return;
            }
            if !has_more {
                break;
            }
        }
    }
}

fn newest_first(found: &mut Vec<Numbered>, limit: usize) {
    found.sort_by_key(|kept| std::cmp::Reverse(kept.number));
    found.truncate(limit);
}

pub(super) fn resolve(folder: &Path, root: Option<&Path>) -> PathBuf {
    root.map_or_else(|| folder.to_owned(), |root| root.join(folder))
}

/// Locks readers out, for deletions; `None` while there is a reader.
pub(super) fn without_readers(folder: &Path) -> Result<Option<File>, StoreError> {
    let path = folder.join(READERS);
    let file = File::open(&path).map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(&path)(error)),
    }
}

/// Creates the readers' lock and the manifest of an archive if they are missing. Returns the
/// manifest.
pub(super) fn prepare(folder: &Path) -> Result<Manifest, StoreError> {
    let readers = folder.join(READERS);
    if !readers.exists() {
        underload_disk::write_whole(&readers, b"", Access::Owner).map_err(failed(&readers))?;
    }
    if let Some(manifest) = Manifest::read(folder)? {
        return Ok(manifest);
    }
    if let Some(entry) = plans(folder)?.first() {
        return Err(damaged(
            &folder.join(manifest::NAME),
            &format!("it is missing, but {} exists", entry.display()),
        ));
    }
    let manifest = Manifest::new(data_encoding::HEXLOWER.encode(&random::bytes::<16>()?));
    manifest.write(folder)?;
    Ok(manifest)
}

/// Returns the identifier of the archive in a directory; `None` if the directory has no archive.
pub(super) fn archive_in(folder: &Path) -> Result<Option<String>, StoreError> {
    Ok(Manifest::read(folder)?.map(|manifest| manifest.archive))
}

/// Reads the manifest of an existing archive.
pub(super) fn manifest(folder: &Path) -> Result<Manifest, StoreError> {
    let path = folder.join(manifest::NAME);
    Manifest::read(folder)?.ok_or_else(|| damaged(&path, "it is missing"))
}

/// Syncs the existing manifest to disk.
pub(super) fn sync_manifest(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(manifest::NAME);
    underload_disk::sync_files(std::slice::from_ref(&path)).map_err(failed(&path))?;
    underload_disk::sync_directory(folder).map_err(failed(folder))
}

/// Returns [`StoreError::Broken`] if the hash of a file differs from that in the manifest.
pub(super) fn verify(folder: &Path, part: &Part) -> Result<(), StoreError> {
    let path = part.path(folder);
    let mut file = File::open(&path).map_err(table::missing(&path))?;
    let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = std::io::Read::read(&mut file, &mut buffer).map_err(failed(&path))?;
        if read == 0 {
            break;
        }
        sum.update(&buffer[..read]);
    }
    let found = data_encoding::HEXLOWER.encode(sum.finish().as_ref());
    if found == part.sha256 {
        return Ok(());
    }
    Err(damaged(&path, "its hash differs from that in the manifest; restore it from a copy"))
}

/// Lists files that this program wrote below an archive and that the manifest does not name: left
/// by a process that was killed, or replaced by others.
pub(super) fn unnamed(folder: &Path, manifest: &Manifest) -> Result<Vec<PathBuf>, StoreError> {
    let mut unnamed = Vec::new();
    let own = entries(folder)?;
    unnamed.extend(own.into_iter().filter(|path| is_unfinished(path)));
    for plan in plans(folder)? {
        for day in entries(&plan)?.into_iter().filter(|path| starts_with(path, "day=")) {
            for file in entries(&day)? {
                let below = file.strip_prefix(folder).unwrap_or(&file);
                if is_unfinished(&file) || is_ours(&file) && !manifest.names(below) {
                    unnamed.push(file);
                }
            }
        }
    }
    Ok(unnamed)
}

fn plans(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    Ok(entries(folder)?.into_iter().filter(|path| starts_with(path, "plan=")).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = std::fs::read_dir(folder).map_err(failed(folder))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(failed(folder))?;
    paths.sort();
    Ok(paths)
}

fn starts_with(path: &Path, start: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
}

fn is_unfinished(path: &Path) -> bool {
    starts_with(path, underload_disk::UNFINISHED)
}

fn is_ours(path: &Path) -> bool {
    let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
    is_parquet && ["runs-", "sums-", "ends-"].iter().any(|start| starts_with(path, start))
}

/// Decompressed batches that wait to be visited, some megabytes each.
const BATCHES: usize = 2;
/// The file whose lock readers hold.
const READERS: &str = "readers.lock";
