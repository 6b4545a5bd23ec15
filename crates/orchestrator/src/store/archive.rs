//! Read-only queries on the collected results, on a separate connection to the database.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use roaring::RoaringTreemap;
use underload_fleet::device::DeviceId;
use underload_fleet::line::Line;
use underload_fleet::store::{
    Archive, Device, Dimension, Filter, LogEntry, Outcomes, PlanRow, Result, Server, StoredResult,
    Sum, Summed,
};

use super::database::{Begin, Database, Row, Value, values};
use super::encode::Encoded;
use super::files::{Files, Numbered};
use super::rollup::{CellBytes, Key, Level, Question, RUNS, SERIES};
use super::sqlite::Sqlite;
use super::tables::{DEVICES, attribute_column, device_of, encoded, lines_after, raw_setting};
use super::transaction::plans;

/// A read-only connection to a store, which another process may use.
pub struct SqlArchive {
    database: Box<dyn Database>,
}

impl SqlArchive {
    pub(super) fn new(database: Box<dyn Database>) -> Self {
        Self { database }
    }

    /// Opens the existing store in a directory for reading.
    pub fn sqlite(directory: &Path) -> Result<Self> {
        Ok(Self::new(Box::new(Sqlite::reader(directory)?)))
    }

    /// Runs queries on a consistent view of the store.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut dyn Database) -> Result<T>) -> Result<T> {
        self.database.begin(Begin::View)?;
        let answer = ask(&mut *self.database);
        self.database.roll_back();
        answer
    }

    /// Calls `see` with the results of [`Archive::visit`], or of [`Archive::visit_measured`] for
    /// `attributes`.
    fn visit_all(
        &mut self,
        filter: &Filter,
        attributes: Option<&[&str]>,
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<()> {
        let (mut seen, mut has_enough) = (RoaringTreemap::new(), false);
        // Page by page and without a view, because a long view keeps the log of a database from
        // shrinking.
        visit_results(&mut *self.database, filter, (i64::MIN, 0), &mut |_, page| {
            seen.extend(page.iter().map(|(number, _)| *number as u64));
            has_enough = page.iter().any(|(_, stored)| filter.meets(stored) && !see(stored));
            Ok(!has_enough)
        })?;
        if has_enough {
            return Ok(());
        }
        Files::read(&mut *self.database)?.visit(filter, attributes, &seen, see)
    }

    fn rows<T>(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        read: impl FnMut(Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.database.query(sql, &[values])?.into_iter().map(read).collect()
    }
}

impl Archive for SqlArchive {
    fn outcomes(&mut self, filter: &Filter) -> Result<Outcomes> {
        let mut question = Question::new(filter, &[]);
        let Some(level) = question.level() else {
            self.visit(filter, &mut |stored| {
                question.add_run(stored, None);
                true
            })?;
            return Ok(question.outcomes());
        };
        self.ask(|view| {
            let keys = keys(view, RUNS, &mut question)?;
            visit_cells(view, (level, RUNS), filter, &keys, |(_, hour, (key, _)), cell| {
                if question.means_hour(hour, level) { question.add_runs(key, cell) } else { Ok(()) }
            })?;
            visit_late(view, filter, &mut |stored, number| question.add_run(stored, number))?;
            Ok(question.outcomes())
        })
    }

    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>> {
        let mut question = Question::new(filter, by);
        let Some(level) = question.level() else {
            let attributes: Vec<&str> = by.iter().filter_map(Dimension::attribute).collect();
            self.visit_measured(filter, &attributes, &mut |stored| {
                question.add_result(stored, None);
                true
            })?;
            return Ok(question.sums());
        };
        self.ask(|view| {
            let keys = keys(view, SERIES, &mut question)?;
            visit_cells(view, (level, SERIES), filter, &keys, |(day, hour, (_, line)), cell| {
                if question.means_hour(hour, level) {
                    question.add_cell((*line, day, hour), cell)?;
                }
                Ok(())
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
    ) -> Result<Vec<Device>> {
        let Some((condition, mut values)) = condition(filter) else { return Ok(Vec::new()) };
        // Empty bytes sort before all identifiers.
        values.push(after.map_or(Value::Bytes(Vec::new()), Value::from));
        values.push(limit.into());
        let (names, next) = (DEVICES.names(), values.len());
        let sql = format!(
            "SELECT {names} FROM devices WHERE {condition} id > ${} ORDER BY id LIMIT ${next}",
            next - 1
        );
        self.rows(&sql, values, device_of)
    }

    fn lines_after(&mut self, after: &str, limit: usize) -> Result<Vec<Line>> {
        lines_after(&mut *self.database, after, limit)
    }

    fn count_devices(&mut self, filter: &Filter) -> Result<u64> {
        let Some((condition, values)) = condition(filter) else { return Ok(0) };
        let sql = format!("SELECT count(*) FROM devices WHERE {condition} NOT is_retired");
        Ok(self.rows(&sql, values, |mut row| row.number())?.pop().unwrap_or(0))
    }

    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>> {
        let Some(column) = attribute_column(attribute) else { return Ok(Vec::new()) };
        // Orders equal counts by the bytes of the value, in both databases.
        let sql = format!(
            "SELECT {column}, count(*) FROM devices WHERE NOT is_retired GROUP BY {column}
                ORDER BY 2 DESC, {column} COLLATE \"C\" LIMIT $1"
        );
        self.rows(&sql, values![limit], |mut row| Ok((row.text()?, row.number()?)))
    }

    fn results_of(&mut self, device: DeviceId, limit: usize) -> Result<Vec<StoredResult>> {
        let sql = "SELECT number, body FROM results WHERE device = $1
            ORDER BY number DESC LIMIT $2";
        let mut results = self.rows(sql, values![device, limit], |mut row| {
            let number = row.long()?;
            let result = Encoded { number, device, body: row.bytes()? }.decode()?;
            Ok(Numbered { number, result })
        })?;
        Files::read(&mut *self.database)?.add_results_of(device, limit, &mut results)?;
        Ok(results.into_iter().map(|kept| kept.result).collect())
    }

    fn visit(&mut self, filter: &Filter, see: &mut dyn FnMut(&StoredResult) -> bool) -> Result<()> {
        self.visit_all(filter, None, see)
    }

    fn visit_measured(
        &mut self,
        filter: &Filter,
        attributes: &[&str],
        see: &mut dyn FnMut(&StoredResult) -> bool,
    ) -> Result<()> {
        let of_filter = filter.attributes.keys().map(String::as_str);
        let attributes: Vec<&str> = attributes.iter().copied().chain(of_filter).collect();
        self.visit_all(filter, Some(&attributes), see)
    }

    fn summed(&mut self, filter: &Filter) -> Result<Summed> {
        Ok(Files::read(&mut *self.database)?.summed(filter))
    }

    fn servers(&mut self) -> Result<Vec<Server>> {
        let mut servers: Vec<Server> =
            self.rows("SELECT body FROM servers", vec![], |mut row| row.json())?;
        servers.sort_by(|one, next| one.address.name.cmp(&next.address.name));
        Ok(servers)
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>> {
        plans(&mut *self.database)
    }

    fn setting(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        raw_setting(&mut *self.database, name)
    }

    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>> {
        let sql = "SELECT at_ms, who, what FROM log ORDER BY number DESC LIMIT $1";
        self.rows(sql, values![limit], |mut row| {
            Ok(LogEntry { at_ms: row.number()?, who: row.text()?, what: row.text()? })
        })
    }
}

/// Returns a filter of devices as a condition, with its values; `None` if the filter has an unknown
/// attribute.
fn condition(filter: &Filter) -> Option<(String, Vec<Value>)> {
    let mut condition = String::new();
    let mut values = Vec::new();
    for (name, value) in &filter.attributes {
        values.push(Value::from(value.as_str()));
        condition = format!("{condition}{} = ${} AND ", attribute_column(name)?, values.len());
    }
    if let Some(since_ms) = filter.silent_since_ms {
        values.push(since_ms.into());
        let place = values.len();
        condition =
            format!("{condition}seen_ms < ${place} AND NOT is_removed AND NOT is_retired AND ");
    }
    Some((condition, values))
}

/// Returns the numbers that represent `devices` in sets of devices. Devices without a number are
/// absent from the map.
pub(super) fn numbers(
    database: &mut dyn Database,
    devices: &BTreeSet<DeviceId>,
) -> Result<HashMap<DeviceId, u32>> {
    let keys: Vec<_> = devices.iter().map(|device| values![*device]).collect();
    let sql = "SELECT device, number FROM numbers WHERE device IN ({rows bytea})";
    let rows = database.query(sql, &keys)?;
    rows.into_iter().map(|mut row| Ok((DeviceId(row.array()?), row.small()?))).collect()
}

/// The keys of a query by their numbers, each with its line of the answer.
type Keys = BTreeMap<i64, (Key, u32)>;

fn keys(view: &mut dyn Database, kind: i16, question: &mut Question<'_>) -> Result<Keys> {
    let (mut keys, mut after) = (Keys::new(), i64::MIN);
    loop {
        let sql = "SELECT number, body FROM keys WHERE number > $1 ORDER BY number LIMIT $2";
        let rows = view.query(sql, &[values![after, PAGE]])?;
        let is_last = rows.len() < PAGE;
        for mut row in rows {
            let (number, key): (_, Key) = (row.long()?, row.json()?);
            after = number;
            if key.of.number() != kind {
                continue;
            }
            if let Some(line) = question.line_of(&key) {
                keys.insert(number, (key, line));
            }
        }
        if is_last {
            return Ok(keys);
        }
    }
}

/// Calls `see` with the cells of a level and kind that have one of `keys`, on the days of a filter,
/// each with its day, hour and key.
fn visit_cells(
    view: &mut dyn Database,
    (level, kind): (Level, i16),
    filter: &Filter,
    keys: &Keys,
    mut see: impl FnMut((u32, u8, &(Key, u32)), &CellBytes) -> Result<()>,
) -> Result<()> {
    let sql = "SELECT day, hour, key, bins, devices, sent, lost, tests FROM sums
        WHERE level = $1 AND kind = $2 AND (day, hour, key) > ($3, $4, $5) AND day < $6
            AND key IN ({numbers $7})
        ORDER BY day, hour, key LIMIT $8";
    let (from, until) = days(filter);
    let numbers: Vec<String> = keys.keys().map(i64::to_string).collect();
    let numbers = numbers.join(",");
    let mut after: (i64, i64, i64) = (from, -1, -1);
    loop {
        let (day, hour, key) = after;
        let values = values![level.number(), kind, day, hour, key, until, numbers.as_str(), PAGE];
        let rows = view.query(sql, &[values])?;
        let is_last = rows.len() < PAGE;
        for mut row in rows {
            after = (row.long()?, row.long()?, row.long()?);
            if let Some(key) = keys.get(&after.2) {
                see((after.0 as u32, after.1 as u8, key), &CellBytes::from_row(row)?)?;
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Calls `see` with the results that were not folded yet, each with the number of its device.
fn visit_late(
    view: &mut dyn Database,
    filter: &Filter,
    see: &mut dyn FnMut(&StoredResult, Option<u32>),
) -> Result<()> {
    let after = rolled_up(view, "")?.unwrap_or_default();
    visit_results(view, filter, after, &mut |view, page| {
        let devices: BTreeSet<DeviceId> = page.iter().map(|(_, stored)| stored.device).collect();
        let numbers = numbers(view, &devices)?;
        for (_, stored) in page {
            see(stored, numbers.get(&stored.device).copied());
        }
        Ok(true)
    })
}

/// Returns the transaction and number of the last result that was folded, in whose order results
/// are folded. `None` if `lock` skipped the row because another keeper is at work.
pub(super) fn rolled_up(database: &mut dyn Database, lock: &str) -> Result<Option<(i64, i64)>> {
    let row = database
        .query(&format!("SELECT last_change, last_number FROM progress{lock}"), &[vec![]])?
        .pop();
    row.map(|mut row| Ok((row.long()?, row.long()?))).transpose()
}

type Page = [(i64, StoredResult)];

/// Calls `see` with pages of results of the filter's plan and days, in the order of their numbers,
/// until it returns false. Begins after the result with `from_change` and `from_number`, and leaves
/// out results that are added meanwhile.
fn visit_results(
    view: &mut dyn Database,
    filter: &Filter,
    (from_change, from_number): (i64, i64),
    see: &mut dyn FnMut(&mut dyn Database, &Page) -> Result<bool>,
) -> Result<()> {
    let (from, until) = days(filter);
    // Without the first number a query planner may scan all results to find the last ones. SQLite
    // searches for a minimum or a maximum only if the query has no other column.
    let sql = "SELECT coalesce((SELECT min(number) FROM results WHERE {later}), 1) - 1,
        coalesce((SELECT max(number) FROM results WHERE {later}), 0)";
    let Some(mut row) = view.query(sql, &[values![from_change, from_number]])?.pop() else {
        return Ok(());
    };
    let (mut after, last) = (row.long()?, row.long()?);
    let plan = filter.plan.as_deref();
    loop {
        let values =
            values![from_change, from_number, after, last, from, until, plan, PAGE, PAGE_BYTES];
        let rows = view.query(RESULTS, &[values])?;
        let result = |row| {
            let row = encoded(row)?;
            Ok((row.number, row.decode()?))
        };
        let page: Vec<_> = rows.into_iter().map(result).collect::<Result<_>>()?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        if !see(view, &page)? {
            return Ok(());
        }
    }
}

fn days(filter: &Filter) -> (i64, i64) {
    (filter.from_day.map_or(0, i64::from), filter.until_day.map_or(i64::MAX, i64::from))
}

/// Selects a page of up to `$8` results: it ends with the result that brings it to `$9` bytes.
/// `day + 0` prevents query planners from using the index on `day`, with which they would sort all
/// results for each page.
const RESULTS: &str = "SELECT r.number, r.device, r.body FROM (
        SELECT number, sum(bytes) OVER (ORDER BY number) - bytes AS before
        FROM (
            SELECT number, length(body) AS bytes FROM results
            WHERE {later than $3} AND number <= $4 AND day + 0 >= $5 AND day + 0 < $6
                AND (CAST($7 AS text) IS NULL OR plan = $7)
            ORDER BY number LIMIT $8
        ) first
    ) measured JOIN results r ON r.number = measured.number
    WHERE before < $9 ORDER BY r.number";
/// Maximum number of rows of a page.
const PAGE: usize = 2_000;
/// Bytes of a page of results, which its last result may exceed.
const PAGE_BYTES: usize = 1 << 20;
