//! The input and the recorded data of one trial, the same in all worlds.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use underload_record::schema::{Sample, Series, TrialRecord};
use underload_scenario::own::Own;
use underload_scenario::{Path, Variant};
use underload_store::RunDir;

use crate::packets::Point;

#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// Position in the run, from 0.
    pub index: u32,
    pub variant: &'a Variant,
    /// Number of the repeat of the variant, from 0.
    pub repeat: u32,
    /// The trial's seed, derived from the run's.
    pub seed: u64,
    /// Whether time series are recorded; those of thousands of trials are not.
    pub keeps_curves: bool,
}

/// Everything that one trial recorded.
#[derive(Debug, Serialize, Deserialize)]
pub struct TrialData {
    pub record: TrialRecord,
    pub samples: Vec<Sample>,
    /// Time series over the trial, such as the bytes in a queue.
    pub series: Vec<Series>,
    /// The outputs of the scenario's commands.
    pub outputs: Vec<Output>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

/// The output of one command of the scenario: stdout and stderr.
#[derive(Debug, Serialize, Deserialize)]
pub struct Output {
    /// Name of the flow that ran the command.
    pub name: String,
    pub text: Vec<u8>,
}

#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Set to stop trials under way.
    pub stop: &'a AtomicBool,
    /// The run directory for packets and captures; `None` to record neither.
    pub directory: Option<&'a RunDir>,
    pub captures: &'a [Point],
    /// Parallel trials; `None` for one per core.
    pub threads: Option<NonZeroUsize>,
    pub own: &'a Own,
}

impl TrialData {
    /// Drops queue and series of a direction without a named link, which is no bottleneck.
    pub(crate) fn drop_wide_links(&mut self, path: &Path) {
        for (direction, _) in path.lanes().filter(|(_, lane)| lane.is_wide) {
            let prefix = format!("{direction}.");
            self.series.retain(|curve| !curve.name.starts_with(&prefix));
            self.record.bottlenecks.retain(|queue| queue.direction != direction);
        }
    }
}
