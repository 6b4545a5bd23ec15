//! Ctrl-C and SIGTERM: the current trial ends, and completed trials are stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Stopped;

/// Whether the user asked to stop. A second signal ends the program and all namespaces.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Watches for Ctrl-C and SIGTERM from now on.
    pub fn watch() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        held_back(|| {
            for signal in [SIGINT, SIGTERM] {
                let (requested, number) = (&interrupt.requested, &interrupt.signal);
                // The order matters: the first signal finds the flag unset, the second finds it
                // set, and a reader that finds it set also finds the number.
                flag::register_conditional_default(signal, Arc::clone(requested))
                    .and_then(|_| flag::register_usize(signal, Arc::clone(number), signal as usize))
                    .and_then(|_| flag::register(signal, Arc::clone(requested)))
                    .context("watching for Ctrl-C")?;
            }
            Ok(())
        })?;
        Ok(interrupt)
    }

    /// Returns the flag for loops that poll it.
    pub fn flag(&self) -> &AtomicBool {
        &self.requested
    }

    /// Returns the flag for another thread.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Whether SIGTERM asked to stop, as service managers do, and not Ctrl-C.
    pub fn is_termination(&self) -> bool {
        self.signal.load(Ordering::Relaxed) == SIGTERM as usize
    }

    /// Marks an error that follows a request to stop as caused by the signal, for the exit status.
    pub fn explain<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        outcome.map_err(|error| if self.is_requested() { self.stopped(error) } else { error })
    }

    /// Marks an error as caused by the signal.
    pub fn stopped(&self, error: anyhow::Error) -> anyhow::Error {
        error.context(Stopped::by_signal(self.signal.load(Ordering::Relaxed)))
    }
}

/// Registers signal handlers while Ctrl-C and SIGTERM are blocked in this thread: a signal between
/// two registrations would be lost. Call this before other threads start.
#[cfg(unix)]
fn held_back(register: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, SigmaskHow, Signal};

    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("holding back Ctrl-C")?;
    let outcome = register();
    before.thread_set_mask().context("letting Ctrl-C through")?;
    outcome
}

/// Runs `register` without blocking signals, which is not possible on this system.
#[cfg(not(unix))]
fn held_back(register: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    register()
}
