//! Several run directories as one report: simulated beside measured, today beside last week.

use std::io;
use std::path::{Path, PathBuf};

use underload_exchange::{BYTES_MAX, ImportError, import};
use underload_record::schema::{RunRecord, TrialRecord};
use underload_store::{RunData, RunDir, StoreError};

use crate::reduce::Reducer;
use crate::subject::{Subject, subjects};

/// An error while reading a run for a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: cannot read it", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file has no known format, or is damaged.
    #[error("{}", path.display())]
    Import { path: PathBuf, source: ImportError },
}

/// Maximum number of samples of a run in memory; of larger runs only one trial per variant is read.
const MOST_SAMPLES: u64 = 5_000_000;

/// Reads run directories for a report: all samples of ordinary runs, and of a large run those of
/// the trials that its plots show. A path of a file is read as a file of another tool, see
/// [`import`].
///
/// # Errors
/// Returns the error of [`RunDir::read`] or [`import`] for the first path that fails.
pub fn load(paths: &[impl AsRef<Path>]) -> Result<Vec<RunData>, LoadError> {
    paths.iter().map(|path| load_one(path.as_ref(), &mut |_, _| {})).collect()
}

/// As [`load`], for callers that only show the runs: of a run of more than 2,000 trials without
/// samples and series, the parts that no report shows are dropped from each trial.
pub fn load_to_show(paths: &[impl AsRef<Path>]) -> Result<Vec<RunData>, LoadError> {
    let one = |path: &Path| {
        let mut reducer = None;
        load_one(path, &mut |record, trial| {
            reducer.get_or_insert_with(|| Reducer::new(record)).reduce(trial);
        })
    };
    paths.iter().map(|path| one(path.as_ref())).collect()
}

fn load_one(
    path: &Path,
    reduce: &mut dyn FnMut(&RunRecord, &mut TrialRecord),
) -> Result<RunData, LoadError> {
    if path.exists() && !path.is_dir() {
        return import_file(path);
    }
    let shown = |run: &RunData| {
        let trials = || run.record.trials.iter();
        let sent = trials().flat_map(|trial| &trial.latencies).map(|latency| latency.sent);
        if sent.fold(0, u64::saturating_add) <= MOST_SAMPLES {
            return trials().map(|trial| trial.index).collect();
        }
        let subjects = subjects(std::slice::from_ref(run));
        let shown = subjects.iter().filter_map(Subject::representative);
        shown.map(|trial| trial.index).collect()
    };
    Ok(RunDir::read_reduced(path, reduce, shown)?)
}

/// Reads a file of another tool as a run with one trial.
fn import_file(path: &Path) -> Result<RunData, LoadError> {
    let bytes = underload_disk::read_file(path, BYTES_MAX).map_err(|source| {
        if source.kind() == io::ErrorKind::FileTooLarge {
            return LoadError::Import { path: path.to_owned(), source: ImportError::TooLarge };
        }
        LoadError::Io { path: path.to_owned(), source }
    })?;
    import(&bytes).map_err(|source| LoadError::Import { path: path.to_owned(), source })
}
