//! How a scenario is run.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::own::Own;
use crate::packets::Wanted;

/// The choice of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorldChoice {
    /// Live where the machine allows it, else simulated.
    Auto,
    /// Virtual time.
    #[default]
    Sim,
    /// Network namespaces, the kernel's own TCP, real time.
    Live,
    /// As `Live`, in the virtual time of a kernel of its own.
    Kernel,
}

/// Where trials, samples and curves of a run are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Destination {
    /// Nowhere: the record alone comes back, with its summaries.
    #[default]
    Memory,
    /// Nowhere: samples and curves come back beside the record.
    Caller,
    /// This run directory, which must be new or empty.
    Directory(PathBuf),
    /// This run directory, whose run was cut short: the trials that it lacks are done.
    Resume(PathBuf),
    /// A new run directory in this folder, named after the scenario and the time.
    NewIn(PathBuf),
}

/// How a scenario is run. The default computes all of it in virtual time and keeps the record
/// alone.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The world that is to execute the scenario.
    pub world: WorldChoice,
    /// Where the trials are kept.
    pub destination: Destination,
    /// Whether simulated trials of earlier runs of this program are taken from the user's cache,
    /// and those of this run put there.
    pub uses_cache: bool,
    /// Simulated trials side by side; the result is the same. `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    /// Simulated packets to record; only into a run directory.
    pub packets: Wanted,
    /// Algorithms of the caller's own that the scenario names.
    pub own: Own,
    /// Raised by the caller, from any thread, to stop the run and the trials under way.
    pub stop: Arc<AtomicBool>,
    /// The commit that the program was built from; empty: unknown.
    pub commit: &'static str,
}
