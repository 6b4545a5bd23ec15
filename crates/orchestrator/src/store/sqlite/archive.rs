//! Questions about what was collected, on a connection of their own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params, params_from_iter};
use underload_fleet::device::DeviceId;
use underload_fleet::store::{
    Archive, Device, Dimension, Filter, LogEntry, Outcomes, PlanRow, Server, StoreError,
    StoredResult, Sum, Summed,
};

use super::base::location;
use super::transaction::{DEVICE, PLANS, SERVERS, bodies, device_of};
use super::{connect, told, version};
use crate::store::files::{Files, Numbered};
use crate::store::rollup::{CellBytes, Key, Level, Part, Planned, Question, RUNS, SERIES};
use crate::store::{ROLLED_UP, attribute_column, encode, from_json};

/// Answers questions about a store, also of another process, and changes nothing.
#[derive(Debug)]
pub struct SqliteArchive {
    connection: Connection,
    directory: PathBuf,
    planned: Arc<Planned>,
}

impl SqliteArchive {
    /// Opens the store in a directory for reading.
    ///
    /// # Errors
    /// [`StoreError`], also where there is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(directory, flags)?;
        connection.execute_batch("PRAGMA query_only = ON").map_err(told)?;
        version(&connection, directory)?;
        Ok(Self { connection, directory: directory.to_owned(), planned: Arc::default() })
    }

    /// A question about the series that the plans have.
    fn question<'a>(
        &mut self,
        filter: &'a Filter,
        by: &'a [Dimension],
    ) -> Result<Question<'a>, StoreError> {
        self.planned = planned(&self.connection, &self.planned)?;
        Ok(Question::new(filter, by, Arc::clone(&self.planned)))
    }

    /// The files that days were moved to, if any were. To be opened before results are read: as
    /// long as they are open, none is deleted.
    fn files(&self) -> Result<Option<Files>, StoreError> {
        let location = location(&self.connection)?;
        location.map(|location| Files::open(&location, Some(&self.directory))).transpose()
    }

    /// Asks within one view of the store, which writers do not change meanwhile.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let view = self.connection.unchecked_transaction().map_err(told)?;
        ask(&view)
    }
}

impl Archive for SqliteArchive {
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes, StoreError> {
        let mut question = self.question(filter, &[])?;
        let Some(level) = question.level() else {
            self.visit(filter, &mut |stored| {
                question.add_run(stored, None);
                true
            })?;
            return Ok(question.outcomes());
        };
        self.ask(|view| {
            let keys = keys(view, RUNS, &mut question)?;
            visit_cells(view, level, RUNS, filter, |(_, hour, key), cell| match keys.get(&key) {
                Some((key, _)) if question.means_hour(hour, level) => question.add_runs(key, cell),
                _ => Ok(()),
            })?;
            visit_late(view, filter, &mut |stored, number| question.add_run(stored, number))?;
            Ok(question.outcomes())
        })
    }

    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>, StoreError> {
        let mut question = self.question(filter, by)?;
        let Some(level) = question.level() else {
            self.visit(filter, &mut |stored| {
                question.add_result(stored, None);
                true
            })?;
            return Ok(question.sums());
        };
        self.ask(|view| {
            let keys = keys(view, SERIES, &mut question)?;
            visit_cells(view, level, SERIES, filter, |(day, hour, key), cell| {
                match keys.get(&key) {
                    Some((_, line)) if question.means_hour(hour, level) => {
                        question.add_cell((*line, day, hour), cell)
                    }
                    _ => Ok(()),
                }
            })?;
            visit_late(view, filter, &mut |stored, number| question.add_result(stored, number))?;
            Ok(question.sums())
        })
    }

    fn devices(
        &mut self,
        filter: &Filter,
        after: Option<DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>, StoreError> {
        let Some((condition, mut values)) = condition(filter) else { return Ok(Vec::new()) };
        // No identifier is shorter than none.
        values.push(Value::Blob(after.map(|id| id.0.to_vec()).unwrap_or_default()));
        values.push(Value::Integer(limit.min(i64::MAX as usize) as i64));
        let sql =
            format!("SELECT {DEVICE} FROM devices WHERE {condition} id > ? ORDER BY id LIMIT ?");
        let mut statement = self.connection.prepare_cached(&sql).map_err(told)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(told)?;
        let mut devices = Vec::new();
        while let Some(row) = rows.next().map_err(told)? {
            devices.push(device_of(row)?);
        }
        Ok(devices)
    }

    fn count_devices(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        let Some((condition, values)) = condition(filter) else { return Ok(0) };
        let sql = format!("SELECT count(*) FROM devices WHERE {condition} true");
        let mut statement = self.connection.prepare_cached(&sql).map_err(told)?;
        let count = statement.query_row(params_from_iter(values), |row| row.get(0));
        count.map(|count: i64| count as u64).map_err(told)
    }

    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        let Some(column) = attribute_column(attribute) else { return Ok(Vec::new()) };
        let sql =
            format!("SELECT {column}, count(*) FROM devices GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ?");
        let mut statement = self.connection.prepare_cached(&sql).map_err(told)?;
        let limit = limit.min(i64::MAX as usize) as i64;
        let rows =
            statement.query_map([limit], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)));
        rows.map_err(told)?.collect::<Result<_, _>>().map_err(told)
    }

    fn results_of(
        &mut self,
        device: DeviceId,
        limit: usize,
    ) -> Result<Vec<StoredResult>, StoreError> {
        let files = self.files()?;
        let sql = "SELECT number, body FROM results WHERE device = ? ORDER BY number DESC";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let mut rows = statement.query([&device.0[..]]).map_err(told)?;
        let mut results = Vec::new();
        while let Some(row) = rows.next().map_err(told)? {
            if results.len() == limit {
                break;
            }
            let body = row.get_ref(1).map_err(told)?.as_blob();
            let number = row.get(0).map_err(told)?;
            let body = body.map_err(|error| told(error.into()))?;
            let result = encode::decode((number, device), body)?;
            if !files.as_ref().is_some_and(|files| files.has(&result, number)) {
                results.push(Numbered { number, result });
            }
        }
        if let Some(files) = files {
            files.add_results_of(device, limit, &mut results)?;
        }
        Ok(results.into_iter().map(|kept| kept.result).collect())
    }

    fn visit(
        &mut self,
        filter: &Filter,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<(), StoreError> {
        let files = self.files()?;
        if let Some(files) = &files
            && !files.visit(filter, &mut |stored| Ok(see(stored)))?
        {
            return Ok(());
        }
        visit_results(&self.connection, filter, 0, &mut |number, stored| {
            let is_shown = files.as_ref().is_some_and(|files| files.has(stored, number));
            Ok(is_shown || !filter.meets(stored) || see(stored))
        })
    }

    fn summed(&mut self, filter: &Filter) -> Result<Summed, StoreError> {
        Ok(self.files()?.map(|files| files.summed(filter)).unwrap_or_default())
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        bodies(&self.connection, SERVERS, [])
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        bodies(&self.connection, PLANS, [])
    }

    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let sql = "SELECT at_ms, who, what FROM log ORDER BY number DESC LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let limit = limit.min(i64::MAX as usize) as i64;
        let rows = statement.query_map([limit], |row| {
            let (at_ms, who, what) = (row.get::<_, i64>(0)? as u64, row.get(1)?, row.get(2)?);
            Ok(LogEntry { at_ms, who, what })
        });
        rows.map_err(told)?.collect::<Result<_, _>>().map_err(told)
    }
}

/// The attributes that a filter asks for as a condition on devices, with its values; `None` where
/// no device has such an attribute.
fn condition(filter: &Filter) -> Option<(String, Vec<Value>)> {
    let mut condition = String::new();
    let mut values = Vec::new();
    for (name, value) in &filter.attributes {
        condition.push_str(attribute_column(name)?);
        condition.push_str(" = ? AND ");
        values.push(Value::Text(value.clone()));
    }
    Some((condition, values))
}

/// The plans of a store: those that are known, if they are the same.
pub(super) fn planned(
    connection: &Connection,
    known: &Arc<Planned>,
) -> Result<Arc<Planned>, StoreError> {
    let rows = bodies(connection, PLANS, [])?;
    Ok(if known.is_of(&rows) { Arc::clone(known) } else { Arc::new(Planned::new(rows)) })
}

/// The number of the last result that was put together with others.
pub(super) fn rolled_up(connection: &Connection) -> Result<i64, StoreError> {
    let sql = "SELECT number FROM progress WHERE name = ?";
    let mut statement = connection.prepare_cached(sql).map_err(told)?;
    let number = statement.query_row([ROLLED_UP], |row| row.get(0)).optional().map_err(told)?;
    Ok(number.unwrap_or(0))
}

/// The number that stands for a device in sets.
pub(super) fn number(connection: &Connection, device: DeviceId) -> Result<Option<u32>, StoreError> {
    let sql = "SELECT number FROM numbers WHERE device = ?";
    let mut statement = connection.prepare_cached(sql).map_err(told)?;
    statement.query_row([&device.0[..]], |row| row.get(0)).optional().map_err(told)
}

/// Keys by their numbers that a question means, with the line of the answer.
fn keys(
    view: &Connection,
    kind: i16,
    question: &mut Question<'_>,
) -> Result<HashMap<i64, (Key, u32)>, StoreError> {
    let mut statement = view.prepare_cached("SELECT number, body FROM keys").map_err(told)?;
    let mut rows = statement.query([]).map_err(told)?;
    let mut keys = HashMap::new();
    while let Some(row) = rows.next().map_err(told)? {
        let text = row.get_ref(1).map_err(told)?.as_str();
        let key: Key = from_json(text.map_err(|error| told(error.into()))?)?;
        if key.of.number() != kind {
            continue;
        }
        if let Part::Line(line) = question.part(&key) {
            keys.insert(row.get(0).map_err(told)?, (key, line));
        }
    }
    Ok(keys)
}

/// Shows the cells of a level in the days of a filter: day, hour, number of the key.
fn visit_cells(
    view: &Connection,
    level: Level,
    kind: i16,
    filter: &Filter,
    mut see: impl FnMut((u32, u8, i64), &CellBytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql = "SELECT day, hour, key, tests, sent, lost, bins, devices FROM sums
        WHERE level = ? AND kind = ? AND day >= ? AND day < ?";
    let mut statement = view.prepare_cached(sql).map_err(told)?;
    let (from, until) = days(filter);
    let values = params![level.number(), kind, from, until];
    let mut rows = statement.query(values).map_err(told)?;
    while let Some(row) = rows.next().map_err(told)? {
        let read = |row: &rusqlite::Row<'_>| {
            let place = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (tests, sent, lost) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let (bins, devices) = (row.get(6)?, row.get(7)?);
            Ok((place, CellBytes { bins, devices, sent, lost, tests }))
        };
        let (place, cell) = read(row).map_err(told)?;
        see(place, &cell)?;
    }
    Ok(())
}

/// Shows results that were not put together with others yet, each with the number of its device.
fn visit_late(
    view: &Connection,
    filter: &Filter,
    see: &mut dyn FnMut(&StoredResult, Option<u32>),
) -> Result<(), StoreError> {
    let mut numbers = HashMap::new();
    visit_results(view, filter, rolled_up(view)?, &mut |_, stored| {
        let number = match numbers.get(&stored.device) {
            Some(number) => *number,
            None => *numbers.entry(stored.device).or_insert(number(view, stored.device)?),
        };
        see(stored, number);
        Ok(true)
    })
}

/// Shows results of the plan and the days of a filter that came after the one with that number, in
/// the order in which they came, until `see` says false.
fn visit_results(
    view: &Connection,
    filter: &Filter,
    after: i64,
    see: &mut dyn FnMut(i64, &StoredResult) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    // Page by page: who takes long must not hold a view, which the log could not shrink under.
    // In the order of numbers, which the index of days must not be preferred to.
    let sql =
        "SELECT number, device, body FROM results NOT INDEXED WHERE number > ?1 AND number <= ?2
        AND day >= ?3 AND day < ?4 AND (?5 IS NULL OR plan = ?5) ORDER BY number LIMIT ?6";
    let mut statement = view.prepare_cached(sql).map_err(told)?;
    let last = view.prepare_cached("SELECT ifnull(max(number), 0) FROM results").map_err(told)?;
    let last: i64 = { last }.query_row([], |row| row.get(0)).map_err(told)?;
    let (from, until) = days(filter);
    let mut after = after;
    let mut page = Vec::new();
    loop {
        let values = params![after, last, from, until, filter.plan, PAGE as i64];
        let mut rows = statement.query(values).map_err(told)?;
        let (mut is_last, mut bytes) = (true, 0);
        while let Some(row) = rows.next().map_err(told)? {
            let read = |row: &rusqlite::Row<'_>| {
                Ok((row.get(0)?, DeviceId(row.get(1)?), row.get::<_, Vec<u8>>(2)?))
            };
            let row = read(row).map_err(told)?;
            bytes += row.2.len();
            page.push(row);
            if page.len() >= PAGE || bytes >= PAGE_BYTES {
                is_last = false;
                break;
            }
        }
        drop(rows);
        for (number, device, body) in page.drain(..) {
            if !see(number, &encode::decode((number, device), &body)?)? {
                return Ok(());
            }
            after = number;
        }
        if is_last {
            return Ok(());
        }
    }
}

fn days(filter: &Filter) -> (i64, i64) {
    (filter.from_day.map_or(0, i64::from), filter.until_day.map_or(i64::MAX, i64::from))
}

/// Results that are read at a time.
const PAGE: usize = 1_024;
/// Bytes of results that are read at a time, and those of one more.
const PAGE_BYTES: usize = 1 << 20;
