//! Puts results together in the background.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, params};
use underload_fleet::device::DeviceId;
use underload_fleet::store::StoreError;

use super::archive::{number, planned, rolled_up};
use super::{connect, prepare, told};
use crate::store::housekeeping::Row;
use crate::store::rollup::{Batch, Cell, CellBytes, Key, Place, Planned, RolledUp, Rollup};
use crate::store::{ROLLED_UP, to_json};

/// Puts results of a store together. It reads and adds up while others write; it keeps them
/// waiting only while it writes down the sums.
#[derive(Debug)]
pub struct SqliteKeeper {
    pub(super) connection: Connection,
    /// As a path that others write the same.
    pub(super) directory: PathBuf,
    pub(super) keys: BTreeMap<Key, i64>,
    numbers: HashMap<DeviceId, u32>,
    pub(super) planned: Arc<Planned>,
    pub(super) stop: Arc<AtomicBool>,
}

impl SqliteKeeper {
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(directory, flags)?;
        prepare(&connection)?;
        let told = |error| StoreError::Temporary {
            what: format!("the store in {}: {error}", directory.display()),
        };
        let directory = std::fs::canonicalize(directory).map_err(told)?;
        let (keys, numbers) = (BTreeMap::new(), HashMap::new());
        let (planned, stop) = (Arc::default(), Arc::default());
        Ok(Self { connection, directory, keys, numbers, planned, stop })
    }

    /// Folds at most `limit` results into the sums, fewer where they are large.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    pub fn roll_up(&mut self, limit: usize) -> Result<RolledUp, StoreError> {
        let batch = Batch::with_results(limit);
        let after = rolled_up(&self.connection)?;
        let (rows, is_all) = self.rows(after, batch)?;
        if rows.is_empty() {
            return Ok(RolledUp::default());
        }
        if self.keys.len() > KEYS_KNOWN_MAX {
            self.keys.clear();
        }
        self.number_devices(&rows)?;
        self.planned = planned(&self.connection, &self.planned)?;
        let mut rollup = Rollup::new(Arc::clone(&self.planned));
        let folded = rollup.fold(rows.iter(), &self.numbers, batch, &self.stop)?;
        let Some(results) = folded else { return Ok(RolledUp::STOPPED) };
        let last = rows.iter().take(results).next_back().map_or(after, |row| row.number);
        let has_more = !is_all || results < rows.len();
        match self.write(after, last, &rollup.finish()) {
            Ok(true) => Ok(RolledUp { results, has_more }),
            is_written => {
                // Keys of a change that was rolled back have no numbers.
                self.keys.clear();
                is_written.map(|_| RolledUp::STOPPED)
            }
        }
    }

    /// The results of a batch, and whether those are all.
    fn rows(&self, after: i64, batch: Batch) -> Result<(Vec<Row>, bool), StoreError> {
        let sql = "SELECT number, device, body FROM results WHERE number > ? ORDER BY number";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let mut found = statement.query([after]).map_err(told)?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next().map_err(told)? {
            if rows.len() >= batch.results || bytes >= batch.bytes {
                return Ok((rows, false));
            }
            let read = |row: &rusqlite::Row<'_>| {
                let (number, device) = (row.get(0)?, DeviceId(row.get(1)?));
                Ok(Row { number, device, body: row.get(2)? })
            };
            let row = read(row).map_err(told)?;
            bytes += row.body.len();
            rows.push(row);
        }
        Ok((rows, true))
    }

    /// Gives each device a number that has none.
    fn number_devices(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        if self.numbers.len() > KNOWN_AT_ONCE {
            self.numbers.clear();
        }
        let mut unknown = Vec::new();
        for Row { device, .. } in rows {
            if self.numbers.contains_key(device) {
                continue;
            }
            match number(&self.connection, *device)? {
                Some(number) => drop(self.numbers.insert(*device, number)),
                None => unknown.push(*device),
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let change = self.connection.transaction().map_err(told)?;
        for device in &unknown {
            let sql = "INSERT INTO numbers (device) VALUES (?) ON CONFLICT DO NOTHING";
            let mut statement = change.prepare_cached(sql).map_err(told)?;
            statement.execute([&device.0[..]]).map_err(told)?;
        }
        change.commit().map_err(told)?;
        for device in unknown {
            if let Some(number) = number(&self.connection, device)? {
                self.numbers.insert(device, number);
            }
        }
        Ok(())
    }

    /// Writes the sums, and that results up to `last` are in them. Returns false, and writes
    /// nothing, if it was told to stop.
    fn write(
        &mut self,
        after: i64,
        last: i64,
        cells: &BTreeMap<Place, Cell>,
    ) -> Result<bool, StoreError> {
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let change = self.connection.transaction_with_behavior(behavior).map_err(told)?;
        if rolled_up(&change)? != after {
            let what = "another keeper of the same store was quicker".to_owned();
            return Err(StoreError::Temporary { what });
        }
        for (place, cell) in cells {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let key = match self.keys.get(&place.key) {
                Some(key) => *key,
                None => {
                    let key = key_number(&change, &place.key)?;
                    self.keys.insert(place.key.clone(), key);
                    key
                }
            };
            add_cell(&change, place, key, cell)?;
        }
        let sql = "INSERT OR REPLACE INTO progress (name, number) VALUES (?, ?)";
        change.execute(sql, params![ROLLED_UP, last]).map_err(told)?;
        change.commit().map_err(told)?;
        Ok(true)
    }
}

fn key_number(change: &Transaction<'_>, key: &Key) -> Result<i64, StoreError> {
    let body = to_json(key)?;
    let mut statement =
        change.prepare_cached("SELECT number FROM keys WHERE body = ?").map_err(told)?;
    let known = statement.query_row([&body], |row| row.get(0)).optional().map_err(told)?;
    if let Some(number) = known {
        return Ok(number);
    }
    change.execute("INSERT INTO keys (body) VALUES (?)", [&body]).map_err(told)?;
    Ok(change.last_insert_rowid())
}

fn add_cell(
    change: &Transaction<'_>,
    place: &Place,
    key: i64,
    cell: &Cell,
) -> Result<(), StoreError> {
    let sql = "SELECT bins, devices, sent, lost, tests FROM sums
        WHERE level = ? AND kind = ? AND day = ? AND hour = ? AND key = ?";
    let mut statement = change.prepare_cached(sql).map_err(told)?;
    let kind = place.key.of.number();
    let place = params![place.level.number(), kind, place.day, place.hour, key];
    let read = |row: &rusqlite::Row<'_>| {
        let (bins, devices) = (row.get(0)?, row.get(1)?);
        Ok(CellBytes { bins, devices, sent: row.get(2)?, lost: row.get(3)?, tests: row.get(4)? })
    };
    let known = statement.query_row(place, read).optional().map_err(told)?;
    let bytes = match known {
        Some(known) => {
            let mut sum = known.read()?;
            sum.merge(cell);
            CellBytes::from(&sum)
        }
        None => CellBytes::from(cell),
    };
    let sql = "INSERT OR REPLACE INTO sums
        (level, kind, day, hour, key, bins, devices, sent, lost, tests)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let mut statement = change.prepare_cached(sql).map_err(told)?;
    let CellBytes { bins, devices, sent, lost, tests } = bytes;
    let values = [&bins as &dyn rusqlite::ToSql, &devices, &sent, &lost, &tests];
    let values = rusqlite::params_from_iter(place.iter().copied().chain(values));
    statement.execute(values).map(drop).map_err(told)
}

/// Devices whose numbers are kept in memory.
const KNOWN_AT_ONCE: usize = 200_000;
/// Keys whose numbers are kept in memory, some hundred bytes each.
const KEYS_KNOWN_MAX: usize = 16_384;
