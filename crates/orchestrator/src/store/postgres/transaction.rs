//! Changes that are made together: what is read is kept, what is changed is written at the end.

use std::collections::{BTreeMap, BTreeSet};

use postgres::Row;
use underload_fleet::device::{Attributes, DeviceId};
use underload_fleet::orchestrator::{MADE_EPOCH, line_setting};
use underload_fleet::store::{
    Code, Device, HeldLease, LogEntry, Needs, PlanRow, SEEN_ROWS, Server, StoreError, StoredResult,
    Transaction,
};

use super::session::{Session, told};
use super::write;
use crate::store::seen::{self, Rows};
use crate::store::{encode, from_json, instant_of, to_instant};

/// A transaction of one orchestrator among several.
#[derive(Debug)]
pub(super) struct PostgresTransaction<'a> {
    session: &'a mut Session,
    is_open: bool,
    /// It holds the turn of those who reserve and give back.
    has_turn: bool,
    needs: Needs,
    rows: Cached,
    seen: Rows,
    /// The last row of what was seen of these devices, `None` where there is none; where a device
    /// is not in here nothing is known of it.
    seen_until: Option<BTreeMap<DeviceId, Option<(u32, u64)>>>,
}

/// Rows as they were read, or as they are to be.
#[derive(Debug, Default)]
pub(super) struct Cached {
    pub(super) devices: Table<DeviceId, Device>,
    pub(super) codes: Table<[u8; 32], Code>,
    pub(super) leases: Table<u64, HeldLease>,
    pub(super) servers: Table<String, Server>,
    /// Servers as they were stored.
    pub(super) stored_servers: BTreeMap<String, String>,
    are_servers_known: bool,
    pub(super) plans: Table<String, PlanRow>,
    are_plans_known: bool,
    pub(super) settings: Table<String, Vec<u8>>,
    /// Settings that were not there.
    pub(super) new_settings: BTreeSet<String>,
    pub(super) log: Vec<LogEntry>,
    pub(super) results: Vec<ResultRow>,
    /// Devices whose leases are all here.
    devices_with_leases: BTreeSet<DeviceId>,
    /// Segments whose leases are all here.
    segments_with_leases: BTreeSet<String>,
}

/// A result that is to be written.
#[derive(Debug)]
pub(super) struct ResultRow {
    pub(super) device: DeviceId,
    pub(super) day: i64,
    pub(super) plan: String,
    pub(super) body: Vec<u8>,
}

/// Rows by their keys; `None` for one that is not there.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    pub(super) rows: BTreeMap<K, Option<V>>,
    pub(super) changed: BTreeSet<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    /// Takes a row as it is stored, unless it was taken or changed before.
    fn load(&mut self, key: K, value: Option<V>) {
        self.rows.entry(key).or_insert(value);
    }

    fn put(&mut self, key: K, value: Option<V>) {
        self.rows.insert(key.clone(), value);
        self.changed.insert(key);
    }

    /// Whether the row was read or changed.
    fn is_known(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// The row, as far as it was read or changed.
    fn get(&self, key: &K) -> Option<V> {
        self.rows.get(key).cloned().flatten()
    }

    /// Rows that are there.
    fn present(&self) -> impl Iterator<Item = &V> {
        self.rows.values().flatten()
    }
}

impl<'a> PostgresTransaction<'a> {
    pub(super) fn begin(session: &'a mut Session, needs: &Needs) -> Result<Self, StoreError> {
        let mut begun = Self {
            session,
            is_open: true,
            has_turn: needs.admits,
            needs: needs.clone(),
            rows: Cached::default(),
            seen: Rows::default(),
            seen_until: None,
        };
        begun.session.batch(if needs.admits { BEGIN_WITH_TURN } else { "BEGIN" })?;
        begun.load_devices(&needs.devices)?;
        if needs.admits {
            begun.load_needed_leases()?;
            begun.load_needed_lines()?;
        }
        Ok(begun)
    }

    fn load_devices(&mut self, ids: &[DeviceId]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let keys: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
        let sql = format!("SELECT {DEVICE} FROM devices WHERE id = ANY($1) ORDER BY id FOR UPDATE");
        for row in self.session.rows(&sql, &[&keys])? {
            let device = device_of(&row)?;
            self.rows.devices.load(device.id, Some(device));
        }
        for id in ids {
            self.rows.devices.load(*id, None);
        }
        Ok(())
    }

    /// Leases by number, device and segment of what is needed.
    fn load_needed_leases(&mut self) -> Result<(), StoreError> {
        let ids: Vec<i64> = self.needs.leases.iter().map(|id| *id as i64).collect();
        let devices: Vec<&[u8]> = self.needs.devices.iter().map(|id| &id.0[..]).collect();
        let lines = self.rows.devices.present();
        let segments = lines.map(|device| device.attributes.segment.clone());
        let segments: BTreeSet<String> = segments.filter(|segment| !segment.is_empty()).collect();
        let named: Vec<&str> = segments.iter().map(String::as_str).collect();
        let sql = "SELECT body FROM leases WHERE id = ANY($1)
            UNION SELECT body FROM leases WHERE device = ANY($2)
            UNION SELECT body FROM leases WHERE segment = ANY($3)";
        let found = self.session.rows(sql, &[&ids, &devices, &named])?;
        self.load_leases(&found)?;
        for id in &self.needs.leases {
            self.rows.leases.load(*id, None);
        }
        self.rows.devices_with_leases.extend(&self.needs.devices);
        self.rows.segments_with_leases.extend(segments);
        Ok(())
    }

    /// Which segments are claims, for the devices that are needed.
    fn load_needed_lines(&mut self) -> Result<(), StoreError> {
        let lines = self.rows.devices.present().filter(|it| !it.attributes.segment.is_empty());
        let names: Vec<String> = lines.map(|device| line_setting(device.id)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let sql = "SELECT name, value FROM settings WHERE name = ANY($1)";
        for row in self.session.rows(sql, &[&names])? {
            let name = row.try_get(0).map_err(told)?;
            self.rows.settings.load(name, Some(row.try_get(1).map_err(told)?));
        }
        for name in names {
            self.rows.settings.load(name, None);
        }
        Ok(())
    }

    fn load_leases(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let lease: HeldLease = body_of(row)?;
            self.rows.leases.load(lease.id, Some(lease));
        }
        Ok(())
    }

    /// Waits for the turn, if it was not taken at the beginning.
    fn take_turn(&mut self) -> Result<(), StoreError> {
        if !self.has_turn {
            self.session.batch(TURN)?;
            self.has_turn = true;
        }
        Ok(())
    }

    fn load_seen(&mut self, results: &[StoredResult]) -> Result<(), StoreError> {
        if self.seen_until.is_none() {
            self.load_last_seen()?;
        }
        let places = results.iter().map(|it| seen::place(it.device, it.epoch, it.sequence));
        let unknown: BTreeSet<seen::Place> =
            places.filter(|place| !self.is_seen_known(place)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let devices: Vec<&[u8]> = unknown.iter().map(|place| &place.0.0[..]).collect();
        let epochs: Vec<i64> = unknown.iter().map(|place| i64::from(place.1)).collect();
        let parts: Vec<i64> = unknown.iter().map(|place| place.2 as i64).collect();
        let sql = "SELECT s.device, s.epoch, s.part, s.bits
            FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) u (device, epoch, part)
            JOIN seen s ON s.device = u.device AND s.epoch = u.epoch AND s.part = u.part";
        for row in self.session.rows(sql, &[&devices, &epochs, &parts])? {
            let (place, bits) = seen_of(&row)?;
            self.seen.put(place, Some(bits));
        }
        let missing: Vec<_> = unknown.into_iter().filter(|place| !self.seen.has(place)).collect();
        let oldest = self.oldest_seen(&missing)?;
        for place @ (device, epoch, part) in missing {
            match oldest.get(&(device, epoch == MADE_EPOCH)) {
                Some(oldest) if (epoch, part) < *oldest => self.seen.put_forgotten(place),
                _ => self.seen.put(place, None),
            }
        }
        Ok(())
    }

    /// The oldest rows that are kept, where as many are kept as may be.
    fn oldest_seen(
        &mut self,
        places: &[seen::Place],
    ) -> Result<BTreeMap<Sender, (u32, u64)>, StoreError> {
        let of: BTreeSet<Sender> =
            places.iter().map(|(device, epoch, _)| (*device, *epoch == MADE_EPOCH)).collect();
        if of.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (devices, are_made) = seen_columns(&of);
        let rows = self.session.rows(&oldest_seen(), &[&devices, &are_made])?;
        let oldest = |row: &Row| {
            let of = (id_of(row.try_get(0).map_err(told)?)?, row.try_get(1).map_err(told)?);
            let epoch: i64 = row.try_get(2).map_err(told)?;
            let part: i64 = row.try_get(3).map_err(told)?;
            Ok((of, (epoch as u32, part as u64)))
        };
        rows.iter().map(oldest).collect()
    }

    /// Of all devices at once the rows that their next results most likely fall into.
    fn load_last_seen(&mut self) -> Result<(), StoreError> {
        let mut until: BTreeMap<DeviceId, Option<(u32, u64)>> =
            self.needs.devices.iter().map(|device| (*device, None)).collect();
        let devices: Vec<&[u8]> = until.keys().map(|device| &device.0[..]).collect();
        if !devices.is_empty() {
            let sql = "SELECT s.device, s.epoch, s.part, s.bits FROM unnest($1::bytea[]) d,
                LATERAL (SELECT * FROM seen WHERE device = d
                    ORDER BY epoch DESC, part DESC LIMIT 1) s";
            for row in self.session.rows(sql, &[&devices])? {
                let (place, bits) = seen_of(&row)?;
                until.insert(place.0, Some((place.1, place.2)));
                self.seen.put(place, Some(bits));
            }
        }
        self.seen_until = Some(until);
        Ok(())
    }

    fn is_seen_known(&self, place: &seen::Place) -> bool {
        let until = self.seen_until.as_ref().and_then(|until| until.get(&place.0));
        let is_beyond = until.is_some_and(|last| last.is_none_or(|last| (place.1, place.2) > last));
        is_beyond || self.seen.has(place)
    }

    /// Rows that a condition finds among those that are stored, as many more as were changed here:
    /// they may not be what is stored.
    fn leases_where(
        &mut self,
        condition: &str,
        value: &(dyn postgres::types::ToSql + Sync),
        limit: usize,
    ) -> Result<(), StoreError> {
        let limit = to_limit(limit.saturating_add(self.rows.leases.changed.len()));
        let sql = format!("SELECT body FROM leases WHERE {condition} LIMIT $2");
        let rows = self.session.rows(&sql, &[value, &limit])?;
        self.load_leases(&rows)
    }
}

impl Transaction for PostgresTransaction<'_> {
    fn device(&mut self, id: DeviceId) -> Result<Option<Device>, StoreError> {
        if !self.rows.devices.is_known(&id) {
            self.load_devices(&[id])?;
        }
        Ok(self.rows.devices.get(&id))
    }

    fn put_device(&mut self, device: &Device) -> Result<(), StoreError> {
        self.rows.devices.put(device.id, Some(device.clone()));
        Ok(())
    }

    fn overdue(&mut self, now_ms: u64, limit: usize) -> Result<Vec<DeviceId>, StoreError> {
        // Each orchestrator takes others.
        let sql = format!(
            "SELECT {DEVICE} FROM devices WHERE settle_ms <= $1
                ORDER BY settle_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        let more = to_limit(limit.saturating_add(self.rows.devices.changed.len()));
        for row in self.session.rows(&sql, &[&to_instant(now_ms), &more])? {
            let device = device_of(&row)?;
            self.rows.devices.load(device.id, Some(device));
        }
        let devices = self.rows.devices.present().filter(|device| device.settle_ms <= now_ms);
        let mut found: Vec<_> = devices.map(|device| (device.settle_ms, device.id)).collect();
        found.sort_unstable();
        Ok(found.into_iter().take(limit).map(|(_, id)| id).collect())
    }

    fn code(&mut self, hash: &[u8; 32]) -> Result<Option<Code>, StoreError> {
        if !self.rows.codes.is_known(hash) {
            let sql = "SELECT body FROM codes WHERE hash = $1 FOR UPDATE";
            let found = self.session.rows(sql, &[&&hash[..]])?;
            let code = found.first().map(body_of).transpose()?;
            self.rows.codes.load(*hash, code);
        }
        Ok(self.rows.codes.get(hash))
    }

    fn put_code(&mut self, code: &Code) -> Result<(), StoreError> {
        self.rows.codes.put(code.hash, Some(code.clone()));
        Ok(())
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        if !self.rows.are_servers_known {
            for row in self.session.rows("SELECT body FROM servers", &[])? {
                let text: String = row.try_get(0).map_err(told)?;
                let server: Server = from_json(&text)?;
                let name = server.address.name.clone();
                self.rows.servers.load(name.clone(), Some(server));
                self.rows.stored_servers.insert(name, text);
            }
            self.rows.are_servers_known = true;
        }
        Ok(self.rows.servers.present().cloned().collect())
    }

    fn put_server(&mut self, server: &Server) -> Result<(), StoreError> {
        // What is stored must be what the change is based on.
        self.servers()?;
        self.rows.servers.put(server.address.name.clone(), Some(server.clone()));
        Ok(())
    }

    fn lease(&mut self, id: u64) -> Result<Option<HeldLease>, StoreError> {
        if !self.rows.leases.is_known(&id) {
            self.leases_where("id = $1", &(id as i64), 1)?;
            self.rows.leases.load(id, None);
        }
        Ok(self.rows.leases.get(&id))
    }

    fn lease_of(&mut self, device: DeviceId) -> Result<Option<HeldLease>, StoreError> {
        if self.rows.devices_with_leases.insert(device) {
            self.leases_where("device = $1", &&device.0[..], LEASES_MAX)?;
        }
        let mut held = self.rows.leases.present();
        Ok(held.find(|lease| lease.device == device).cloned())
    }

    fn loaded_in(&mut self, segment: &str) -> Result<u32, StoreError> {
        if self.rows.segments_with_leases.insert(segment.to_owned()) {
            self.leases_where("segment = $1", &segment, LEASES_MAX)?;
        }
        let held = self.rows.leases.present();
        Ok(held.filter(|lease| lease.segment.as_deref() == Some(segment)).count() as u32)
    }

    fn expired(&mut self, now_ms: u64, limit: usize) -> Result<Vec<HeldLease>, StoreError> {
        let condition = "expires_ms <= $1 ORDER BY expires_ms, id";
        self.leases_where(condition, &to_instant(now_ms), limit)?;
        let held = self.rows.leases.present().filter(|lease| lease.expires_ms <= now_ms);
        let mut found: Vec<HeldLease> = held.cloned().collect();
        found.sort_by_key(|lease| (lease.expires_ms, lease.id));
        found.truncate(limit);
        Ok(found)
    }

    fn expiring_after(
        &mut self,
        after_ms: u64,
        limit: usize,
    ) -> Result<Vec<HeldLease>, StoreError> {
        self.leases_where("expires_ms > $1 ORDER BY expires_ms, id", &to_instant(after_ms), limit)?;
        let held = self.rows.leases.present().filter(|lease| lease.expires_ms > after_ms);
        Ok(held.take(limit).cloned().collect())
    }

    fn leases_at(&mut self, server: &str, limit: usize) -> Result<Vec<HeldLease>, StoreError> {
        self.leases_where("server = $1 ORDER BY id", &server, limit)?;
        let held = self.rows.leases.present().filter(|lease| lease.server == server);
        Ok(held.take(limit).cloned().collect())
    }

    fn put_lease(&mut self, lease: &HeldLease) -> Result<(), StoreError> {
        self.take_turn()?;
        self.rows.leases.put(lease.id, Some(lease.clone()));
        Ok(())
    }

    fn end_lease(&mut self, id: u64) -> Result<(), StoreError> {
        self.take_turn()?;
        self.rows.leases.put(id, None);
        Ok(())
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        if !self.rows.are_plans_known {
            for row in self.session.rows("SELECT body FROM plans", &[])? {
                let plan: PlanRow = body_of(&row)?;
                self.rows.plans.load(plan.name.clone(), Some(plan));
            }
            self.rows.are_plans_known = true;
        }
        Ok(self.rows.plans.present().cloned().collect())
    }

    fn put_plan(&mut self, plan: &PlanRow) -> Result<(), StoreError> {
        self.rows.plans.put(plan.name.clone(), Some(plan.clone()));
        Ok(())
    }

    fn append(&mut self, results: &[StoredResult]) -> Result<Vec<bool>, StoreError> {
        self.load_seen(results)?;
        let mut are_new = Vec::with_capacity(results.len());
        for stored in results {
            let is_new = self.seen.mark(stored.device, stored.epoch, stored.sequence);
            are_new.push(is_new);
            if is_new {
                let (day, plan) = (i64::from(stored.day()), stored.result.plan.clone());
                let (device, body) = (stored.device, encode::encode(stored));
                self.rows.results.push(ResultRow { device, day, plan, body });
            }
        }
        Ok(are_new)
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        if !self.rows.settings.is_known(&name) {
            let sql = "SELECT value FROM settings WHERE name = $1";
            let found = self.session.rows(sql, &[&name])?;
            let value = found.first().map(|row| row.try_get(0)).transpose().map_err(told)?;
            self.rows.settings.load(name.clone(), value);
        }
        Ok(self.rows.settings.get(&name))
    }

    fn put_setting(&mut self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let is_new = self.setting(name)?.is_none();
        if is_new {
            self.rows.new_settings.insert(name.to_owned());
        }
        self.rows.settings.put(name.to_owned(), Some(value.to_vec()));
        Ok(())
    }

    fn log(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        self.rows.log.push(entry.clone());
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        write::rows(self.session, &self.rows)?;
        write::seen(self.session, &self.seen)?;
        if self.has_turn {
            self.session.batch("SET LOCAL synchronous_commit = off; COMMIT")?;
            self.is_open = false;
            return self.session.wait_for_disk();
        }
        self.session.batch("COMMIT")?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for PostgresTransaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.session.roll_back();
        }
    }
}

/// A row that is stored as text in its first column.
pub(super) fn body_of<T: serde::de::DeserializeOwned>(row: &Row) -> Result<T, StoreError> {
    from_json(row.try_get(0).map_err(told)?)
}

/// An identifier that is stored as bytes.
pub(super) fn id_of(bytes: &[u8]) -> Result<DeviceId, StoreError> {
    let broken = |_| StoreError::Broken { what: "a stored identifier is damaged".to_owned() };
    Ok(DeviceId(bytes.try_into().map_err(broken)?))
}

/// A device, and whether not its own results but those that were made in its stead are meant.
type Sender = (DeviceId, bool);

/// Columns of [`oldest_seen`].
pub(super) fn seen_columns(of: &BTreeSet<Sender>) -> (Vec<&[u8]>, Vec<bool>) {
    of.iter().map(|(device, is_made)| (&device.0[..], *is_made)).unzip()
}

/// Selects the oldest rows that are kept of devices, where as many are kept as may be.
pub(super) fn oldest_seen() -> String {
    let newer = SEEN_ROWS - 1;
    format!(
        "SELECT d.device, d.is_made, s.epoch, s.part
            FROM unnest($1::bytea[], $2::boolean[]) d (device, is_made),
                LATERAL (SELECT epoch, part FROM seen WHERE seen.device = d.device
                    AND (epoch = {MADE_EPOCH}) = d.is_made
                    ORDER BY epoch DESC, part DESC LIMIT 1 OFFSET {newer}) s"
    )
}

fn seen_of(row: &Row) -> Result<(seen::Place, Vec<u8>), StoreError> {
    let device = id_of(row.try_get(0).map_err(told)?)?;
    let epoch: i64 = row.try_get(1).map_err(told)?;
    let part: i64 = row.try_get(2).map_err(told)?;
    Ok(((device, epoch as u32, part as u64), row.try_get(3).map_err(told)?))
}

/// A row of [`DEVICE`].
pub(super) fn device_of(row: &Row) -> Result<Device, StoreError> {
    let number = |column| row.try_get::<_, i64>(column).map(|number| number as u64).map_err(told);
    let text = |column| row.try_get::<_, String>(column).map_err(told);
    let key: &[u8] = row.try_get("public_key").map_err(told)?;
    let broken = |_| StoreError::Broken { what: "a stored key is damaged".to_owned() };
    Ok(Device {
        id: id_of(row.try_get("id").map_err(told)?)?,
        public_key: key.try_into().map_err(broken)?,
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
        is_removed: row.try_get("is_removed").map_err(told)?,
        epoch: number("epoch")? as u32,
        request: number("request")?,
        waiting: number("waiting")?,
        dropped: number("dropped")?,
        settle_ms: row.try_get("settle_ms").map(instant_of).map_err(told)?,
        made: number("made")?,
        schedules: from_json(row.try_get("schedules").map_err(told)?)?,
    })
}

pub(super) fn to_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Columns of a device.
pub(super) const DEVICE: &str =
    "id, public_key, model, firmware, tier_up_bit_per_s, tier_down_bit_per_s, segment, region,
    configured, measured, enrolled_ms, seen_ms, is_removed, epoch, request, waiting, dropped,
    settle_ms, made, schedules";

const TURN: &str = "SELECT 1 FROM turns WHERE name = 'admission' FOR UPDATE";
const BEGIN_WITH_TURN: &str = "BEGIN; SELECT 1 FROM turns WHERE name = 'admission' FOR UPDATE";
/// Leases of one device or segment at most: a segment is loaded by few at once.
const LEASES_MAX: usize = 100_000;
