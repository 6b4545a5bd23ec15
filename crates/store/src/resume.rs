//! Going on with a run that was cut short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use underload_disk::{self as disk, Access, Journal};
use underload_record::LatencyPools;
use underload_record::schema::{RunRecord, TrialRecord};

use crate::error::StoreError;
use crate::files::{JOURNAL, PACKETS, PARTS, RECORD, SAMPLES, SERIES, TRIALS, encode, part};
use crate::folder::{Folder, lock};
use crate::read;
use crate::run_data::{RunData, of_trial};
use crate::run_dir::RunDir;

/// Folders with files of single trials, whose names begin with the trial's number.
const OF_TRIALS: [&str; 2] = [PARTS, "exec"];

/// A run under way again.
#[derive(Debug)]
pub struct Resumed {
    /// The directory, with the trials that were finished in it.
    pub directory: RunDir,
    /// Why trials that had been finished are done again, a line each.
    pub again: Vec<String>,
}

impl RunDir {
    /// Goes on with the run in a directory that was cut short, where `record` would begin the same
    /// run: of the same program, scenario, seed, world and arms. Finished trials up to the first
    /// that is damaged stay as they are; what was begun of others is removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unresumable`] where the run is another one, complete, or still under way; else
    /// what the disk said, or what is wrong with the files.
    pub fn resume(path: impl Into<PathBuf>, record: &RunRecord) -> Result<Resumed, StoreError> {
        let path = path.into();
        if !path.join(RECORD).exists() {
            return Err(refused(&path, "there is no run in it"));
        }
        let lock = lock(&path)?.ok_or_else(|| refused(&path, "another program is at it"))?;
        for file in [RECORD, JOURNAL].iter().chain(&OF_TRIALS).map(|name| path.join(name)) {
            disk::refuse_links(&path, &file).map_err(StoreError::io(&file, "change"))?;
        }
        let mut earlier = read::head(&path)?;
        if let Some(reason) = other_than(&earlier, record) {
            return Err(refused(&path, reason));
        }
        let RunData { record: found, samples, mut left_out, .. } = RunDir::read(&path)?;
        let of = |trial: &TrialRecord| of_trial(&samples, trial.index, |it| it.trial);
        // Quantiles of an arm pool the samples of all its trials.
        let lacks = |trial: &TrialRecord| {
            of(trial).is_empty() && trial.latencies.iter().any(|latency| latency.sent > 0)
        };
        if found.trials.iter().any(lacks) {
            return Err(refused(
                &path,
                "it keeps no samples, as a study or a run of more than 2,000 trials; without \
                 --resume, simulated trials come out of the cache",
            ));
        }
        let mut pools = LatencyPools::default();
        let whole = found.trials.iter().enumerate().take_while(|(at, it)| it.index as usize == *at);
        earlier.trials = whole.map(|(_, trial)| trial.clone()).collect();
        if earlier.trials.len() < found.trials.len() {
            let lost = found.trials.len() - earlier.trials.len();
            left_out.push(format!("{lost} after the damage are done again, too"));
        }
        for trial in &earlier.trials {
            pools.add(trial, of(trial));
        }
        earlier.host.resumed.push(record.host.started.clone());
        let (folder, journal_bytes) = tidied(&path, &earlier)?;
        let journal = path.join(JOURNAL);
        let journal = disk::reopen(&journal).map_err(StoreError::io(&journal, "open"))?;
        let journal = Journal::over(journal, journal_bytes);
        let directory = RunDir::new(folder, earlier, pools, journal, Some(lock));
        Ok(Resumed { directory, again: left_out })
    }
}

fn refused(path: &Path, reason: &str) -> StoreError {
    StoreError::Unresumable { path: path.to_owned(), reason: reason.to_owned() }
}

/// What makes a run another one than `wanted`.
fn other_than(found: &RunRecord, wanted: &RunRecord) -> Option<&'static str> {
    let program = |record: &RunRecord| (record.tool_version.clone(), record.commit.clone());
    [
        (found.complete, "the run is complete"),
        (program(found) != program(wanted), "another version of this program began the run"),
        (found.world != wanted.world, "the run is of another world: give --world as it was given"),
        (found.seed != wanted.seed, "the run has another seed"),
        (found.scenario != wanted.scenario, "the scenario or its options are not the same"),
        (found.arms != wanted.arms, "its arms are not the same"),
    ]
    .into_iter()
    .find_map(|(differs, reason)| differs.then_some(reason))
}

/// Brings the directory to the state in which exactly the trials of `record` are finished; gives
/// what of it belongs to the run, and the length of the journal.
fn tidied(path: &Path, record: &RunRecord) -> Result<(Folder, u64), StoreError> {
    let count = record.trials.len();
    // First the lines: a trial without a line is none, whatever lies about of it.
    let journal = path.join(JOURNAL);
    let lines = lines(&journal, &record.trials)?;
    disk::write_whole(&journal, &lines, Access::Usual)
        .map_err(StoreError::io(&journal, "replace"))?;
    // Of a run that was killed at its very end.
    for table in [SAMPLES, SERIES, PACKETS, TRIALS].map(|name| path.join(name)) {
        disk::remove(&table).map_err(StoreError::io(&table, "remove"))?;
    }
    for folder in OF_TRIALS {
        remove_from(&path.join(folder), count)?;
    }
    let head = RunRecord { trials: Vec::new(), ..record.clone() };
    let json = encode(&path.join(RECORD), &head)?;
    disk::write_whole(&path.join(RECORD), &json, Access::Usual)
        .map_err(StoreError::io(&path.join(RECORD), "replace"))?;
    let parts = (0..count)
        .flat_map(|trial| [SAMPLES, SERIES, PACKETS].map(|name| part(path, trial, name)))
        .filter(|part| part.exists());
    let files: BTreeSet<PathBuf> = parts.chain([journal]).collect();
    let folder = Folder::resume(path.to_owned(), files, vec![path.join(PARTS)]);
    folder.folder(PARTS)?;
    Ok((folder, lines.len() as u64))
}

fn lines(path: &Path, trials: &[TrialRecord]) -> Result<Vec<u8>, StoreError> {
    let mut lines = Vec::new();
    for trial in trials {
        serde_json::to_writer(&mut lines, trial)
            .map_err(|source| StoreError::Json { path: path.to_owned(), source })?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Removes the files of trials from `count` on: their names are a number of seven digits, a hyphen
/// and more. Whatever else is there stays.
fn remove_from(folder: &Path, count: usize) -> Result<(), StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(StoreError::io(folder, "read"))?,
    };
    for entry in entries {
        let path = entry.map_err(StoreError::io(folder, "read"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.split_once('-').filter(|(digits, _)| digits.len() >= 7);
        let number = number.and_then(|(digits, _)| digits.parse::<usize>().ok());
        if number.is_some_and(|number| number >= count) {
            disk::remove(&path).map_err(StoreError::io(&path, "remove"))?;
        }
    }
    Ok(())
}
