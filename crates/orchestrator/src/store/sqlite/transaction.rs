//! Changes that are made together.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::orchestrator::MADE_EPOCH;
use underload_fleet::store::{
    Code, Device, HeldLease, LogEntry, PlanRow, SEEN_ROWS, Server, StoreError, StoredResult,
    Transaction,
};

use super::told;
use crate::store::seen::{self, Rows};
use crate::store::{encode, instant_of, to_instant};

/// A transaction of the one connection that changes devices, leases and results.
#[derive(Debug)]
pub(super) struct SqliteTransaction<'a> {
    connection: &'a Connection,
    is_open: bool,
    seen: Rows,
    /// Read once for all requests of the transaction, and as they change it.
    known: Known,
}

/// What nearly every request asks for. Nobody else changes it meanwhile.
#[derive(Debug, Default)]
struct Known {
    plans: Option<Vec<PlanRow>>,
    servers: Option<BTreeMap<String, Server>>,
    settings: BTreeMap<String, Option<Vec<u8>>>,
}

impl<'a> SqliteTransaction<'a> {
    pub(super) fn begin(connection: &'a Connection) -> Result<Self, StoreError> {
        run(connection, "BEGIN IMMEDIATE")?;
        let (seen, known) = (Rows::default(), Known::default());
        Ok(Self { connection, is_open: true, seen, known })
    }

    fn put(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        statement.execute(values).map(drop).map_err(told)
    }

    fn leases(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<HeldLease>, StoreError> {
        bodies(self.connection, &format!("SELECT body FROM leases WHERE {condition}"), values)
    }

    fn load_seen(&mut self, place: seen::Place) -> Result<(), StoreError> {
        if self.seen.has(&place) {
            return Ok(());
        }
        let (device, epoch, part) = place;
        let sql = "SELECT bits FROM seen WHERE device = ? AND epoch = ? AND part = ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let values = params![&device.0[..], epoch, part as i64];
        let bits = statement.query_row(values, |row| row.get(0)).optional().map_err(told)?;
        if bits.is_none() && self.is_forgotten(place)? {
            self.seen.put_forgotten(place);
        } else {
            self.seen.put(place, bits);
        }
        Ok(())
    }

    /// Whether a row is older than those that are kept of its device.
    fn is_forgotten(&self, (device, epoch, part): seen::Place) -> Result<bool, StoreError> {
        let sql = format!("SELECT (?3, ?4) < ({})", oldest_seen());
        let mut statement = self.connection.prepare_cached(&sql).map_err(told)?;
        let values = params![&device.0[..], epoch == MADE_EPOCH, epoch, part as i64];
        let is_older: Option<bool> = statement.query_row(values, |row| row.get(0)).map_err(told)?;
        Ok(is_older.unwrap_or(false))
    }

    fn write_seen(&self) -> Result<(), StoreError> {
        let sql = "INSERT INTO seen (device, epoch, part, bits) VALUES (?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET bits = excluded.bits";
        for ((device, epoch, part), row) in self.seen.changed() {
            self.put(sql, params![&device.0[..], epoch, *part as i64, row.bits])?;
        }
        let sql = format!(
            "DELETE FROM seen WHERE device = ?1 AND (epoch = {MADE_EPOCH}) = ?2
                AND (epoch, part) < ({})",
            oldest_seen()
        );
        for (device, is_made) in self.seen.grown() {
            self.put(&sql, params![&device.0[..], is_made])?;
        }
        Ok(())
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn device(&mut self, id: DeviceId) -> Result<Option<Device>, StoreError> {
        let sql = format!("SELECT {DEVICE} FROM devices WHERE id = ?");
        let mut statement = self.connection.prepare_cached(&sql).map_err(told)?;
        let found = statement.query_row([&id.0[..]], |row| Ok(device_of(row)));
        found.optional().map_err(told)?.transpose()
    }

    fn put_device(&mut self, device: &Device) -> Result<(), StoreError> {
        let Device { attributes, .. } = device;
        let mut statement = self.connection.prepare_cached(PUT_DEVICE).map_err(told)?;
        let values = named_params! {
            ":id": &device.id.0[..],
            ":public_key": &device.public_key[..],
            ":model": attributes.model,
            ":firmware": attributes.firmware,
            ":tier": attributes.get("tier").unwrap_or_default(),
            ":segment": attributes.segment,
            ":region": attributes.region,
            ":configured": attributes.configured,
            ":measured": attributes.measured,
            ":tier_up_bit_per_s": attributes.tier_up_bit_per_s as i64,
            ":tier_down_bit_per_s": attributes.tier_down_bit_per_s as i64,
            ":enrolled_ms": device.enrolled_ms as i64,
            ":seen_ms": device.seen_ms as i64,
            ":is_removed": device.is_removed,
            ":epoch": device.epoch,
            ":request": device.request as i64,
            ":waiting": device.waiting as i64,
            ":dropped": device.dropped as i64,
            ":settle_ms": to_instant(device.settle_ms),
            ":made": device.made as i64,
            ":schedules": json(&device.schedules)?,
        };
        statement.execute(values).map(drop).map_err(told)
    }

    fn overdue(&mut self, now_ms: u64, limit: usize) -> Result<Vec<DeviceId>, StoreError> {
        let sql = "SELECT id FROM devices WHERE settle_ms <= ? ORDER BY settle_ms, id LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let values = params![to_instant(now_ms), limit as i64];
        let ids = statement.query_map(values, |row| row.get(0)).map_err(told)?;
        ids.map(|id| Ok(DeviceId(id.map_err(told)?))).collect()
    }

    fn code(&mut self, hash: &[u8; 32]) -> Result<Option<Code>, StoreError> {
        let sql = "SELECT body FROM codes WHERE hash = ?";
        Ok(bodies(self.connection, sql, [&hash[..]])?.pop())
    }

    fn put_code(&mut self, code: &Code) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO codes (hash, body) VALUES (?, ?)";
        self.put(sql, params![&code.hash[..], json(code)?])
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        if self.known.servers.is_none() {
            let servers: Vec<Server> = bodies(self.connection, SERVERS, [])?;
            let named = servers.into_iter().map(|server| (server.address.name.clone(), server));
            self.known.servers = Some(named.collect());
        }
        Ok(self.known.servers.iter().flat_map(BTreeMap::values).cloned().collect())
    }

    fn put_server(&mut self, server: &Server) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO servers (name, body) VALUES (?, ?)";
        self.put(sql, params![server.address.name, json(server)?])?;
        if let Some(servers) = &mut self.known.servers {
            servers.insert(server.address.name.clone(), server.clone());
        }
        Ok(())
    }

    fn lease(&mut self, id: u64) -> Result<Option<HeldLease>, StoreError> {
        Ok(self.leases("id = ?", [id as i64])?.pop())
    }

    fn lease_of(&mut self, device: DeviceId) -> Result<Option<HeldLease>, StoreError> {
        Ok(self.leases("device = ?", [&device.0[..]])?.pop())
    }

    fn loaded_in(&mut self, segment: &str) -> Result<u32, StoreError> {
        let sql = "SELECT count(*) FROM leases WHERE segment = ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        statement.query_row([segment], |row| row.get(0)).map_err(told)
    }

    fn expired(&mut self, now_ms: u64, limit: usize) -> Result<Vec<HeldLease>, StoreError> {
        let condition = "expires_ms <= ? ORDER BY expires_ms, id LIMIT ?";
        self.leases(condition, params![to_instant(now_ms), limit as i64])
    }

    fn expiring_after(
        &mut self,
        after_ms: u64,
        limit: usize,
    ) -> Result<Vec<HeldLease>, StoreError> {
        let condition = "expires_ms > ? ORDER BY expires_ms, id LIMIT ?";
        self.leases(condition, params![to_instant(after_ms), limit as i64])
    }

    fn leases_at(&mut self, server: &str, limit: usize) -> Result<Vec<HeldLease>, StoreError> {
        self.leases("server = ? ORDER BY id LIMIT ?", params![server, limit as i64])
    }

    fn put_lease(&mut self, lease: &HeldLease) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO leases (id, device, server, segment, expires_ms, body)
            VALUES (?, ?, ?, ?, ?, ?)";
        let HeldLease { id, device, server, segment, expires_ms, .. } = lease;
        let (id, device) = (*id as i64, &device.0[..]);
        let expires_ms = to_instant(*expires_ms);
        self.put(sql, params![id, device, server, segment, expires_ms, json(lease)?])
    }

    fn end_lease(&mut self, id: u64) -> Result<(), StoreError> {
        self.put("DELETE FROM leases WHERE id = ?", [id as i64])
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        if self.known.plans.is_none() {
            self.known.plans = Some(bodies(self.connection, PLANS, [])?);
        }
        Ok(self.known.plans.clone().unwrap_or_default())
    }

    fn put_plan(&mut self, plan: &PlanRow) -> Result<(), StoreError> {
        self.known.plans = None;
        let sql = "INSERT OR REPLACE INTO plans (name, body) VALUES (?, ?)";
        self.put(sql, params![plan.name, json(plan)?])
    }

    fn append(&mut self, results: &[StoredResult]) -> Result<Vec<bool>, StoreError> {
        let sql = "INSERT INTO results (device, day, plan, body) VALUES (?, ?, ?, ?)";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let mut are_new = Vec::with_capacity(results.len());
        for stored in results {
            let StoredResult { device, epoch, sequence, result, .. } = stored;
            self.load_seen(seen::place(*device, *epoch, *sequence))?;
            let is_new = self.seen.mark(*device, *epoch, *sequence);
            are_new.push(is_new);
            if is_new {
                let day = stored.day();
                let values = params![&device.0[..], day, result.plan, encode::encode(stored)];
                statement.execute(values).map_err(told)?;
            }
        }
        Ok(are_new)
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.known.settings.get(name) {
            return Ok(value.clone());
        }
        let sql = "SELECT value FROM settings WHERE name = ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let value: Option<Vec<u8>> =
            statement.query_row([name], |row| row.get(0)).optional().map_err(told)?;
        if self.known.settings.len() < SETTINGS_KNOWN {
            self.known.settings.insert(name.to_owned(), value.clone());
        }
        Ok(value)
    }

    fn put_setting(&mut self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.known.settings.remove(name);
        let sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)";
        self.put(sql, params![name, value])
    }

    fn log(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        let sql = "INSERT INTO log (at_ms, who, what) VALUES (?, ?, ?)";
        self.put(sql, params![entry.at_ms as i64, entry.who, entry.what])
    }

    fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        self.write_seen()?;
        run(self.connection, "COMMIT")?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        // Some errors have ended it already.
        if self.is_open && !self.connection.is_autocommit() {
            let _ = run(self.connection, "ROLLBACK");
        }
    }
}

fn run(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(told)?;
    statement.execute([]).map(drop).map_err(told)
}

/// Rows that are stored as text in one column.
pub(super) fn bodies<T: DeserializeOwned>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(told)?;
    let mut rows = statement.query(values).map_err(told)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(told)? {
        let text = row.get_ref(0).map_err(told)?.as_str();
        let text = text.map_err(|error| told(error.into()))?;
        found.push(crate::store::from_json(text)?);
    }
    Ok(found)
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    crate::store::to_json(value)
}

/// A row of [`DEVICE`].
pub(super) fn device_of(row: &Row<'_>) -> Result<Device, StoreError> {
    let number = |column| row.get::<_, i64>(column).map(|number| number as u64).map_err(told);
    let text = |column| row.get::<_, String>(column).map_err(told);
    let schedules = row.get_ref("schedules").map_err(told)?.as_str();
    let schedules = schedules.map_err(|error| told(error.into()))?;
    Ok(Device {
        id: DeviceId(row.get("id").map_err(told)?),
        public_key: row.get("public_key").map_err(told)?,
        attributes: Attributes {
            model: text("model")?,
            firmware: text("firmware")?,
            tier_up_bit_per_s: number("tier_up_bit_per_s")?,
            tier_down_bit_per_s: number("tier_down_bit_per_s")?,
            segment: text("segment")?,
            region: text("region")?,
            configured: text("configured")?,
            measured: text("measured")?,
        },
        enrolled_ms: number("enrolled_ms")?,
        seen_ms: number("seen_ms")?,
        is_removed: row.get("is_removed").map_err(told)?,
        epoch: row.get("epoch").map_err(told)?,
        request: number("request")?,
        waiting: number("waiting")?,
        dropped: number("dropped")?,
        settle_ms: row.get("settle_ms").map(instant_of).map_err(told)?,
        made: number("made")?,
        schedules: crate::store::from_json(schedules)?,
    })
}

/// The oldest row that is kept of the results of device ?1, or, where ?2 is true, of those that
/// were made in its stead.
fn oldest_seen() -> String {
    let newer = SEEN_ROWS - 1;
    format!(
        "SELECT epoch, part FROM seen WHERE device = ?1 AND (epoch = {MADE_EPOCH}) = ?2
            ORDER BY epoch DESC, part DESC LIMIT 1 OFFSET {newer}"
    )
}

/// Settings that a transaction remembers.
const SETTINGS_KNOWN: usize = 64;

pub(super) const SERVERS: &str = "SELECT body FROM servers ORDER BY name";
pub(super) const PLANS: &str = "SELECT body FROM plans ORDER BY name";

/// Columns of a device.
pub(super) const DEVICE: &str =
    "id, public_key, model, firmware, tier_up_bit_per_s, tier_down_bit_per_s, segment, region,
    configured, measured, enrolled_ms, seen_ms, is_removed, epoch, request, waiting, dropped,
    settle_ms, made, schedules";

const PUT_DEVICE: &str = "INSERT INTO devices (id, public_key, model, firmware, tier, segment,
    region, configured, measured, tier_up_bit_per_s, tier_down_bit_per_s, enrolled_ms, seen_ms,
    is_removed, epoch, request, waiting, dropped, settle_ms, made, schedules)
    VALUES (:id, :public_key, :model, :firmware, :tier, :segment, :region, :configured, :measured,
    :tier_up_bit_per_s, :tier_down_bit_per_s, :enrolled_ms, :seen_ms, :is_removed, :epoch,
    :request, :waiting, :dropped, :settle_ms, :made, :schedules)
    ON CONFLICT (id) DO UPDATE SET public_key = excluded.public_key, model = excluded.model,
    firmware = excluded.firmware, tier = excluded.tier, segment = excluded.segment,
    region = excluded.region, configured = excluded.configured, measured = excluded.measured,
    tier_up_bit_per_s = excluded.tier_up_bit_per_s,
    tier_down_bit_per_s = excluded.tier_down_bit_per_s, enrolled_ms = excluded.enrolled_ms,
    seen_ms = excluded.seen_ms, is_removed = excluded.is_removed, epoch = excluded.epoch,
    request = excluded.request, waiting = excluded.waiting, dropped = excluded.dropped,
    settle_ms = excluded.settle_ms, made = excluded.made, schedules = excluded.schedules";
