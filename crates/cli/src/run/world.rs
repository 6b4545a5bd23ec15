//! What executes a run: the live world, or the simulator.

use std::time::Duration;

use anyhow::{Context, anyhow};
use underload_emu::machine::privilege::{self, Privilege};
use underload_record::schema;
use underload_run::scenario::Scenario;

use super::{Trial, TrialData, WorldChoice};
use crate::exit::OrBadInput;
use crate::simulated::Setting;
use crate::{live, simulated};

/// A world that is ready to run trials.
#[derive(Debug)]
pub struct World {
    kind: Kind,
    reason: String,
}

#[derive(Debug)]
enum Kind {
    Live,
    Sim,
}

impl World {
    /// The world that was asked for; `auto` is live where the machine and the scenario allow it.
    ///
    /// Call it before any thread starts: without root it moves this process into a user namespace.
    pub fn choose(choice: WorldChoice, scenario: &Scenario) -> anyhow::Result<Self> {
        match choice {
            WorldChoice::Live => Self::live(scenario),
            WorldChoice::Sim => Self::sim(scenario, "as asked"),
            WorldChoice::Auto => match Self::live(scenario) {
                Ok(world) => Ok(world),
                Err(error) => {
                    let reason = format!("because live is not possible here: {error:#}");
                    Self::sim(scenario, &reason)
                }
            },
        }
    }

    fn live(scenario: &Scenario) -> anyhow::Result<Self> {
        if let Some(hop) = scenario.arms.iter().find_map(|arm| arm.path.first_hop()) {
            let problem = format!(
                "{}: path.hop.{hop}: only the simulator has chains of links (see \
                 docs/scenario-format.md); expected path.up and path.down, or --world sim",
                scenario.name
            );
            return Err(anyhow!(problem)).or_bad_input();
        }
        let mut flows = scenario.arms.iter().flat_map(|arm| &arm.flows);
        if let Some((flow, key)) = flows.find_map(|flow| Some((flow, flow.sim_only_key()?))) {
            let (scenario, flow) = (&scenario.name, &flow.name);
            let problem = format!(
                "{scenario}: flow.{flow}.{key}: only the simulator knows it (see \
                 docs/scenario-format.md); expected --world sim"
            );
            return Err(anyhow!(problem)).or_bad_input();
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

    fn sim(scenario: &Scenario, why: &str) -> anyhow::Result<Self> {
        simulated::check(scenario).or_bad_input()?;
        let reason = format!("sim: simulated in virtual time, {why}");
        Ok(Self { kind: Kind::Sim, reason })
    }

    /// Its name in the record.
    pub fn name(&self) -> schema::World {
        match self.kind {
            Kind::Live => schema::World::Live,
            Kind::Sim => schema::World::Sim,
        }
    }

    /// Which world this is, and why, for the user.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How long the scenario will about take; `None` where that depends on the machine.
    pub fn estimate(&self, scenario: &Scenario) -> Option<Duration> {
        match self.kind {
            Kind::Live => Some(Duration::from_secs_f64(scenario.estimate_seconds())),
            Kind::Sim => None,
        }
    }

    /// Trials to hand over at once.
    pub fn batch_size(&self) -> usize {
        match self.kind {
            Kind::Live => 1,
            Kind::Sim => simulated::batch_size(),
        }
    }

    /// Runs trials; `show` is told what is under way. Those that were interrupted are `None`.
    pub fn run(
        &mut self,
        trials: &[Trial<'_>],
        show: &mut dyn FnMut(&str),
        setting: Setting<'_>,
    ) -> anyhow::Result<Vec<Option<TrialData>>> {
        match self.kind {
            Kind::Sim => simulated::run_batch(trials, setting),
            Kind::Live => {
                let run = |trial: &Trial<'_>| {
                    let name = &trial.arm.name;
                    let show = &mut |phase: &str| show(&format!("{name}: {phase}"));
                    live::run_trial(trial, show, setting.interrupt)
                        .with_context(|| format!("arm {name}, repeat {}", trial.repeat + 1))
                };
                trials.iter().map(run).collect()
            }
        }
    }
}
