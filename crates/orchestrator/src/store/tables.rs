//! The tables of a store and their rows.

use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::line::Line;
use underload_fleet::store::{Device, StoreError};

use super::database::{Database, Row, Value, values};
use super::encode::{Encoded, from_json, to_json};

/// A table: the types of its columns by their names, of which the first `keys` are its key.
pub(super) struct Table {
    name: &'static str,
    keys: usize,
    columns: &'static str,
}

pub(super) const DEVICES: Table = Table {
    name: "devices",
    keys: 1,
    columns: "id bytea, public_key bytea, model text, firmware text, tier text, segment text, \
        region text, configured text, measured text, tier_up_bit_per_s bigint, \
        tier_down_bit_per_s bigint, line text, is_retired boolean, enrolled_ms bigint, \
        seen_ms bigint, is_removed boolean, \
        epoch bigint, request bigint, waiting bigint, dropped bigint, settle_ms bigint, \
        made bigint, schedules text",
};
pub(super) const CODES: Table = Table { name: "codes", keys: 1, columns: "hash bytea, body text" };
pub(super) const LINES: Table =
    Table { name: "lines", keys: 1, columns: "external_id text, body text" };
pub(super) const SERVERS: Table =
    Table { name: "servers", keys: 1, columns: "name text, body text" };
pub(super) const PLANS: Table = Table { name: "plans", keys: 1, columns: "name text, body text" };
pub(super) const SETTINGS: Table =
    Table { name: "settings", keys: 1, columns: "name text, value bytea" };
pub(super) const LEASES: Table = Table {
    name: "leases",
    keys: 1,
    columns: "id bigint, device bytea, server text, segment text, expires_ms bigint, body text",
};
pub(super) const LOG: Table =
    Table { name: "log", keys: 0, columns: "at_ms bigint, who text, what text" };
pub(super) const RESULTS: Table =
    Table { name: "results", keys: 0, columns: "device bytea, day bigint, plan text, body bytea" };
pub(super) const SEEN: Table =
    Table { name: "seen", keys: 3, columns: "device bytea, epoch bigint, part bigint, bits bytea" };
pub(super) const KEYS: Table = Table { name: "keys", keys: 1, columns: "body text" };
/// See [`Part`](super::files::Part); `unused_since_ms` is 0 for the files of the archive.
pub(super) const FILES: Table = Table {
    name: "files",
    keys: 1,
    columns: "path text, plan text, day bigint, rows bigint, results bigint, last bigint, \
        bytes bigint, sha256 text, unused_since_ms bigint",
};
pub(super) const SUMS: Table = Table {
    name: "sums",
    keys: 5,
    columns: "level bigint, kind bigint, day bigint, hour bigint, key bigint, bins bytea, \
        devices bytea, sent bigint, lost bigint, tests bigint",
};

impl Table {
    fn columns(&self) -> Vec<(&'static str, &'static str)> {
        self.columns.split(", ").filter_map(|column| column.split_once(' ')).collect()
    }

    pub(super) fn names(&self) -> String {
        names(&self.columns())
    }

    fn key(&self) -> String {
        names(&self.columns()[..self.keys])
    }

    /// Selects the rows with the given keys, ordered by key.
    pub(super) fn get(&self) -> String {
        let (name, key, rows) = (self.name, self.key(), rows(&self.columns()[..self.keys]));
        format!("SELECT {} FROM {name} WHERE ({key}) IN ({rows}) ORDER BY {key}", self.names())
    }

    /// Adds rows; fails if a key exists.
    pub(super) fn insert(&self) -> String {
        format!("INSERT INTO {} ({}) {}", self.name, self.names(), rows(&self.columns()))
    }

    /// Adds rows; skips those whose key exists.
    pub(super) fn add(&self) -> String {
        format!("{} ON CONFLICT DO NOTHING", self.insert())
    }

    /// Adds rows, or replaces those with equal keys.
    pub(super) fn put(&self) -> String {
        let columns = self.columns();
        let changed = columns[self.keys..].iter();
        let set: Vec<_> = changed.map(|(name, _)| format!("{name} = excluded.{name}")).collect();
        format!("{} ON CONFLICT ({}) DO UPDATE SET {}", self.insert(), self.key(), set.join(", "))
    }

    /// Replaces the last column of rows. The value that was read follows the new values of a row; a
    /// row that has another value by now stays unchanged.
    pub(super) fn swap(&self) -> String {
        let (name, columns) = (self.name, self.columns());
        let last = columns[columns.len() - 1];
        let all: Vec<_> = columns.iter().copied().chain([last]).collect();
        let (key, value) = (columns[..self.keys].iter(), last.0);
        let same: Vec<_> = (1..).zip(key).map(|(at, (key, _))| same(name, key, at)).collect();
        format!(
            "UPDATE {name} SET {value} = u.column{} FROM ({}) u WHERE {} AND {}",
            columns.len(),
            rows(&all),
            same.join(" AND "),
            self::same(name, value, all.len())
        )
    }

    /// Deletes the rows with the given keys.
    pub(super) fn delete(&self) -> String {
        let rows = rows(&self.columns()[..self.keys]);
        format!("DELETE FROM {} WHERE ({}) IN ({rows})", self.name, self.key())
    }
}

fn same(table: &str, column: &str, at: usize) -> String {
    format!("{table}.{column} = u.column{at}")
}

fn names(columns: &[(&str, &str)]) -> String {
    columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn rows(columns: &[(&str, &str)]) -> String {
    let types: Vec<&str> = columns.iter().map(|(_, kind)| *kind).collect();
    format!("{{rows {}}}", types.join(" "))
}

/// A row of [`DEVICES`].
pub(super) fn device_values(device: &Device) -> Result<Vec<Value>, StoreError> {
    let attributes = &device.attributes;
    Ok(values![
        device.id,
        &device.public_key[..],
        attributes.model.as_str(),
        attributes.firmware.as_str(),
        attributes.get("tier").unwrap_or_default(),
        attributes.segment.as_str(),
        attributes.region.as_str(),
        attributes.configured.as_str(),
        attributes.measured.as_str(),
        attributes.tier_up_bit_per_s,
        attributes.tier_down_bit_per_s,
        device.line.as_str(),
        device.is_retired,
        device.enrolled_ms,
        device.seen_ms,
        device.is_removed,
        device.epoch,
        device.request,
        device.waiting,
        device.dropped,
        to_instant(device.settle_ms),
        device.made,
        to_json(&device.schedules)?,
    ])
}

/// The device of a row of [`DEVICES`].
pub(super) fn device_of(mut row: Row) -> Result<Device, StoreError> {
    let (id, public_key) = (DeviceId(row.array()?), row.array()?);
    let (model, firmware) = (row.text()?, row.text()?);
    // Skips the tier, which follows from its rates.
    row.text()?;
    Ok(Device {
        id,
        public_key,
        attributes: Attributes {
            model,
            firmware,
            segment: row.text()?,
            region: row.text()?,
            configured: row.text()?,
            measured: row.text()?,
            tier_up_bit_per_s: row.number()?,
            tier_down_bit_per_s: row.number()?,
        },
        line: row.text()?,
        is_retired: row.long()? != 0,
        enrolled_ms: row.number()?,
        seen_ms: row.number()?,
        is_removed: row.long()? != 0,
        epoch: row.small()?,
        request: row.number()?,
        waiting: row.number()?,
        dropped: row.number()?,
        settle_ms: instant_of(row.long()?),
        made: row.number()?,
        schedules: row.json()?,
    })
}

/// Returns at most `limit` stored lines after the identifier `after`, ordered by identifier.
pub(super) fn lines_after(
    database: &mut dyn Database,
    after: &str,
    limit: usize,
) -> Result<Vec<Line>, StoreError> {
    let sql = "SELECT body FROM lines WHERE external_id > $1 ORDER BY external_id LIMIT $2";
    database.query(sql, &[values![after, limit]])?.into_iter().map(|mut row| row.json()).collect()
}

/// Reads a row of number, device and body.
pub(super) fn encoded(mut row: Row) -> Result<Encoded, StoreError> {
    Ok(Encoded { number: row.long()?, device: DeviceId(row.array()?), body: row.bytes()? })
}

/// Returns the column of an attribute; `None` if the attribute is unknown.
pub(super) fn attribute_column(name: &str) -> Option<&'static str> {
    Attributes::NAMES.into_iter().find(|known| *known == name)
}

/// Converts an instant for comparisons in a database, which has only signed numbers: subtracts
/// 2^63, which keeps the order.
pub(super) fn to_instant(at_ms: u64) -> i64 {
    at_ms.wrapping_sub(1 << 63) as i64
}

/// Returns the instant that [`to_instant`] converted to `stored`.
fn instant_of(stored: i64) -> u64 {
    (stored as u64).wrapping_add(1 << 63)
}

/// Reads a setting that is stored as JSON.
pub(super) fn setting<T: DeserializeOwned>(
    database: &mut dyn Database,
    name: &str,
) -> Result<Option<T>, StoreError> {
    let stored = raw_setting(database, name)?;
    stored.map(|bytes| from_json(&String::from_utf8_lossy(&bytes))).transpose()
}

/// Reads a setting.
pub(super) fn raw_setting(
    database: &mut dyn Database,
    name: &str,
) -> Result<Option<Vec<u8>>, StoreError> {
    let row = database.query(&SETTINGS.get(), &[values![name]])?.pop();
    row.map(|mut row| {
        row.text()?;
        row.bytes()
    })
    .transpose()
}

/// Stores a setting as JSON.
pub(super) fn put_setting(
    database: &mut dyn Database,
    name: &str,
    value: &impl Serialize,
) -> Result<(), StoreError> {
    let row = values![name, to_json(value)?.into_bytes()];
    database.change(&SETTINGS.put(), &[row]).map(drop)
}

/// Name of the setting with the size of the next process's first batch.
pub(super) const BATCH: &str = "roll-up batch";
/// Name of the setting with the folder of the archive.
pub(super) const ARCHIVE: &str = "archive";
