//! Resumes an incomplete run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use underload_disk::{self as disk, Access, Journal};
use underload_record::LatencyPools;
use underload_record::schema::{RunRecord, TrialRecord, World};

use crate::error::StoreError;
use crate::files::{JOURNAL, PARTS, RECORD, SAMPLES, SERIES, TRIALS, checked_line, encode, part};
use crate::folder::{self, Folder};
use crate::read;
use crate::run_data::{RunData, of_trial};
use crate::run_dir::RunDir;

/// Folders with files of single trials, whose names begin with the trial's number.
const TRIAL_FOLDERS: [&str; 2] = [PARTS, "flows"];

#[derive(Debug)]
pub struct Resumed {
    /// The directory, with the finished trials.
    pub directory: RunDir,
    /// Why finished trials are run again, one line each.
    pub again: Vec<String>,
}

impl RunDir {
    /// Resumes an incomplete run if `record` would begin the same run: with the same program,
    /// scenario, seed, world and variants. Finished trials before the first damaged one are kept
    /// unchanged; files of other trials are removed.
    ///
    /// # Errors
    /// Returns [`StoreError::Unresumable`] if the run differs or is complete, and
    /// [`StoreError::Busy`] if another program writes it.
    pub fn resume(path: impl Into<PathBuf>, record: &RunRecord) -> Result<Resumed, StoreError> {
        let path = path.into();
        if !path.join(RECORD).exists() {
            return Err(refused(&path, "there is no run in it"));
        }
        let lock = folder::lock(&path)?;
        for file in [RECORD, JOURNAL].iter().chain(&TRIAL_FOLDERS).map(|name| path.join(name)) {
            disk::refuse_links(&path, &file).map_err(StoreError::io(&file, "change"))?;
        }
        let mut earlier = read::head(&path)?;
        if let Some(reason) = difference(&earlier, record) {
            return Err(refused(&path, reason));
        }
        let RunData { record: found, samples, mut left_out, .. } = RunDir::read(&path)?;
        let of = |trial: &TrialRecord| of_trial(&samples, trial.index, |it| it.trial);
        // Quantiles of a variant need the samples of all its trials.
        let lacks = |trial: &TrialRecord| {
            of(trial).is_empty() && trial.latencies.iter().any(|latency| latency.sent > 0)
        };
        if found.trials.iter().any(lacks) {
            return Err(refused(
                &path,
                "it has no samples, like every study and run of more than 2,000 trials; without \
                 --resume, simulated trials come from the cache",
            ));
        }
        let mut pools = LatencyPools::default();
        let whole = found.trials.iter().enumerate().take_while(|(at, it)| it.index as usize == *at);
        earlier.trials = whole.map(|(_, trial)| trial.clone()).collect();
        if earlier.trials.len() < found.trials.len() {
            let lost = found.trials.len() - earlier.trials.len();
            left_out.push(format!("{lost} trials after the damage are run again, too"));
        }
        for trial in &earlier.trials {
            pools.add(trial, of(trial));
        }
        earlier.host.resumed.push(record.host.started.clone());
        let (folder, journal_bytes) = keep_only(&path, &earlier)?;
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

/// Returns why a run cannot be continued as `wanted`.
fn difference(found: &RunRecord, wanted: &RunRecord) -> Option<&'static str> {
    let program = |record: &RunRecord| (record.tool_version.clone(), record.commit.clone());
    [
        (found.complete, "the run is complete"),
        (program(found) != program(wanted), "another version of this program began the run"),
        (found.world != wanted.world, "the run is of another world; expected an equal --world"),
        (is_other_kernel(found, wanted), "the run has trials of another kernel"),
        (found.seed != wanted.seed, "the run has another seed"),
        (found.scenario != wanted.scenario, "the scenario or its options differ"),
        (found.variants != wanted.variants, "its variants differ"),
    ]
    .into_iter()
    .find_map(|(differs, reason)| differs.then_some(reason))
}

/// Whether the kernels of two runs in a kernel's virtual time differ, and so their trials.
fn is_other_kernel(found: &RunRecord, wanted: &RunRecord) -> bool {
    matches!(wanted.world, World::Kernel | World::KernelTcp)
        && found.host.kernel != wanted.host.kernel
}

/// Removes all but the trials of `record` from the directory. Returns the files of the run, and the
/// length of the journal.
fn keep_only(path: &Path, record: &RunRecord) -> Result<(Folder, u64), StoreError> {
    let count = record.trials.len();
    // The lines are cut first: a trial without its line does not count, whatever other files exist.
    let journal = path.join(JOURNAL);
    let lines = lines(&journal, &record.trials)?;
    disk::write_whole(&journal, &lines, Access::Usual)
        .map_err(StoreError::io(&journal, "replace"))?;
    // Tables exist if the run was killed while it was completed.
    for table in [SAMPLES, SERIES, TRIALS].map(|name| path.join(name)) {
        disk::remove(&table).map_err(StoreError::io(&table, "remove"))?;
    }
    for folder in TRIAL_FOLDERS {
        remove_from(&path.join(folder), count)?;
    }
    let head = RunRecord { trials: Vec::new(), ..record.clone() };
    let json = encode(&path.join(RECORD), &head)?;
    disk::write_whole(&path.join(RECORD), &json, Access::Usual)
        .map_err(StoreError::io(&path.join(RECORD), "replace"))?;
    let parts = (0..count)
        .flat_map(|trial| [SAMPLES, SERIES].map(|name| part(path, trial, name)))
        .filter(|part| part.exists());
    let files: BTreeSet<PathBuf> = parts.chain([journal]).collect();
    let folder = Folder::resume(path.to_owned(), files, vec![path.join(PARTS)]);
    folder.folder(PARTS)?;
    Ok((folder, lines.len() as u64))
}

fn lines(path: &Path, trials: &[TrialRecord]) -> Result<Vec<u8>, StoreError> {
    let mut lines = Vec::new();
    for trial in trials {
        lines.extend(checked_line(trial).map_err(StoreError::json(path))?);
    }
    Ok(lines)
}

/// Removes the files of trials from `count` on, whose names are a number of seven digits, a hyphen
/// and more. Other files stay.
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
