//! The archive: Parquet files of results beside the database, which has their catalogue.
//!
//! A reader of all results reads those in the database first, then the catalogue. It leaves out
//! results in files that it read in the database: a result that is moved meanwhile is read once.
//! Readers of files share a lock, and while one has it no file is deleted.

mod catalogue;
mod runs;
mod table;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use roaring::RoaringTreemap;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{Filter, Result, StoreError, StoredResult, Summed};
use underload_store::Column;

use super::database::Database;
use super::tables::{ARCHIVE, setting};
pub(super) use catalogue::{
    Part, announce, forget, parts, replace, replace_within, stored, unused,
};
pub(super) use runs::{Numbered, Order, RunsReader, RunsWriter, has_device};
pub(super) use table::copy_file;
use table::{damaged, failed};

/// `95 days before 2026-11-23`
pub(crate) fn summed_words(summed: Summed) -> String {
    let days = if summed.days == 1 { "day" } else { "days" };
    format!("{} {days} before {}", summed.days, catalogue::date(summed.until_day))
}

/// Returns the folder of a store's archive; `None` if it has none.
pub(super) fn folder(database: &mut dyn Database) -> Result<Option<PathBuf>> {
    let stored: Option<PathBuf> = setting(database, ARCHIVE)?;
    // Relative to the folder of the store, unless it is absolute.
    Ok(stored.map(|folder| database.folder().map_or(folder.clone(), |root| root.join(folder))))
}

/// The files of an archive at the time of one query.
pub(super) struct Files {
    pub(super) folder: PathBuf,
    parts: Vec<Part>,
    _lock: Option<File>,
}

impl Files {
    /// Reads the catalogue.
    pub(super) fn read(database: &mut dyn Database) -> Result<Self> {
        let folder = folder(database)?.unwrap_or_default();
        // Before the catalogue is read. A restored copy may lack the file until its first deletion.
        let lock = File::open(folder.join(READERS)).ok();
        let lock = lock.filter(|lock| lock.lock_shared().is_ok());
        Ok(Self { folder, parts: parts(database)?, _lock: lock })
    }

    /// Calls `see` with each result that meets the filter, day by day, except for those with the
    /// numbers in `seen`, until it returns false. `attributes` has the meaning that it has in
    /// [`Archive::visit_measured`]; `None` fills in all fields.
    ///
    /// [`Archive::visit_measured`]: underload_fleet::store::Archive::visit_measured
    pub(super) fn visit(
        &self,
        filter: &Filter,
        attributes: Option<&[&str]>,
        seen: &RoaringTreemap,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<()> {
        // Decompresses the next batch of rows while the results of earlier ones are visited.
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(BATCHES);
            let paths: Vec<_> =
                self.runs(filter).map(|part| part.in_folder(&self.folder)).collect();
            scope.spawn(move || send_batches(&paths, attributes, &sender));
            for part in self.runs(filter) {
                let batches = Box::new(|| receiver.recv().unwrap_or(Ok(None)));
                let mut reader =
                    RunsReader::new(&part.in_folder(&self.folder), &part.plan, batches);
                while let Some(kept) = reader.next_of(filter)? {
                    let is_new = !seen.contains(kept.number as u64);
                    if is_new && filter.meets(&kept.result) && !see(&kept.result) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// Adds the newest results of a device, so that `found` has the `limit` newest.
    pub(super) fn add_results_of(
        &self,
        device: DeviceId,
        limit: usize,
        found: &mut Vec<Numbered>,
    ) -> Result<()> {
        let filter = Filter::default();
        let mut parts: Vec<_> = self.runs(&filter).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.last));
        for part in parts {
            newest_first(found, limit);
            let is_full = found.len() == limit;
            if is_full && found.last().is_none_or(|oldest| oldest.number > part.last) {
                break;
            }
            let path = part.in_folder(&self.folder);
            if !has_device(&path, |own| own == device.0)? {
                continue;
            }
            let mut reader = RunsReader::open(&path, &part.plan)?;
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
        let without_runs = self.days(filter).filter(|part| !part.has_runs());
        let days: BTreeSet<u32> = without_runs.map(|part| part.day).collect();
        let until_day = days.last().map_or(0, |last| last.saturating_add(1));
        Summed { days: days.len() as u32, until_day }
    }

    fn days(&self, filter: &Filter) -> impl Iterator<Item = &Part> {
        let (from, until) = (filter.from_day.unwrap_or(0), filter.until_day);
        let plan = filter.plan.clone();
        self.parts.iter().filter(move |part| {
            part.day >= from
                && until.is_none_or(|until| part.day < until)
                && plan.as_ref().is_none_or(|plan| *plan == part.plan)
        })
    }

    fn runs(&self, filter: &Filter) -> impl Iterator<Item = &Part> {
        self.days(filter).filter(|part| part.has_runs())
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
    found.dedup_by_key(|kept| kept.number);
    found.truncate(limit);
}

/// Returns [`StoreError::Broken`] if the hash of a file differs from that in the catalogue.
pub(super) fn verify(folder: &Path, part: &Part) -> Result<()> {
    let path = part.in_folder(folder);
    if hash(&path)? == part.sha256 { Ok(()) } else { Err(changed(&path)) }
}

/// The error for a file whose hash differs from that in the catalogue.
pub(super) fn changed(path: &Path) -> StoreError {
    damaged(path, "its hash differs from that in the catalogue; restore it from a copy")
}

/// Returns the SHA-256 of a file.
pub(super) fn hash(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(table::missing(path))?;
    let mut sum = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = std::io::Read::read(&mut file, &mut buffer).map_err(failed(path))?;
        if read == 0 {
            return Ok(data_encoding::HEXLOWER.encode(sum.finish().as_ref()));
        }
        sum.update(&buffer[..read]);
    }
}

/// Locks readers out, for deletions; `None` while there is a reader.
pub(super) fn without_readers(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(READERS);
    underload_disk::make_private(&path).map_err(failed(&path))?;
    let file = File::open(&path).map_err(failed(&path))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// Returns as soon as no reader has the lock.
pub(super) fn wait_for_readers(folder: &Path) -> Result<()> {
    let path = folder.join(READERS);
    File::open(&path).and_then(|file| file.lock()).map_err(failed(&path))
}

/// Decompressed batches that wait to be visited, some megabytes each.
const BATCHES: usize = 2;
/// The file whose lock readers have.
const READERS: &str = "readers.lock";
