//! The staged rollout of a configuration, which stops on measured latency.
//!
//! Lines are drawn by lot, a hash of rollout and device, so that the lines of a stage are also
//! those of all later stages. A rollout is its plan and its log: [`State::of`] folds the log into
//! the present state, [`decide`] judges a day, and nothing else is stored. So a command that was
//! killed continues from the log.
//!
//! ```text
//!  new --started--> sending --all sent--> watching --forward--> sending (next stage) ... done
//!                   |   ^                 |  |   ^
//!                   |   +--- confirmed ---|--|-- paused (too many failures)
//!                   |                     |  +-- paused (a person decides; not sure) --confirmed-->
//!                   +------ back ---------+----> returning --all sent--> returned
//! ```

mod plan;
mod stored;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use underload_record::cohorts::Effect;

use crate::device::DeviceId;
use crate::plan::drawn;

pub use plan::{ConfigurationFile, RolloutPlan};
pub use stored::{PREFIX, Settings, StoredRollout, append, load, names};
pub use watch::{Watch, WatchedLine};

/// Lots are below this number.
pub const LOTS: u64 = 1 << 53;
const DAY_MS: u64 = 86_400_000;
/// Failures that are tolerated in any stage.
const FAILURES_TOLERATED: u64 = 3;

/// A row of the log of a rollout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub who: String,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Started {
        /// Whether no line is given a file.
        is_dry_run: bool,
    },
    /// Lines were given their new file, or their former configuration.
    Sent {
        /// The stage, from 0.
        stage: usize,
        is_former: bool,
        devices: Vec<DeviceId>,
        /// The `devices` that the connector did not confirm.
        failed: Vec<DeviceId>,
        /// Whether no further line is due.
        is_last: bool,
    },
    /// A day was judged.
    Looked {
        /// Days since 1970, UTC.
        day: u32,
        looks: Vec<Look>,
        decision: Decision,
    },
    Confirmed,
    /// A person ordered the former configuration.
    Stopped,
}

/// The decision about a rollout at the end of a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Wait,
    /// The next stage begins.
    Forward,
    Pause(Pause),
    /// All changed lines return to their former configuration, because this group was harmed.
    Back {
        group: String,
        measure: Measure,
    },
    Done,
}

underload_aqm::named! {
    /// Why a person has to decide.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Pause {
        Person = "the stage showed no harm; a person confirms the next one",
        NotSure = "the stage's days did not exclude harm",
        Failures = "the connector failed on too many lines",
    }
}

underload_aqm::named! {
    /// The number that changed and untouched lines are compared by.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Measure {
        /// Natural logarithm of the ratio of p99s.
        P99 = "p99",
        /// Difference of the shares of lines that are harmed.
        Harmed = "harmed",
    }
}

/// The effect on a group of lines up to a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Such as `firmware 7.1`; empty for all lines.
    pub group: String,
    pub measure: Measure,
    #[serde(flatten)]
    pub effect: Effect,
}

/// The state of a rollout.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub phase: Phase,
    pub stage: usize,
    pub is_dry_run: bool,
    /// Whether no further line is due in this phase.
    is_complete: bool,
    /// Lines of this stage that were sent to, and those that failed, since a person confirmed.
    sent: usize,
    failed: usize,
    /// The first day of the stage that counts; days since 1970.
    pub since_day: u32,
    /// The next day to judge.
    pub next_day: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    New,
    Sending,
    Watching,
    Paused(Pause),
    Returning,
    Returned,
    Done,
}

/// Returns the lot of a line, below [`LOTS`].
pub fn lot(rollout: &str, device: DeviceId) -> u64 {
    (drawn(rollout, "rollout", device) * LOTS as f64) as u64
}

impl RolloutPlan {
    /// Returns the lot from which on lines are not in a stage.
    pub fn lots_of(&self, stage: usize) -> u64 {
        (self.stages_percent[stage] / 100.0 * LOTS as f64) as u64
    }

    /// The value from which on an effect is harm.
    pub fn limit(&self, measure: Measure) -> f64 {
        match measure {
            Measure::P99 => (self.margin_percent / 100.0).ln_1p(),
            Measure::Harmed => self.harmed_percent / 100.0,
        }
    }
}

impl State {
    /// Returns the state that the log of a rollout leads to.
    pub fn of(plan: &RolloutPlan, log: &[Row]) -> Self {
        let mut state = Self::default();
        for row in log {
            state.apply(plan, row);
        }
        state
    }

    fn apply(&mut self, plan: &RolloutPlan, row: &Row) {
        match &row.event {
            Event::Started { is_dry_run } => {
                self.is_dry_run = *is_dry_run;
                self.send(Phase::Sending);
            }
            Event::Sent { devices, failed, is_last, .. } => {
                self.is_complete = *is_last;
                self.sent += devices.len();
                self.failed += failed.len();
                self.after_batch(plan, row.at_ms);
            }
            Event::Looked { day, decision, .. } => {
                self.next_day = day + 1;
                match decision {
                    Decision::Wait => {}
                    Decision::Forward => self.next_stage(plan),
                    Decision::Pause(pause) => self.phase = Phase::Paused(*pause),
                    Decision::Back { .. } => self.send(Phase::Returning),
                    Decision::Done => self.phase = Phase::Done,
                }
            }
            Event::Confirmed => match self.phase {
                Phase::Paused(Pause::Failures) => {
                    (self.phase, self.sent, self.failed) = (Phase::Sending, 0, 0);
                    self.after_batch(plan, row.at_ms);
                }
                Phase::Paused(_) => self.next_stage(plan),
                _ => {}
            },
            Event::Stopped => self.send(Phase::Returning),
        }
    }

    fn send(&mut self, phase: Phase) {
        (self.phase, self.is_complete, self.sent, self.failed) = (phase, false, 0, 0);
    }

    fn next_stage(&mut self, plan: &RolloutPlan) {
        if self.stage + 1 == plan.stages_percent.len() {
            self.phase = Phase::Done;
            return;
        }
        self.stage += 1;
        self.send(Phase::Sending);
    }

    fn after_batch(&mut self, plan: &RolloutPlan, at_ms: u64) {
        let tolerated = self.sent as f64 * plan.failures_percent / 100.0;
        let is_complete = self.is_complete;
        match self.phase {
            Phase::Sending if self.failed as f64 > tolerated.max(FAILURES_TOLERATED as f64) => {
                self.phase = Phase::Paused(Pause::Failures);
            }
            // No line is untouched, so that nothing can be compared.
            Phase::Sending if is_complete && plan.lots_of(self.stage) >= LOTS => {
                self.phase = Phase::Done;
            }
            Phase::Sending if is_complete => {
                self.phase = Phase::Watching;
                // The day on which lines were changed is part of neither side.
                self.since_day = day_of(at_ms) + 1;
                self.next_day = self.since_day;
            }
            Phase::Returning if is_complete => self.phase = Phase::Returned,
            _ => {}
        }
    }
}

/// Judges a day of a stage by the effects up to it.
pub fn decide(plan: &RolloutPlan, state: &State, day: u32, looks: &[Look]) -> Decision {
    let limit = |look: &Look| plan.limit(look.measure);
    if let Some(harm) = looks.iter().find(|look| look.effect.low > limit(look)) {
        return Decision::Back { group: harm.group.clone(), measure: harm.measure };
    }
    let days = (day + 1).saturating_sub(state.since_day);
    if days < plan.least_days {
        return Decision::Wait;
    }
    let of_all = || looks.iter().filter(|look| look.group.is_empty());
    let is_safe = of_all().count() == Measure::ALL.len()
        && of_all().all(|look| look.effect.high < limit(look));
    match is_safe {
        false if days >= plan.most_days => Decision::Pause(Pause::NotSure),
        false => Decision::Wait,
        true if state.stage + 1 == plan.stages_percent.len() => Decision::Done,
        true if plan.pause_after_stages.contains(&(state.stage + 1)) => {
            Decision::Pause(Pause::Person)
        }
        true => Decision::Forward,
    }
}

/// Judges a day, and returns the row of the log, which has the looks at all lines and at the groups
/// that were harmed.
pub fn judge(plan: &RolloutPlan, state: &State, day: u32, mut looks: Vec<Look>) -> Event {
    let decision = decide(plan, state, day, &looks);
    looks.retain(|look| look.group.is_empty() || look.effect.low > plan.limit(look.measure));
    Event::Looked { day, looks, decision }
}

/// The lines that were given a file, from the log.
#[derive(Debug, Clone, Default)]
pub struct Exposure {
    /// When each line was given its new file first, milliseconds since 1970.
    changed_ms: BTreeMap<DeviceId, u64>,
    /// The stage in which the connector failed on a line.
    failed: BTreeMap<DeviceId, usize>,
    /// Lines that were given their former configuration since the last order to do so.
    returned: BTreeSet<DeviceId>,
}

impl Exposure {
    pub fn of(log: &[Row]) -> Self {
        let mut exposure = Self::default();
        for row in log {
            match &row.event {
                Event::Sent { is_former: true, devices, .. } => exposure.returned.extend(devices),
                Event::Sent { stage, devices, failed, .. } => {
                    for device in devices {
                        exposure.changed_ms.entry(*device).or_insert(row.at_ms);
                        exposure.failed.remove(device);
                    }
                    exposure.failed.extend(failed.iter().map(|device| (*device, *stage)));
                }
                Event::Stopped => exposure.returned.clear(),
                _ => {}
            }
        }
        exposure
    }

    /// Returns when a line was given its new file, milliseconds since 1970, whether or not the
    /// connector confirmed it; `None` if it was not.
    pub fn since_ms(&self, device: DeviceId) -> Option<u64> {
        self.changed_ms.get(&device).copied()
    }

    /// Whether a line of the stage has to be given its new file. A line on which the connector
    /// failed is due again in the next stage.
    pub fn is_due(&self, device: DeviceId, stage: usize) -> bool {
        let is_changed = self.changed_ms.contains_key(&device);
        !is_changed || self.failed.get(&device).is_some_and(|failed| *failed < stage)
    }

    /// Whether a line has to be given its former configuration.
    pub fn is_due_back(&self, device: DeviceId) -> bool {
        self.changed_ms.contains_key(&device) && !self.returned.contains(&device)
    }
}

fn day_of(at_ms: u64) -> u32 {
    u32::try_from(at_ms / DAY_MS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
