//! Several run directories as one report: simulated beside measured, today beside last week.

use std::path::Path;

use underload_record::schema::TrialRecord;

use crate::exchange::import_file;
use crate::{RunData, RunDir, StoreError};

/// Samples that a report keeps in memory per run before it drops to one trial per arm.
const MOST_SAMPLES: u64 = 5_000_000;

/// Reads run directories for a report: every sample of ordinary runs; of a large one only the
/// samples and series of the trials that its plots show.
///
/// A path that is a file is read as a file of another tool, see [`crate::import`].
///
/// [`crate::render`], [`crate::table`] and [`crate::summary_lines`] take the result, and name each
/// arm with its world when there are several runs.
///
/// # Errors
///
/// As [`RunDir::read`], for the first directory that cannot be read.
pub fn load(paths: &[impl AsRef<Path>]) -> Result<Vec<RunData>, StoreError> {
    paths.iter().map(|path| load_one(path.as_ref())).collect()
}

fn load_one(path: &Path) -> Result<RunData, StoreError> {
    if path.is_file() {
        return import_file(path);
    }
    let record = RunDir::read_record(path)?;
    let sent = record.trials.iter().flat_map(|trial| &trial.latencies).map(|latency| latency.sent);
    if sent.sum::<u64>() <= MOST_SAMPLES {
        return RunDir::read(path);
    }
    let data = RunData { record, samples: Vec::new(), series: Vec::new(), left_out: Vec::new() };
    let runs = [data];
    let shown: Vec<u32> = crate::subject::subjects(&runs)
        .iter()
        .filter_map(|subject| subject.representative().map(|trial| trial.index))
        .collect();
    RunDir::read_trials(path, |trial: &TrialRecord| shown.contains(&trial.index))
}
