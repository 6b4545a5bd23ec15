//! Writing a run directory, trial by trial.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::{io, mem};

use underload_disk::{self as disk, Access, GrowingFile, Journal};
use underload_record::judgement::Judgement;
use underload_record::schema::{RunRecord, Sample, Series, TrialRecord};
use underload_record::{Conclusion, LatencyPools, conclude};

use crate::error::{Result, StoreError};
use crate::files::{JOURNAL, PARTS, RECORD, SAMPLES, SERIES, TRIALS, checked_line, encode, part};
use crate::folder::{self, Folder};
use crate::records::{self, NewRecords};
use crate::rows::{Points, Samples, from_samples, from_series};
use crate::run_data::{RunData, check_trial, variant_names};
use crate::spool::Spool;
use crate::table::{Column, Layout, Table as _, TableWriter};
use crate::table_file::{self, not_written};
use crate::trials;

/// Maximum number of trials in `run.json`; if there are more, they are in `trials.parquet`.
pub(crate) const MOST_IN_RECORD: usize = 2_000;
/// Maximum number of names that [`RunDir::create_unused`] tries.
const MOST_NAMES: u32 = 10_000;

/// A run directory that is written.
#[derive(Debug)]
pub struct RunDir {
    folder: Folder,
    record: RunRecord,
    variants: BTreeSet<String>,
    trials: usize,
    /// Running summary of all trials; `None` while they are few enough to be in the record.
    conclusion: Option<Conclusion>,
    pools: LatencyPools,
    journal: Journal,
    keeps_samples: bool,
    /// [`MOST_IN_RECORD`]; less in tests.
    pub(crate) most_in_record: usize,
    /// Parts that may not be on the disk yet.
    unsynced: Vec<PathBuf>,
    /// Prevents other programs from resuming the run; `None` if the file system has no locks.
    _lock: Option<File>,
}

impl RunDir {
    /// Checks that a run may begin in a directory, before anything that takes time: it must be
    /// empty or missing.
    ///
    /// # Errors
    /// Returns [`StoreError::Exists`] if it has a run, and [`StoreError::Foreign`] if it has
    /// anything else.
    pub fn check_vacant(path: impl AsRef<Path>) -> Result<()> {
        folder::check_vacant(path.as_ref())
    }

    /// Starts a run in the directory, which is created if it is missing. Trials, summaries and
    /// [`RunRecord::complete`] of `record` are ignored.
    ///
    /// # Errors
    /// As [`RunDir::check_vacant`]; also [`StoreError::Busy`] if another program has the lock. Then
    /// nothing has changed.
    pub fn create(path: impl Into<PathBuf>, mut record: RunRecord) -> Result<RunDir> {
        record.complete = false;
        record.trials.clear();
        record.summaries.clear();
        let folder = Folder::create(path.into())?;
        let lock = match folder::lock(folder.path()) {
            Err(error @ StoreError::Busy { .. }) => return Err(error),
            // A file system without locks is accepted.
            lock => lock.ok(),
        };
        match begin(&folder, &record) {
            Ok(journal) => Ok(Self::new(folder, record, LatencyPools::default(), journal, lock)),
            Err(error) => {
                // An error of this clean-up is ignored: the caller needs the error that caused it.
                let _ = folder.remove_all();
                Err(error)
            }
        }
    }

    /// Returns a run with the trials of `record`, whose samples are in `pools` and whose lines are
    /// in the journal.
    pub(crate) fn new(
        folder: Folder,
        record: RunRecord,
        pools: LatencyPools,
        journal: Journal,
        lock: Option<File>,
    ) -> RunDir {
        let mut run = RunDir {
            folder,
            variants: variant_names(&record.variants),
            trials: record.trials.len(),
            record,
            conclusion: None,
            pools,
            journal,
            keeps_samples: true,
            most_in_record: MOST_IN_RECORD,
            unsynced: Vec::new(),
            _lock: lock,
        };
        run.drop_too_many();
        run
    }

    /// As [`RunDir::create`]; if `path` is taken, in `path-2`, `path-3` and so on, because two runs
    /// that begin in the same second have the same name.
    pub fn create_unused(path: &Path, record: &RunRecord) -> Result<RunDir> {
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

    /// Summarises samples and series without storing them, for studies of thousands of trials. Only
    /// plots over time need them.
    #[must_use]
    pub fn summaries_only(mut self) -> RunDir {
        self.keeps_samples = false;
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a file of one trial in a folder of the run, such as a capture. It must not exist.
    pub fn begin_file(&self, folder: &str, name: &str) -> Result<GrowingFile> {
        self.folder.begin(&self.folder.folder(folder)?.join(name))
    }

    /// Returns the record up to now: with all appended trials, or without trials once there are
    /// more than 2,000.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    pub fn trials(&self) -> usize {
        self.trials
    }

    /// Stores a finished trial. Trials must be in order of their index; the slices may be empty.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if the trial, a sample or a series does not belong to
    /// the run. After any error all earlier trials are readable.
    pub fn append_trial(
        &mut self,
        trial: &TrialRecord,
        samples: &[Sample],
        series: &[Series],
    ) -> Result<()> {
        let path = self.path().to_owned();
        let wrong = |reason: String| StoreError::inconsistent(&path, reason);
        let next = self.trials;
        if trial.index as usize != next {
            return Err(wrong(format!("trial {}; expected trial {next}", trial.index)));
        }
        check_trial(trial, &self.variants).map_err(wrong)?;
        if self.keeps_samples && !samples.is_empty() {
            let columns = from_samples(trial, samples).map_err(wrong)?;
            self.write_part(SAMPLES, Samples::LAYOUT, &columns)?;
        }
        if self.keeps_samples && series.iter().any(|series| !series.points.is_empty()) {
            let columns = from_series(trial, series).map_err(wrong)?;
            self.write_part(SERIES, Points::LAYOUT, &columns)?;
        }
        self.append_line(trial)?;
        self.pools.add(trial, samples);
        self.trials += 1;
        match &mut self.conclusion {
            Some(conclusion) => conclusion.add(trial),
            None => self.record.trials.push(trial.clone()),
        }
        self.drop_too_many();
        Ok(())
    }

    /// Moves trials from the record to the running summary once they are too many for the record.
    fn drop_too_many(&mut self) {
        if self.record.trials.len() > self.most_in_record {
            let mut conclusion = Conclusion::new(&self.record);
            for trial in &mem::take(&mut self.record.trials) {
                conclusion.add(trial);
            }
            self.conclusion = Some(conclusion);
        }
    }

    pub fn set_judgement(&mut self, judgement: Judgement, verdict: Vec<String>) {
        self.record.judgement = Some(judgement);
        self.record.verdict = verdict;
    }

    /// Syncs all appended trials to the disk.
    pub fn sync(&mut self) -> Result<()> {
        if !self.unsynced.is_empty() {
            let parts = self.path().join(PARTS);
            disk::sync_files(&self.unsynced)
                .and_then(|()| disk::sync_directory(&parts))
                .map_err(StoreError::io(&parts, "write"))?;
            self.unsynced.clear();
        }
        self.journal.sync().map_err(StoreError::io(&self.path().join(JOURNAL), "write"))
    }

    /// Completes the run: summaries, verdicts, merged tables, `run.json`. Returns the record as
    /// [`RunDir::record`] does. After an error, the trials are readable as those of an incomplete
    /// run.
    pub fn finish(mut self, duration_s: f64) -> Result<RunRecord> {
        self.record.host.duration_s = duration_s;
        let conclusion = self.conclusion.take();
        if conclusion.is_none() {
            conclude(&mut self.record, &self.pools);
        }
        self.close(conclusion)
    }

    /// Writes a run in memory to a directory, which must be new or empty. An incomplete run stays
    /// incomplete. Removes everything again after an error.
    pub fn write(path: impl Into<PathBuf>, run: &RunData) -> Result<()> {
        let mut directory = RunDir::create(path, run.record.clone())?;
        for trial in &run.record.trials {
            let series = run.series_of_trial(trial.index);
            let appended = directory.append_trial(trial, run.samples_of(trial.index), series);
            if let Err(error) = appended {
                // An error of this clean-up is ignored: the caller needs the error that caused it.
                let _ = directory.abandon();
                return Err(error);
            }
        }
        if !run.record.complete {
            return directory.sync();
        }
        // Computes no new summaries, because the samples of a large run are not stored.
        directory.record = run.record.clone();
        if directory.conclusion.is_some() {
            directory.record.trials.clear();
        }
        directory.close(None).map(drop)
    }

    /// Writes tables and `run.json`, with the summaries of `conclusion` unless the record has them.
    fn close(mut self, conclusion: Option<Conclusion>) -> Result<RunRecord> {
        self.record.complete = true;
        let path = self.folder.path();
        for (name, layout) in [(SAMPLES, Samples::LAYOUT), (SERIES, Points::LAYOUT)] {
            let parts = (0..self.trials).map(|trial| part(path, trial, name));
            let parts = parts.filter(|part| part.exists());
            table_file::merge(&path.join(name), layout, parts)?;
        }
        let [trials, record, journal] = [TRIALS, RECORD, JOURNAL].map(|name| path.join(name));
        let json = if self.trials > self.most_in_record {
            let mut table = NewRecords::begin(&trials)?;
            let (bytes, count) = (self.journal.bytes(), self.trials);
            let spool = Spool { path: &journal, bytes, trials: count, variants: &self.variants };
            spool.read(&mut |trial| table.push(&trial))?;
            table.claim()?;
            if let Some(conclusion) = conclusion {
                conclusion.finish(&mut self.record, &self.pools);
            }
            records::encode(&record, &self.record, count)?
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

    /// Discards the run: removes the files that it created, and the directory if it created it and
    /// no other files are in it. A resumed run stays unchanged. Returns the first error.
    pub fn abandon(self) -> Result<()> {
        if self.record.host.resumed.is_empty() { self.folder.remove_all() } else { Ok(()) }
    }

    fn write_part(&mut self, name: &str, layout: &Layout, columns: &[Column]) -> Result<()> {
        let path = part(self.path(), self.trials, name);
        let file = self.folder.begin(&path)?;
        let written = TableWriter::new(file, layout).and_then(|mut table| {
            table.write(columns)?;
            table.finish().map(drop)
        });
        self.folder.or_remove(&path, written.map_err(not_written(&path)))?;
        self.unsynced.push(path);
        Ok(())
    }

    fn append_line(&mut self, trial: &TrialRecord) -> Result<()> {
        let path = self.path().join(JOURNAL);
        let line = checked_line(trial).map_err(StoreError::json(&path))?;
        self.journal.append(&line).map_err(StoreError::io(&path, "write"))
    }
}

/// Claims the directory with `run.json`, then creates what the first trial needs.
fn begin(folder: &Folder, record: &RunRecord) -> Result<Journal> {
    let path = folder.path().join(RECORD);
    folder.write(&path, &encode(&path, record)?).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: folder.path().to_owned() },
        _ => StoreError::io(&path, "create")(error),
    })?;
    folder.folder(PARTS)?;
    let journal = folder.begin(&folder.path().join(JOURNAL))?;
    disk::sync_directory(folder.path()).map_err(StoreError::io(folder.path(), "write"))?;
    Ok(Journal::over(journal, 0))
}

#[cfg(test)]
pub(crate) mod tests;
