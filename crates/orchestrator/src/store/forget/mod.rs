//! Forgets lines: deletes all that is stored of them and of their devices.
//!
//! A first transaction removes their devices from all plans, so that nothing is added any more. Then
//! the files of the archive that have their results are written again without them. The last
//! transaction puts these files into the catalogue and deletes all rows: a process that is killed
//! before it commits has only removed the devices from plans, and a second call begins anew. Replaced
//! files, and deleted rows in free pages of the database, are overwritten or deleted at the end; a
//! setting records that this is due.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use roaring::RoaringBitmap;
use underload_fleet::device::DeviceId;
use underload_fleet::orchestrator::{forgotten_setting, line_setting, withdraw};
use underload_fleet::retention::Retention;
use underload_fleet::rollout::PREFIX;
use underload_fleet::store::{Code, Needs, Result, Transaction as _};

use super::archive::{numbers, rolled_up};
use super::database::{Begin, Database, Value, values};
use super::encode::to_json;
use super::files;
use super::housekeeping::{Days, Rewritten, temporary};
use super::keeper::Keeper;
use super::place::Place;
use super::rollup::{Cell, CellBytes, Place as CellPlace, Rollup, SumPlace};
use super::tables::{
    CODES, DEVICES, LINES, LOG, SETTINGS, SUMS, device_of, encoded, put_setting, raw_setting,
};
use super::transaction::SqlTransaction;
use crate::random;

/// Lines that are to be forgotten, and the devices that measured them.
pub struct Forgetting {
    keeper: Keeper,
    lines: BTreeSet<String>,
    /// The devices, and when they enrolled, milliseconds since 1970.
    devices: BTreeMap<DeviceId, u64>,
    /// Whether opening it finished the work of an earlier call.
    pub has_finished: bool,
}

/// Counts of what was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub results: u64,
    /// Files of the archive that were written again.
    pub files: usize,
}

impl Forgetting {
    /// Opens a store, also while an orchestrator uses it. Finishes the work of a call that was killed
    /// after its last transaction.
    pub fn open(place: &Place) -> Result<Self> {
        let keeper = place.store_beside()?.keeper()?;
        let mut opened = Self::new(keeper);
        if raw_setting(&mut *opened.keeper.database, UNFINISHED)?.is_some() {
            opened.with_archive(Self::scrub)?;
            opened.has_finished = true;
        }
        Ok(opened)
    }

    fn new(keeper: Keeper) -> Self {
        let (lines, devices) = (BTreeSet::new(), BTreeMap::new());
        Self { keeper, lines, devices, has_finished: false }
    }

    /// Adds a line by its external identifier, or the line of a device by the device's identifier.
    /// Returns false if neither is known.
    pub fn add(&mut self, name: &str) -> Result<bool> {
        let database = &mut *self.keeper.database;
        let mut line = name.to_owned();
        if database.query(&LINES.get(), &[values![name]])?.is_empty() {
            let Ok(id) = name.parse::<DeviceId>() else { return Ok(false) };
            let Some(row) = database.query(&DEVICES.get(), &[values![id]])?.pop() else {
                return Ok(false);
            };
            let device = device_of(row)?;
            self.devices.insert(id, device.enrolled_ms);
            line = device.line;
        }
        if line.is_empty() {
            return Ok(true);
        }
        // A former device of the line, which measures no other line now, used one of its codes.
        let used = codes_with(database, std::slice::from_ref(&line))?.into_iter();
        let used: Vec<_> =
            used.filter(|it| it.line == line).filter_map(|it| Some(values![it.used_by?])).collect();
        let sql = format!("SELECT {} FROM devices WHERE line = $1", DEVICES.names());
        let mut rows = database.query(&sql, &[values![line.as_str()]])?;
        rows.extend(database.query(&DEVICES.get(), &used)?);
        for row in rows {
            let device = device_of(row)?;
            if device.line.is_empty() || device.line == line {
                self.devices.insert(device.id, device.enrolled_ms);
            }
        }
        self.lines.insert(line);
        Ok(true)
    }

    /// Returns the number of devices whose results will be deleted.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Forgets the lines. The log gets the SHA-256 of `receipt`, a space and each line's identifier,
    /// which names no line to those who do not know the receipt.
    pub fn run(&mut self, receipt: &str, now_ms: u64) -> Result<Forgotten> {
        self.with_archive(|it, folder| {
            it.withdraw()?;
            let devices: BTreeSet<DeviceId> = it.devices.keys().copied().collect();
            let mut rewritten = Rewritten::default();
            if let Some(folder) = folder {
                rewritten = days(&mut it.keeper, folder, now_ms, &AtomicBool::new(false))
                    .rewrite_without(&devices)?;
            }
            // Read before the transaction, because it takes long: only results add to sums, and the
            // transaction reads those.
            let numbers = numbers(&mut *it.keeper.database, &devices)?;
            let places = it.keeper.places_of(&numbers.values().copied().collect())?;
            it.keeper.database.begin(Begin::Admission)?;
            let done = it.delete(&rewritten, places, receipt, now_ms);
            let done = done.and_then(|done| it.keeper.database.commit().map(|()| done));
            if done.is_err() {
                it.keeper.database.roll_back();
            }
            let done = done?;
            it.scrub(folder)?;
            Ok(done)
        })
    }

    /// Runs `work` while no other process changes the archive, with its folder.
    fn with_archive<T>(
        &mut self,
        work: impl FnOnce(&mut Self, Option<&Path>) -> Result<T>,
    ) -> Result<T> {
        let folder = files::folder(&mut *self.keeper.database)?;
        let lock = |folder: &std::path::PathBuf| {
            let lock = underload_disk::lock_directory(folder, ARCHIVE_PATIENCE);
            lock.map_err(|error| temporary(folder, error))
        };
        let _lock = folder.as_ref().map(lock).transpose()?;
        work(self, folder.as_deref())
    }

    /// Ends the plans and leases of the devices.
    fn withdraw(&mut self) -> Result<()> {
        let devices: Vec<DeviceId> = self.devices.keys().copied().collect();
        let needs = Needs { devices: devices.clone(), admits: true, ..Needs::default() };
        let mut tx = Box::new(SqlTransaction::begin(&mut *self.keeper.database, &needs)?);
        devices.into_iter().try_for_each(|device| withdraw(&mut *tx, device))?;
        tx.commit()
    }

    /// Deletes all rows, within a transaction.
    fn delete(
        &mut self,
        rewritten: &Rewritten,
        places: BTreeSet<SumPlace>,
        receipt: &str,
        now_ms: u64,
    ) -> Result<Forgotten> {
        let database = &mut *self.keeper.database;
        // Waits for a batch that is being folded, or makes it fail.
        rolled_up(database, " FOR UPDATE")?;
        database.change("UPDATE progress SET last_change = {restarted}", &[vec![]])?;
        let ids: Vec<_> = self.devices.keys().map(|id| values![*id]).collect();
        // First, which waits for uploads under way.
        database.change("DELETE FROM devices WHERE id = $1", &ids)?;
        let numbers = numbers(database, &self.devices.keys().copied().collect())?;
        let folded = "SELECT number, device, body FROM results WHERE device = $1 AND {folded}";
        let folded = database.query(folded, &ids)?.into_iter();
        let folded = folded.map(|row| encoded(row)?.decode()).collect::<Result<Vec<_>>>()?;
        let mut rollup = Rollup::default();
        for stored in rewritten.left_out.iter().chain(&folded) {
            if let Some(number) = numbers.get(&stored.device) {
                rollup.add(stored, *number);
            }
        }
        let deleted = database.change("DELETE FROM results WHERE device = $1", &ids)?;
        let results = deleted + rewritten.left_out.len() as u64;
        files::replace_within(database, (&rewritten.old, &rewritten.new), &[], now_ms)?;
        let devices = numbers.values().copied().collect();
        self.keeper.subtract(&rollup.finish(), places, &devices)?;
        self.delete_names(&ids)?;
        self.write_receipt(receipt, results, now_ms)?;
        Ok(Forgotten { results, files: rewritten.old.len() })
    }

    /// Deletes the rows that name the lines and devices. Logs keep their entries without the names.
    fn delete_names(&mut self, ids: &[Vec<Value>]) -> Result<()> {
        let Self { keeper, lines, devices, .. } = self;
        let database = &mut *keeper.database;
        for table in ["seen", "numbers", "leases"] {
            database.change(&format!("DELETE FROM {table} WHERE device = $1"), ids)?;
        }
        let names = lines.iter().cloned().chain(devices.keys().map(DeviceId::to_string));
        let codes = codes_with(database, &names.collect::<Vec<_>>())?.into_iter().filter(|code| {
            lines.contains(&code.line) || code.used_by.is_some_and(|it| devices.contains_key(&it))
        });
        let codes: Vec<_> = codes.map(|code| values![&code.hash[..]]).collect();
        database.change(&CODES.delete(), &codes)?;
        let rows: Vec<_> = lines.iter().map(|line| values![line.as_str()]).collect();
        database.change(&LINES.delete(), &rows)?;
        let logged = lines.iter().map(|line| format!("`{line}`"));
        let logged = logged.chain(devices.keys().map(DeviceId::to_string));
        let logged: Vec<_> = logged.map(|it| values![it, NOBODY]).collect();
        let redact = "UPDATE log SET what = replace(what, $1, $2) WHERE {place}(what, $1) > 0";
        database.change(redact, &logged)?;
        let rollouts =
            format!("SELECT name, value FROM settings WHERE {{place}}(name, '{PREFIX}') = 1");
        let other = |device: &DeviceId| Ok((device.to_string(), DeviceId(random::bytes()?)));
        let replaced: Vec<_> = devices.keys().map(other).collect::<Result<_>>()?;
        let mut changed = Vec::new();
        for mut row in database.query(&rollouts, &[vec![]])? {
            let (name, before) = (row.text()?, row.bytes()?);
            let before = String::from_utf8_lossy(&before);
            let text = replaced.iter().fold(before.to_string(), |text, (device, other)| {
                text.replace(device, &other.to_string())
            });
            if text != before {
                changed.push(values![name, text.into_bytes()]);
            }
        }
        database.change(&SETTINGS.put(), &changed).map(drop)
    }

    /// Records that the lines were forgotten, and that their devices have to stop.
    fn write_receipt(&mut self, receipt: &str, results: u64, now_ms: u64) -> Result<()> {
        let database = &mut *self.keeper.database;
        for (device, enrolled_ms) in &self.devices {
            database.change(&SETTINGS.delete(), &[values![line_setting(*device)]])?;
            let stop = values![forgotten_setting(*device), enrolled_ms.to_string().into_bytes()];
            database.change(&SETTINGS.put(), &[stop])?;
        }
        // A device whose line is not recorded is named by itself.
        let mut names: Vec<String> = self.lines.iter().cloned().collect();
        if names.is_empty() {
            names.extend(self.devices.keys().map(DeviceId::to_string));
        }
        let entry = |name: &String| {
            let hash = digest(&SHA256, format!("{receipt} {name}").as_bytes());
            let hash = HEXLOWER.encode(hash.as_ref());
            let what =
                format!("forgot a line, one of {} with {results} results: {hash}", names.len());
            values![now_ms, WHO, what]
        };
        let entries: Vec<_> = names.iter().map(entry).collect();
        database.change(&LOG.insert(), &entries)?;
        put_setting(database, UNFINISHED, &true)
    }

    /// Deletes the files that do not belong to the archive, replaced ones and those that killed
    /// processes left, and overwrites the deleted rows. Waits for studies that read files.
    fn scrub(&mut self, folder: Option<&Path>) -> Result<()> {
        // Files of any age are deleted: the lock of the archive keeps all others from writing some.
        let now_ms = u64::MAX;
        if let Some(folder) = folder {
            while !files::unused(&mut *self.keeper.database, now_ms)?.is_empty() {
                let stop = AtomicBool::new(false);
                if days(&mut self.keeper, folder, now_ms, &stop).remove_unused()? == 0 {
                    files::wait_for_readers(folder)?;
                }
            }
        }
        self.keeper.database.scrub()?;
        self.keeper.database.change(&SETTINGS.delete(), &[values![UNFINISHED]]).map(drop)
    }
}

impl std::fmt::Debug for Forgetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forgetting").field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Returns the places of the sums whose sets have one of `devices`.
    fn places_of(&mut self, devices: &RoaringBitmap) -> Result<BTreeSet<SumPlace>> {
        let mut found = BTreeSet::new();
        let mut after = values![i16::MIN, 0_i64, 0_i64, 0_i64, 0_i64];
        loop {
            let sql = format!(
                "SELECT {} FROM sums WHERE (level, kind, day, hour, key) > ($1, $2, $3, $4, $5)
                    ORDER BY level, kind, day, hour, key LIMIT $6",
                SUMS.names()
            );
            after.push(PAGE.into());
            let rows = self.database.query(&sql, &[after])?;
            let is_last = rows.len() < PAGE;
            after = Vec::new();
            for mut row in rows {
                let place = SumPlace::from_row(&mut row)?;
                after = place.values();
                if !CellBytes::from_row(row)?.read()?.devices.is_disjoint(devices) {
                    found.insert(place);
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Removes cells, which were added before, and devices from the sums. Deletes the sums that have no
    /// other device: of days whose single runs were deleted, a sum of several devices stays as it is.
    fn subtract(
        &mut self,
        cells: &BTreeMap<CellPlace, Cell>,
        mut places: BTreeSet<SumPlace>,
        devices: &RoaringBitmap,
    ) -> Result<()> {
        let parts = self.placed(cells)?;
        places.extend(parts.keys());
        let keys: Vec<_> = places.iter().map(SumPlace::values).collect();
        let (mut sums, mut deleted) = (BTreeMap::new(), Vec::new());
        for mut row in self.database.query(&SUMS.get(), &keys)? {
            let place = SumPlace::from_row(&mut row)?;
            let mut sum = CellBytes::from_row(row)?.read()?;
            if let Some(part) = parts.get(&place) {
                sum.subtract(part);
            }
            sum.devices -= devices;
            if sum.devices.is_empty() {
                deleted.push(place.values());
            } else {
                sums.insert(place, sum);
            }
        }
        self.put_sums(&sums)?;
        self.database.change(&SUMS.delete(), &deleted)?;
        let unused = "DELETE FROM keys WHERE number NOT IN (SELECT key FROM sums)";
        self.database.change(unused, &[vec![]]).map(drop)
    }
}

fn days<'a>(
    keeper: &'a mut Keeper,
    folder: &'a Path,
    now_ms: u64,
    stop: &'a AtomicBool,
) -> Days<'a> {
    Days { keeper, folder, retention: Retention::default(), part: 0, now_ms, stop }
}

/// Returns the codes in which one of `names` occurs.
fn codes_with(database: &mut dyn Database, names: &[String]) -> Result<Vec<Code>> {
    let names = names.iter().map(|name| Ok(values![to_json(name)?]));
    let names: Vec<_> = names.collect::<Result<_>>()?;
    let sql = "SELECT body FROM codes WHERE {place}(body, $1) > 0";
    database.query(sql, &names)?.into_iter().map(|mut row| row.json()).collect()
}

/// Name of the setting that records that deleted rows are not overwritten yet.
const UNFINISHED: &str = "forgotten rows";
/// Written into logs in place of a name.
const NOBODY: &str = "(forgotten)";
const WHO: &str = "the store's owner";
const PAGE: usize = 1_000;
/// How long to wait for a process that merges files.
const ARCHIVE_PATIENCE: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests;
