//! Settings of a run.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::packets::Point;
use underload_scenario::own::Own;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorldChoice {
    /// Live if the machine allows it, or else simulated.
    Auto,
    #[default]
    Sim,
    Live,
    /// Linux's own TCP and queues, in the virtual time of a guest kernel.
    Kernel,
    /// Linux's own TCP before our queues, in the virtual time of a guest kernel.
    KernelTcp,
}

impl WorldChoice {
    /// Every choice with its name and a description.
    pub const ALL: [(Self, &str, &str); 5] = [
        (
            Self::Auto,
            "auto",
            "Live if the machine allows it, otherwise simulated; prints which and why",
        ),
        (Self::Sim, "sim", "Simulated, in virtual time"),
        (Self::Live, "live", "Network namespaces with the kernel's TCP, in real time"),
        (
            Self::Kernel,
            "kernel",
            "Linux's own TCP and queues, in the virtual time of a guest kernel: the same seed, the \
             same bytes. See `underload kernel`",
        ),
        (Self::KernelTcp, "kernel-tcp", "As kernel, with our queues and links instead of Linux's"),
    ];
}

/// Where trials, samples and series of a run are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Destination {
    /// Returns the record with its summaries, without samples and series.
    #[default]
    Memory,
    /// Returns samples and series beside the record.
    Caller,
    /// Writes this run directory, which must be new or empty.
    Directory(PathBuf),
    /// Continues the incomplete run of this directory.
    Resume(PathBuf),
    /// Writes a new run directory in this folder, named after the scenario and the time.
    NewIn(PathBuf),
}

/// Settings of a run. The default runs all trials in virtual time and returns the record.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub world: WorldChoice,
    pub destination: Destination,
    /// Whether simulated trials are read from the user's cache and stored in it.
    pub uses_cache: bool,
    /// Parallel simulated trials, which do not change the result; `None` for one per core.
    pub threads: Option<NonZeroUsize>,
    /// Points at which simulated packets are captured; only in a run directory.
    pub captures: Vec<Point>,
    /// The caller's algorithms that the scenario names.
    pub own: Own,
    /// Set by the caller, from any thread, to stop the run and the trials under way.
    pub stop: Arc<AtomicBool>,
    /// The commit that the program was built from; empty if it is unknown.
    pub commit: &'static str,
}
