//! `underload fleet agent`: a device of a fleet.

use anyhow::Context;
use underload_agent::arguments::Arguments;
use underload_agent::device::{self, End};

use crate::interrupt::Interrupt;

/// Works until it is told to stop, or is removed.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::watch()?;
    let stop = interrupt.shared();
    let tell = |words: &str| eprintln!("{words}");
    let end = device::run(arguments.config(&stop), &stop, &tell).context("the agent")?;
    if end == End::Removed {
        eprintln!("an orchestrator has removed this device: it stops for good");
    }
    Ok(())
}
