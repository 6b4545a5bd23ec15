//! Rollouts in a store: settings with their plans and logs. Every row of such a log is also a row
//! of the operators' log, in the same transaction.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::store::{LogEntry, Result, StoreError, Transaction};

/// A started rollout.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRollout {
    /// The plan's file, unchanged.
    pub text: String,
    pub log: Vec<Row>,
}

/// The setting of a rollout. Each row of its log has a setting, too, so that a row is added in
/// constant time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    text: String,
    rows: usize,
}

/// Returns a setting of the store by its name.
pub type Settings<'a> = &'a mut dyn FnMut(&str) -> Result<Option<Vec<u8>>>;

/// Beginning of the names of the settings of all rollouts.
pub const PREFIX: &str = "rollout/";
/// The setting with the names of all rollouts.
const NAMES: &str = "rollouts";

/// Returns a rollout with its log; `None` if it was not started.
pub fn load(setting: Settings<'_>, name: &str) -> Result<Option<StoredRollout>> {
    let Some(Head { text, rows }) = read(setting, &format!("{PREFIX}{name}"))? else {
        return Ok(None);
    };
    let missing = || StoreError::broken(format!("rollout `{name}`: a row of its log is missing"));
    let row = |number| read(setting, &format!("{PREFIX}{name}/{number}"))?.ok_or_else(missing);
    Ok(Some(StoredRollout { text, log: (0..rows).map(row).collect::<Result<_>>()? }))
}

/// Returns the names of all rollouts, the oldest first.
pub fn names(setting: Settings<'_>) -> Result<Vec<String>> {
    read(setting, NAMES).map(Option::unwrap_or_default)
}

fn read<T: for<'de> Deserialize<'de>>(setting: Settings<'_>, name: &str) -> Result<Option<T>> {
    let broken = |error| StoreError::broken(name).because(error);
    setting(name)?.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(broken)
}

fn write(tx: &mut dyn Transaction, name: &str, value: &impl Serialize) -> Result<()> {
    let broken = |error| StoreError::broken(name).because(error);
    tx.put_setting(name, &serde_json::to_vec(value).map_err(broken)?)
}

/// Appends a row, with its description, to the log of a rollout, which had `known` rows. Returns false if another command
/// has changed the rollout since: then nothing is stored.
pub fn append(
    tx: &mut dyn Transaction,
    name: &str,
    text: &str,
    known: usize,
    (row, words): (&Row, &str),
) -> Result<bool> {
    let head = format!("{PREFIX}{name}");
    let stored: Option<Head> = read(&mut |name| tx.setting(name), &head)?;
    if stored.map_or(0, |stored| stored.rows) != known {
        return Ok(false);
    }
    if known == 0 {
        let mut names = names(&mut |name| tx.setting(name))?;
        names.push(name.to_owned());
        write(tx, NAMES, &names)?;
    }
    write(tx, &format!("{head}/{known}"), row)?;
    write(tx, &head, &Head { text: text.to_owned(), rows: known + 1 })?;
    let what = format!("rollout {name}: {words}");
    tx.log(&LogEntry { at_ms: row.at_ms, who: row.who.clone(), what })?;
    Ok(true)
}
