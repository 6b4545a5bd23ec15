//! The live world: the kernel's own TCP between two network namespaces, through our links and
//! queues, in real time.
//!
//! Every trial has a lab of its own: nothing that one trial did to the kernel reaches the next, and
//! all of it ends with the trial.
//!
//! - [`mod@check`]: refuses what this machine or this world cannot run.
//! - [`plan`]: from the scenario's words to those of the lab, the gateway and the measurement.
//! - [`trial`]: runs one.
//! - [`exec`]: commands inside the lab.

mod check;
mod exec;
mod plan;
mod trial;

use std::sync::atomic::AtomicBool;

use underload_emu::machine::privilege::{self, Privilege};

use crate::error::{Doing as _, RunError};
use crate::scenario::Scenario;
use crate::trials::{Trial, TrialData};

/// Makes this process ready for a scenario, and says how. Without root it moves the process into a
/// user namespace, which only a process of one thread can enter.
pub(super) fn enter(scenario: &Scenario) -> Result<String, RunError> {
    check::model(scenario)?;
    let privilege = privilege::enter().of_world()?;
    check::machine(scenario)?;
    let how = match privilege {
        Privilege::Root => "as root",
        Privilege::UserNamespace | Privilege::Pasta => "in a user namespace, without root",
    };
    Ok(format!(
        "live: the kernel's own TCP in network namespaces, in real time, {how}; our queues between \
         them"
    ))
}

/// Runs trials one after the other. Those that were interrupted are `None`.
pub(super) fn run_batch(
    trials: &[Trial<'_>],
    show: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Vec<Option<TrialData>>, RunError> {
    let run = |trial: &Trial<'_>| {
        let name = &trial.arm.name;
        let show = &mut |phase: &str| show(&format!("{name}: {phase}"));
        trial::run_trial(trial, show, stop)
            .doing(format!("arm {name}, repeat {}", trial.repeat + 1))
    };
    trials.iter().map(run).collect()
}
