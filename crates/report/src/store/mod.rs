//! The run directory: written while the run goes on, readable whatever happens to it.
//!
//! While a run is under way the directory holds `run.json` (without trials), `trials.jsonl` (one
//! line per finished trial) and `parts/` (two small Parquet files per trial). A trial's line is
//! written after its parts, so every line is backed by complete files. [`RunDir::finish`] merges
//! the parts and then replaces `run.json` in one rename: a reader sees the run before or after,
//! never between. A run that was killed, or whose disk filled up, reads as the trials it finished,
//! with
//! [`RunRecord::complete`] false.

mod columns;
mod csv;
mod error;
mod packets;
mod read;
mod rows;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

pub use csv::{write_samples_csv, write_series_csv};
pub use error::StoreError;
pub use packets::PacketTable;
pub use read::{RunData, parse_run_json};

use crate::arms::conclude;
use crate::schema::{RunRecord, Sample, Series, TrialRecord};
use crate::summarise::LatencyPools;

const RECORD: &str = "run.json";
const JOURNAL: &str = "trials.jsonl";
/// Trials of a `run.json` with a line for every field, at most.
const MOST_INDENTED: usize = 2_000;
const PARTS: &str = "parts";
const SAMPLES: &str = "samples.parquet";
const SERIES: &str = "series.parquet";
const PACKETS: &str = "packets.parquet";

/// A run directory being written.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    record: RunRecord,
    /// Names of its arms.
    arms: BTreeSet<String>,
    pools: LatencyPools,
    journal: File,
    journal_bytes: u64,
    keeps_samples: bool,
}

impl RunDir {
    /// Starts a run in the directory, which is created where it is missing. Trials, summaries and
    /// [`RunRecord::complete`] of `record` are ignored; the rest stays as given.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] when the directory holds a run already, else what the disk said.
    pub fn create(path: impl Into<PathBuf>, mut record: RunRecord) -> Result<RunDir, StoreError> {
        let path = path.into();
        record.complete = false;
        record.trials.clear();
        record.summaries.clear();
        if path.join(RECORD).exists() {
            return Err(StoreError::Exists { path });
        }
        let parts = path.join(PARTS);
        fs::create_dir_all(&parts).map_err(StoreError::io(&parts, "create"))?;
        let journal_path = path.join(JOURNAL);
        let journal = OpenOptions::new().append(true).create_new(true).open(&journal_path);
        let journal = journal.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.clone() },
            _ => StoreError::io(&journal_path, "create")(error),
        })?;
        write_record(&path, &record)?;
        let (pools, arms) = (LatencyPools::default(), read::arm_names(&record.arms));
        Ok(RunDir { path, record, arms, pools, journal, journal_bytes: 0, keeps_samples: true })
    }

    /// For studies of thousands of trials: samples and series are summarised as they come and not
    /// written to disk. Plots over trials and all tables remain; time plots do not.
    #[must_use]
    pub fn summaries_only(mut self) -> RunDir {
        self.keeps_samples = false;
        self
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record so far, with every trial appended.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// A table for the packets of a trial, to be finished before the trial is appended. A run
    /// without such tables has no `packets.parquet`.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub fn packet_table(&self, trial: u32) -> Result<PacketTable, StoreError> {
        PacketTable::create(part(&self.path, trial as usize, PACKETS))
    }

    /// Keeps a finished trial. Trials come in the order of their index; the slices may be empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Inconsistent`] when the trial, a sample or a series does not belong here, else
    /// what the disk said. After an error every earlier trial is still readable.
    pub fn append_trial(
        &mut self,
        trial: &TrialRecord,
        samples: &[Sample],
        series: &[Series],
    ) -> Result<(), StoreError> {
        let wrong = |reason| StoreError::Inconsistent { path: self.path.clone(), reason };
        let next = self.record.trials.len();
        if trial.index as usize != next {
            return Err(wrong(format!("trial {} where {next} is next", trial.index)));
        }
        read::check_trial(trial, &self.arms).map_err(wrong)?;
        if self.keeps_samples && !samples.is_empty() {
            let columns = rows::from_samples(trial, samples).map_err(wrong)?;
            self.write_part(next, SAMPLES, rows::SAMPLES, &columns)?;
        }
        if self.keeps_samples && series.iter().any(|series| !series.points.is_empty()) {
            let columns = rows::from_series(trial, series).map_err(wrong)?;
            self.write_part(next, SERIES, rows::SERIES, &columns)?;
        }
        self.append_line(trial)?;
        self.pools.add(trial, samples);
        self.record.trials.push(trial.clone());
        Ok(())
    }

    /// Ends the run: summaries, verdicts, merged tables, `run.json`.
    ///
    /// # Errors
    ///
    /// What the disk said. The trials then remain readable as those of an incomplete run.
    pub fn finish(mut self, duration_s: f64) -> Result<RunRecord, StoreError> {
        self.record.host.duration_s = duration_s;
        conclude(&mut self.record, &self.pools);
        self.record.complete = true;
        let tables =
            [(SAMPLES, rows::SAMPLES), (SERIES, rows::SERIES), (PACKETS, packets::PACKETS)];
        for (name, layout) in tables {
            let (merged, temporary) = (self.path.join(name), temporary(&self.path, name));
            let parts = (0..self.record.trials.len()).map(|trial| part(&self.path, trial, name));
            let mut parts = parts.filter(|part| part.exists()).peekable();
            if name == PACKETS && parts.peek().is_none() {
                continue;
            }
            let written = columns::merge(&temporary, layout, parts);
            or_remove(&temporary, written)?;
            fs::rename(&temporary, &merged).map_err(StoreError::io(&merged, "replace"))?;
        }
        write_record(&self.path, &self.record)?;
        let (parts, journal) = (self.path.join(PARTS), self.path.join(JOURNAL));
        fs::remove_dir_all(&parts).map_err(StoreError::io(&parts, "remove"))?;
        fs::remove_file(&journal).map_err(StoreError::io(&journal, "remove"))?;
        Ok(self.record)
    }

    fn write_part(
        &self,
        trial: usize,
        name: &str,
        layout: &columns::Layout,
        columns: &[columns::Column],
    ) -> Result<(), StoreError> {
        let path = part(&self.path, trial, name);
        let written = columns::write(&path, layout, columns);
        or_remove(&path, written)
    }

    fn append_line(&mut self, trial: &TrialRecord) -> Result<(), StoreError> {
        let path = self.path.join(JOURNAL);
        let mut line = serde_json::to_vec(trial)
            .map_err(|source| StoreError::Json { path: path.clone(), source })?;
        line.push(b'\n');
        if let Err(error) = self.journal.write_all(&line) {
            // Half a line would swallow the next one.
            let undone = self.journal.set_len(self.journal_bytes);
            return Err(StoreError::io(&path, "write")(undone.err().unwrap_or(error)));
        }
        self.journal_bytes += line.len() as u64;
        Ok(())
    }
}

fn part(directory: &Path, trial: usize, name: &str) -> PathBuf {
    directory.join(PARTS).join(format!("{trial:07}-{name}"))
}

fn temporary(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.new"))
}

/// Removes a file that could not be written whole, so that a full disk is not kept full by it.
fn or_remove(path: &Path, written: Result<(), StoreError>) -> Result<(), StoreError> {
    if written.is_err() {
        // What failed first is what the caller must hear of.
        let _ = fs::remove_file(path);
    }
    written
}

/// Replaces `run.json` in one step.
fn write_record(directory: &Path, record: &RunRecord) -> Result<(), StoreError> {
    let (path, temporary) = (directory.join(RECORD), temporary(directory, RECORD));
    // Nobody reads thousands of trials, and indented they take twice the room.
    let encode = if record.trials.len() > MOST_INDENTED {
        serde_json::to_vec
    } else {
        serde_json::to_vec_pretty
    };
    let mut json =
        encode(record).map_err(|source| StoreError::Json { path: path.clone(), source })?;
    json.push(b'\n');
    let mut file = File::create(&temporary).map_err(StoreError::io(&temporary, "create"))?;
    let written = file.write_all(&json).and_then(|()| file.sync_all());
    or_remove(&temporary, written.map_err(StoreError::io(&temporary, "write")))?;
    fs::rename(&temporary, &path).map_err(StoreError::io(&path, "replace"))
}
