//! Ctrl-C: the trial under way ends, what was completed is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the user asked to stop. A second request ends the program at once; the namespaces and
/// all that runs in them end with it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for Ctrl-C and SIGTERM from now on.
    pub fn watch() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, the second finds it up.
            flag::register_conditional_default(signal, Arc::clone(&interrupt.0))
                .and_then(|_| flag::register(signal, Arc::clone(&interrupt.0)))
                .context("watching for Ctrl-C")?;
        }
        Ok(interrupt)
    }

    /// The flag itself, for loops that look at it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// The flag itself, for a thread or for something that outlives this borrow.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it was asked for.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
