//! Where the trials of a run go: a run directory, or memory.

use std::path::PathBuf;

use underload_record::schema::{RunRecord, Sample, Series, TrialRecord};
use underload_record::{LatencyPools, conclude};
use underload_store::{RunDir, StoreError};

use crate::error::Remains;

/// The trials of a run under way.
#[derive(Debug)]
pub(crate) enum Results {
    /// On disk.
    Directory(Box<RunDir>),
    /// Nowhere else: samples are pooled as they come, curves are dropped.
    Memory(Box<Memory>),
}

#[derive(Debug)]
pub(crate) struct Memory {
    record: RunRecord,
    pools: LatencyPools,
}

impl Results {
    pub(crate) fn in_memory(record: RunRecord) -> Self {
        Self::Memory(Box::new(Memory { record, pools: LatencyPools::default() }))
    }

    /// For studies of thousands of trials: samples and curves are not kept one by one.
    pub(crate) fn summaries_only(self) -> Self {
        match self {
            Self::Directory(directory) => Self::Directory(Box::new(directory.summaries_only())),
            Self::Memory(memory) => Self::Memory(memory),
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
            Self::Directory(directory) => directory.record().trials.len(),
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
    pub(crate) fn finish(self, duration_s: f64) -> Result<RunRecord, StoreError> {
        match self {
            Self::Directory(directory) => directory.finish(duration_s),
            Self::Memory(memory) => {
                let Memory { mut record, pools } = *memory;
                record.host.duration_s = duration_s;
                conclude(&mut record, &pools);
                record.complete = true;
                Ok(record)
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
                    _ => Remains { trials, directory: Some(path), unremoved: None },
                }
            }
            Self::Memory(_) => Remains { trials, ..Remains::default() },
        }
    }
}
