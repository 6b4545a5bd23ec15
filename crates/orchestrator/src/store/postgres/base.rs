//! What housekeeping does with the database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::Row as SqlRow;
use underload_fleet::store::StoreError;

use super::archive::{planned, rolled_up};
use super::keeper::PostgresKeeper;
use super::session::{Session, Values, told};
use super::transaction::{id_of, to_limit};
use crate::store::files::Location;
use crate::store::housekeeping::{Base, Row};
use crate::store::rollup::{Key, Planned, RolledUp, SumPlace};
use crate::store::{BATCH, LOCATION, from_json, to_json};

impl Base for PostgresKeeper {
    fn roll_up(&mut self, limit: usize) -> Result<RolledUp, StoreError> {
        Self::roll_up(self, limit)
    }

    fn stop_with(&mut self, flag: &Arc<AtomicBool>) {
        self.stop = Arc::clone(flag);
    }

    fn batch(&mut self) -> Result<Option<usize>, StoreError> {
        let value = setting(self.session()?, BATCH)?;
        value.map(|bytes| from_json(&String::from_utf8_lossy(&bytes))).transpose()
    }

    fn put_batch(&mut self, results: usize) -> Result<(), StoreError> {
        put_setting(self.session()?, BATCH, &to_json(&results)?)
    }

    fn planned(&mut self) -> Result<Arc<Planned>, StoreError> {
        let known = Arc::clone(&self.planned);
        self.planned = planned(self.session()?, &known)?;
        Ok(Arc::clone(&self.planned))
    }

    fn keys(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, Key)>, StoreError> {
        let sql = "SELECT number, body FROM keys WHERE number > $1 ORDER BY number LIMIT $2";
        let rows = self.session()?.rows(sql, &[&after, &to_limit(limit)])?;
        let key = |row: &SqlRow| {
            let number = row.try_get(0).map_err(told)?;
            Ok((number, from_json(row.try_get(1).map_err(told)?)?))
        };
        rows.iter().map(key).collect()
    }

    fn sums(&mut self, after: SumPlace, limit: usize) -> Result<Vec<SumPlace>, StoreError> {
        let sql = "SELECT level, kind, day, hour, key FROM sums
            WHERE (level, kind, day, hour, key) > ($1, $2, $3, $4, $5)
            ORDER BY level, kind, day, hour, key LIMIT $6";
        let SumPlace { level, kind, day, hour, key } = after;
        let values: Values<'_> = &[&level, &kind, &day, &hour, &key, &to_limit(limit)];
        let place = |row: &SqlRow| {
            let (level, kind, day) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok(SumPlace { level, kind, day, hour: row.try_get(3)?, key: row.try_get(4)? })
        };
        let rows = self.session()?.rows(sql, values)?;
        rows.iter().map(place).collect::<Result<_, _>>().map_err(told)
    }

    fn delete_sums(&mut self, places: &[SumPlace]) -> Result<(), StoreError> {
        let sql = "DELETE FROM sums USING unnest($1::smallint[], $2::smallint[], $3::bigint[],
                $4::smallint[], $5::bigint[]) u (level, kind, day, hour, key)
            WHERE sums.level = u.level AND sums.kind = u.kind AND sums.day = u.day
                AND sums.hour = u.hour AND sums.key = u.key";
        let levels: Vec<i16> = places.iter().map(|place| place.level).collect();
        let kinds: Vec<i16> = places.iter().map(|place| place.kind).collect();
        let days: Vec<i64> = places.iter().map(|place| place.day).collect();
        let hours: Vec<i16> = places.iter().map(|place| place.hour).collect();
        let keys: Vec<i64> = places.iter().map(|place| place.key).collect();
        self.session()?.change(sql, &[&levels, &kinds, &days, &hours, &keys]).map(drop)
    }

    fn delete_keys(&mut self, numbers: &[i64]) -> Result<(), StoreError> {
        self.session()?.change("DELETE FROM keys WHERE number = ANY($1)", &[&numbers]).map(drop)
    }

    fn settled(&mut self) -> Result<i64, StoreError> {
        let session = self.session()?;
        let last = number(session, "SELECT coalesce(max(number), 0) FROM results")?;
        // A change that is under way may have taken a lower number. It has held its lock of the
        // table since before it did.
        let start = Instant::now();
        let open: Vec<String> = writers(session)?;
        while writers(session)?.iter().any(|writer| open.contains(writer)) {
            if start.elapsed() > PATIENCE {
                let what = "a change of results takes long, so no day is moved now".to_owned();
                return Err(StoreError::Temporary { what });
            }
            sleep(Duration::from_millis(5));
        }
        let (change, number) = rolled_up(session)?;
        let sql = "SELECT coalesce(min(number) - 1, $3) FROM results
            WHERE (change, number) > ($1, $2)";
        let rows = session.rows(sql, &[&change, &number, &last])?;
        let put_together: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(told)?;
        Ok(last.min(put_together))
    }

    fn day_after(
        &mut self,
        after: Option<&(u32, String)>,
    ) -> Result<Option<(u32, String)>, StoreError> {
        let sql = "SELECT day, plan FROM results WHERE (day, plan) > ($1, $2)
            ORDER BY day, plan LIMIT 1";
        let (day, plan) = match after {
            Some((day, plan)) => (i64::from(*day), plan.as_str()),
            None => (-1, ""),
        };
        let rows = self.session()?.rows(sql, &[&day, &plan])?;
        let pair = |row: &SqlRow| Ok((row.try_get::<_, i64>(0)? as u32, row.try_get(1)?));
        rows.first().map(pair).transpose().map_err(told)
    }

    fn results(
        &mut self,
        (plan, day): (&str, u32),
        (after, up_to): (i64, i64),
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = "SELECT number, device, body FROM results
            WHERE day = $1 AND plan = $2 AND number > $3 AND number <= $4
            ORDER BY number LIMIT $5";
        let values: [&(dyn postgres::types::ToSql + Sync); 5] =
            [&i64::from(day), &plan, &after, &up_to, &to_limit(limit)];
        let row = |row: &SqlRow| {
            let device = id_of(row.try_get(1).map_err(told)?)?;
            let number = row.try_get(0).map_err(told)?;
            Ok(Row { number, device, body: row.try_get(2).map_err(told)? })
        };
        self.session()?.rows(sql, &values)?.iter().map(row).collect()
    }

    fn delete(
        &mut self,
        (plan, day): (&str, u32),
        up_to: i64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let sql = "DELETE FROM results WHERE number IN (SELECT number FROM results
            WHERE day = $1 AND plan = $2 AND number <= $3 ORDER BY number LIMIT $4)";
        let values: [&(dyn postgres::types::ToSql + Sync); 4] =
            [&i64::from(day), &plan, &up_to, &to_limit(limit)];
        self.session()?.change(sql, &values).map(|count| count as usize)
    }

    fn location(&mut self) -> Result<Option<Location>, StoreError> {
        location(self.session()?)
    }

    fn put_location(&mut self, location: &Location) -> Result<(), StoreError> {
        put_setting(self.session()?, LOCATION, &to_json(location)?)
    }

    fn count_from(&mut self, number: i64) -> Result<(), StoreError> {
        let sql = "SELECT setval(pg_get_serial_sequence('results', 'number'), $1)
            WHERE $1 > (SELECT last_value FROM pg_sequences
                WHERE schemaname = current_schema() AND sequencename = 'results_number_seq')";
        let sql = if number > 0 { sql } else { return Ok(()) };
        self.session()?.rows(sql, &[&number]).map(drop)
    }

    fn root(&self) -> Option<&Path> {
        None
    }
}

/// Changes of results that are under way.
fn writers(session: &mut Session) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT virtualtransaction FROM pg_locks
        WHERE relation = 'results'::regclass AND mode = 'RowExclusiveLock' AND granted
            AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let rows = session.rows(sql, &[])?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(told)
}

fn number(session: &mut Session, sql: &str) -> Result<i64, StoreError> {
    let rows = session.rows(sql, &[])?;
    rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(told)
}

fn setting(session: &mut Session, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let rows = session.rows("SELECT value FROM settings WHERE name = $1", &[&name])?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(told)
}

fn put_setting(session: &mut Session, name: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO settings (name, value) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    session.change(sql, &[&name, &value.as_bytes()]).map(drop)
}

/// Where the store's archive is, if it has one.
pub(super) fn location(session: &mut Session) -> Result<Option<Location>, StoreError> {
    let value = setting(session, LOCATION)?;
    value.map(|bytes| from_json(&String::from_utf8_lossy(&bytes))).transpose()
}

/// How long changes that are under way may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
