//! Runs with too many trials for `run.json`, whose records are in `trials.parquet`.
//!
//! The record of 26,000 trials has a hundred megabytes as JSON, which every reader would have to
//! parse at once. `run.json` of such a run has everything but the trials, and [`TrialsIn`] in their
//! place. The table has one more column, with the JSON objects of
//! `trials`, which compress well. It is written and read some rows at a time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use underload_record::schema::{RunRecord, TrialRecord};

use crate::error::{Result, StoreError};
use crate::files::{self, RECORD, TRIALS};
use crate::run_data::check_trial;
use crate::table::{Cell, Column, Kind, Table as _};
use crate::table_file::{self, NewTable, damaged};
use crate::trials::Trials;

/// Rows of a row group: some megabytes of text.
const GROUP_ROWS: usize = 1 << 10;
/// Rows that are read at once.
const BATCH_ROWS: usize = 1 << 6;

/// The column with the JSON objects of the trials.
const RECORDS: &str = "record";

/// The table with the trials of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrialsIn {
    /// Always `trials.parquet`; readers reject any other name.
    file: String,
    count: usize,
}

/// The content of `run.json` of a run whose trials are in another file.
#[derive(Debug, Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    record: &'a RunRecord,
    trials_in: TrialsIn,
}

/// Returns `run.json` of a run whose `count` trials are in the table.
pub(crate) fn encode(path: &Path, record: &RunRecord, count: usize) -> Result<Vec<u8>> {
    files::encode(path, &Head { record, trials_in: TrialsIn { file: TRIALS.to_owned(), count } })
}

/// Returns the columns of every `trials.parquet`, and the column of records.
fn layout() -> Vec<(&'static str, Kind)> {
    let mut layout = Trials::LAYOUT.to_vec();
    layout.push((RECORDS, Kind::Text));
    layout
}

/// A table that is written.
pub(crate) struct NewRecords {
    path: PathBuf,
    table: NewTable,
}

impl NewRecords {
    pub(crate) fn begin(path: &Path) -> Result<Self> {
        let table = NewTable::begin(path, &layout())?.with_group_rows(GROUP_ROWS);
        Ok(Self { path: path.to_owned(), table })
    }

    pub(crate) fn push(&mut self, trial: &TrialRecord) -> Result<()> {
        let record = serde_json::to_string(trial).map_err(StoreError::json(&self.path))?;
        self.table.push(Trials::cells(&trial).chain([Cell::from(record)]))
    }

    /// Completes and names the table, unless a file of its name exists.
    pub(crate) fn claim(self) -> Result<()> {
        self.table.claim()
    }
}

/// Reads the trials of a run in `directory` with these variants, of at most `limit` bytes together, and
/// calls `reduce` with each.
pub(crate) fn read(
    directory: &Path,
    trials_in: &TrialsIn,
    variants: &BTreeSet<String>,
    limit: u64,
    reduce: &mut dyn FnMut(&mut TrialRecord),
) -> Result<Vec<TrialRecord>> {
    let TrialsIn { file, count } = trials_in;
    if file != TRIALS {
        let reason = format!("its trials are in {file:?}; expected {TRIALS:?}");
        return Err(StoreError::inconsistent(&directory.join(RECORD), reason));
    }
    let path = directory.join(TRIALS);
    let mut reader = table_file::open(&path, &layout(), |column| column == RECORDS)?;
    let (mut trials, mut bytes) = (Vec::new(), 0);
    while let Some(columns) = reader.next(BATCH_ROWS).map_err(damaged(&path))? {
        let Some(Column::Text(texts)) = columns.last() else { continue };
        for text in texts {
            bytes += text.len() as u64;
            if bytes > limit || trials.len() == *count {
                let reason = format!("more than {count} trials or {limit} bytes of them");
                return Err(StoreError::damaged(&path, reason));
            }
            let trial = trial(text.data(), trials.len(), variants);
            let mut trial = trial.map_err(damaged(&path))?;
            reduce(&mut trial);
            trials.push(trial);
        }
    }
    if trials.len() < *count {
        let reason = format!("{} trials; run.json has {count}", trials.len());
        return Err(StoreError::damaged(&path, reason));
    }
    Ok(trials)
}

fn trial(text: &[u8], position: usize, variants: &BTreeSet<String>) -> Result<TrialRecord, String> {
    let trial = serde_json::from_slice::<TrialRecord>(text);
    let trial = trial.map_err(|error| format!("row {position}: {error}"))?;
    if trial.index as usize != position {
        return Err(format!("trial {} is at position {position}", trial.index));
    }
    check_trial(&trial, variants)?;
    Ok(trial)
}

#[cfg(test)]
mod tests;
