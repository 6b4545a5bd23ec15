//! The worlds that execute a run: the simulator, the live world, and the live world in a kernel's
//! virtual time, with that kernel's queues or with ours.

#[cfg(all(feature = "live", target_os = "linux"))]
pub mod kernel;
#[cfg(all(feature = "live", target_os = "linux"))]
mod live;
pub mod sim;

use std::time::Duration;

use underload_record::schema;
use underload_record::text::in_full;
use underload_scenario::Scenario;
use underload_scenario::own::Own;

use crate::error::RunError;
use crate::settings::WorldChoice;
use crate::trial::{Setting, Trial, TrialData};

/// A world that is ready to run trials of a scenario that it has checked.
pub(crate) trait World {
    fn name(&self) -> schema::World;

    /// Returns which world was chosen and why, for the user.
    fn reason(&self) -> &str;

    /// Returns the kernel that runs the trials if it is not the machine's.
    fn kernel(&self) -> Option<String> {
        None
    }

    /// Estimates the duration of the run; `None` if it depends on the machine.
    fn estimate(&self, _: &Scenario) -> Option<Duration> {
        None
    }

    /// Returns how many trials [`World::run`] is to be called with.
    fn batch_size(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Runs trials, and calls `show` with each step. Interrupted trials are `None`.
    fn run(
        &self,
        trials: &[Trial<'_>],
        show: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> Result<Vec<Option<TrialData>>, RunError>;
}

/// Returns the requested world; for `auto`, the live world if the machine and the scenario allow
/// it, and its error if the simulator cannot run the scenario either. Call this before any thread
/// starts: without root it moves the process into a user namespace.
pub(crate) fn choose(
    choice: WorldChoice,
    scenario: &Scenario,
    own: &Own,
) -> Result<Box<dyn World>, RunError> {
    match choice {
        WorldChoice::Live => live(scenario),
        WorldChoice::Kernel => kernel(scenario, true),
        WorldChoice::KernelTcp => kernel(scenario, false),
        WorldChoice::Sim => simulated(scenario, own, "as requested"),
        WorldChoice::Auto => live(scenario).or_else(|error| {
            if scenario.sim_problem().is_some() {
                return Err(error);
            }
            let reason = match scenario.live_problem() {
                Some(problem) => format!("because of {problem}"),
                None => format!("because live is not possible here: {}", in_full(&error)),
            };
            simulated(scenario, own, &reason)
        }),
    }
}

fn simulated(scenario: &Scenario, own: &Own, why: &str) -> Result<Box<dyn World>, RunError> {
    Ok(Box::new(sim::Sim::new(scenario, own, why)?))
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn live(scenario: &Scenario) -> Result<Box<dyn World>, RunError> {
    Ok(Box::new(live::Live::enter(scenario)?))
}

/// Returns why this machine cannot run a scenario live, as far as that shows before the run.
#[cfg(all(feature = "live", target_os = "linux"))]
pub fn machine_problem(scenario: &Scenario) -> Option<String> {
    live::check::machine(scenario).err().map(|error| in_full(&error))
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn kernel(scenario: &Scenario, has_own_queues: bool) -> Result<Box<dyn World>, RunError> {
    Ok(Box::new(kernel::Kernel::new(scenario, has_own_queues)?))
}

#[cfg(not(all(feature = "live", target_os = "linux")))]
fn live(_: &Scenario) -> Result<Box<dyn World>, RunError> {
    Err(RunError::Refused(
        "this program was built without the worlds `live`, `kernel` and `kernel-tcp`, which need \
         Linux"
            .to_owned(),
    ))
}

#[cfg(not(all(feature = "live", target_os = "linux")))]
pub fn machine_problem(scenario: &Scenario) -> Option<String> {
    live(scenario).err().map(|error| in_full(&error))
}

#[cfg(not(all(feature = "live", target_os = "linux")))]
fn kernel(scenario: &Scenario, _: bool) -> Result<Box<dyn World>, RunError> {
    live(scenario)
}
