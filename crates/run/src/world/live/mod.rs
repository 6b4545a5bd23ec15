//! The live world: the kernel's TCP between two network namespaces, through our links and queues,
//! in real time.
//!
//! Every trial has a separate lab, which ends with it: no state of the kernel reaches the next.
//!
//! - [`mod@check`]: rejects what this machine or this world cannot run.
//! - [`plan`]: configures the lab, the gateway and the measurement.
//! - [`trial`]: runs one trial.
//! - [`mod@between`]: the gateway or the Linux routers between client and server.
//! - [`linux`]: what Linux's routers are to do.
//! - [`task`]: a flow that a program outside of this one makes.
//! - [`tasks`]: starts and stops the programs of flows.
//! - [`browser`]: pages, films and calls of real browsers inside the lab.

mod between;
mod browser;
pub(super) mod check;
pub(super) mod linux;
pub(super) mod plan;
mod task;
mod tasks;
pub(super) mod trial;

use std::time::Duration;

use underload_emu::machine::privilege::{self, Privilege};
use underload_record::schema;
use underload_scenario::Scenario;

use super::World;
use crate::error::{Doing as _, RunError};
use crate::trial::{Setting, Trial, TrialData};
use plan::{Clockwork, Queues};

/// The live world, which this process has entered.
pub(super) struct Live {
    reason: String,
}

impl Live {
    /// Prepares this process for a scenario. Without root it moves the process into a user
    /// namespace, which only a process with one thread can enter.
    pub(super) fn enter(scenario: &Scenario) -> Result<Self, RunError> {
        check::model(scenario)?;
        let privilege = privilege::enter().of_world()?;
        check::machine(scenario)?;
        let how = match privilege {
            Privilege::Root => "as root",
            Privilege::UserNamespace | Privilege::Pasta => "in a user namespace, without root",
        };
        let reason = format!(
            "live: the kernel's own TCP in network namespaces, in real time, {how}; our queues \
             between them"
        );
        Ok(Self { reason })
    }
}

impl World for Live {
    fn name(&self) -> schema::World {
        schema::World::Live
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn estimate(&self, scenario: &Scenario) -> Option<Duration> {
        Some(Duration::from_secs_f64(scenario.estimate_seconds()))
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn run(
        &self,
        trials: &[Trial<'_>],
        show: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> Result<Vec<Option<TrialData>>, RunError> {
        let run = |trial: &Trial<'_>| {
            let name = &trial.variant.name;
            let show = &mut |phase: &str| show(&format!("{name}: {phase}"));
            trial::run_trial(trial, Clockwork::Real, &Queues::Ours, show, setting.stop)
                .doing(format!("variant {name}, repeat {}", trial.repeat + 1))
        };
        trials.iter().map(run).collect()
    }
}
