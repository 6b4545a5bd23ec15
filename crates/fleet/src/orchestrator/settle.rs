//! What becomes of runs that a device does not tell of.

use underload_aqm::rng::Rng;

use super::{Applied, MADE_EPOCH, MADE_MAX, OWED_MS, Orchestrator, millis, span_ms, time};
use crate::admission::Reason;
use crate::device::Pseudonym;
use crate::lease::SKEW_MS;
use crate::outcome::{Outcome, RunResult};
use crate::plan::Plan;
use crate::schedule::{again, next_run};
use crate::store::{Device, Schedule, StoreError, StoredResult, Transaction};

/// A run that has ended without its device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub plan: String,
    pub run: u64,
    pub due_ms: u64,
    pub outcome: Outcome,
    pub reason: &'static str,
}

const DAY_MS: f64 = 86_400_000.0;
/// A device may store this many runs that it made without being asked for each run that its plan
/// makes due.
const OWN_EXCESS: f64 = 2.0;
/// Runs of that kind that a device may store at once beyond that rate.
const OWN_BURST: u64 = 16;
/// Runs of that kind that a device may store at once after an absence: more than its spool holds.
const OWN_SAVED_MAX: u64 = 8_192;

const NOT_ASKED: &str = "the device did not ask in time";
pub(super) const NOT_HANDED_IN: &str = "no result was handed in";

impl Schedule {
    /// Begins a plan: the first run is drawn as all others.
    pub(super) fn begin(name: &str, plan: &Plan, now_ms: u64, rng: &mut Rng) -> Self {
        Self {
            plan: name.to_owned(),
            run: 1,
            due_ms: drawn(plan, now_ms, rng),
            held_back: None,
            refusals: 0,
            retry_ms: 0,
            open: Vec::new(),
            own_ms: now_ms,
        }
    }

    /// Returns [`Schedule::own_ms`] after one more run that the device made without being asked;
    /// `None` if the run would exceed the rate.
    ///
    /// While no orchestrator answers a device makes as many runs as its plan makes due. It may
    /// store [`OWN_EXCESS`] times as many, and [`OWN_BURST`] at once, which a device that follows
    /// the plan exceeds once in a billion outages.
    pub(super) fn after_own_run(&self, plan: &Plan, now_ms: u64) -> Option<u64> {
        let one_ms = (DAY_MS / (OWN_EXCESS * plan.runs_per_day)).max(1.0) as u64;
        let earliest_ms = now_ms.saturating_sub(one_ms.saturating_mul(OWN_SAVED_MAX));
        let latest_ms = now_ms.saturating_add(one_ms.saturating_mul(OWN_BURST));
        // An instant that is later yet is of a clock that was ahead and has been set back.
        let is_of_now = self.own_ms <= latest_ms.saturating_add(2 * SKEW_MS);
        let own_ms = if is_of_now { self.own_ms.max(earliest_ms) } else { now_ms };
        let after_ms = own_ms.saturating_add(one_ms);
        (after_ms <= latest_ms).then_some(after_ms)
    }

    /// On to the next run. It is drawn from when this one was due, whatever became of it, so that
    /// as many are due as the plan says.
    pub(super) fn advance(&mut self, plan: &Plan, rng: &mut Rng) {
        self.run += 1;
        self.due_ms = drawn(plan, self.due_ms, rng);
        (self.held_back, self.refusals, self.retry_ms) = (None, 0, 0);
    }

    /// When it may be asked for.
    pub(super) fn wake_ms(&self) -> u64 {
        self.due_ms.max(self.retry_ms)
    }

    /// The run that is next ends without having been given.
    fn conclude(&self) -> Ended {
        let (outcome, reason) = match self.held_back {
            None => (Outcome::Missed, NOT_ASKED),
            Some(reason @ Reason::HomeBusy) => (Outcome::CrossTraffic, reason.words()),
            Some(reason @ Reason::Refused(_)) => (Outcome::Refused, reason.words()),
        };
        Ended { plan: self.plan.clone(), run: self.run, due_ms: self.due_ms, outcome, reason }
    }

    /// The run that is due may not begin now: it is asked for again, or ends.
    pub(super) fn hold_back(
        &mut self,
        plan: &Plan,
        now_ms: u64,
        reason: Reason,
        rng: &mut Rng,
    ) -> Option<Ended> {
        self.held_back = Some(reason);
        let (now, due) = (time(now_ms), time(self.due_ms));
        let at = again(rng, now, self.refusals, due, plan.start_within);
        if let Some(at) = at.filter(|_| !reason.is_final()) {
            self.retry_ms = millis(at);
            self.refusals = self.refusals.saturating_add(1);
            return None;
        }
        let ended = self.conclude();
        self.advance(plan, rng);
        Some(ended)
    }

    /// Its device is removed: what was due is missed, and nothing is due any more.
    pub(super) fn leave(&mut self, now_ms: u64) -> Option<Ended> {
        let is_due = self.due_ms <= now_ms;
        let ended = is_due.then(|| Ended {
            plan: self.plan.clone(),
            run: self.run,
            due_ms: self.due_ms,
            outcome: Outcome::Missed,
            reason: "the device was removed",
        });
        self.run += u64::from(is_due);
        self.due_ms = u64::MAX;
        (self.held_back, self.refusals, self.retry_ms) = (None, 0, 0);
        ended
    }

    /// Takes off the runs whose time is over, at most so many.
    fn settle(&mut self, applied: &Applied, now_ms: u64, most: usize, rng: &mut Rng) -> Vec<Ended> {
        let (ends_ms, within_ms) = (applied.ends_ms(), span_ms(applied.plan.start_within));
        let is_owed = |given_ms: u64| given_ms.saturating_add(OWED_MS) >= now_ms;
        let given_up = self.open.extract_if(.., |open| !is_owed(open.given_ms));
        let mut ended: Vec<_> =
            given_up.map(|open| missed(&self.plan, &open, NOT_HANDED_IN)).collect();
        while ended.len() < most && self.due_ms < ends_ms {
            let is_late = now_ms > self.due_ms.saturating_add(within_ms);
            if !is_late && now_ms < ends_ms {
                break;
            }
            ended.push(self.conclude());
            self.advance(&applied.plan, rng);
        }
        ended
    }

    /// When an outcome is owed that its device does not give; `u64::MAX` for never.
    fn settle_ms(&self, applied: &Applied) -> u64 {
        let ends_ms = applied.ends_ms();
        let late_ms = self.due_ms.saturating_add(span_ms(applied.plan.start_within) + 1);
        let due_ms = if self.due_ms < ends_ms { late_ms.min(ends_ms) } else { u64::MAX };
        let owed = self.open.iter().map(|open| open.given_ms.saturating_add(OWED_MS + 1)).min();
        due_ms.min(owed.unwrap_or(u64::MAX))
    }
}

/// A run that was given and that no result comes of.
pub(super) fn missed(plan: &str, open: &crate::store::OpenRun, reason: &'static str) -> Ended {
    Ended {
        plan: plan.to_owned(),
        run: open.run,
        due_ms: open.due_ms,
        outcome: Outcome::Missed,
        reason,
    }
}

fn drawn(plan: &Plan, after_ms: u64, rng: &mut Rng) -> u64 {
    millis(next_run(rng, time(after_ms), plan.runs_per_day, plan.window))
}

pub(super) fn of_name<'a>(plans: &'a [Applied], name: &str) -> Option<&'a Applied> {
    plans.iter().find(|applied| applied.row.name == name)
}

/// Takes all runs off a device whose time is over; at most [`MADE_MAX`] of them.
pub(super) fn settle(
    device: &mut Device,
    plans: &[Applied],
    now_ms: u64,
    rng: &mut Rng,
) -> Vec<Ended> {
    let mut ended = Vec::new();
    for schedule in &mut device.schedules {
        if let Some(applied) = of_name(plans, &schedule.plan) {
            let most = MADE_MAX.saturating_sub(ended.len());
            ended.extend(schedule.settle(applied, now_ms, most, rng));
        }
    }
    // The device may still hand in runs that it made without being asked before the plan was over.
    device.schedules.retain(|schedule| {
        let ends_ms = of_name(plans, &schedule.plan).map_or(0, Applied::ends_ms);
        let is_waited_for = now_ms < ends_ms.saturating_add(OWED_MS);
        !schedule.open.is_empty() || is_waited_for || schedule.due_ms < ends_ms
    });
    ended
}

impl Orchestrator {
    /// Speaks for devices that are silent, and frees what they hold: to be called every few
    /// seconds. Returns how many devices it was for; as many as `limit` means that there may be
    /// more.
    ///
    /// # Errors
    /// The store's, which changes nothing.
    pub fn settle(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.free(tx, now_ms)?;
        self.date_again(tx, now_ms)?;
        let overdue = tx.overdue(now_ms, limit)?;
        let plans = self.plans(tx)?;
        for id in &overdue {
            if let Some(mut device) = tx.device(*id)? {
                let ended = settle(&mut device, &plans, now_ms, rng);
                keep(tx, now_ms, device, &plans, &ended)?;
            }
        }
        Ok(overdue.len())
    }
}

/// Keeps a device, and what became of its runs.
pub(super) fn keep(
    tx: &mut dyn Transaction,
    now_ms: u64,
    mut device: Device,
    plans: &[Applied],
    ended: &[Ended],
) -> Result<(), StoreError> {
    let mut results = Vec::with_capacity(ended.len());
    for it in ended {
        device.made += 1;
        let result = RunResult {
            plan: it.plan.clone(),
            run: it.run,
            at_ms: it.due_ms,
            outcome: it.outcome,
            reason: it.reason.to_owned(),
            server: String::new(),
            version: String::new(),
            steps: Vec::new(),
        };
        let numbers = (MADE_EPOCH, device.made);
        results.push(stored(tx, now_ms, &device, plans, numbers, result)?);
    }
    if !results.is_empty() {
        tx.append(&results)?;
    }
    let of = |schedule: &Schedule| {
        of_name(plans, &schedule.plan).map_or(u64::MAX, |applied| schedule.settle_ms(applied))
    };
    device.settle_ms = device.schedules.iter().map(of).min().unwrap_or(u64::MAX);
    tx.put_device(&device)
}

/// A result as it is kept: the line within its study.
pub(super) fn stored(
    tx: &mut dyn Transaction,
    now_ms: u64,
    device: &Device,
    plans: &[Applied],
    (epoch, sequence): (u32, u64),
    result: RunResult,
) -> Result<StoredResult, StoreError> {
    let name = &result.plan;
    let key = tx.setting(&study_key(name))?.and_then(|key| <[u8; 32]>::try_from(key).ok());
    let key = key.ok_or_else(|| {
        StoreError::broken(format!("the study key of the plan `{name}` is not there"))
    })?;
    let plan = of_name(plans, name).map(|applied| &applied.plan);
    let cohort = plan.and_then(|plan| plan.cohort_of(device.id, &device.attributes));
    Ok(StoredResult {
        device: device.id,
        epoch,
        sequence,
        stored_ms: now_ms,
        pseudonym: Pseudonym::of(&key, device.id),
        cohort: cohort.unwrap_or_default().to_owned(),
        attributes: device.attributes.clone(),
        result,
    })
}

/// The setting that a plan's pseudonyms are made by.
pub(super) fn study_key(plan: &str) -> String {
    format!("study-key/{plan}")
}
