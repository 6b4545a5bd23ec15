//! Puts results together in the background.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, params};
use underload_fleet::device::DeviceId;
use underload_fleet::store::{StoreError, StoredResult};

use super::archive::{number, rolled_up};
use super::{connect, prepare, told};
use crate::store::rollup::{Cell, CellBytes, Key, Place, Rollup};
use crate::store::{ROLLED_UP, encode, to_json};

/// Puts results of a store together. It reads and adds up while others write; it keeps them
/// waiting only while it writes down the sums.
#[derive(Debug)]
pub struct SqliteKeeper {
    pub(super) connection: Connection,
    /// As a path that others write the same.
    pub(super) directory: PathBuf,
    keys: BTreeMap<Key, i64>,
    numbers: HashMap<DeviceId, u32>,
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
        Ok(Self { connection, directory, keys: BTreeMap::new(), numbers: HashMap::new() })
    }

    /// Puts at most so many results together with those before them. The number that it was.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    pub fn roll_up(&mut self, limit: usize) -> Result<usize, StoreError> {
        let after = rolled_up(&self.connection)?;
        let (results, last) = self.results(after, limit)?;
        if results.is_empty() {
            return Ok(0);
        }
        self.number_devices(&results)?;
        let mut rollup = Rollup::default();
        for stored in &results {
            if let Some(number) = self.numbers.get(&stored.device) {
                rollup.add(stored, *number);
            }
        }
        let written = self.write(after, last, &rollup.finish());
        if written.is_err() {
            // Keys of a change that was taken back have no numbers.
            self.keys.clear();
        }
        written.map(|()| results.len())
    }

    fn results(&self, after: i64, limit: usize) -> Result<(Vec<StoredResult>, i64), StoreError> {
        let sql = "SELECT number, device, body FROM results WHERE number > ? ORDER BY number
            LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let mut rows = statement.query(params![after, limit as i64]).map_err(told)?;
        let (mut results, mut last) = (Vec::new(), after);
        while let Some(row) = rows.next().map_err(told)? {
            last = row.get(0).map_err(told)?;
            let device = DeviceId(row.get(1).map_err(told)?);
            let body = row.get_ref(2).map_err(told)?.as_blob();
            results.push(encode::decode(device, body.map_err(|error| told(error.into()))?)?);
        }
        Ok((results, last))
    }

    /// Gives each device a number that has none.
    fn number_devices(&mut self, results: &[StoredResult]) -> Result<(), StoreError> {
        if self.numbers.len() > KNOWN_AT_ONCE {
            self.numbers.clear();
        }
        let mut unknown = Vec::new();
        for stored in results {
            if self.numbers.contains_key(&stored.device) {
                continue;
            }
            match number(&self.connection, stored.device)? {
                Some(number) => drop(self.numbers.insert(stored.device, number)),
                None => unknown.push(stored.device),
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

    fn write(
        &mut self,
        after: i64,
        last: i64,
        cells: &BTreeMap<Place, Cell>,
    ) -> Result<(), StoreError> {
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let change = self.connection.transaction_with_behavior(behavior).map_err(told)?;
        if rolled_up(&change)? != after {
            let what = "another keeper of the same store was quicker".to_owned();
            return Err(StoreError::Temporary { what });
        }
        for (place, cell) in cells {
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
        change.commit().map_err(told)
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
