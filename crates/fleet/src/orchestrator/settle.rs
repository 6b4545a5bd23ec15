//! Outcomes of runs that the device itself does not report.

use underload_aqm::rng::Rng;

use super::lines::attributes_at;
use super::{Applied, MADE_EPOCH, MADE_MAX, OWED_MS, Orchestrator, millis, span_ms, time};
use crate::admission::Reason;
use crate::device::Pseudonym;
use crate::lease::SKEW_MS;
use crate::outcome::{Outcome, RunResult};
use crate::plan::Plan;
use crate::schedule::{next_attempt, next_run};
use crate::store::{Device, Schedule, StoreError, StoredResult, Tx};

/// A run whose outcome the orchestrator makes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub plan: String,
    pub run: u64,
    pub due_ms: u64,
    pub outcome: Outcome,
    pub reason: &'static str,
}

const DAY_MS: f64 = 86_400_000.0;
/// Maximum number of stored runs without an assignment, per run that the plan makes due.
const OWN_EXCESS: f64 = 2.0;
/// Runs without an assignment that may be stored at once in addition to the rate of [`OWN_EXCESS`].
const OWN_BURST: u64 = 16;
/// Runs without an assignment that may be stored at once after an absence: more than a device's
/// spool holds.
const OWN_SAVED_MAX: u64 = 8_192;

const NOT_ASKED: &str = "the device did not ask in time";
pub(super) const NOT_HANDED_IN: &str = "no result was handed in";
pub(super) const REMOVED: &str = "the device was removed";
pub(super) const RETIRED: &str = "the line was retired";

impl Schedule {
    /// Begins a plan and draws the time of the first run.
    pub(super) fn begin(name: &str, plan: &Plan, now_ms: u64, rng: &mut Rng) -> Self {
        Self {
            plan: name.to_owned(),
            run: 1,
            due_ms: drawn(plan, now_ms, rng),
            own_ms: now_ms,
            ..Self::default()
        }
    }

    /// Returns [`Schedule::own_ms`] after another run that was made without an assignment; `None`
    /// if the run exceeds the rate.
    ///
    /// While no orchestrator answers, a device makes as many runs as its plan makes due. It may
    /// store [`OWN_EXCESS`] times as many, and [`OWN_BURST`] at once, which a device that follows
    /// the plan exceeds once in a billion outages.
    pub(super) fn after_own_run(&self, plan: &Plan, now_ms: u64) -> Option<u64> {
        let one_ms = (DAY_MS / (OWN_EXCESS * plan.runs_per_day)).max(1.0) as u64;
        let earliest_ms = now_ms.saturating_sub(one_ms.saturating_mul(OWN_SAVED_MAX));
        let latest_ms = now_ms.saturating_add(one_ms.saturating_mul(OWN_BURST));
        // If the stored instant is later than this, the clock was ahead and has been set back.
        let is_of_now = self.own_ms <= latest_ms.saturating_add(2 * SKEW_MS);
        let own_ms = if is_of_now { self.own_ms.max(earliest_ms) } else { now_ms };
        let after_ms = own_ms.saturating_add(one_ms);
        (after_ms <= latest_ms).then_some(after_ms)
    }

    /// Draws the next run from the time when this one was due, whatever its outcome, so that the
    /// plan's number of runs are due.
    pub(super) fn advance(&mut self, plan: &Plan, rng: &mut Rng) {
        self.run += 1;
        self.due_ms = drawn(plan, self.due_ms, rng);
        (self.held_back, self.refusals, self.retry_ms) = (None, 0, 0);
    }

    /// When the run may be assigned.
    pub(super) fn wake_ms(&self) -> u64 {
        self.due_ms.max(self.retry_ms)
    }

    fn ended(&self, outcome: Outcome, reason: &'static str) -> Ended {
        Ended { plan: self.plan.clone(), run: self.run, due_ms: self.due_ms, outcome, reason }
    }

    /// Returns the outcome of the next run, which was never assigned.
    fn conclude(&self) -> Ended {
        match self.held_back {
            None => self.ended(Outcome::Missed, NOT_ASKED),
            Some(reason @ Reason::HomeBusy) => self.ended(Outcome::CrossTraffic, reason.words()),
            Some(reason @ Reason::Refused(_)) => self.ended(Outcome::Refused, reason.words()),
        }
    }

    /// Postpones the due run, which may not begin now for `reason`. If no later attempt is
    /// possible, ends the run and returns its outcome.
    pub(super) fn hold_back(
        &mut self,
        plan: &Plan,
        now_ms: u64,
        reason: Reason,
        rng: &mut Rng,
    ) -> Option<Ended> {
        self.held_back = Some(reason);
        let (now, due) = (time(now_ms), time(self.due_ms));
        let at = next_attempt(rng, now, self.refusals, due, plan.start_within);
        if let Some(at) = at.filter(|_| !reason.is_final()) {
            self.retry_ms = millis(at);
            self.refusals = self.refusals.saturating_add(1);
            return None;
        }
        let ended = self.conclude();
        self.advance(plan, rng);
        Some(ended)
    }

    /// Ends the schedule because its device leaves all plans: a run that was due is missed.
    pub(super) fn leave(&mut self, now_ms: u64, reason: &'static str) -> Option<Ended> {
        let is_due = self.due_ms <= now_ms;
        let ended = is_due.then(|| self.ended(Outcome::Missed, reason));
        self.run += u64::from(is_due);
        self.due_ms = u64::MAX;
        (self.held_back, self.refusals, self.retry_ms) = (None, 0, 0);
        ended
    }

    /// Ends the runs whose time has passed, at most `most` of those that were not assigned. A late
    /// run that was due before `counted_from_ms` has no outcome, and the next one is drawn instead.
    fn settle(
        &mut self,
        applied: &Applied,
        (counted_from_ms, now_ms): (u64, u64),
        most: usize,
        rng: &mut Rng,
    ) -> Vec<Ended> {
        let (ends_ms, within_ms) = (applied.ends_ms(), span_ms(applied.plan.start_within));
        let counted_from_ms = counted_from_ms.max(applied.row.applied_ms).min(now_ms);
        if self.due_ms.saturating_add(within_ms) < counted_from_ms {
            self.due_ms = drawn(&applied.plan, counted_from_ms, rng);
            (self.held_back, self.refusals, self.retry_ms) = (None, 0, 0);
        }
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

    /// When the orchestrator has to make the next outcome; `u64::MAX` if none is owed.
    fn settle_ms(&self, applied: &Applied) -> u64 {
        let ends_ms = applied.ends_ms();
        let late_ms = self.due_ms.saturating_add(span_ms(applied.plan.start_within) + 1);
        let due_ms = if self.due_ms < ends_ms { late_ms.min(ends_ms) } else { u64::MAX };
        let owed = self.open.iter().map(|open| open.given_ms.saturating_add(OWED_MS + 1)).min();
        due_ms.min(owed.unwrap_or(u64::MAX))
    }
}

/// An assigned run whose result did not arrive in time.
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

pub(super) fn plan_named<'a>(plans: &'a [Applied], name: &str) -> Option<&'a Applied> {
    plans.iter().find(|applied| applied.row.name == name)
}

/// Ends the runs of a device whose time has passed, about [`MADE_MAX`] at most. `counted_from_ms`
/// is that of [`Readings`].
pub(super) fn settle(
    device: &mut Device,
    plans: &[Applied],
    (counted_from_ms, now_ms): (u64, u64),
    rng: &mut Rng,
) -> Vec<Ended> {
    let mut ended = Vec::new();
    let times = (counted_from_ms.max(device.enrolled_ms), now_ms);
    for schedule in &mut device.schedules {
        if let Some(applied) = plan_named(plans, &schedule.plan) {
            let most = MADE_MAX.saturating_sub(ended.len());
            ended.extend(schedule.settle(applied, times, most, rng));
        }
    }
    // The device may still send runs that it made without an assignment before the plan ended.
    device.schedules.retain(|schedule| {
        let ends_ms = plan_named(plans, &schedule.plan).map_or(0, Applied::ends_ms);
        let is_waited_for = now_ms < ends_ms.saturating_add(OWED_MS);
        !schedule.open.is_empty() || is_waited_for || schedule.due_ms < ends_ms
    });
    ended
}

impl Orchestrator {
    /// Records the outcomes of silent devices' runs, and frees expired leases; called every few
    /// seconds. Returns the number of devices: if it is `limit`, there may be more.
    pub fn settle(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.freed(tx, now_ms)?.write(tx)?;
        self.redate_future_leases(tx, now_ms)?;
        let counted_from_ms = self.store_readings(tx, now_ms)?;
        let overdue = tx.overdue(now_ms, limit)?;
        let plans = self.plans(tx)?;
        for id in &overdue {
            if let Some(mut device) = tx.device(*id)? {
                let ended = settle(&mut device, &plans, (counted_from_ms, now_ms), rng);
                store_outcomes(tx, now_ms, device, &plans, &ended)?;
            }
        }
        Ok(overdue.len())
    }
}

/// Stores a device, and the outcomes of its runs that ended.
pub(super) fn store_outcomes(
    tx: Tx<'_>,
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
        results.push(stored_result(tx, now_ms, &device, plans, numbers, result)?);
    }
    if !results.is_empty() {
        tx.append(&results)?;
    }
    let settle_ms = |schedule: &Schedule| {
        plan_named(plans, &schedule.plan).map_or(u64::MAX, |applied| schedule.settle_ms(applied))
    };
    device.settle_ms = device.schedules.iter().map(settle_ms).min().unwrap_or(u64::MAX);
    tx.put_device(&device)
}

/// A result as it is stored, with the line's pseudonym and cohort in the plan.
pub(super) fn stored_result(
    tx: Tx<'_>,
    now_ms: u64,
    device: &Device,
    plans: &[Applied],
    (epoch, sequence): (u32, u64),
    result: RunResult,
) -> Result<StoredResult, StoreError> {
    let name = &result.plan;
    let key = tx.setting(&study_key(name))?.and_then(|key| <[u8; 32]>::try_from(key).ok());
    let key = key.ok_or_else(|| {
        StoreError::broken(format!("the study key of the plan `{name}` is missing"))
    })?;
    let plan = plan_named(plans, name).map(|applied| &applied.plan);
    let attributes = attributes_at(tx, device, result.at_ms)?;
    let cohort = plan.and_then(|plan| plan.cohort_of(device.id, &attributes));
    Ok(StoredResult {
        device: device.id,
        epoch,
        sequence,
        stored_ms: now_ms,
        pseudonym: Pseudonym::of(&key, device.id),
        cohort: cohort.unwrap_or_default().to_owned(),
        attributes,
        result,
    })
}

/// Name of the setting with the key that makes a plan's pseudonyms.
pub(super) fn study_key(plan: &str) -> String {
    format!("study-key/{plan}")
}
