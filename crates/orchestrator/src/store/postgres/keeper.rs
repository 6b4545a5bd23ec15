//! Puts results together in the background.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postgres::Row as SqlRow;
use underload_fleet::device::DeviceId;
use underload_fleet::store::StoreError;

use super::archive::{numbers, planned};
use super::session::{Session, Source, told};
use super::transaction::{id_of, to_limit};
use crate::store::housekeeping::Row;
use crate::store::rollup::{Batch, Cell, CellBytes, Key, Place, Planned, RolledUp, Rollup};
use crate::store::{ROLLED_UP, to_json};

/// Puts results of a store together. Every orchestrator may have one: whoever comes while another
/// is at work does nothing. It keeps nobody waiting.
pub struct PostgresKeeper {
    source: Source,
    session: Option<Session>,
    pub(super) planned: Arc<Planned>,
    pub(super) stop: Arc<AtomicBool>,
}

impl PostgresKeeper {
    pub(super) fn new(source: Source) -> Result<Self, StoreError> {
        let session = source.open()?;
        let (planned, stop) = (Arc::default(), Arc::default());
        Ok(Self { source, session: Some(session), planned, stop })
    }

    pub(super) fn session(&mut self) -> Result<&mut Session, StoreError> {
        self.source.session(&mut self.session)
    }

    /// Folds at most `limit` results into the sums, fewer where they are large; none while another
    /// keeper is at work.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    pub fn roll_up(&mut self, limit: usize) -> Result<RolledUp, StoreError> {
        let session = self.source.session(&mut self.session)?;
        self.planned = planned(session, &self.planned)?;
        session.batch("BEGIN")?;
        let batch = Batch::with_results(limit);
        let done = roll_up(session, batch, &self.planned, &self.stop);
        match done {
            Ok(Some(_)) => session.batch("COMMIT")?,
            _ => session.roll_back(),
        }
        done.map(|done| done.unwrap_or(RolledUp::STOPPED))
    }
}

impl fmt::Debug for PostgresKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresKeeper").finish_non_exhaustive()
    }
}

/// Folds a batch. Returns `None` if it was told to stop.
fn roll_up(
    session: &mut Session,
    batch: Batch,
    planned: &Arc<Planned>,
    stop: &AtomicBool,
) -> Result<Option<RolledUp>, StoreError> {
    let sql = "SELECT last_change, last_number FROM progress WHERE name = $1
        FOR UPDATE SKIP LOCKED";
    let claimed = session.rows(sql, &[&ROLLED_UP])?;
    let Some(row) = claimed.first() else { return Ok(Some(RolledUp::default())) };
    let after = (row.try_get(0).map_err(told)?, row.try_get(1).map_err(told)?);
    let rows = rows(session, after, batch)?;
    let devices: BTreeSet<DeviceId> = rows.iter().map(|(_, row)| row.device).collect();
    let numbers = number_devices(session, &devices)?;
    let mut rollup = Rollup::new(Arc::clone(planned));
    let folded = rollup.fold(rows.iter().map(|(_, row)| row), &numbers, batch, stop)?;
    let Some(results) = folded else { return Ok(None) };
    let Some((change, last)) = rows.iter().take(results).next_back() else {
        return Ok(Some(RolledUp::default()));
    };
    write_cells(session, &rollup.finish())?;
    let sql = "UPDATE progress SET last_change = $2, last_number = $3 WHERE name = $1";
    session.change(sql, &[&ROLLED_UP, change, &last.number])?;
    let bytes: usize = rows.iter().map(|(_, row)| row.body.len()).sum();
    let is_full = rows.len() >= batch.results || bytes >= batch.bytes;
    Ok(Some(RolledUp { results, has_more: is_full || results < rows.len() }))
}

/// The results of a batch with their transactions, before which all transactions are over: those
/// after the last result that was folded.
fn rows(
    session: &mut Session,
    (change, number): (i64, i64),
    batch: Batch,
) -> Result<Vec<(i64, Row)>, StoreError> {
    let sql = "SELECT change, number, device, body FROM (
            SELECT *, sum(length(body)) OVER (ORDER BY change, number)
                - length(body) AS before
            FROM (
                SELECT change, number, device, body FROM results
                WHERE (change, number) > ($1, $2)
                    AND change < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                ORDER BY change, number LIMIT $3
            ) first
        ) measured WHERE before < $4 ORDER BY change, number";
    let row = |row: &SqlRow| {
        let (change, number) = (row.try_get(0).map_err(told)?, row.try_get(1).map_err(told)?);
        let device = id_of(row.try_get(2).map_err(told)?)?;
        Ok((change, Row { number, device, body: row.try_get(3).map_err(told)? }))
    };
    let (results, bytes) = (to_limit(batch.results), to_limit(batch.bytes));
    session.rows(sql, &[&change, &number, &results, &bytes])?.iter().map(row).collect()
}

/// The numbers of devices; those that have none get one.
fn number_devices(
    session: &mut Session,
    devices: &BTreeSet<DeviceId>,
) -> Result<HashMap<DeviceId, u32>, StoreError> {
    let mut known = numbers(session, devices)?;
    let unknown = devices.iter().filter(|device| !known.contains_key(*device));
    let unknown: BTreeSet<DeviceId> = unknown.copied().collect();
    if !unknown.is_empty() {
        let keys: Vec<&[u8]> = unknown.iter().map(|device| &device.0[..]).collect();
        let sql = "INSERT INTO numbers (device) SELECT * FROM unnest($1::bytea[])";
        session.change(sql, &[&keys])?;
        known.extend(numbers(session, &unknown)?);
    }
    Ok(known)
}

fn number_keys(
    session: &mut Session,
    keys: &BTreeSet<&Key>,
) -> Result<BTreeMap<Key, i64>, StoreError> {
    let bodies = keys.iter().map(|key| to_json(*key)).collect::<Result<Vec<_>, _>>()?;
    let sql = "SELECT body, number FROM keys WHERE body = ANY($1)";
    let read = |session: &mut Session| -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = session.rows(sql, &[&bodies])?;
        let pair = |row: &SqlRow| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter().map(pair).collect::<Result<_, _>>().map_err(told)
    };
    let mut known = read(session)?;
    let unknown: Vec<&String> = bodies.iter().filter(|body| !known.contains_key(*body)).collect();
    if !unknown.is_empty() {
        let sql = "INSERT INTO keys (body) SELECT * FROM unnest($1::text[])";
        session.change(sql, &[&unknown])?;
        known = read(session)?;
    }
    let numbered = keys.iter().zip(&bodies);
    let numbered = numbered.filter_map(|(key, body)| Some(((*key).clone(), *known.get(body)?)));
    Ok(numbered.collect())
}

fn write_cells(session: &mut Session, cells: &BTreeMap<Place, Cell>) -> Result<(), StoreError> {
    let keys: BTreeSet<&Key> = cells.keys().map(|place| &place.key).collect();
    let numbers = number_keys(session, &keys)?;
    let columns = cells.iter().filter_map(|(place, cell)| {
        let key = *numbers.get(&place.key)?;
        let (level, kind) = (place.level.number(), place.key.of.number());
        Some(((level, kind, i64::from(place.day), i16::from(place.hour), key), cell.clone()))
    });
    let mut sums: BTreeMap<(i16, i16, i64, i16, i64), Cell> = columns.collect();
    let levels: Vec<i16> = sums.keys().map(|place| place.0).collect();
    let kinds: Vec<i16> = sums.keys().map(|place| place.1).collect();
    let days: Vec<i64> = sums.keys().map(|place| place.2).collect();
    let hours: Vec<i16> = sums.keys().map(|place| place.3).collect();
    let key_numbers: Vec<i64> = sums.keys().map(|place| place.4).collect();
    let places: [&(dyn postgres::types::ToSql + Sync); 5] =
        [&levels, &kinds, &days, &hours, &key_numbers];
    for row in session.rows(CELLS, &places)? {
        let read = || {
            let place = (
                row.try_get(0)?,
                row.try_get(1)?,
                row.try_get(2)?,
                row.try_get(3)?,
                row.try_get(4)?,
            );
            let (bins, devices) = (row.try_get(5)?, row.try_get(6)?);
            let (sent, lost, tests) = (row.try_get(7)?, row.try_get(8)?, row.try_get(9)?);
            Ok((place, CellBytes { bins, devices, sent, lost, tests }))
        };
        let (place, stored) = read().map_err(told)?;
        if let Some(sum) = sums.get_mut(&place) {
            sum.merge(&stored.read()?);
        }
    }
    let bytes: Vec<CellBytes> = sums.values().map(CellBytes::from).collect();
    let bins: Vec<&[u8]> = bytes.iter().map(|cell| &cell.bins[..]).collect();
    let devices: Vec<&[u8]> = bytes.iter().map(|cell| &cell.devices[..]).collect();
    let sent: Vec<i64> = bytes.iter().map(|cell| cell.sent).collect();
    let lost: Vec<i64> = bytes.iter().map(|cell| cell.lost).collect();
    let tests: Vec<i64> = bytes.iter().map(|cell| cell.tests).collect();
    let values: [&(dyn postgres::types::ToSql + Sync); 5] = [&bins, &devices, &sent, &lost, &tests];
    session.change(PUT_CELLS, &[&places[..], &values[..]].concat()).map(drop)
}

const CELLS: &str = "SELECT s.level, s.kind, s.day, s.hour, s.key, s.bins, s.devices, s.sent,
        s.lost, s.tests
    FROM unnest($1::smallint[], $2::smallint[], $3::bigint[], $4::smallint[], $5::bigint[])
        u (level, kind, day, hour, key)
    JOIN sums s ON s.level = u.level AND s.kind = u.kind AND s.day = u.day AND s.hour = u.hour
        AND s.key = u.key";
const PUT_CELLS: &str = "INSERT INTO sums (level, kind, day, hour, key, bins, devices, sent, lost,
        tests)
    SELECT * FROM unnest($1::smallint[], $2::smallint[], $3::bigint[], $4::smallint[],
        $5::bigint[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[])
    ON CONFLICT (level, kind, day, hour, key) DO UPDATE SET bins = excluded.bins,
        devices = excluded.devices, sent = excluded.sent, lost = excluded.lost,
        tests = excluded.tests";
