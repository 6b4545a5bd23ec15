//! Questions about what was collected, on a connection of their own.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use postgres::Row;
use postgres::types::ToSql;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{
    Archive, Device, Dimension, Filter, LogEntry, Outcomes, PlanRow, Server, StoreError,
    StoredResult, Sum, Summed,
};

use super::base::location;
use super::session::{Session, Source, Values, told};
use super::transaction::{DEVICE, body_of, device_of, id_of, to_limit};
use crate::store::files::{Files, Numbered};
use crate::store::rollup::{CellBytes, Key, Level, Part, Planned, Question, RUNS, SERIES};
use crate::store::{ROLLED_UP, attribute_column, encode, from_json};

/// Answers questions about a store and changes nothing.
pub struct PostgresArchive {
    source: Source,
    session: Option<Session>,
    planned: Arc<Planned>,
}

impl PostgresArchive {
    pub(super) fn new(source: Source) -> Result<Self, StoreError> {
        let session = source.open()?;
        Ok(Self { source, session: Some(session), planned: Arc::default() })
    }

    /// A question about the series that the plans have.
    fn question<'a>(
        &mut self,
        filter: &'a Filter,
        by: &'a [Dimension],
    ) -> Result<Question<'a>, StoreError> {
        self.planned = planned(self.source.session(&mut self.session)?, &self.planned)?;
        Ok(Question::new(filter, by, Arc::clone(&self.planned)))
    }

    /// Asks within one view of the store, which writers do not change meanwhile.
    fn ask<T>(
        &mut self,
        ask: impl FnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let session = self.source.session(&mut self.session)?;
        session.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let answer = ask(session);
        session.roll_back();
        answer
    }

    /// The files that days were moved to, if any were. To be opened before results are read: as
    /// long as they are open, none is deleted.
    fn files(&mut self) -> Result<Option<Files>, StoreError> {
        let location = location(self.source.session(&mut self.session)?)?;
        location.map(|location| Files::open(&location, None)).transpose()
    }

    fn rows(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        self.source.session(&mut self.session)?.rows(sql, values)
    }
}

impl Archive for PostgresArchive {
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
            visit_cells(view, level, RUNS, filter, &keys, |(_, hour, (key, _)), cell| {
                if question.means_hour(hour, level) {
                    question.add_runs(key, cell)?;
                }
                Ok(())
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
            visit_cells(view, level, SERIES, filter, &keys, |(day, hour, (_, line)), cell| {
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
    ) -> Result<Vec<Device>, StoreError> {
        let Some((condition, values)) = condition(filter, 3) else { return Ok(Vec::new()) };
        let sql =
            format!("SELECT {DEVICE} FROM devices WHERE {condition} id > $1 ORDER BY id LIMIT $2");
        // No identifier is shorter than none.
        let (after, limit) = (after.map(|id| id.0.to_vec()).unwrap_or_default(), to_limit(limit));
        let first: [&(dyn ToSql + Sync); 2] = [&after, &limit];
        let values: Vec<_> = first.into_iter().chain(values).collect();
        self.rows(&sql, &values)?.iter().map(device_of).collect()
    }

    fn count_devices(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        let Some((condition, values)) = condition(filter, 1) else { return Ok(0) };
        let sql = format!("SELECT count(*) FROM devices WHERE {condition} true");
        let rows = self.rows(&sql, &values)?;
        let count = rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0));
        count.map(|count| count as u64).map_err(told)
    }

    fn values(&mut self, attribute: &str, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        let Some(column) = attribute_column(attribute) else { return Ok(Vec::new()) };
        // Texts in the order of their bytes, as everywhere else.
        let sql = format!(
            "SELECT {column}, count(*) FROM devices GROUP BY 1
                ORDER BY 2 DESC, {column} COLLATE \"C\" LIMIT $1"
        );
        let rows = self.rows(&sql, &[&to_limit(limit)])?;
        let value = |row: &Row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as u64));
        rows.iter().map(value).collect::<Result<_, _>>().map_err(told)
    }

    fn results_of(
        &mut self,
        device: DeviceId,
        limit: usize,
    ) -> Result<Vec<StoredResult>, StoreError> {
        let files = self.files()?;
        let sql = "SELECT number, body FROM results WHERE device = $1 AND number < $2
            ORDER BY number DESC LIMIT $3";
        let (mut results, mut before) = (Vec::new(), i64::MAX);
        while results.len() < limit {
            let rows = self.rows(sql, &[&&device.0[..], &before, &to_limit(limit)])?;
            for row in &rows {
                before = row.try_get(0).map_err(told)?;
                let result = encode::decode((before, device), row.try_get(1).map_err(told)?)?;
                let is_moved = files.as_ref().is_some_and(|files| files.has(&result, before));
                if !is_moved && results.len() < limit {
                    results.push(Numbered { number: before, result });
                }
            }
            if rows.len() < limit {
                break;
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
        self.ask(|view| {
            visit_results(view, filter, (i64::MIN, 0), &mut |_, page| {
                Ok(page.iter().all(|(number, stored)| {
                    let is_shown = files.as_ref().is_some_and(|files| files.has(stored, *number));
                    is_shown || !filter.meets(stored) || see(stored)
                }))
            })
        })
    }

    fn summed(&mut self, filter: &Filter) -> Result<Summed, StoreError> {
        Ok(self.files()?.map(|files| files.summed(filter)).unwrap_or_default())
    }

    fn servers(&mut self) -> Result<Vec<Server>, StoreError> {
        let mut servers: Vec<Server> = self
            .rows("SELECT body FROM servers", &[])?
            .iter()
            .map(body_of)
            .collect::<Result<_, _>>()?;
        servers.sort_by(|one, next| one.address.name.cmp(&next.address.name));
        Ok(servers)
    }

    fn plans(&mut self) -> Result<Vec<PlanRow>, StoreError> {
        let rows = self.rows("SELECT body FROM plans", &[])?;
        let mut plans: Vec<PlanRow> = rows.iter().map(body_of).collect::<Result<_, _>>()?;
        plans.sort_by(|one, next| one.name.cmp(&next.name));
        Ok(plans)
    }

    fn log(&mut self, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let sql = "SELECT at_ms, who, what FROM log ORDER BY number DESC LIMIT $1";
        let rows = self.rows(sql, &[&to_limit(limit)])?;
        let entry = |row: &Row| {
            let at_ms = row.try_get::<_, i64>(0)? as u64;
            Ok(LogEntry { at_ms, who: row.try_get(1)?, what: row.try_get(2)? })
        };
        rows.iter().map(entry).collect::<Result<_, _>>().map_err(told)
    }
}

impl fmt::Debug for PostgresArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresArchive").finish_non_exhaustive()
    }
}

/// A condition and the values in it.
type Condition<'a> = (String, Vec<&'a (dyn ToSql + Sync)>);

/// The attributes that a filter asks for as a condition on devices, its values numbered from
/// `first`; `None` where no device has such an attribute.
fn condition(filter: &Filter, first: usize) -> Option<Condition<'_>> {
    let mut condition = String::new();
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::new();
    for (position, (name, value)) in filter.attributes.iter().enumerate() {
        let (column, number) = (attribute_column(name)?, first + position);
        condition = format!("{condition}{column} = ${number} AND ");
        values.push(value);
    }
    Some((condition, values))
}

/// The plans of a store: those that are known, if they are the same.
pub(super) fn planned(
    session: &mut Session,
    known: &Arc<Planned>,
) -> Result<Arc<Planned>, StoreError> {
    let rows = session.rows("SELECT body FROM plans ORDER BY name", &[])?;
    let rows: Vec<PlanRow> = rows.iter().map(body_of).collect::<Result<_, _>>()?;
    Ok(if known.is_of(&rows) { Arc::clone(known) } else { Arc::new(Planned::new(rows)) })
}

/// The last result that was folded, by its transaction and number; results come in that order.
pub(super) fn rolled_up(session: &mut Session) -> Result<(i64, i64), StoreError> {
    let sql = "SELECT last_change, last_number FROM progress WHERE name = $1";
    let rows = session.rows(sql, &[&ROLLED_UP])?;
    let pair = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.first().map_or(Ok((0, 0)), pair).map_err(told)
}

/// The numbers that stand for devices in sets.
pub(super) fn numbers(
    session: &mut Session,
    devices: &BTreeSet<DeviceId>,
) -> Result<HashMap<DeviceId, u32>, StoreError> {
    if devices.is_empty() {
        return Ok(HashMap::new());
    }
    let keys: Vec<&[u8]> = devices.iter().map(|device| &device.0[..]).collect();
    let sql = "SELECT device, number FROM numbers WHERE device = ANY($1)";
    let number = |row: &Row| {
        let number: i64 = row.try_get(1).map_err(told)?;
        Ok((id_of(row.try_get(0).map_err(told)?)?, number as u32))
    };
    session.rows(sql, &[&keys])?.iter().map(number).collect()
}

/// Keys by their numbers that a question means, with the line of the answer.
type Keys = HashMap<i64, (Key, u32)>;

fn keys(view: &mut Session, kind: i16, question: &mut Question<'_>) -> Result<Keys, StoreError> {
    let sql = "SELECT number, body FROM keys WHERE number > $1 ORDER BY number LIMIT $2";
    let (mut keys, mut after) = (HashMap::new(), i64::MIN);
    loop {
        let rows = view.rows(sql, &[&after, &PAGE])?;
        for row in &rows {
            after = row.try_get(0).map_err(told)?;
            let key: Key = from_json(row.try_get(1).map_err(told)?)?;
            if key.of.number() != kind {
                continue;
            }
            if let Part::Line(line) = question.part(&key) {
                keys.insert(after, (key, line));
            }
        }
        if (rows.len() as i64) < PAGE {
            return Ok(keys);
        }
    }
}

/// Shows the cells of a level in the days of a filter that have one of these keys: day, hour, key.
fn visit_cells(
    view: &mut Session,
    level: Level,
    kind: i16,
    filter: &Filter,
    keys: &Keys,
    mut see: impl FnMut((u32, u8, &(Key, u32)), &CellBytes) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql = "SELECT day, hour, key, tests, sent, lost, bins, devices FROM sums
        WHERE level = $1 AND kind = $2 AND day >= $3 AND day < $4
            AND (day, hour, key) > ($5, $6, $7) AND key = ANY($8)
        ORDER BY day, hour, key LIMIT $9";
    let (from, until) = days(filter);
    let numbers: Vec<i64> = keys.keys().copied().collect();
    let mut after: (i64, i16, i64) = (i64::MIN, 0, 0);
    loop {
        let values: Values<'_> =
            &[&level.number(), &kind, &from, &until, &after.0, &after.1, &after.2, &numbers, &PAGE];
        let rows = view.rows(sql, values)?;
        for row in &rows {
            let read = || {
                let place: (i64, i16, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let (tests, sent, lost) = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
                let (bins, devices) = (row.try_get(6)?, row.try_get(7)?);
                Ok((place, CellBytes { bins, devices, sent, lost, tests }))
            };
            let (place, cell) = read().map_err(told)?;
            after = place;
            if let Some(key) = keys.get(&place.2) {
                see((place.0 as u32, place.1 as u8, key), &cell)?;
            }
        }
        if (rows.len() as i64) < PAGE {
            return Ok(());
        }
    }
}

/// Shows results that were not put together with others yet, each with the number of its device.
fn visit_late(
    view: &mut Session,
    filter: &Filter,
    see: &mut dyn FnMut(&StoredResult, Option<u32>),
) -> Result<(), StoreError> {
    let after = rolled_up(view)?;
    visit_results(view, filter, after, &mut |view, page| {
        let devices: BTreeSet<DeviceId> = page.iter().map(|(_, stored)| stored.device).collect();
        let numbers = numbers(view, &devices)?;
        for (_, stored) in page {
            see(stored, numbers.get(&stored.device).copied());
        }
        Ok(true)
    })
}

/// Results with their numbers.
type Page = [(i64, StoredResult)];

/// Shows pages of results of the plan and the days of a filter after the one of that transaction
/// and number, in the order in which they came, until `see` says false.
fn visit_results(
    view: &mut Session,
    filter: &Filter,
    (from_change, from_number): (i64, i64),
    see: &mut dyn FnMut(&mut Session, &Page) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let sql = "SELECT number, device, body FROM (
            SELECT *, sum(length(body)) OVER (ORDER BY number) - length(body) AS before
            FROM (
                SELECT number, device, body FROM results
                WHERE number > $1 AND (change, number) > ($2, $3)
                    AND day + 0 >= $4 AND day + 0 < $5 AND ($6::text IS NULL OR plan = $6)
                ORDER BY number LIMIT $7
            ) first
        ) measured WHERE before < $8 ORDER BY number";
    let (from, until) = days(filter);
    // The sum keeps the planner from the index of days, for each page of which it would sort all.
    // Where the tail is asked for, the planner must not walk through all numbers to get there.
    let first = "SELECT coalesce(min(number), 1) - 1 FROM results
        WHERE (change, number) > ($1, $2)";
    let row = view.rows(first, &[&from_change, &from_number])?;
    let mut after: i64 = row.first().map_or(Ok(0), |row| row.try_get(0)).map_err(told)?;
    loop {
        let values: Values<'_> =
            &[&after, &from_change, &from_number, &from, &until, &filter.plan, &PAGE, &PAGE_BYTES];
        let result = |row: &Row| {
            let device = id_of(row.try_get(1).map_err(told)?)?;
            let number = row.try_get(0).map_err(told)?;
            Ok((number, encode::decode((number, device), row.try_get(2).map_err(told)?)?))
        };
        let rows = view.rows(sql, values)?;
        let page: Vec<(i64, StoredResult)> =
            rows.iter().map(result).collect::<Result<_, StoreError>>()?;
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

/// Rows that are read at a time.
const PAGE: i64 = 2_000;
/// Bytes of results that are read at a time, and those of one more.
const PAGE_BYTES: i64 = 1 << 20;
