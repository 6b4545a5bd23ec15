//! The destination of a run's trials: a run directory, or memory.

use std::path::PathBuf;

use underload_record::schema::{RunRecord, Sample, Series, TrialRecord};
use underload_record::{LatencyPools, conclude};
use underload_store::{RunData, RunDir, StoreError};

use crate::error::Remains;

#[derive(Debug)]
pub struct Run {
    /// The record of the run, with the summary of every variant. If there are more than 2,000 trials,
    /// they are in the directory only, to limit memory: [`RunDir::read_record`] reads them.
    pub record: RunRecord,
    /// The run directory with trials, samples and series; `None` if the destination was
    /// [`crate::Destination::Memory`] or [`crate::Destination::Caller`].
    pub directory: Option<PathBuf>,
    /// The samples of all probes. Empty unless the destination was
    /// [`crate::Destination::Caller`] and [`crate::keeps_samples`] is true for the scenario.
    pub samples: Vec<Sample>,
    /// All series; empty under the same conditions as `samples`.
    pub series: Vec<Series>,
}

impl Run {
    /// Returns the run as if it were read from a run directory.
    pub fn into_data(self) -> RunData {
        let Self { record, samples, series, .. } = self;
        RunData { record, samples, series, left_out: Vec::new() }
    }
}

/// The trials of a run under way.
pub(crate) enum Results {
    Directory(Box<RunDir>),
    Memory(Box<Memory>),
}

pub(crate) struct Memory {
    record: RunRecord,
    pools: LatencyPools,
    samples: Vec<Sample>,
    series: Vec<Series>,
    /// Whether the caller wants the trials, also of a run that was cut short.
    is_for_caller: bool,
    keeps_samples: bool,
}

impl Memory {
    /// Summarises the trials so far.
    fn conclude(mut self) -> RunData {
        conclude(&mut self.record, &self.pools);
        let Self { record, samples, series, .. } = self;
        RunData { record, samples, series, left_out: Vec::new() }
    }
}

impl Results {
    pub(crate) fn in_memory(record: RunRecord, is_for_caller: bool) -> Self {
        Self::Memory(Box::new(Memory {
            record,
            pools: LatencyPools::default(),
            samples: Vec::new(),
            series: Vec::new(),
            is_for_caller,
            keeps_samples: is_for_caller,
        }))
    }

    /// Stores summaries of the trials without samples and series, for studies of thousands.
    pub(crate) fn summaries_only(self) -> Self {
        match self {
            Self::Directory(directory) => Self::Directory(Box::new(directory.summaries_only())),
            Self::Memory(memory) => {
                Self::Memory(Box::new(Memory { keeps_samples: false, ..*memory }))
            }
        }
    }

    pub(crate) fn directory(&self) -> Option<&RunDir> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Memory(_) => None,
        }
    }

    pub(crate) fn trials(&self) -> usize {
        match self {
            Self::Directory(directory) => directory.trials(),
            Self::Memory(memory) => memory.record.trials.len(),
        }
    }

    /// Stores a finished trial. Trials come in the order of their index.
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
                if memory.keeps_samples {
                    memory.samples.extend_from_slice(samples);
                    memory.series.extend_from_slice(series);
                }
                Ok(())
            }
        }
    }

    /// Syncs the trials so far to the disk.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Directory(directory) => directory.sync(),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn finish(self, duration_s: f64) -> Result<Run, StoreError> {
        match self {
            Self::Directory(directory) => {
                let path = directory.path().to_owned();
                let record = directory.finish(duration_s)?;
                let (samples, series) = (Vec::new(), Vec::new());
                Ok(Run { record, directory: Some(path), samples, series })
            }
            Self::Memory(mut memory) => {
                memory.record.host.duration_s = duration_s;
                memory.record.complete = true;
                let RunData { record, samples, series, .. } = memory.conclude();
                Ok(Run { record, directory: None, samples, series })
            }
        }
    }

    /// Ends an incomplete run. Removes a run directory without a trial.
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
                let is_wanted = memory.is_for_caller && trials > 0;
                let data = is_wanted.then(|| Box::new(memory.conclude()));
                Remains { trials, data, ..Remains::default() }
            }
        }
    }
}
