//! What executes a run: the live world, or the simulator.

#[cfg(all(feature = "live", target_os = "linux"))]
mod live;
pub mod sim;

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underload_record::schema;
use underload_store::RunDir;

use crate::error::{RunError, chain};
use crate::own::Own;
use crate::packets::Wanted;
use crate::scenario::Scenario;
use crate::settings::WorldChoice;
use crate::trials::{Trial, TrialData};

/// A world that is ready to run trials.
#[derive(Debug)]
pub(crate) struct World {
    kind: Kind,
    reason: String,
}

#[derive(Debug)]
enum Kind {
    #[cfg(all(feature = "live", target_os = "linux"))]
    Live,
    Sim,
}

/// Settings that hold for every trial of a run.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Raised to stop trials under way.
    pub stop: &'a AtomicBool,
    /// Where packets and captures go; `None`: they are not kept.
    pub directory: Option<&'a RunDir>,
    /// Packets to record.
    pub packets: &'a Wanted,
    /// Trials side by side; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    /// Algorithms of the caller's own.
    pub own: &'a Own,
}

impl World {
    /// The world that was asked for; `auto` is live where the machine and the scenario allow it.
    ///
    /// Call it before any thread starts: without root it moves this process into a user namespace.
    pub(crate) fn choose(
        choice: WorldChoice,
        scenario: &Scenario,
        own: &Own,
    ) -> Result<Self, RunError> {
        match choice {
            WorldChoice::Live => Self::live(scenario),
            WorldChoice::Sim => Self::sim(scenario, own, "as asked"),
            WorldChoice::Auto => match Self::live(scenario) {
                Ok(world) => Ok(world),
                Err(error) => {
                    let reason = format!("because live is not possible here: {}", chain(&error));
                    Self::sim(scenario, own, &reason)
                }
            },
        }
    }

    #[cfg(all(feature = "live", target_os = "linux"))]
    fn live(scenario: &Scenario) -> Result<Self, RunError> {
        let reason = live::enter(scenario)?;
        Ok(Self { kind: Kind::Live, reason })
    }

    #[cfg(not(all(feature = "live", target_os = "linux")))]
    fn live(_scenario: &Scenario) -> Result<Self, RunError> {
        Err(RunError::Refused(
            "this program was built without the live world, which is Linux's alone".to_owned(),
        ))
    }

    fn sim(scenario: &Scenario, own: &Own, why: &str) -> Result<Self, RunError> {
        sim::check(scenario, own)?;
        let reason = format!("sim: simulated in virtual time, {why}");
        Ok(Self { kind: Kind::Sim, reason })
    }

    /// The world's name in the record.
    pub(crate) fn name(&self) -> schema::World {
        match self.kind {
            #[cfg(all(feature = "live", target_os = "linux"))]
            Kind::Live => schema::World::Live,
            Kind::Sim => schema::World::Sim,
        }
    }

    /// Which world was chosen and why, for the user.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// How long the scenario will about take; `None` where that depends on the machine.
    #[cfg_attr(
        not(all(feature = "live", target_os = "linux")),
        expect(unused_variables, reason = "only live time is known")
    )]
    pub(crate) fn estimate(&self, scenario: &Scenario) -> Option<Duration> {
        match self.kind {
            #[cfg(all(feature = "live", target_os = "linux"))]
            Kind::Live => Some(Duration::from_secs_f64(scenario.estimate_seconds())),
            Kind::Sim => None,
        }
    }

    /// Trials to hand over at once.
    pub(crate) fn batch_size(&self) -> usize {
        match self.kind {
            #[cfg(all(feature = "live", target_os = "linux"))]
            Kind::Live => 1,
            Kind::Sim => sim::batch_size(),
        }
    }

    /// Runs trials; `show` is told what is under way. Those that were interrupted are `None`.
    #[cfg_attr(
        not(all(feature = "live", target_os = "linux")),
        expect(unused_variables, reason = "only live trials take long")
    )]
    pub(crate) fn run(
        &mut self,
        trials: &[Trial<'_>],
        show: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> Result<Vec<Option<TrialData>>, RunError> {
        match self.kind {
            Kind::Sim => sim::run_batch(trials, setting),
            #[cfg(all(feature = "live", target_os = "linux"))]
            Kind::Live => live::run_batch(trials, show, setting.stop),
        }
    }
}
