//! Is it a device's turn, and may it?

use std::cmp::Ordering;

use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use super::admit::{self, Admitted};
use super::settle::{Ended, NOT_HANDED_IN, keep, missed, of_name, settle};
use super::{
    Applied, Kind, MADE_EPOCH, MADE_MAX, OPEN_MAX, Orchestrator, Rejection, START_MS, Stop, claims,
    enrol, enrolled, lasts_ms, span_ms,
};
use crate::admission::{Reason, Refusal};
use crate::device::DeviceId;
use crate::lease::SKEW_MS;
use crate::message::{Alone, AssignedStep, Assignment, Next, NextAnswer, ServerAddress};
use crate::plan::{Kind as Load, Plan, Step};
use crate::store::{Device, HeldLease, Leases, OpenRun, Schedule, StoreError, Transaction};

/// A device that asked is not to ask again sooner.
const POLL_LEAST_MS: u64 = 1_000;

/// A request that is being answered.
struct Turn<'a> {
    now_ms: u64,
    plans: &'a [Applied],
    device: Device,
    /// It was seen by a clock that has been set back since.
    is_from_later: bool,
    ended: Vec<Ended>,
}

impl Orchestrator {
    pub(super) fn next_or_stop(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        it: &Next,
    ) -> Result<NextAnswer, Stop> {
        let device = enrolled(tx, sender)?;
        if it.epoch == MADE_EPOCH {
            let message = "this epoch is the orchestrator's";
            return Err(Rejection::new(Kind::BadRequest, "bad-epoch", message).into());
        }
        if let Some(told) = &it.attributes {
            enrol::acceptable(told)?;
        }
        let plans = self.plans(tx)?;
        match (it.epoch, it.request).cmp(&(device.epoch, device.request)) {
            Ordering::Less => {
                let message = format!(
                    "epoch {} and request {} were answered: begin a new epoch",
                    device.epoch, device.request
                );
                Err(Rejection::new(Kind::Conflict, "outdated", message).into())
            }
            Ordering::Equal => Ok(self.answer_again(tx, now_ms, &device, &plans)?),
            Ordering::Greater => {
                let is_from_later = device.seen_ms > now_ms.saturating_add(2 * SKEW_MS);
                let attributes = match &it.attributes {
                    Some(told) => enrol::reported(tx, now_ms, &device, told)?,
                    None => device.attributes.clone(),
                };
                let device = asked(Device { attributes, ..device }, now_ms, it);
                let turn = Turn { now_ms, plans: &plans, device, is_from_later, ended: Vec::new() };
                Ok(self.take_turn(tx, rng, turn, it)?)
            }
        }
    }

    /// The same number again: what it got is given again while it may still begin, and nothing
    /// else happens.
    fn answer_again(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        device: &Device,
        plans: &[Applied],
    ) -> Result<NextAnswer, StoreError> {
        let lease = tx.leases(Leases::Of(device.id), 1)?.pop().filter(|lease| {
            let is_open = |schedule: &Schedule| {
                schedule.plan == lease.plan && schedule.open.iter().any(|it| it.run == lease.run)
            };
            lease.given_ms == device.seen_ms
                && now_ms <= lease.given_ms.saturating_add(START_MS)
                && device.schedules.iter().any(is_open)
        });
        let applied = lease.as_ref().and_then(|lease| of_name(plans, &lease.plan));
        let run = match (&lease, applied) {
            (Some(lease), Some(applied)) => {
                let servers = self.servers_for(tx, now_ms, Some(&lease.server))?;
                Some(self.assignment(lease, servers, &applied.plan))
            }
            _ => None,
        };
        let polls_ms = run.as_ref().map_or(POLL_LEAST_MS, |_| {
            applied.map_or(POLL_LEAST_MS, |applied| lasts_ms(&applied.plan))
        });
        Ok(NextAnswer {
            now_ms,
            next_poll_ms: now_ms + polls_ms,
            run,
            refusal: None,
            alone: self.alone(tx, now_ms, device, plans)?,
        })
    }

    fn take_turn(
        &self,
        tx: &mut dyn Transaction,
        rng: &mut Rng,
        mut turn: Turn<'_>,
        it: &Next,
    ) -> Result<NextAnswer, StoreError> {
        let now_ms = turn.now_ms;
        turn.join(rng);
        turn.ended = settle(&mut turn.device, turn.plans, now_ms, rng);
        let mut lease = tx.leases(Leases::Of(turn.device.id), 1)?.pop();
        if let Some(over) = lease.take_if(|lease| lease.expires_ms <= now_ms) {
            admit::end(tx, &over)?;
        }
        if it.waiting == 0 {
            turn.give_up_all_but(lease.as_ref());
        }
        let (mut run, mut refusal) = (None, None);
        if let Some(place) = turn.due() {
            match self.try_to_run(tx, rng, &mut turn, place, it.is_busy)? {
                Ok(assignment) => run = Some(assignment),
                Err(reason) => {
                    self.count(reason);
                    if let Reason::Refused(why) = reason {
                        refusal = Some(why);
                    }
                }
            }
        }
        // Who has a run asks once it is handed in; another one may be due by then.
        let wake_ms = turn.wake_ms(self.settings.poll_ms, rng);
        let next_poll_ms = match &run {
            Some(run) => run.not_after_ms.min(wake_ms).max(now_ms + POLL_LEAST_MS),
            None => wake_ms,
        };
        let alone = self.alone(tx, now_ms, &turn.device, turn.plans)?;
        keep(tx, now_ms, turn.device, turn.plans, &turn.ended)?;
        Ok(NextAnswer { now_ms, next_poll_ms, run, refusal, alone })
    }

    /// Gives the device the run that is due, or holds it back.
    fn try_to_run(
        &self,
        tx: &mut dyn Transaction,
        rng: &mut Rng,
        turn: &mut Turn<'_>,
        place: usize,
        is_busy: bool,
    ) -> Result<Result<Assignment, Reason>, StoreError> {
        let now_ms = turn.now_ms;
        let plans = turn.plans;
        let Some(applied) = of_name(plans, &turn.device.schedules[place].plan) else {
            return Ok(Err(Reason::Refused(Refusal::TooLarge)));
        };
        let run = turn.device.schedules[place].run;
        let admitted = if is_busy {
            Err(Reason::HomeBusy)
        } else {
            self.admit(tx, now_ms, rng, &turn.device, applied, run)?.map_err(Reason::Refused)
        };
        let schedule = &mut turn.device.schedules[place];
        match admitted {
            Ok(Admitted { lease, servers }) => {
                let due_ms = schedule.due_ms;
                schedule.open.push(OpenRun { run, due_ms, given_ms: now_ms });
                schedule.advance(&applied.plan, rng);
                Ok(Ok(self.assignment(&lease, servers, &applied.plan)))
            }
            Err(reason) => {
                turn.ended.extend(schedule.hold_back(&applied.plan, now_ms, reason, rng));
                Ok(Err(reason))
            }
        }
    }

    fn assignment(
        &self,
        lease: &HeldLease,
        servers: Vec<ServerAddress>,
        plan: &Plan,
    ) -> Assignment {
        let claims = claims(lease, plan);
        Assignment {
            plan: lease.plan.clone(),
            run: lease.run,
            not_before_ms: claims.not_before_ms,
            not_after_ms: claims.not_after_ms,
            steps: plan.steps.iter().map(assigned).collect(),
            lease: claims.sign(&self.lease_key),
            lease_id: lease.id,
            servers,
        }
    }

    /// What the device may do on its own: the latency of the first of its plans that measures some.
    fn alone(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        device: &Device,
        plans: &[Applied],
    ) -> Result<Option<Alone>, StoreError> {
        let is_latency = |step: &&Step| step.kind == Load::Latency;
        let applied = device.schedules.iter().filter_map(|it| of_name(plans, &it.plan));
        let mut those = applied.filter(|applied| {
            now_ms < applied.ends_ms() && applied.plan.steps.iter().any(|it| is_latency(&it))
        });
        let Some(Applied { plan, row }) = those.next() else { return Ok(None) };
        let mut servers = self.servers_for(tx, now_ms, None)?;
        if !servers.is_empty() {
            // Not all of them to the same.
            let first = usize::from(device.id.0[0]) % servers.len();
            servers.rotate_left(first);
        }
        let seconds = |span: Span| (span.as_nanos() / 1_000_000_000) as u32;
        Ok(Some(Alone {
            plan: row.name.clone(),
            runs_per_day: plan.runs_per_day,
            from_s: seconds(plan.window.from),
            until_s: seconds(plan.window.until),
            until_ms: plan.until_ms,
            steps: plan.steps.iter().filter(is_latency).map(assigned).collect(),
            servers,
        }))
    }
}

/// What a device told.
fn asked(device: Device, now_ms: u64, it: &Next) -> Device {
    Device {
        epoch: it.epoch,
        request: it.request,
        // Databases count to 2^63.
        waiting: it.waiting.min(i64::MAX as u64),
        dropped: it.dropped.min(i64::MAX as u64),
        seen_ms: now_ms,
        ..device
    }
}

fn assigned(step: &Step) -> AssignedStep {
    AssignedStep {
        name: step.name.clone(),
        kind: step.kind,
        duration_ms: span_ms(step.duration),
        warm_up_ms: span_ms(step.warm_up),
        classes: step.classes.clone(),
        interval_ms: span_ms(step.interval),
        probe_bytes: step.probe_bytes,
    }
}

impl Turn<'_> {
    /// Takes part in the plans that are for it.
    fn join(&mut self, rng: &mut Rng) {
        for applied in self.plans.iter().filter(|applied| self.now_ms < applied.ends_ms()) {
            let Applied { row, plan } = applied;
            let known = self.device.schedules.iter_mut().find(|it| it.plan == row.name);
            match known {
                // It was removed, and is a device again: the runs go on where they were.
                // So they do where a clock that was ahead drew the next one.
                Some(schedule)
                    if schedule.due_ms == u64::MAX
                        || self.is_from_later && schedule.wake_ms() > self.now_ms =>
                {
                    let begun = Schedule::begin(&row.name, plan, self.now_ms, rng);
                    schedule.due_ms = begun.due_ms;
                    (schedule.held_back, schedule.refusals, schedule.retry_ms) = (None, 0, 0);
                }
                Some(_) => {}
                None => {
                    let cohort = plan.cohort_of(self.device.id, &self.device.attributes);
                    if cohort.is_some() {
                        let begun = Schedule::begin(&row.name, plan, self.now_ms, rng);
                        self.device.schedules.push(begun);
                    }
                }
            }
        }
    }

    /// The device has no result of the runs that it was given: none will come. The run whose lease
    /// is held may still be under way.
    fn give_up_all_but(&mut self, lease: Option<&HeldLease>) {
        for schedule in &mut self.device.schedules {
            let name = &schedule.plan;
            let is_held =
                |run: u64| lease.is_some_and(|lease| lease.plan == *name && lease.run == run);
            let lost = schedule.open.extract_if(.., |open| !is_held(open.run));
            self.ended.extend(lost.map(|open| missed(name, &open, NOT_HANDED_IN)));
        }
    }

    fn ends_ms(&self, schedule: &Schedule) -> u64 {
        of_name(self.plans, &schedule.plan).map_or(0, Applied::ends_ms)
    }

    /// The run that is due: of several the one that was due first.
    fn due(&self) -> Option<usize> {
        let owed: usize = self.device.schedules.iter().map(|it| it.open.len()).sum();
        if owed >= OPEN_MAX || self.ended.len() >= MADE_MAX {
            return None;
        }
        let schedules = self.device.schedules.iter().enumerate();
        let due =
            schedules.filter(|(_, it)| it.wake_ms() <= self.now_ms && it.due_ms < self.ends_ms(it));
        due.min_by_key(|(_, schedule)| schedule.due_ms).map(|(place, _)| place)
    }

    /// When the device is to ask again: when something is due, and now and then for what is new.
    fn wake_ms(&self, most_ms: u64, rng: &mut Rng) -> u64 {
        // At random, so that those who asked together do not do so for ever.
        let half_ms = most_ms / 2;
        let rest_ms = u64::from(rng.below(u32::try_from(half_ms).unwrap_or(u32::MAX)));
        let latest_ms = self.now_ms + half_ms + rest_ms;
        let schedules = self.device.schedules.iter().filter(|it| it.due_ms < self.ends_ms(it));
        let wakes = schedules.map(Schedule::wake_ms).min().unwrap_or(u64::MAX);
        wakes.min(latest_ms).max(self.now_ms + POLL_LEAST_MS)
    }
}
