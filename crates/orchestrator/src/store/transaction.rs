//! Transactions: rows are read once, changed in memory, and written at the end, all rows of a table
//! with one statement.

use std::collections::{BTreeMap, BTreeSet};

use underload_fleet::device::DeviceId;
use underload_fleet::line::Line;
use underload_fleet::orchestrator::{MADE_EPOCH, line_setting};
use underload_fleet::store::{
    Code, Device, HeldLease, Leases, LineRow, LogEntry, Needs, PlanRow, Result, SEEN_ROWS, Server,
    StoreError, StoredResult, Transaction,
};

use super::database::{Begin, Database, Row, Value, values};
use super::encode::{encode, from_json, to_json};
use super::seen::{self, Rows};
use super::tables::{
    CODES, DEVICES, LEASES, LINES, LOG, PLANS, RESULTS, SEEN, SERVERS, SETTINGS, Table, device_of,
    device_values, lines_after, to_instant,
};

/// A transaction of one orchestrator, which may be one of several.
pub(super) struct SqlTransaction<'a> {
    database: &'a mut dyn Database,
    is_open: bool,
    needs: Needs,
    devices: Cached<DeviceId, Device>,
    codes: Cached<[u8; 32], Code>,
    leases: Cached<u64, HeldLease>,
    lines: Swapped<Line>,
    servers: Swapped<Server>,
    plans: Cached<String, PlanRow>,
    are_plans_known: bool,
    settings: Swapped<Vec<u8>>,
    log: Vec<Vec<Value>>,
    results: Vec<Vec<Value>>,
    /// Devices whose leases have all been read.
    devices_with_leases: BTreeSet<DeviceId>,
    /// Segments whose leases have all been read.
    segments_with_leases: BTreeSet<String>,
    seen: Rows,
    /// Epoch and part of the last row in `seen` that each needed device has stored, or `None` for a
    /// device without rows. Devices that are missing were not looked up. The map itself is `None`
    /// until results are first added.
    seen_until: Option<BTreeMap<DeviceId, Option<(u32, u64)>>>,
}

/// Rows by their keys; `None` for a row that does not exist.
struct Cached<K, V> {
    rows: BTreeMap<K, Option<V>>,
    changed: BTreeSet<K>,
}

/// Rows that are written only if they are still stored as they were read.
struct Swapped<V> {
    rows: Cached<String, V>,
    stored: BTreeMap<String, Value>,
    /// Whether all rows have been read.
    is_whole: bool,
}

impl<K, V> Default for Cached<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<V> Default for Swapped<V> {
    fn default() -> Self {
        Self { rows: Cached::default(), stored: BTreeMap::new(), is_whole: false }
    }
}

impl<K: Ord + Clone, V: Clone> Cached<K, V> {
    /// Adds a stored row, unless it was read or changed before.
    fn load(&mut self, key: K, value: Option<V>) {
        self.rows.entry(key).or_insert(value);
    }

    fn put(&mut self, key: K, value: Option<V>) {
        self.rows.insert(key.clone(), value);
        self.changed.insert(key);
    }

    /// Returns whether the row was read or changed.
    fn is_known(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    /// Returns the row if it was read or changed and exists.
    fn get(&self, key: &K) -> Option<V> {
        self.rows.get(key).cloned().flatten()
    }

    /// Returns the cached rows that exist.
    fn present(&self) -> impl Iterator<Item = &V> {
        self.rows.values().flatten()
    }

    /// Writes the changed rows, without those that were deleted.
    fn write(
        &self,
        database: &mut dyn Database,
        table: &Table,
        to_values: impl Fn(&V) -> Result<Vec<Value>>,
    ) -> Result<()> {
        let changed = self.changed.iter().filter_map(|key| self.rows.get(key)?.as_ref());
        let rows = changed.map(to_values).collect::<Result<Vec<_>>>()?;
        database.change(&table.put(), &rows).map(drop)
    }
}

impl<V: Clone> Swapped<V> {
    fn load(&mut self, name: String, value: V, stored: Value) {
        self.rows.load(name.clone(), Some(value));
        self.stored.entry(name).or_insert(stored);
    }

    /// Writes the changed rows.
    fn write(
        &self,
        database: &mut dyn Database,
        (table, what): (&Table, &str),
        to_value: impl Fn(&V) -> Result<Value>,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for name in &self.rows.changed {
            let Some(value) = self.rows.get(name) else { continue };
            let (value, stored) = (to_value(&value)?, self.stored.get(name));
            if stored != Some(&value) {
                rows.push((values![name.as_str(), value], stored.cloned()));
            }
        }
        swap_rows(database, (table, what), rows)
    }
}

impl<'a> SqlTransaction<'a> {
    pub(super) fn begin(database: &'a mut dyn Database, needs: &Needs) -> Result<Self> {
        database.begin(if needs.admits { Begin::Admission } else { Begin::Change })?;
        let mut begun = Self {
            database,
            is_open: true,
            needs: needs.clone(),
            devices: Cached::default(),
            codes: Cached::default(),
            leases: Cached::default(),
            lines: Swapped::default(),
            servers: Swapped::default(),
            plans: Cached::default(),
            are_plans_known: false,
            settings: Swapped::default(),
            log: Vec::new(),
            results: Vec::new(),
            devices_with_leases: BTreeSet::new(),
            segments_with_leases: BTreeSet::new(),
            seen: Rows::default(),
            seen_until: None,
        };
        begun.load_devices(&needs.devices)?;
        // Results and requests for runs read the line of their device.
        let lines: Vec<String> = begun.devices.present().map(|it| it.line.clone()).collect();
        begun.load_lines(lines.iter().map(String::as_str))?;
        if needs.admits {
            begun.load_needed_leases()?;
            begun.load_needed_lines()?;
        }
        Ok(begun)
    }

    fn load_devices(&mut self, ids: &[DeviceId]) -> Result<()> {
        let keys: Vec<_> = ids.iter().map(|id| values![*id]).collect();
        for row in self.database.query(&format!("{} FOR UPDATE", DEVICES.get()), &keys)? {
            let device = device_of(row)?;
            self.devices.load(device.id, Some(device));
        }
        for id in ids {
            self.devices.load(*id, None);
        }
        Ok(())
    }

    /// Loads the needed leases, and those of the needed devices and their segments.
    fn load_needed_leases(&mut self) -> Result<()> {
        let lines = self.devices.present();
        let segments = lines.map(|device| device.attributes.segment.clone());
        let segments: BTreeSet<String> = segments.filter(|segment| !segment.is_empty()).collect();
        let ids: Vec<_> = self.needs.leases.iter().map(|id| values![*id]).collect();
        let devices: Vec<_> = self.needs.devices.iter().map(|id| values![*id]).collect();
        let named: Vec<_> = segments.iter().map(|it| values![it.as_str()]).collect();
        self.leases_where("id IN ({rows bigint})", &ids)?;
        self.leases_where("device IN ({rows bytea})", &devices)?;
        self.leases_where("segment IN ({rows text})", &named)?;
        for id in &self.needs.leases {
            self.leases.load(*id, None);
        }
        self.devices_with_leases.extend(&self.needs.devices);
        self.segments_with_leases.extend(segments);
        Ok(())
    }

    /// Loads the line settings of the needed devices that have a segment. They record whether the
    /// device claimed the segment or an operator set it.
    fn load_needed_lines(&mut self) -> Result<()> {
        let lines = self.devices.present().filter(|it| !it.attributes.segment.is_empty());
        let names: Vec<String> = lines.map(|device| line_setting(device.id)).collect();
        self.load_settings(&names)
    }

    fn load_lines<'i>(&mut self, ids: impl Iterator<Item = &'i str>) -> Result<()> {
        let unknown: BTreeSet<&str> = ids
            .filter(|id| !id.is_empty() && !self.lines.rows.is_known(&(*id).to_owned()))
            .collect();
        let keys: Vec<_> = unknown.iter().map(|id| values![*id]).collect();
        for mut row in self.database.query(&LINES.get(), &keys)? {
            let (id, text) = (row.text()?, row.text()?);
            self.lines.load(id, from_json(&text)?, text.into());
        }
        for id in unknown {
            self.lines.rows.load(id.to_owned(), None);
        }
        Ok(())
    }

    fn load_settings(&mut self, names: &[String]) -> Result<()> {
        let keys: Vec<_> = names.iter().map(|name| values![name.as_str()]).collect();
        for mut row in self.database.query(&SETTINGS.get(), &keys)? {
            let (name, value) = (row.text()?, row.bytes()?);
            let stored = Value::Bytes(value.clone());
            self.settings.load(name, value, stored);
        }
        for name in names {
            self.settings.rows.load(name.clone(), None);
        }
        Ok(())
    }

    /// Loads the leases that meet a condition, for each row of values.
    fn leases_where(&mut self, condition: &str, rows: &[Vec<Value>]) -> Result<()> {
        let sql = format!("SELECT body FROM leases WHERE {condition}");
        for mut row in self.database.query(&sql, rows)? {
            let lease: HeldLease = row.json()?;
            self.leases.load(lease.id, Some(lease));
        }
        Ok(())
    }

    fn load_seen(&mut self, results: &[StoredResult]) -> Result<()> {
        if self.seen_until.is_none() {
            self.load_last_seen()?;
        }
        let places = results.iter().map(|it| seen::place(it.device, it.epoch, it.sequence));
        let unknown: BTreeSet<seen::Place> =
            places.filter(|place| !self.is_seen_known(place)).collect();
        let keys: Vec<_> = unknown.iter().map(seen_key).collect();
        for row in self.database.query(&SEEN.get(), &keys)? {
            let (place, bits) = seen_of(row)?;
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

    /// Returns the oldest stored row of each sender that has [`SEEN_ROWS`] rows.
    fn oldest_seen(&mut self, places: &[seen::Place]) -> Result<BTreeMap<Sender, (u32, u64)>> {
        let senders: BTreeSet<Sender> =
            places.iter().map(|(device, epoch, _)| (*device, *epoch == MADE_EPOCH)).collect();
        let mut oldest = BTreeMap::new();
        for mut row in self.database.query(&oldest_seen(), &sender_keys(&senders))? {
            let sender = (DeviceId(row.array()?), row.long()? != 0);
            if let Some(epoch) = row.optional()? {
                oldest.insert(sender, (epoch as u32, row.number()?));
            }
        }
        Ok(oldest)
    }

    /// Loads the last row of each needed device, to which its next results most likely belong.
    fn load_last_seen(&mut self) -> Result<()> {
        let mut until: BTreeMap<DeviceId, Option<(u32, u64)>> =
            self.needs.devices.iter().map(|device| (*device, None)).collect();
        let devices: Vec<_> = until.keys().map(|device| values![*device]).collect();
        for row in self.database.query(LAST_SEEN, &devices)? {
            let (place, bits) = seen_of(row)?;
            until.insert(place.0, Some((place.1, place.2)));
            self.seen.put(place, Some(bits));
        }
        self.seen_until = Some(until);
        Ok(())
    }

    fn is_seen_known(&self, place: &seen::Place) -> bool {
        let until = self.seen_until.as_ref().and_then(|until| until.get(&place.0));
        let is_beyond = until.is_some_and(|last| last.is_none_or(|last| (place.1, place.2) > last));
        is_beyond || self.seen.has(place)
    }

    fn write(&mut self) -> Result<()> {
        let database = &mut *self.database;
        self.devices.write(database, &DEVICES, device_values)?;
        let is_ended = |id: &&u64| matches!(self.leases.rows.get(id), Some(None));
        let ended: Vec<_> =
            self.leases.changed.iter().filter(is_ended).map(|id| values![*id]).collect();
        database.change(&LEASES.delete(), &ended)?;
        self.leases.write(database, &LEASES, lease_values)?;
        let changed = (&LINES, "a line was changed");
        self.lines.write(database, changed, |line| Ok(to_json(line)?.into()))?;
        let changed = (&SERVERS, "a server was changed");
        self.servers.write(database, changed, |server| Ok(to_json(server)?.into()))?;
        database.change(&RESULTS.insert(), &self.results)?;
        let code = |code: &Code| Ok(values![&code.hash[..], to_json(code)?]);
        self.codes.write(database, &CODES, code)?;
        let plan = |plan: &PlanRow| Ok(values![plan.name.as_str(), to_json(plan)?]);
        self.plans.write(database, &PLANS, plan)?;
        // If two orchestrators start at once and each create a secret, the later write fails, so
        // that its orchestrator uses the secret of the other.
        let changed = (&SETTINGS, "a setting was changed");
        self.settings.write(database, changed, |value| Ok(value.clone().into()))?;
        database.change(&LOG.insert(), &self.log)?;
        self.write_seen()
    }

    /// Writes the numbers of results that were received (table `seen`), and deletes all but the
    /// newest [`SEEN_ROWS`] rows of each sender.
    fn write_seen(&mut self) -> Result<()> {
        let row = |(place, row): (&seen::Place, &seen::Row)| {
            let mut values = seen_key(place);
            values.push(row.bits.clone().into());
            (values, row.stored.clone().map(Value::from))
        };
        let rows: Vec<_> = self.seen.changed().map(row).collect();
        swap_rows(self.database, (&SEEN, "results of a device were handed in"), rows)?;
        let sql = format!(
            "DELETE FROM seen WHERE (device, epoch, part) IN (SELECT s.device, s.epoch, s.part
                FROM ({}) o JOIN seen s ON s.device = o.device
                    AND (s.epoch = {MADE_EPOCH}) = o.is_made
                    AND (s.epoch, s.part) < (o.epoch, o.part))",
            oldest_seen()
        );
        self.database.change(&sql, &sender_keys(&self.seen.grown())).map(drop)
    }
}

impl Transaction for SqlTransaction<'_> {
    fn device(&mut self, id: DeviceId) -> Result<Option<Device>> {
        if !self.devices.is_known(&id) {
            self.load_devices(&[id])?;
        }
        Ok(self.devices.get(&id))
    }

    fn put_device(&mut self, device: &Device) -> Result<()> {
        self.devices.put(device.id, Some(device.clone()));
        Ok(())
    }

    fn overdue(&mut self, now_ms: u64, limit: usize) -> Result<Vec<DeviceId>> {
        // Skips devices that another orchestrator is settling.
        let sql = format!(
            "SELECT {} FROM devices WHERE settle_ms <= $1
                ORDER BY settle_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED",
            DEVICES.names()
        );
        let more = limit.saturating_add(self.devices.changed.len());
        for row in self.database.query(&sql, &[values![to_instant(now_ms), more]])? {
            let device = device_of(row)?;
            self.devices.load(device.id, Some(device));
        }
        let devices = self.devices.present().filter(|device| device.settle_ms <= now_ms);
        let mut found: Vec<_> = devices.map(|device| (device.settle_ms, device.id)).collect();
        found.sort_unstable();
        Ok(found.into_iter().take(limit).map(|(_, id)| id).collect())
    }

    fn code(&mut self, hash: &[u8; 32]) -> Result<Option<Code>> {
        if !self.codes.is_known(hash) {
            let sql = format!("{} FOR UPDATE", CODES.get());
            let found = self.database.query(&sql, &[values![&hash[..]]])?.pop();
            let code = found.map(|mut row| row.bytes().and_then(|_| row.json())).transpose()?;
            self.codes.load(*hash, code);
        }
        Ok(self.codes.get(hash))
    }

    fn put_code(&mut self, code: &Code) -> Result<()> {
        self.codes.put(code.hash, Some(code.clone()));
        Ok(())
    }

    fn lines(&mut self, external_ids: &[&str]) -> Result<Vec<Option<Line>>> {
        self.load_lines(external_ids.iter().copied())?;
        Ok(external_ids.iter().map(|id| self.lines.rows.get(&(*id).to_owned())).collect())
    }

    fn put_line(&mut self, line: &Line) -> Result<()> {
        self.load_lines(std::iter::once(line.external_id.as_str()))?;
        self.lines.rows.put(line.external_id.clone(), Some(line.clone()));
        Ok(())
    }

    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<LineRow>> {
        let lines = lines_after(self.database, after, limit)?;
        let ids: Vec<_> = lines.iter().filter_map(|line| Some(values![line.device?])).collect();
        let devices = self.database.query(&DEVICES.get(), &ids)?.into_iter().map(device_of);
        let devices = devices.map(|device| device.map(|device| (device.id, device)));
        let devices: BTreeMap<DeviceId, Device> = devices.collect::<Result<_>>()?;
        let device = |line: &Line| devices.get(&line.device?).cloned();
        Ok(lines.into_iter().map(|line| (line.clone(), device(&line))).collect())
    }

    fn servers(&mut self) -> Result<Vec<Server>> {
        if !self.servers.is_whole {
            for mut row in self.database.query("SELECT body FROM servers", &[vec![]])? {
                let text = row.text()?;
                let server: Server = from_json(&text)?;
                self.servers.load(server.address.name.clone(), server, text.into());
            }
            self.servers.is_whole = true;
        }
        Ok(self.servers.rows.present().cloned().collect())
    }

    fn put_server(&mut self, server: &Server) -> Result<()> {
        // Loads the stored rows: the write fails if another orchestrator has changed the server
        // since, and so does not overwrite a change that this one is not based on.
        self.servers()?;
        self.servers.rows.put(server.address.name.clone(), Some(server.clone()));
        Ok(())
    }

    fn lease(&mut self, id: u64) -> Result<Option<HeldLease>> {
        if !self.leases.is_known(&id) {
            self.leases_where("id = $1", &[values![id]])?;
            self.leases.load(id, None);
        }
        Ok(self.leases.get(&id))
    }

    fn leases(&mut self, of: Leases<'_>, limit: usize) -> Result<Vec<HeldLease>> {
        let (condition, value): (_, Value) = match of {
            Leases::Of(device) => ("device = $1", device.into()),
            Leases::LoadedIn(segment) => ("segment = $1", segment.into()),
            Leases::At(server) => ("server = $1 ORDER BY id", server.into()),
            Leases::ExpiredAt(now_ms) => {
                ("expires_ms <= $1 ORDER BY expires_ms, id", to_instant(now_ms).into())
            }
            Leases::ExpiringAfter(after_ms) => {
                ("expires_ms > $1 ORDER BY expires_ms, id", to_instant(after_ms).into())
            }
        };
        // All leases of a device or segment are read at once: few load a segment at the same time.
        let (is_known, limit_read) = match of {
            Leases::Of(device) => (!self.devices_with_leases.insert(device), LEASES_MAX),
            Leases::LoadedIn(segment) => {
                (!self.segments_with_leases.insert(segment.to_owned()), LEASES_MAX)
            }
            _ => (false, limit),
        };
        if !is_known {
            // The stored rows of leases that were changed here may not be selected any more.
            let limit_read = limit_read.saturating_add(self.leases.changed.len());
            let values = vec![value, limit_read.into()];
            self.leases_where(&format!("{condition} LIMIT $2"), &[values])?;
        }
        Ok(of.first(self.leases.present(), limit))
    }

    fn put_lease(&mut self, lease: &HeldLease) -> Result<()> {
        self.database.take_turn()?;
        self.leases.put(lease.id, Some(lease.clone()));
        Ok(())
    }

    fn end_lease(&mut self, id: u64) -> Result<()> {
        self.database.take_turn()?;
        self.leases.put(id, None);
        Ok(())
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>> {
        if !self.are_plans_known {
            for plan in plans(self.database)? {
                self.plans.load(plan.name.clone(), Some(plan));
            }
            self.are_plans_known = true;
        }
        Ok(self.plans.present().cloned().collect())
    }

    fn put_plan(&mut self, plan: &PlanRow) -> Result<()> {
        self.plans.put(plan.name.clone(), Some(plan.clone()));
        Ok(())
    }

    fn append(&mut self, results: &[StoredResult]) -> Result<Vec<bool>> {
        self.load_seen(results)?;
        let mut are_new = Vec::with_capacity(results.len());
        for stored in results {
            let is_new = self.seen.mark(stored.device, stored.epoch, stored.sequence);
            are_new.push(is_new);
            if is_new {
                let (day, plan) = (stored.day(), stored.result.plan.as_str());
                self.results.push(values![stored.device, day, plan, encode(stored)]);
            }
        }
        Ok(are_new)
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let name = name.to_owned();
        if !self.settings.rows.is_known(&name) {
            self.load_settings(std::slice::from_ref(&name))?;
        }
        Ok(self.settings.rows.get(&name))
    }

    fn put_setting(&mut self, name: &str, value: &[u8]) -> Result<()> {
        self.setting(name)?;
        self.settings.rows.put(name.to_owned(), Some(value.to_vec()));
        Ok(())
    }

    fn log(&mut self, entry: &LogEntry) -> Result<()> {
        self.log.push(values![entry.at_ms, entry.who.as_str(), entry.what.as_str()]);
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.write()?;
        self.database.commit()?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for SqlTransaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.database.roll_back();
        }
    }
}

/// Returns all plans, ordered by name.
pub(super) fn plans(database: &mut dyn Database) -> Result<Vec<PlanRow>> {
    let rows = database.query("SELECT body FROM plans", &[vec![]])?;
    let plans = rows.into_iter().map(|mut row| row.json());
    let mut plans: Vec<PlanRow> = plans.collect::<Result<_, _>>()?;
    plans.sort_by(|one, next| one.name.cmp(&next.name));
    Ok(plans)
}

/// Replaces rows, each with the last value that was read, or adds rows that were not stored. Fails
/// if another orchestrator has changed or added one of them meanwhile; `what` says so.
fn swap_rows(
    database: &mut dyn Database,
    (table, what): (&Table, &str),
    rows: Vec<(Vec<Value>, Option<Value>)>,
) -> Result<()> {
    let (known, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, stored)| stored.is_some());
    for (sql, rows) in [(table.swap(), known), (table.add(), new)] {
        let values = |(row, stored): (Vec<Value>, Option<Value>)| row.into_iter().chain(stored);
        let rows: Vec<Vec<Value>> = rows.into_iter().map(|row| values(row).collect()).collect();
        if database.change(&sql, &rows)? != rows.len() as u64 {
            return Err(StoreError::temporary(format!("{what} by another orchestrator just now")));
        }
    }
    Ok(())
}

fn lease_values(lease: &HeldLease) -> Result<Vec<Value>> {
    let HeldLease { id, device, server, segment, expires_ms, .. } = lease;
    let (server, segment) = (server.as_str(), segment.as_deref());
    Ok(values![*id, *device, server, segment, to_instant(*expires_ms), to_json(lease)?])
}

fn seen_key((device, epoch, part): &seen::Place) -> Vec<Value> {
    values![*device, *epoch, *part]
}

fn seen_of(mut row: Row) -> Result<(seen::Place, Vec<u8>)> {
    Ok(((DeviceId(row.array()?), row.small()?, row.number()?), row.bytes()?))
}

/// A device, and whether orchestrators made its results in its stead.
type Sender = (DeviceId, bool);

fn sender_keys(senders: &BTreeSet<Sender>) -> Vec<Vec<Value>> {
    senders.iter().map(|(device, is_made)| values![*device, *is_made]).collect()
}

/// Selects the oldest of the newest [`SEEN_ROWS`] rows of each sender; its columns are null if the
/// sender has fewer rows.
fn oldest_seen() -> String {
    let of = |column: &str| {
        format!(
            "(SELECT {column} FROM seen WHERE device = column1
                AND (epoch = {MADE_EPOCH}) = column2
                ORDER BY epoch DESC, part DESC LIMIT 1 OFFSET {}) AS {column}",
            SEEN_ROWS - 1
        )
    };
    let (epoch, part) = (of("epoch"), of("part"));
    format!(
        "SELECT column1 AS device, column2 AS is_made, {epoch}, {part}
        FROM ({{rows bytea boolean}}) senders"
    )
}

const LAST_SEEN: &str = "SELECT s.device, s.epoch, s.part, s.bits
    FROM (SELECT column1 AS device,
            (SELECT epoch FROM seen WHERE device = column1
                ORDER BY epoch DESC, part DESC LIMIT 1) AS epoch,
            (SELECT part FROM seen WHERE device = column1
                ORDER BY epoch DESC, part DESC LIMIT 1) AS part
        FROM ({rows bytea}) devices) last
    JOIN seen s ON s.device = last.device AND s.epoch = last.epoch AND s.part = last.part";

/// Maximum number of leases that are read of one device or segment.
const LEASES_MAX: usize = 100_000;
