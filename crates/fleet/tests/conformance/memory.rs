//! A store in memory, for tests; the reference for other stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::DeviceId;
use crate::line::Line;
use crate::store::{
    Archive, Code, Device, Dimension, Filter, HeldLease, Leases, LineRow, LogEntry, MADE_EPOCH,
    Needs, OutcomeCount, Outcomes, PlanRow, SEEN_ROWS, SEEN_WIDTH, Server, Store, StoreError,
    StoredResult, Sum, Summed, Transaction,
};

/// A store that ends with its last handle. Clones are handles of the same store, like several
/// orchestrators of one database.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    devices: BTreeMap<DeviceId, Device>,
    codes: BTreeMap<[u8; 32], Code>,
    lines: BTreeMap<String, Line>,
    servers: BTreeMap<String, Server>,
    leases: BTreeMap<u64, HeldLease>,
    plans: BTreeMap<String, PlanRow>,
    settings: BTreeMap<String, Vec<u8>>,
    results: Vec<StoredResult>,
    /// Device, epoch and sequence of each result.
    seen: BTreeSet<(DeviceId, u32, u64)>,
    log: Vec<LogEntry>,
}

type Undo = Box<dyn FnOnce(&mut State)>;

struct Changes<'a> {
    state: MutexGuard<'a, State>,
    undo: Vec<Undo>,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked dropped its transaction, which reverted it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all leases, by number.
    pub fn leases(&self) -> Vec<HeldLease> {
        self.state().leases.values().cloned().collect()
    }

    /// Returns all results in the order in which they were stored.
    pub fn results(&self) -> Vec<StoredResult> {
        self.state().results.clone()
    }
}

impl Store for Memory {
    fn begin(&mut self, _: &Needs) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(Changes { state: self.state(), undo: Vec::new() }))
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            undo(&mut self.state);
        }
    }
}

/// Inserts a value, or removes it if `value` is `None`. Returns the value before.
fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

impl Changes<'_> {
    fn put<K: Ord + Clone + 'static, V: 'static>(
        &mut self,
        map: fn(&mut State) -> &mut BTreeMap<K, V>,
        key: K,
        value: Option<V>,
    ) {
        let old = set(map(&mut self.state), key.clone(), value);
        self.undo.push(Box::new(move |state| drop(set(map(state), key, old))));
    }
}

impl State {
    fn lines_after(&self, after: &str, limit: usize) -> Vec<Line> {
        let lines = self.lines.values().filter(|line| line.external_id.as_str() > after);
        lines.take(limit).cloned().collect()
    }

    /// Whether the filter of devices selects a device; see [`Archive::devices`].
    fn is_selected(filter: &Filter, device: &Device) -> bool {
        let is_silent =
            |since_ms| device.seen_ms < since_ms && !device.is_removed && !device.is_retired;
        filter.meets_attributes(&device.attributes) && filter.silent_since_ms.is_none_or(is_silent)
    }

    /// Whether a result is older than the record of results of its device.
    fn is_forgotten(&self, (device, epoch, sequence): (DeviceId, u32, u64)) -> bool {
        let (first, mut last) = match epoch {
            MADE_EPOCH => (MADE_EPOCH, (device, MADE_EPOCH, u64::MAX)),
            _ => (0, (device, MADE_EPOCH - 1, u64::MAX)),
        };
        for _ in 0..SEEN_ROWS {
            let rows = self.seen.range((device, first, 0)..=last);
            let Some((_, newer_epoch, newer)) = rows.last() else { return false };
            let row = newer / SEEN_WIDTH;
            if (epoch, sequence / SEEN_WIDTH) >= (*newer_epoch, row) {
                return false;
            }
            // The end of the previous row.
            last = match (row.checked_mul(SEEN_WIDTH), newer_epoch.checked_sub(1)) {
                (Some(start @ 1..), _) => (device, *newer_epoch, start - 1),
                (_, Some(older)) if older >= first => (device, older, u64::MAX),
                _ => return false,
            };
        }
        true
    }
}

impl Transaction for Changes<'_> {
    fn device(&mut self, id: DeviceId) -> Result<Option<Device>, StoreError> {
        Ok(self.state.devices.get(&id).cloned())
    }

    fn put_device(&mut self, device: &Device) -> Result<(), StoreError> {
        self.put(|state| &mut state.devices, device.id, Some(device.clone()));
        Ok(())
    }

    fn overdue(&mut self, now_ms: u64, limit: usize) -> Result<Vec<DeviceId>, StoreError> {
        let devices = self.state.devices.values().filter(|device| device.settle_ms <= now_ms);
        let mut found: Vec<_> = devices.map(|device| (device.settle_ms, device.id)).collect();
        found.sort_unstable();
        Ok(found.into_iter().take(limit).map(|(_, id)| id).collect())
    }

    fn code(&mut self, hash: &[u8; 32]) -> Result<Option<Code>, StoreError> {
        Ok(self.state.codes.get(hash).cloned())
    }

    fn put_code(&mut self, code: &Code) -> Result<(), StoreError> {
        self.put(|state| &mut state.codes, code.hash, Some(code.clone()));
        Ok(())
    }

    fn lines(&mut self, ids: &[&str]) -> Result<Vec<Option<Line>>, StoreError> {
        Ok(ids.iter().map(|id| self.state.lines.get(*id).cloned()).collect())
    }

    fn put_line(&mut self, line: &Line) -> Result<(), StoreError> {
        self.put(|state| &mut state.lines, line.external_id.clone(), Some(line.clone()));
        Ok(())
    }

    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<LineRow>, StoreError> {
        let device = |line: &Line| self.state.devices.get(&line.device?).cloned();
        let lines = self.state.lines_after(after, limit).into_iter();
        Ok(lines.map(|line| (line.clone(), device(&line))).collect())
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        Ok(self.state.servers.values().cloned().collect())
    }

    fn put_server(&mut self, server: &Server) -> Result<(), StoreError> {
        self.put(|state| &mut state.servers, server.address.name.clone(), Some(server.clone()));
        Ok(())
    }

    fn lease(&mut self, id: u64) -> Result<Option<HeldLease>, StoreError> {
        Ok(self.state.leases.get(&id).cloned())
    }

    fn leases(&mut self, of: Leases<'_>, limit: usize) -> Result<Vec<HeldLease>, StoreError> {
        Ok(of.first(self.state.leases.values(), limit))
    }

    fn put_lease(&mut self, lease: &HeldLease) -> Result<(), StoreError> {
        self.put(|state| &mut state.leases, lease.id, Some(lease.clone()));
        Ok(())
    }

    fn end_lease(&mut self, id: u64) -> Result<(), StoreError> {
        self.put(|state| &mut state.leases, id, None);
        Ok(())
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        Ok(self.state.plans.values().cloned().collect())
    }

    fn put_plan(&mut self, plan: &PlanRow) -> Result<(), StoreError> {
        self.put(|state| &mut state.plans, plan.name.clone(), Some(plan.clone()));
        Ok(())
    }

    fn append(&mut self, results: &[StoredResult]) -> Result<Vec<bool>, StoreError> {
        let mut append = |result: &StoredResult| {
            let key = (result.device, result.epoch, result.sequence);
            let is_new = !self.state.is_forgotten(key) && self.state.seen.insert(key);
            if is_new {
                self.state.results.push(result.clone());
                self.undo.push(Box::new(move |state| {
                    state.results.pop();
                    state.seen.remove(&key);
                }));
            }
            is_new
        };
        Ok(results.iter().map(&mut append).collect())
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state.settings.get(name).cloned())
    }

    fn put_setting(&mut self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.put(|state| &mut state.settings, name.to_owned(), Some(value.to_vec()));
        Ok(())
    }

    fn log(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        self.state.log.push(entry.clone());
        self.undo.push(Box::new(|state| drop(state.log.pop())));
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        self.undo.clear();
        Ok(())
    }
}

impl Archive for Memory {
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes, StoreError> {
        let mut counts = BTreeMap::<_, (u64, BTreeSet<DeviceId>)>::new();
        let mut all = BTreeSet::new();
        let is_selected = |stored: &&StoredResult| stored.was_due() && filter.meets(stored);
        for stored in self.state().results.iter().filter(is_selected) {
            let outcome = (stored.result.outcome, stored.result.reason.clone());
            let (count, devices) = counts.entry(outcome).or_default();
            *count += 1;
            devices.insert(stored.device);
            all.insert(stored.device);
        }
        let row = |((outcome, reason), (count, devices)): (_, (u64, BTreeSet<_>))| OutcomeCount {
            outcome,
            reason,
            count,
            devices: devices.len() as u64,
        };
        let counts = counts.into_iter().map(row).collect();
        Ok(Outcomes { counts, devices: all.len() as u64 })
    }

    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>, StoreError> {
        let mut sums = BTreeMap::<Vec<String>, (Sum, BTreeSet<DeviceId>)>::new();
        let state = self.state();
        for stored in state.results.iter().filter(|stored| filter.meets(stored)) {
            for (step, series) in stored.result.pooled_series() {
                let key: Vec<_> = by.iter().map(|it| it.value(stored, step, series)).collect();
                let (sum, devices) = sums.entry(key).or_default();
                sum.bins.merge(&series.bins);
                sum.sent = sum.sent.saturating_add(series.sent);
                sum.lost = sum.lost.saturating_add(series.lost);
                sum.tests += 1;
                devices.insert(stored.device);
            }
        }
        let row = |(key, (sum, devices)): (_, (Sum, BTreeSet<_>))| Sum {
            key,
            devices: devices.len() as u64,
            ..sum
        };
        Ok(sums.into_iter().map(row).collect())
    }

    fn devices(
        &mut self,
        filter: &Filter,
        after: Option<DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>, StoreError> {
        let state = self.state();
        let devices = state.devices.values().filter(|device| after.is_none_or(|it| device.id > it));
        let selected = devices.filter(|device| State::is_selected(filter, device));
        Ok(selected.take(limit).cloned().collect())
    }

    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<Line>, StoreError> {
        Ok(self.state().lines_after(after, limit))
    }

    fn count_devices(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        let state = self.state();
        let is_selected =
            |device: &&Device| !device.is_retired && State::is_selected(filter, device);
        Ok(state.devices.values().filter(is_selected).count() as u64)
    }

    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        let mut counts = BTreeMap::new();
        for device in self.state().devices.values().filter(|device| !device.is_retired) {
            if let Some(value) = device.attributes.get(attribute) {
                *counts.entry(value).or_insert(0_u64) += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts.truncate(limit);
        Ok(counts)
    }

    fn results_of(
        &mut self,
        device: DeviceId,
        limit: usize,
    ) -> Result<Vec<StoredResult>, StoreError> {
        let state = self.state();
        let results = state.results.iter().rev().filter(|stored| stored.device == device);
        Ok(results.take(limit).cloned().collect())
    }

    fn visit(
        &mut self,
        filter: &Filter,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<(), StoreError> {
        let selected: Vec<_> =
            self.state().results.iter().filter(|stored| filter.meets(stored)).cloned().collect();
        selected.iter().all(see);
        Ok(())
    }

    fn summed(&mut self, _: &Filter) -> Result<Summed, StoreError> {
        Ok(Summed::default())
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        Ok(self.state().servers.values().cloned().collect())
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        Ok(self.state().plans.values().cloned().collect())
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().settings.get(name).cloned())
    }

    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        Ok(self.state().log.iter().rev().take(limit).cloned().collect())
    }
}
