//! Questions about what was collected, on a connection of their own.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use postgres::Row;
use postgres::types::ToSql;
use underload_fleet::device::DeviceId;
use underload_fleet::store::{
    Archive, Device, Dimension, Filter, LogEntry, Outcomes, PlanRow, Server, StoreError,
    StoredResult, Sum, Summed,
};

use super::base::location;
use super::session::{Session, Source, told};
use super::transaction::{DEVICE, body_of, device_of, id_of, to_limit};
use crate::store::files::{Files, Numbered};
use crate::store::rollup::{CellBytes, Key, Level, Part, Question, RUNS, SERIES};
use crate::store::{ROLLED_UP, attribute_column, encode};

/// Answers questions about a store and changes nothing.
pub struct PostgresArchive {
    source: Source,
    session: Option<Session>,
}

impl PostgresArchive {
    pub(super) fn new(source: Source) -> Result<Self, StoreError> {
        let session = source.open()?;
        Ok(Self { source, session: Some(session) })
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
            for (_, hour, key, cell) in cells(view, level, RUNS, filter)? {
                if let Some((key, _)) = keys.get(&key)
                    && question.means_hour(hour, level)
                {
                    question.add_runs(key, &cell)?;
                }
            }
            visit_late(view, filter, &mut |stored, number| question.add_run(stored, number))?;
            Ok(question.outcomes())
        })
    }

    fn sums(&mut self, filter: &Filter, by: &[Dimension]) -> Result<Vec<Sum>, StoreError> {
        let mut question = Question::new(filter, by);
        let Some(level) = question.level() else {
            self.visit(filter, &mut |stored| {
                question.add_result(stored, None);
                true
            })?;
            return Ok(question.sums());
        };
        self.ask(|view| {
            let keys = keys(view, SERIES, &mut question)?;
            for (day, hour, key, cell) in cells(view, level, SERIES, filter)? {
                match keys.get(&key) {
                    Some((_, line)) if question.means_hour(hour, level) => {
                        question.add_cell((*line, day, hour), &cell)?;
                    }
                    _ => {}
                }
            }
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
                let result = encode::decode(device, row.try_get(1).map_err(told)?)?;
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
            visit_results(view, filter, 0, &mut |number, stored| {
                let is_shown = files.as_ref().is_some_and(|files| files.has(stored, number));
                is_shown || !filter.meets(stored) || see(stored)
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

/// The first transaction whose results were not put together with others.
pub(super) fn rolled_up(session: &mut Session) -> Result<i64, StoreError> {
    let rows = session.rows("SELECT change FROM progress WHERE name = $1", &[&ROLLED_UP])?;
    rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(told)
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
fn keys(
    view: &mut Session,
    kind: i16,
    question: &mut Question<'_>,
) -> Result<HashMap<i64, (Key, u32)>, StoreError> {
    let mut keys = HashMap::new();
    for row in view.rows("SELECT body, number FROM keys", &[])? {
        let key: Key = body_of(&row)?;
        if key.of.number() != kind {
            continue;
        }
        if let Part::Line(line) = question.part(&key) {
            keys.insert(row.try_get(1).map_err(told)?, (key, line));
        }
    }
    Ok(keys)
}

/// A cell with its day, hour and the number of its key.
type StoredCell = (u32, u8, i64, CellBytes);

/// The cells of a level in the days of a filter.
fn cells(
    view: &mut Session,
    level: Level,
    kind: i16,
    filter: &Filter,
) -> Result<Vec<StoredCell>, StoreError> {
    let sql = "SELECT day, hour, key, tests, sent, lost, bins, devices FROM sums
        WHERE level = $1 AND kind = $2 AND day >= $3 AND day < $4";
    let (from, until) = days(filter);
    let cell = |row: &Row| {
        let (day, hour): (i64, i16) = (row.try_get(0)?, row.try_get(1)?);
        let (tests, sent, lost) = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        let (bins, devices) = (row.try_get(6)?, row.try_get(7)?);
        let cell = CellBytes { bins, devices, sent, lost, tests };
        Ok((day as u32, hour as u8, row.try_get(2)?, cell))
    };
    let rows = view.rows(sql, &[&level.number(), &kind, &from, &until])?;
    rows.iter().map(cell).collect::<Result<_, _>>().map_err(told)
}

/// Shows results that were not put together with others yet, each with the number of its device.
fn visit_late(
    view: &mut Session,
    filter: &Filter,
    see: &mut dyn FnMut(&StoredResult, Option<u32>),
) -> Result<(), StoreError> {
    let from = rolled_up(view)?;
    let mut late = Vec::new();
    visit_results(view, filter, from, &mut |_, stored| {
        late.push(stored.clone());
        true
    })?;
    let devices: BTreeSet<DeviceId> = late.iter().map(|stored| stored.device).collect();
    let numbers = numbers(view, &devices)?;
    for stored in &late {
        see(stored, numbers.get(&stored.device).copied());
    }
    Ok(())
}

/// Shows results of the plan and the days of a filter of that transaction and later ones, in the
/// order in which they came, until `see` says false.
fn visit_results(
    view: &mut Session,
    filter: &Filter,
    from_change: i64,
    see: &mut dyn FnMut(i64, &StoredResult) -> bool,
) -> Result<(), StoreError> {
    let sql = "SELECT number, device, body FROM results WHERE number > $1 AND change >= $2
        AND day + 0 >= $3 AND day + 0 < $4 AND ($5::text IS NULL OR plan = $5)
        ORDER BY number LIMIT $6";
    let (from, until) = days(filter);
    // The sum keeps the planner from the index of days, for each page of which it would sort all.
    // Where the tail is asked for, the planner must not walk through all numbers to get there.
    let first = "SELECT coalesce(min(number), 1) - 1 FROM results WHERE change >= $1";
    let row = view.rows(first, &[&from_change])?;
    let mut after: i64 = row.first().map_or(Ok(0), |row| row.try_get(0)).map_err(told)?;
    loop {
        let rows = view.rows(sql, &[&after, &from_change, &from, &until, &filter.plan, &PAGE])?;
        for row in &rows {
            after = row.try_get(0).map_err(told)?;
            let device = id_of(row.try_get(1).map_err(told)?)?;
            if !see(after, &encode::decode(device, row.try_get(2).map_err(told)?)?) {
                return Ok(());
            }
        }
        if (rows.len() as i64) < PAGE {
            return Ok(());
        }
    }
}

fn days(filter: &Filter) -> (i64, i64) {
    (filter.from_day.map_or(0, i64::from), filter.until_day.map_or(i64::MAX, i64::from))
}

/// Results that are read at a time.
const PAGE: i64 = 2_000;
