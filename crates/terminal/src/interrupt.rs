//! Ctrl-C: the trial under way ends, what was completed is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Stopped;

/// Whether the user asked to stop. A second request ends the program at once; the namespaces and
/// all that runs in them end with it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    /// The number of the signal that asked first.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Watches for Ctrl-C and SIGTERM from now on.
    pub fn watch() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        held_back(|| {
            for signal in [SIGINT, SIGTERM] {
                let (requested, number) = (&interrupt.requested, &interrupt.signal);
                // In this order: the first signal finds the flag down, the second finds it up;
                // whoever finds it up finds the number there, too.
                flag::register_conditional_default(signal, Arc::clone(requested))
                    .and_then(|_| flag::register_usize(signal, Arc::clone(number), signal as usize))
                    .and_then(|_| flag::register(signal, Arc::clone(requested)))
                    .context("watching for Ctrl-C")?;
            }
            Ok(())
        })?;
        Ok(interrupt)
    }

    /// The flag itself, for loops that look at it.
    pub fn flag(&self) -> &AtomicBool {
        &self.requested
    }

    /// The flag itself, for a thread or for something that outlives this borrow.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Whether it was asked for.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// An outcome as the user knows it: what fails once a stop was asked for fails because of that,
    /// and the exit status says so.
    pub fn explain<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        outcome.map_err(|error| if self.is_requested() { self.stopped(error) } else { error })
    }

    /// Marks an error as the end that was asked for.
    pub fn stopped(&self, error: anyhow::Error) -> anyhow::Error {
        error.context(Stopped::by(self.signal.load(Ordering::Relaxed)))
    }
}

/// Registers what answers Ctrl-C and SIGTERM while neither is delivered to this thread: one that
/// comes when half of it is there would be lost, and waits instead. Before other threads start.
#[cfg(unix)]
pub fn held_back(register: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal};

    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("holding back Ctrl-C")?;
    let outcome = register();
    before.thread_set_mask().context("letting Ctrl-C through")?;
    outcome
}

/// Signals are no such thing here: what answers Ctrl-C is registered as it is.
#[cfg(not(unix))]
pub fn held_back(register: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    register()
}
