//! All that is wrong with a file at once.
//!
//! Reading stops at the first fault. Here each fault is noted and then mended in the tables: a key
//! is renamed to what it was meant to be, taken out, or given a value that is accepted; then they
//! are read anew. What was mended is never run. A fault that cannot be mended ends the search, so
//! that nothing is told which only follows from another.

use toml::{Table, Value};
use underload_aqm::registry::LoadFile;

use super::document::Document;
use super::error::{ScenarioError, meant};
use super::place::Step;
use super::{Options, Scenario};

/// Faults of a file that are told, at most.
const MOST_FAULTS: usize = 20;
/// Readings of a file, at most.
const MOST_READINGS: usize = 400;
/// Arms of a file that is read so often, at most: of a larger one the first fault is told.
const MOST_ARMS: usize = 200;

impl Scenario {
    /// What is wrong with a scenario file as these options take it, in the order of its lines;
    /// empty where it is right. Otherwise as [`Scenario::parse_with`].
    pub fn faults(
        text: &str,
        name: &str,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Vec<ScenarioError> {
        let document = match Document::parse_all(text, name) {
            Ok(document) => document,
            Err(errors) => return errors,
        };
        let mut readings = 0;
        let mut read = |root: &Table| {
            readings += 1;
            let mut document = document.clone();
            document.root.clone_from(root);
            let outcome = Self::resolve(document, String::new(), options, load);
            (outcome.err(), readings < MOST_READINGS)
        };
        let mut root = document.root.clone();
        let (mut found, (mut next, _)) = (Vec::new(), read(&root));
        while let Some(fault) = next {
            let is_last = found.len() + 1 == MOST_FAULTS || arms_at_most(&root) > MOST_ARMS;
            let mended = if is_last { None } else { mend(&root, &fault, &mut read) };
            found.push(fault);
            let Some((tables, following)) = mended else { break };
            (root, next) = (tables, following);
        }
        found.sort_by_key(|fault| fault.line);
        found
    }
}

/// The product of all that a file varies.
fn arms_at_most(root: &Table) -> usize {
    let length = |value: Option<&Value>| value.and_then(Value::as_array).map_or(1, Vec::len).max(1);
    let sweeps = root.get("sweep").and_then(Value::as_array).into_iter().flatten();
    let of_sweep = |sweep: &Value| length(sweep.get("values")).max(length(sweep.get("point")));
    sweeps.fold(length(root.get("arm")), |product, sweep| product.saturating_mul(of_sweep(sweep)))
}

/// What replaces a value that is refused, whatever it should be. None is likely to stand elsewhere
/// in the file, where it would make two arms the same.
const VALUES: [&str; 9] = [
    "\"1234ms\"",
    "\"11.7s\"",
    "\"12345kbit\"",
    "\"1300B\"",
    "\"fifo:limit=77777B\"",
    "7",
    "0.7",
    "true",
    "\"steady\"",
];

/// Tables without the fault, and the next fault in them; `None` where no attempt is rid of it.
fn mend(
    root: &Table,
    fault: &ScenarioError,
    read: &mut impl FnMut(&Table) -> (Option<ScenarioError>, bool),
) -> Option<(Table, Option<ScenarioError>)> {
    let mut elsewhere = None;
    for tables in attempts(root, fault) {
        let (next, may_go_on) = read(&tables);
        match next {
            None => return Some((tables, None)),
            Some(next) if is_rid_of(fault, &next) => {
                elsewhere.get_or_insert((tables, Some(next)));
            }
            Some(_) => {}
        }
        if !may_go_on {
            break;
        }
    }
    elsewhere
}

/// Whether the next fault is another one: neither at the same place, nor in it or around it.
fn is_rid_of(fault: &ScenarioError, next: &ScenarioError) -> bool {
    let (one, other) = (&fault.steps, &next.steps);
    !other.is_empty() && !one.starts_with(other) && !other.starts_with(one)
}

fn attempts(root: &Table, fault: &ScenarioError) -> Vec<Table> {
    let Some((Step::Key(last), above)) = fault.steps.split_last() else {
        return without_item(root, &fault.steps).into_iter().collect();
    };
    let mut attempts = Vec::new();
    let mut attempt = |change: &dyn Fn(&mut Table)| {
        let mut tables = root.clone();
        if let Some(table) = table_at(&mut tables, above) {
            change(table);
            attempts.push(tables);
        }
    };
    if let Some(meant) = meant(&fault.problem) {
        // Of a value that is told itself, the key is none that was misspelt.
        let is_told = |value: &Value| {
            value.as_str().is_some_and(|value| fault.problem.contains(&format!("`{value}`")))
        };
        attempt(&|table| {
            if table.get(last).is_some_and(is_told) {
                return;
            }
            if let Some(value) = table.remove(last) {
                table.insert(meant.to_owned(), value);
            }
        });
        let known = format!("value = {}", Value::String(meant.to_owned()));
        attempt(&|table| insert(table, last, &known));
    }
    attempt(&|table| {
        table.remove(last);
    });
    for value in VALUES {
        attempt(&|table| insert(table, last, &format!("value = {value}")));
    }
    attempts
}

fn insert(table: &mut Table, key: &str, text: &str) {
    if let Some(value) = text.parse::<Table>().ok().and_then(|mut read| read.remove("value")) {
        table.insert(key.to_owned(), value);
    }
}

/// The tables without an item of a list, if that is what is wrong.
fn without_item(root: &Table, steps: &[Step]) -> Option<Table> {
    let (Step::Item(index), above) = steps.split_last()? else { return None };
    let (Step::Key(list), above) = above.split_last()? else { return None };
    let mut tables = root.clone();
    let items = table_at(&mut tables, above)?.get_mut(list)?.as_array_mut()?;
    (*index < items.len()).then(|| items.remove(*index))?;
    // Its place in the file would be that of the item after it: only the last one can go.
    (*index == items.len()).then_some(tables)
}

fn table_at<'a>(root: &'a mut Table, steps: &[Step]) -> Option<&'a mut Table> {
    let Some((first, rest)) = steps.split_first() else { return Some(root) };
    let Step::Key(first) = first else { return None };
    let mut value = root.get_mut(first)?;
    for step in rest {
        value = match step {
            Step::Key(key) => value.get_mut(key)?,
            Step::Item(index) => value.get_mut(*index)?,
        };
    }
    value.as_table_mut()
}
