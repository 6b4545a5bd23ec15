//! Run directories: written while the run goes on, readable whatever happens to them.
//!
//! [`RunDir`] writes one, [`RunData`] is one in memory. What is drawn of it is another crate's.
//!
//! While a run is under way the directory holds `run.json` (without trials), `trials.jsonl` (one
//! line per finished trial) and `parts/` (two small Parquet files per trial). A trial's line is
//! written after its parts, so every line is backed by complete files. [`RunDir::finish`] merges
//! the parts and then replaces `run.json` in one rename: a reader sees the run before or after,
//! never between. A run that was killed, or whose disk filled up, reads as the trials it finished,
//! with [`RunRecord::complete`] false. [`RunDir::sync`] brings the parts to the disk, then the
//! lines; what a power cut damaged of the trials since the last time is left out when it is read,
//! and named.
//!
//! Of a run of many trials `run.json` has no trials and names `trials.parquet`, which has them
//! (module `records`). While such a run is under way its trials are in the journal alone: what they
//! come to is added up as they come, and once more when they go from there into the table (module
//! `spool`), so that memory does not grow with their number.
//!
//! A sweep of a million trials has a directory of its own kind: [`sweep`]. Runs that follow each
//! other for months are a [`series`], out of which old ones can be taken.
//!
//! A run begins in an empty or new directory only, and removes nothing but what it made itself.
//! [`RunDir::resume`] goes on with one that was cut short.

mod columns;
mod csv;
mod error;
mod folder;
pub mod host;
mod packets;
mod read;
mod records;
mod resume;
mod rows;
pub mod series;
mod spool;
pub mod sweep;
mod tables;
mod trials;
pub mod values;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::path::{Path, PathBuf};

use serde::Serialize;
use underload_disk::{self as disk, Access, GrowingFile};
use underload_record::schema::{RunRecord, Sample, Series, TrialRecord};
use underload_record::stats::Pass;
use underload_record::{Conclusion, LatencyPools, conclude};

pub use columns::{Column, Kind};
pub use csv::{write_samples_csv, write_series_csv};
pub use error::StoreError;
pub use packets::PacketTable;
pub use read::{RunData, parse_run_json};
pub use resume::Resumed;
pub use tables::{Table, parquet_table, table_columns, table_groups};
pub use trials::write_trials_csv;

use folder::Folder;
use records::NewRecords;
use spool::Spool;

const RECORD: &str = "run.json";
const JOURNAL: &str = "trials.jsonl";
/// Trials that `run.json` holds, at most; more are in `trials.parquet`.
const MOST_IN_RECORD: usize = 2_000;
const PARTS: &str = "parts";
/// Names that are tried where one is taken.
const MOST_NAMES: u32 = 10_000;
const SAMPLES: &str = "samples.parquet";
const SERIES: &str = "series.parquet";
const PACKETS: &str = "packets.parquet";
const TRIALS: &str = "trials.parquet";

/// A run directory being written.
#[derive(Debug)]
pub struct RunDir {
    folder: Folder,
    record: RunRecord,
    /// Names of its arms.
    arms: BTreeSet<String>,
    /// How many were appended.
    trials: usize,
    /// What the trials come to that are too many for the record.
    conclusion: Option<Conclusion>,
    pools: LatencyPools,
    journal: GrowingFile,
    journal_bytes: u64,
    keeps_samples: bool,
    /// [`MOST_IN_RECORD`]; less in tests.
    most_in_record: usize,
    /// Parts that may not be on the disk yet.
    unsynced: Vec<PathBuf>,
    /// Nobody else goes on with the run meanwhile; `None` where the file system has no locks.
    _lock: Option<File>,
}

impl RunDir {
    /// Whether a run may begin in a directory: it is empty, or not there yet. To be asked before
    /// anything that takes time.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] when it holds a run, [`StoreError::Foreign`] when it holds anything
    /// else, what the disk said when it cannot be looked at.
    pub fn check_vacant(path: impl AsRef<Path>) -> Result<(), StoreError> {
        folder::check_vacant(path.as_ref())
    }

    /// Starts a run in the directory, which is created where it is missing. Trials, summaries and
    /// [`RunRecord::complete`] of `record` are ignored; the rest stays as given.
    ///
    /// # Errors
    ///
    /// As [`RunDir::check_vacant`]; then nothing has changed.
    pub fn create(path: impl Into<PathBuf>, mut record: RunRecord) -> Result<RunDir, StoreError> {
        record.complete = false;
        record.trials.clear();
        record.summaries.clear();
        let folder = Folder::create(path.into())?;
        // Whoever cannot lock still runs: only a second program on the same run would miss it.
        let lock = folder::lock(folder.path()).unwrap_or_default();
        match begin(&folder, &record) {
            Ok(journal) => {
                let (pools, arms) = (LatencyPools::default(), read::arm_names(&record.arms));
                Ok(RunDir {
                    folder,
                    record,
                    arms,
                    trials: 0,
                    conclusion: None,
                    pools,
                    journal,
                    journal_bytes: 0,
                    keeps_samples: true,
                    most_in_record: MOST_IN_RECORD,
                    unsynced: Vec::new(),
                    _lock: lock,
                })
            }
            Err(error) => {
                // What failed first is what the caller must hear of.
                let _ = folder.remove_all();
                Err(error)
            }
        }
    }

    /// As [`RunDir::create`], in `path-2`, `path-3`, ... where `path` is taken: two runs that begin
    /// in the same second have the same name.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn create_unused(path: &Path, record: &RunRecord) -> Result<RunDir, StoreError> {
        let numbered = |number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{number}"));
            PathBuf::from(name)
        };
        let names = std::iter::once(path.to_owned()).chain((2..MOST_NAMES).map(numbered));
        for name in names {
            match RunDir::create(name, record.clone()) {
                Err(error) if error.is_occupied() => {}
                created => return created,
            }
        }
        Err(StoreError::Exists { path: path.to_owned() })
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
        self.folder.path()
    }

    /// Begins a file of a trial's own in a folder of the run, for example a capture. What is there
    /// already stays, and is an error.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn begin_file(&self, folder: &str, name: &str) -> Result<GrowingFile, StoreError> {
        self.folder.begin(&self.folder.folder(folder)?.join(name))
    }

    /// The record so far, with every trial appended; of more than 2,000, with none of them.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// How many trials were appended.
    pub fn trials(&self) -> usize {
        self.trials
    }

    /// A table for the packets of a trial, to be finished before the trial is appended. A run
    /// without such tables has no `packets.parquet`.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn packet_table(&self, trial: u32) -> Result<PacketTable, StoreError> {
        let path = part(self.path(), trial as usize, PACKETS);
        let file = self.folder.begin(&path)?;
        PacketTable::new(path, file)
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
        let path = self.path().to_owned();
        let wrong = |reason| StoreError::Inconsistent { path: path.clone(), reason };
        let next = self.trials;
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
        self.trials += 1;
        match &mut self.conclusion {
            Some(conclusion) => conclusion.add(trial, Pass::Sums),
            None => self.record.trials.push(trial.clone()),
        }
        self.let_go_of_many();
        Ok(())
    }

    /// Too many trials for the record are in the journal alone.
    fn let_go_of_many(&mut self) {
        if self.record.trials.len() > self.most_in_record {
            let mut conclusion = Conclusion::new(&self.record);
            for trial in &mem::take(&mut self.record.trials) {
                conclusion.add(trial, Pass::Sums);
            }
            self.conclusion = Some(conclusion);
        }
    }

    /// Keeps the sentences that the run's record ends with, see [`RunRecord::verdict`].
    pub fn set_verdict(&mut self, verdict: Vec<String>) {
        self.record.verdict = verdict;
    }

    /// Brings the trials appended so far to the disk.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if !self.unsynced.is_empty() {
            let parts = self.path().join(PARTS);
            disk::sync_files(&self.unsynced)
                .and_then(|()| disk::sync_directory(&parts))
                .map_err(StoreError::io(&parts, "write"))?;
            self.unsynced.clear();
        }
        self.journal.sync().map_err(StoreError::io(&self.path().join(JOURNAL), "write"))
    }

    /// Ends the run: summaries, verdicts, merged tables, `run.json`. Gives the record, as
    /// [`RunDir::record`] does: more than 2,000 trials are read with [`RunDir::read_record`].
    ///
    /// # Errors
    ///
    /// What the disk said. The trials then remain readable as those of an incomplete run.
    pub fn finish(mut self, duration_s: f64) -> Result<RunRecord, StoreError> {
        self.record.host.duration_s = duration_s;
        let conclusion = self.conclusion.take();
        if conclusion.is_none() {
            conclude(&mut self.record, &self.pools);
        }
        self.close(conclusion)
    }

    /// Writes a run that came from elsewhere into a directory, which must be new or empty. An
    /// incomplete one stays what it is.
    ///
    /// # Errors
    ///
    /// As [`RunDir::create`] and [`RunDir::append_trial`]. Nothing of it remains then.
    pub fn write(path: impl Into<PathBuf>, run: &RunData) -> Result<(), StoreError> {
        let mut directory = RunDir::create(path, run.record.clone())?;
        for trial in &run.record.trials {
            let series = run.series_of_trial(trial.index);
            let appended = directory.append_trial(trial, run.samples_of(trial.index), series);
            if let Err(error) = appended {
                // What failed first is what the caller must hear of.
                let _ = directory.abandon();
                return Err(error);
            }
        }
        if !run.record.complete {
            return directory.sync();
        }
        // Not concluded again: of a large run the samples behind the summaries are gone.
        directory.record = run.record.clone();
        if directory.conclusion.is_some() {
            directory.record.trials.clear();
        }
        directory.close(None).map(drop)
    }

    /// Writes what remains, with the summaries of `conclusion` where the record has none yet.
    fn close(mut self, mut conclusion: Option<Conclusion>) -> Result<RunRecord, StoreError> {
        self.record.complete = true;
        let path = self.folder.path();
        let tables =
            [(SAMPLES, rows::SAMPLES), (SERIES, rows::SERIES), (PACKETS, packets::PACKETS)];
        for (name, layout) in tables {
            let parts = (0..self.trials).map(|trial| part(path, trial, name));
            let mut parts = parts.filter(|part| part.exists()).peekable();
            if name == PACKETS && parts.peek().is_none() {
                continue;
            }
            columns::merge(&path.join(name), layout, parts)?;
        }
        let [trials, record, journal] = [TRIALS, RECORD, JOURNAL].map(|name| path.join(name));
        let json = if self.trials > self.most_in_record {
            let mut table = NewRecords::begin(&trials)?;
            let (bytes, count) = (self.journal_bytes, self.trials);
            let spool = Spool { path: &journal, bytes, trials: count, arms: &self.arms };
            spool.read(&mut |trial| {
                if let Some(conclusion) = &mut conclusion {
                    conclusion.add(&trial, Pass::Distances);
                }
                table.push(trial)
            })?;
            table.claim()?;
            if let Some(conclusion) = conclusion {
                conclusion.finish(&mut self.record, &self.pools);
            }
            records::encode(&record, &mut self.record, count)?
        } else {
            trials::write(&trials, &self.record.trials)?;
            encode(&record, &self.record)?
        };
        disk::write_whole(&record, &json, Access::Usual)
            .map_err(StoreError::io(&record, "replace"))?;
        let parts = path.join(PARTS);
        self.folder.remove(|file| file == journal || file.starts_with(&parts))?;
        Ok(self.record)
    }

    /// Ends a run that has nothing worth keeping: removes the files that it made, and the directory
    /// if it made that and nobody put anything else into it. One that was resumed stays.
    ///
    /// # Errors
    ///
    /// What the disk said of the first that could not be removed.
    pub fn abandon(self) -> Result<(), StoreError> {
        if self.record.host.resumed.is_empty() { self.folder.remove_all() } else { Ok(()) }
    }

    fn write_part(
        &mut self,
        trial: usize,
        name: &str,
        layout: &columns::Layout,
        columns: &[columns::Column],
    ) -> Result<(), StoreError> {
        let path = part(self.path(), trial, name);
        let file = self.folder.begin(&path)?;
        let written = columns::write(&path, file, layout, columns);
        self.folder.or_remove(&path, written)?;
        self.unsynced.push(path);
        Ok(())
    }

    fn append_line(&mut self, trial: &TrialRecord) -> Result<(), StoreError> {
        let path = self.path().join(JOURNAL);
        let mut line = serde_json::to_vec(trial)
            .map_err(|source| StoreError::Json { path: path.clone(), source })?;
        line.push(b'\n');
        if let Err(error) = self.journal.write_all(&line) {
            // Half a line would swallow the next one.
            let undone = self.journal.cut(self.journal_bytes);
            return Err(StoreError::io(&path, "write")(undone.err().unwrap_or(error)));
        }
        self.journal_bytes += line.len() as u64;
        Ok(())
    }
}

fn part(directory: &Path, trial: usize, name: &str) -> PathBuf {
    directory.join(PARTS).join(format!("{trial:07}-{name}"))
}

/// Claims the directory with `run.json`, then makes what the first trial needs.
fn begin(folder: &Folder, record: &RunRecord) -> Result<GrowingFile, StoreError> {
    let path = folder.path().join(RECORD);
    folder.write(&path, &encode(&path, record)?).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: folder.path().to_owned() },
        _ => StoreError::io(&path, "create")(error),
    })?;
    folder.folder(PARTS)?;
    let journal = folder.begin(&folder.path().join(JOURNAL))?;
    disk::sync_directory(folder.path()).map_err(StoreError::io(folder.path(), "write"))?;
    Ok(journal)
}

fn encode(path: &Path, record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut json = serde_json::to_vec_pretty(record)
        .map_err(|source| StoreError::Json { path: path.to_owned(), source })?;
    json.push(b'\n');
    Ok(json)
}

#[cfg(test)]
mod tests;
