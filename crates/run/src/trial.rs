//! The input and the recorded data of one trial, for the simulated and the live world.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use underload_aqm::rng::Rng;
use underload_record::schema::{Sample, Series, TrialRecord};
use underload_store::RunDir;

use crate::own::Own;
use crate::packets::Wanted;
use crate::scenario::{Arm, Path};

/// A trial to run.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// Position in the run, from 0.
    pub index: u32,
    /// The arm to run.
    pub arm: &'a Arm,
    /// Number of the repeat of the arm, from 0.
    pub repeat: u32,
    /// The trial's seed, derived from the run's.
    pub seed: u64,
    /// Whether curves over time are recorded; a study of thousands of trials goes without.
    pub keeps_curves: bool,
}

/// Everything that one trial recorded.
#[derive(Debug, Serialize, Deserialize)]
pub struct TrialData {
    /// Counts, windows and summaries of the trial.
    pub record: TrialRecord,
    /// The samples of every probe packet.
    pub samples: Vec<Sample>,
    /// Time series over the trial, such as the bytes in a queue.
    pub series: Vec<Series>,
    /// The output of the scenario's commands.
    pub outputs: Vec<Output>,
    /// Remarks for the user, one line each.
    pub notes: Vec<String>,
}

/// Output of one command of the scenario: stdout and stderr.
#[derive(Debug, Serialize, Deserialize)]
pub struct Output {
    /// Name of the flow that ran the command.
    pub name: String,
    /// The bytes that the command printed.
    pub text: Vec<u8>,
}

/// Settings that hold for every trial of a run.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Raised to stop trials under way.
    pub stop: &'a AtomicBool,
    /// The run directory that packets and captures are written to; `None` records neither.
    pub directory: Option<&'a RunDir>,
    pub packets: &'a Wanted,
    /// Trials side by side; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    /// Algorithms of the caller's own.
    pub own: &'a Own,
}

/// Leaves out the queue and curves of a direction whose link the scenario does not name: it is
/// wide, and its queue says nothing.
pub(crate) fn keep_bottlenecks(data: &mut TrialData, path: &Path) {
    for (direction, _) in path.lanes().filter(|(_, lane)| lane.is_wide) {
        let prefix = format!("{direction}.");
        data.series.retain(|curve| !curve.name.starts_with(&prefix));
        data.record.bottlenecks.retain(|queue| queue.direction != direction);
    }
}

/// The seed of a repeat, a child stream of the run's. All arms share it: what they differ in is
/// then the arm, not the luck of a random link.
pub(crate) fn repeat_seed(run_seed: u64, repeat: u32) -> u64 {
    Rng::new(run_seed).child("repeat").child(&repeat.to_string()).next_u64()
}
