//! What executes a run: the live world, or the simulator.

use std::time::Duration;

use anyhow::{anyhow, bail};
use underload_emu::privilege::{self, Privilege};
use underload_report::schema;
use underload_sim::scenario::Scenario;

use super::interrupt::Interrupt;
use super::{Trial, TrialData, WorldChoice};
use crate::exit::OrBadInput;
use crate::live;

/// A world that is ready to run trials.
#[derive(Debug)]
pub struct World {
    kind: Kind,
    reason: String,
}

#[derive(Debug)]
enum Kind {
    Live,
}

impl World {
    /// The world that was asked for; `auto` is live where the machine and the scenario allow it.
    ///
    /// Call it before any thread starts: without root it moves this process into a user namespace.
    pub fn choose(choice: WorldChoice, scenario: &Scenario) -> anyhow::Result<Self> {
        let live = match choice {
            WorldChoice::Sim => Err(anyhow!("--world sim")),
            WorldChoice::Auto | WorldChoice::Live => Self::live(scenario),
        };
        match (live, choice) {
            (Ok(world), _) => Ok(world),
            (Err(error), WorldChoice::Live) => Err(error),
            (Err(error), _) => bail!("the simulated world is not part of this build ({error:#})"),
        }
    }

    fn live(scenario: &Scenario) -> anyhow::Result<Self> {
        if !scenario.worlds().contains(&schema::World::Live) {
            let problem = "has a flow that only the simulator knows (see its `kind`)";
            return Err(anyhow!("{}: {problem}", scenario.name)).or_bad_input();
        }
        let privilege = privilege::enter()?;
        live::check(scenario).or_bad_input()?;
        let how = match privilege {
            Privilege::Root => "as root",
            Privilege::UserNamespace => "in a user namespace, without root",
        };
        let reason = format!(
            "live: the kernel's own TCP in network namespaces, in real time, {how}; \
             our queues between them"
        );
        Ok(Self { kind: Kind::Live, reason })
    }

    /// Its name in the record.
    pub fn name(&self) -> schema::World {
        match self.kind {
            Kind::Live => schema::World::Live,
        }
    }

    /// Which world this is, and why, for the user.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How long the scenario will about take.
    pub fn estimate(&self, scenario: &Scenario) -> Duration {
        match self.kind {
            Kind::Live => Duration::from_secs_f64(scenario.estimate_seconds()),
        }
    }

    /// Runs a trial; `show` is told each phase. `None`: interrupted.
    pub fn run(
        &mut self,
        trial: &Trial<'_>,
        show: &mut dyn FnMut(&str),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<TrialData>> {
        match self.kind {
            Kind::Live => live::run_trial(trial, show, interrupt),
        }
    }
}
