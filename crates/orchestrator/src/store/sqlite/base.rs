//! What housekeeping does with the file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use underload_fleet::device::DeviceId;
use underload_fleet::store::StoreError;

use super::archive::{planned, rolled_up};
use super::keeper::SqliteKeeper;
use super::told;
use crate::store::files::Location;
use crate::store::housekeeping::{Base, Row};
use crate::store::rollup::{Key, Planned, RolledUp, SumPlace};
use crate::store::{BATCH, LOCATION, from_json, to_json};

impl Base for SqliteKeeper {
    fn roll_up(&mut self, limit: usize) -> Result<RolledUp, StoreError> {
        Self::roll_up(self, limit)
    }

    fn stop_with(&mut self, flag: &Arc<AtomicBool>) {
        self.stop = Arc::clone(flag);
    }

    fn batch(&mut self) -> Result<Option<usize>, StoreError> {
        let value = setting(&self.connection, BATCH)?;
        value.map(|bytes| from_json(&String::from_utf8_lossy(&bytes))).transpose()
    }

    fn put_batch(&mut self, results: usize) -> Result<(), StoreError> {
        put_setting(&self.connection, BATCH, &to_json(&results)?)
    }

    fn planned(&mut self) -> Result<Arc<Planned>, StoreError> {
        self.planned = planned(&self.connection, &self.planned)?;
        Ok(Arc::clone(&self.planned))
    }

    fn keys(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, Key)>, StoreError> {
        let sql = "SELECT number, body FROM keys WHERE number > ? ORDER BY number LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let rows = statement.query_map(params![after, limit as i64], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?))
        });
        let key = |row: rusqlite::Result<(i64, String)>| {
            let (number, body) = row.map_err(told)?;
            Ok((number, from_json(&body)?))
        };
        rows.map_err(told)?.map(key).collect()
    }

    fn sums(&mut self, after: SumPlace, limit: usize) -> Result<Vec<SumPlace>, StoreError> {
        let sql = "SELECT level, kind, day, hour, key FROM sums
            WHERE (level, kind, day, hour, key) > (?, ?, ?, ?, ?)
            ORDER BY level, kind, day, hour, key LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let SumPlace { level, kind, day, hour, key } = after;
        let values = params![level, kind, day, hour, key, limit as i64];
        let rows = statement.query_map(values, |row| {
            let (level, kind, day) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(SumPlace { level, kind, day, hour: row.get(3)?, key: row.get(4)? })
        });
        rows.map_err(told)?.collect::<Result<_, _>>().map_err(told)
    }

    fn delete_sums(&mut self, places: &[SumPlace]) -> Result<(), StoreError> {
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let change = change.map_err(told)?;
        let sql = "DELETE FROM sums
            WHERE level = ? AND kind = ? AND day = ? AND hour = ? AND key = ?";
        for SumPlace { level, kind, day, hour, key } in places {
            let mut statement = change.prepare_cached(sql).map_err(told)?;
            statement.execute(params![level, kind, day, hour, key]).map_err(told)?;
        }
        change.commit().map_err(told)
    }

    fn delete_keys(&mut self, numbers: &[i64]) -> Result<(), StoreError> {
        self.keys.clear();
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let change = change.map_err(told)?;
        for number in numbers {
            let sql = "DELETE FROM keys WHERE number = ?";
            let mut statement = change.prepare_cached(sql).map_err(told)?;
            statement.execute([number]).map_err(told)?;
        }
        change.commit().map_err(told)
    }

    fn settled(&mut self) -> Result<i64, StoreError> {
        // One writes at a time, so that numbers are there in their order.
        rolled_up(&self.connection)
    }

    fn day_after(
        &mut self,
        after: Option<&(u32, String)>,
    ) -> Result<Option<(u32, String)>, StoreError> {
        let sql = "SELECT day, plan FROM results WHERE (day, plan) > (?, ?)
            ORDER BY day, plan LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let (day, plan) = match after {
            Some((day, plan)) => (i64::from(*day), plan.as_str()),
            None => (-1, ""),
        };
        let found = statement.query_row(params![day, plan], |row| Ok((row.get(0)?, row.get(1)?)));
        found.optional().map_err(told)
    }

    fn results(
        &mut self,
        (plan, day): (&str, u32),
        (after, up_to): (i64, i64),
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = "SELECT number, device, body FROM results
            WHERE day = ? AND plan = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let values = params![day, plan, after, up_to, limit as i64];
        let rows = statement.query_map(values, |row| {
            Ok(Row { number: row.get(0)?, device: DeviceId(row.get(1)?), body: row.get(2)? })
        });
        rows.map_err(told)?.collect::<Result<_, _>>().map_err(told)
    }

    fn delete(
        &mut self,
        (plan, day): (&str, u32),
        up_to: i64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let sql = "DELETE FROM results WHERE number IN (SELECT number FROM results
            WHERE day = ? AND plan = ? AND number <= ? ORDER BY number LIMIT ?)";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        statement.execute(params![day, plan, up_to, limit as i64]).map_err(told)
    }

    fn location(&mut self) -> Result<Option<Location>, StoreError> {
        location(&self.connection)
    }

    fn put_location(&mut self, location: &Location) -> Result<(), StoreError> {
        put_setting(&self.connection, LOCATION, &to_json(location)?)
    }

    fn count_from(&mut self, number: i64) -> Result<(), StoreError> {
        let behavior = TransactionBehavior::Immediate;
        let change = self.connection.transaction_with_behavior(behavior).map_err(told)?;
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'results'";
        let known: Option<i64> =
            change.query_row(sql, [], |row| row.get(0)).optional().map_err(told)?;
        if known.unwrap_or(0) < number {
            let sql = "DELETE FROM sqlite_sequence WHERE name = 'results'";
            change.execute(sql, []).map_err(told)?;
            let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('results', ?)";
            change.execute(sql, [number]).map_err(told)?;
        }
        change.commit().map_err(told)
    }

    fn root(&self) -> Option<&Path> {
        Some(&self.directory)
    }
}

fn setting(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT value FROM settings WHERE name = ?";
    let mut statement = connection.prepare_cached(sql).map_err(told)?;
    statement.query_row([name], |row| row.get(0)).optional().map_err(told)
}

fn put_setting(connection: &Connection, name: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)";
    connection.execute(sql, params![name, value.as_bytes()]).map(drop).map_err(told)
}

/// Where the store's archive is, if it has one.
pub(super) fn location(connection: &Connection) -> Result<Option<Location>, StoreError> {
    let value = setting(connection, LOCATION)?;
    value.map(|bytes| from_json(&String::from_utf8_lossy(&bytes))).transpose()
}
