//! Background work on the database of a store: folds results into sums, and finds those of days that
//! are to be moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use underload_fleet::device::DeviceId;
use underload_fleet::store::{Result, StoreError};

use super::archive::{numbers, rolled_up};
use super::database::{Begin, Database, Value, values};
use super::encode::{Encoded, to_json};
use super::rollup::{Batch, Cell, CellBytes, Key, Place, RolledUp, Rollup, SumPlace};
use super::tables::{KEYS, SUMS, encoded};

/// A connection for background work. Every orchestrator may have a keeper: one that finds another
/// keeper working does nothing. It reads and folds while other connections write.
pub struct Keeper {
    pub(super) database: Box<dyn Database>,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    pub(super) fn new(database: Box<dyn Database>) -> Self {
        Self { database, stop: Arc::default() }
    }

    /// A flag that ends a batch early. Such a batch changes nothing.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Folds at most `limit` results into the sums, fewer if they are large; none while another
    /// keeper is at work. An error changes nothing.
    pub fn roll_up(&mut self, limit: usize) -> Result<RolledUp> {
        let done = self.fold(Batch::with_results(limit));
        if !matches!(done, Ok(Some(_))) {
            self.database.roll_back();
        }
        done.map(|done| done.unwrap_or(RolledUp::STOPPED))
    }

    /// Folds a batch. Returns `None` if the stop flag was set before the batch was stored.
    fn fold(&mut self, batch: Batch) -> Result<Option<RolledUp>> {
        self.database.begin(Begin::Fold)?;
        let Some(after) = rolled_up(&mut *self.database, SKIP)? else {
            self.database.roll_back();
            return Ok(Some(RolledUp::default()));
        };
        let rows = self.batch_of(after, batch)?;
        let numbers = self.number_devices(rows.iter().map(|(_, row)| row.device).collect())?;
        let mut rollup = Rollup::default();
        let folded = rollup.fold(rows.iter().map(|(_, row)| row), &numbers, batch, &self.stop)?;
        let Some(results) = folded else { return Ok(None) };
        let Some((change, last)) = rows.iter().take(results).next_back() else {
            self.database.roll_back();
            return Ok(Some(RolledUp::default()));
        };
        let bytes: usize = rows.iter().map(|(_, row)| row.body.len()).sum();
        let is_full = rows.len() >= batch.results || bytes >= batch.bytes;
        let progress = [values![*change, last.number]];
        self.database.begin(Begin::Change)?;
        if rolled_up(&mut *self.database, SKIP)? != Some(after) {
            return Err(StoreError::temporary("another keeper folded the same results first"));
        }
        self.write(&rollup.finish())?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let advance = "UPDATE progress SET last_change = $1, last_number = $2";
        self.database.change(advance, &progress)?;
        self.database.commit()?;
        Ok(Some(RolledUp { results, has_more: is_full || results < rows.len() }))
    }

    /// Reads the results after the last one that was folded, with the numbers of their
    /// transactions. All earlier transactions have ended.
    fn batch_of(
        &mut self,
        (change, number): (i64, i64),
        batch: Batch,
    ) -> Result<Vec<(i64, Encoded)>> {
        let values = values![change, number, batch.results, batch.bytes];
        let rows = self.database.query(RESULTS, &[values])?;
        rows.into_iter().map(|mut row| Ok((row.long()?, encoded(row)?))).collect()
    }

    /// Returns the numbers of devices. Numbers the devices that have none.
    fn number_devices(&mut self, devices: BTreeSet<DeviceId>) -> Result<HashMap<DeviceId, u32>> {
        let mut known = numbers(&mut *self.database, &devices)?;
        let unknown: BTreeSet<DeviceId> =
            devices.into_iter().filter(|device| !known.contains_key(device)).collect();
        let new: Vec<_> = unknown.iter().map(|device| values![*device]).collect();
        self.database.change(NUMBER, &new)?;
        known.extend(numbers(&mut *self.database, &unknown)?);
        Ok(known)
    }

    fn number_keys<'a>(&mut self, keys: BTreeSet<&'a Key>) -> Result<BTreeMap<&'a Key, i64>> {
        let bodies = keys.iter().map(|key| to_json(*key)).collect::<Result<Vec<_>, _>>()?;
        let mut known = self.keys_of(&bodies)?;
        let new = bodies.iter().filter(|body| !known.contains_key(*body));
        let new: Vec<_> = new.map(|body| values![body.as_str()]).collect();
        if !new.is_empty() {
            self.database.change(&KEYS.add(), &new)?;
            known = self.keys_of(&bodies)?;
        }
        let numbered = keys.into_iter().zip(&bodies);
        Ok(numbered.filter_map(|(key, body)| Some((key, *known.get(body)?))).collect())
    }

    fn keys_of(&mut self, bodies: &[String]) -> Result<BTreeMap<String, i64>> {
        let sql = "SELECT body, number FROM keys WHERE body IN ({rows text})";
        let bodies: Vec<_> = bodies.iter().map(|body| values![body.as_str()]).collect();
        let rows = self.database.query(sql, &bodies)?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.long()?))).collect()
    }

    /// Returns cells by the places of their stored sums.
    pub(super) fn placed(
        &mut self,
        cells: &BTreeMap<Place, Cell>,
    ) -> Result<BTreeMap<SumPlace, Cell>> {
        let numbers = self.number_keys(cells.keys().map(|place| &place.key).collect())?;
        let sums = cells.iter().filter_map(|(place, cell)| {
            let (level, kind) = (place.level.number(), place.key.of.number());
            let (day, hour) = (i64::from(place.day), i16::from(place.hour));
            let key = *numbers.get(&place.key)?;
            Some((SumPlace { level, kind, day, hour, key }, cell.clone()))
        });
        Ok(sums.collect())
    }

    /// Merges cells into the stored sums.
    fn write(&mut self, cells: &BTreeMap<Place, Cell>) -> Result<()> {
        let mut sums = self.placed(cells)?;
        let places: Vec<_> = sums.keys().map(SumPlace::values).collect();
        for mut row in self.database.query(&SUMS.get(), &places)? {
            let place = SumPlace::from_row(&mut row)?;
            if let Some(sum) = sums.get_mut(&place) {
                sum.merge(&CellBytes::from_row(row)?.read()?);
            }
        }
        self.put_sums(&sums)
    }

    pub(super) fn put_sums(&mut self, sums: &BTreeMap<SumPlace, Cell>) -> Result<()> {
        let rows = sums.iter().map(|(place, cell)| {
            let CellBytes { bins, devices, sent, lost, tests } = CellBytes::from(cell);
            let mut row = place.values();
            row.extend(values![bins, devices, sent, lost, tests]);
            row
        });
        let rows: Vec<Vec<Value>> = rows.collect();
        self.database.change(&SUMS.put(), &rows).map(drop)
    }

    /// Returns the first day and plan after `after` with stored results.
    pub(super) fn day_after(
        &mut self,
        after: Option<&(u32, String)>,
    ) -> Result<Option<(u32, String)>> {
        let sql = "SELECT day, plan FROM results WHERE (day, plan) > ($1, $2)
            ORDER BY day, plan LIMIT 1";
        let (day, plan) = after.map_or((-1, ""), |(day, plan)| (i64::from(*day), plan.as_str()));
        let row = self.database.query(sql, &[values![day, plan]])?.pop();
        row.map(|mut row| Ok((row.small()?, row.text()?))).transpose()
    }

    /// Reads the first `limit` results of a plan's day that are folded.
    pub(super) fn folded(
        &mut self,
        (plan, day): (&str, u32),
        limit: usize,
    ) -> Result<Vec<Encoded>> {
        let sql = "SELECT number, device, body FROM results
            WHERE day = $1 AND plan = $2 AND {folded} ORDER BY number LIMIT $3";
        let rows = self.database.query(sql, &[values![day, plan, limit]])?;
        rows.into_iter().map(encoded).collect()
    }
}

/// Selects the results of a batch: at most `$3` results, up to and including the one with which
/// their bodies reach `$4` bytes.
const RESULTS: &str = "SELECT measured.change, r.number, r.device, r.body FROM (
        SELECT change, number, sum(bytes) OVER (ORDER BY change, number) - bytes AS before
        FROM (
            SELECT {change} AS change, number, length(body) AS bytes FROM results
            WHERE {later} AND {over} ORDER BY {order} LIMIT $3
        ) first
    ) measured JOIN results r ON r.number = measured.number
    WHERE before < $4 ORDER BY measured.change, r.number";
/// Numbers devices. A device whose results were deleted meanwhile was forgotten.
const NUMBER: &str = "INSERT INTO numbers (device) SELECT column1 FROM ({rows bytea}) new
    WHERE EXISTS (SELECT 1 FROM results WHERE device = column1) ON CONFLICT DO NOTHING";
/// Skips the row if another keeper has locked it.
const SKIP: &str = " FOR UPDATE SKIP LOCKED";
