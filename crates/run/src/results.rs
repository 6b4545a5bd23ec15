//! Where the trials of a run go: a run directory, or memory.

use std::path::PathBuf;

use underload_record::schema::{RunRecord, Sample, Series, TrialRecord};
use underload_record::{LatencyPools, conclude};
use underload_store::{RunData, RunDir, StoreError};

use crate::error::Remains;

/// A run that came to its end.
#[derive(Debug)]
pub struct Run {
    /// The record of the run, with the summary of every arm. More than 2,000 trials are in the
    /// directory and not in here, so that memory does not grow with them:
    /// [`RunDir::read_record`] gives them, too.
    pub record: RunRecord,
    /// The run directory with the trials, samples and curves; `None` if the destination was
    /// [`crate::Destination::Memory`] or [`crate::Destination::Caller`].
    pub directory: Option<PathBuf>,
    /// The samples of all probes. Empty unless the destination was
    /// [`crate::Destination::Caller`] and [`crate::keeps_samples`] is true for the scenario.
    pub samples: Vec<Sample>,
    /// All curves; empty under the same conditions as `samples`.
    pub series: Vec<Series>,
}

impl Run {
    /// The run as if it had been read from a run directory.
    pub fn into_data(self) -> RunData {
        let Self { record, samples, series, .. } = self;
        RunData { record, samples, series, left_out: Vec::new() }
    }
}

/// The trials of a run under way.
#[derive(Debug)]
pub(crate) enum Results {
    /// On disk.
    Directory(Box<RunDir>),
    /// Nowhere else: samples are pooled as they come.
    Memory(Box<Memory>),
}

#[derive(Debug)]
pub(crate) struct Memory {
    record: RunRecord,
    pools: LatencyPools,
    /// Samples and curves, where the caller wants the trials; empty where there are too many.
    kept: Option<Kept>,
    keeps_samples: bool,
}

/// Samples and curves.
type Kept = (Vec<Sample>, Vec<Series>);

impl Memory {
    /// What came of the trials so far, with the samples and curves that were kept.
    fn conclude(mut self) -> (RunRecord, Option<Kept>) {
        conclude(&mut self.record, &self.pools);
        (self.record, self.kept)
    }
}

impl Results {
    pub(crate) fn in_memory(record: RunRecord, keeps_samples: bool) -> Self {
        let kept = keeps_samples.then(Default::default);
        Self::Memory(Box::new(Memory {
            record,
            pools: LatencyPools::default(),
            kept,
            keeps_samples,
        }))
    }

    /// For studies of thousands of trials: samples and curves are not kept one by one.
    pub(crate) fn summaries_only(self) -> Self {
        match self {
            Self::Directory(directory) => Self::Directory(Box::new(directory.summaries_only())),
            Self::Memory(memory) => {
                Self::Memory(Box::new(Memory { keeps_samples: false, ..*memory }))
            }
        }
    }

    /// The run directory, where there is one.
    pub(crate) fn directory(&self) -> Option<&RunDir> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Memory(_) => None,
        }
    }

    /// Trials that are finished.
    pub(crate) fn trials(&self) -> usize {
        match self {
            Self::Directory(directory) => directory.trials(),
            Self::Memory(memory) => memory.record.trials.len(),
        }
    }

    /// Keeps a finished trial. Trials come in the order of their index.
    pub(crate) fn append(
        &mut self,
        trial: &TrialRecord,
        samples: &[Sample],
        series: &[Series],
    ) -> Result<(), StoreError> {
        match self {
            Self::Directory(directory) => directory.append_trial(trial, samples, series),
            Self::Memory(memory) => {
                memory.pools.add(trial, samples);
                memory.record.trials.push(trial.clone());
                if let Some((kept_samples, kept_series)) = &mut memory.kept
                    && memory.keeps_samples
                {
                    kept_samples.extend_from_slice(samples);
                    kept_series.extend_from_slice(series);
                }
                Ok(())
            }
        }
    }

    /// Brings the trials so far to the disk.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Directory(directory) => directory.sync(),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Completes the record of a run and writes it.
    pub(crate) fn finish(self, duration_s: f64) -> Result<Run, StoreError> {
        match self {
            Self::Directory(directory) => {
                let path = directory.path().to_owned();
                let record = directory.finish(duration_s)?;
                let (samples, series) = Default::default();
                Ok(Run { record, directory: Some(path), samples, series })
            }
            Self::Memory(mut memory) => {
                memory.record.host.duration_s = duration_s;
                memory.record.complete = true;
                let (record, kept) = memory.conclude();
                let (samples, series) = kept.unwrap_or_default();
                Ok(Run { record, directory: None, samples, series })
            }
        }
    }

    /// Ends a run that is not: a directory without a trial goes away.
    pub(crate) fn break_off(self) -> Remains {
        let trials = self.trials();
        match self {
            Self::Directory(directory) => {
                let path: PathBuf = directory.path().to_owned();
                match trials {
                    0 => Remains { unremoved: directory.abandon().err(), ..Remains::default() },
                    _ => Remains { trials, directory: Some(path), ..Remains::default() },
                }
            }
            Self::Memory(memory) => {
                if memory.kept.is_none() || trials == 0 {
                    return Remains { trials, ..Remains::default() };
                }
                let (record, kept) = memory.conclude();
                let (samples, series) = kept.unwrap_or_default();
                let data = RunData { record, samples, series, left_out: Vec::new() };
                Remains { trials, data: Some(Box::new(data)), ..Remains::default() }
            }
        }
    }
}
