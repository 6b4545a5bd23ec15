//! Handles requests for the next runs.

use std::cmp::Ordering;

use underload_aqm::rng::Rng;
use underload_aqm::time::Span;

use super::admit::{self, Admitted};
use super::settle::{Ended, NOT_HANDED_IN, missed, plan_named, settle, store_outcomes};
use super::{
    Answer, Applied, Kind, MADE_EPOCH, MADE_MAX, OPEN_MAX, Orchestrator, START_MS, answer, claims,
    enrol, enrolled, lasts_ms, reject, span_ms,
};
use crate::admission::{Reason, Refusal};
use crate::device::DeviceId;
use crate::lease::SKEW_MS;
use crate::message::{Alone, AssignedStep, Assignment, Next, NextAnswer, ServerAddress};
use crate::plan::{Kind as Load, Plan, Step};
use crate::store::{Device, HeldLease, Leases, OpenRun, Schedule, StoreError, Tx};

/// Shortest interval between two requests for a run.
const POLL_LEAST_MS: u64 = 1_000;

/// A request that is being answered.
struct Turn<'a> {
    now_ms: u64,
    plans: &'a [Applied],
    device: Device,
    /// Whether a clock that has since been set back dated its last request.
    is_from_later: bool,
    ended: Vec<Ended>,
}

impl Orchestrator {
    /// Assigns a device the run that is due, if it is admitted.
    pub fn next(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        request: &Next,
    ) -> Answer<NextAnswer> {
        answer(|| {
            let device = enrolled(tx, sender)?;
            if request.epoch == MADE_EPOCH {
                let message = "this epoch is the orchestrator's";
                return reject(Kind::BadRequest, "bad-epoch", message);
            }
            if let Some(reported) = &request.attributes {
                enrol::acceptable(reported)?;
            }
            let plans = self.plans(tx)?;
            match (request.epoch, request.request).cmp(&(device.epoch, device.request)) {
                Ordering::Less => {
                    let message = format!(
                        "epoch {} and request {} were answered: begin a new epoch",
                        device.epoch, device.request
                    );
                    reject(Kind::Conflict, "outdated", message)
                }
                Ordering::Equal => Ok(self.answer_again(tx, now_ms, &device, &plans)?),
                Ordering::Greater => {
                    let is_from_later = device.seen_ms > now_ms.saturating_add(2 * SKEW_MS);
                    let reported = request.attributes.as_ref();
                    let attributes = enrol::changed_attributes(tx, now_ms, &device, reported)?;
                    let device = Device {
                        attributes,
                        epoch: request.epoch,
                        request: request.request,
                        // Databases count to 2^63.
                        waiting: request.waiting.min(i64::MAX as u64),
                        dropped: request.dropped.min(i64::MAX as u64),
                        seen_ms: now_ms,
                        ..device
                    };
                    let (plans, ended) = (&plans[..], Vec::new());
                    let turn = Turn { now_ms, plans, device, is_from_later, ended };
                    Ok(self.take_turn(tx, rng, turn, request)?)
                }
            }
        })
    }

    /// Answers a repeated request: returns the same run while it may still begin, and changes
    /// nothing.
    fn answer_again(
        &self,
        tx: Tx<'_>,
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
        let applied = lease.as_ref().and_then(|lease| plan_named(plans, &lease.plan));
        let (run, poll_ms) = match (&lease, applied) {
            (Some(lease), Some(applied)) => {
                let servers = self.servers_for(tx, now_ms, Some(&lease.server))?;
                let run = self.assignment(lease, servers, &applied.plan);
                (Some(run), lasts_ms(&applied.plan))
            }
            _ => (None, POLL_LEAST_MS),
        };
        let alone = self.alone(tx, now_ms, device, plans)?;
        Ok(NextAnswer { now_ms, next_poll_ms: now_ms + poll_ms, run, refusal: None, alone })
    }

    fn take_turn(
        &self,
        tx: Tx<'_>,
        rng: &mut Rng,
        mut turn: Turn<'_>,
        request: &Next,
    ) -> Result<NextAnswer, StoreError> {
        let now_ms = turn.now_ms;
        turn.join(rng);
        let times = (self.counted_from_ms(tx, now_ms)?, now_ms);
        turn.ended = settle(&mut turn.device, turn.plans, times, rng);
        let mut lease = tx.leases(Leases::Of(turn.device.id), 1)?.pop();
        if let Some(over) = lease.take_if(|lease| lease.expires_ms <= now_ms) {
            admit::end(tx, &over)?;
        }
        if request.waiting == 0 {
            turn.give_up_all_but(lease.as_ref());
        }
        let (mut run, mut refusal) = (None, None);
        if let Some(place) = turn.due() {
            match self.try_to_run(tx, rng, &mut turn, place, request.is_busy)? {
                Ok(assignment) => run = Some(assignment),
                Err(reason) => {
                    self.count(reason);
                    if let Reason::Refused(why) = reason {
                        refusal = Some(why);
                    }
                }
            }
        }
        // A device with a run asks again when it has sent the result, or when another run is due.
        let wake_ms = turn.wake_ms(self.settings.poll_ms, rng);
        let next_poll_ms = match &run {
            Some(run) => run.not_after_ms.min(wake_ms).max(now_ms + POLL_LEAST_MS),
            None => wake_ms,
        };
        let alone = self.alone(tx, now_ms, &turn.device, turn.plans)?;
        store_outcomes(tx, now_ms, turn.device, turn.plans, &turn.ended)?;
        Ok(NextAnswer { now_ms, next_poll_ms, run, refusal, alone })
    }

    /// Assigns the run that is due, or holds it back.
    fn try_to_run(
        &self,
        tx: Tx<'_>,
        rng: &mut Rng,
        turn: &mut Turn<'_>,
        place: usize,
        is_busy: bool,
    ) -> Result<Result<Assignment, Reason>, StoreError> {
        let now_ms = turn.now_ms;
        let plans = turn.plans;
        let Some(applied) = plan_named(plans, &turn.device.schedules[place].plan) else {
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

    /// Returns what the device may measure while no orchestrator answers: the latency steps of its
    /// first plan that has any.
    fn alone(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        device: &Device,
        plans: &[Applied],
    ) -> Result<Option<Alone>, StoreError> {
        let is_latency = |step: &&Step| step.kind == Load::Latency;
        let mut applied =
            device.schedules.iter().filter_map(|schedule| plan_named(plans, &schedule.plan));
        let measures_latency = |applied: &&Applied| {
            now_ms < applied.ends_ms() && applied.plan.steps.iter().any(|it| is_latency(&it))
        };
        let found = applied.find(measures_latency).filter(|_| !device.is_retired);
        let Some(Applied { plan, row }) = found else { return Ok(None) };
        let mut servers = self.servers_for(tx, now_ms, None)?;
        if !servers.is_empty() {
            // Spreads devices over the servers.
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
    /// Adds schedules for the plans that include this device.
    fn join(&mut self, rng: &mut Rng) {
        if self.device.is_retired {
            return;
        }
        for applied in self.plans.iter().filter(|applied| self.now_ms < applied.ends_ms()) {
            let Applied { row, plan } = applied;
            let known = self.device.schedules.iter_mut().find(|it| it.plan == row.name);
            match known {
                // The device was removed and enrolled again, or a clock that was ahead drew the
                // next time: its runs continue from now.
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
                    if cohort.is_some_and(|cohort| plan.has_begun(cohort, self.now_ms)) {
                        let begun = Schedule::begin(&row.name, plan, self.now_ms, rng);
                        self.device.schedules.push(begun);
                    }
                }
            }
        }
    }

    /// Counts assigned runs as missed because the device has no results to send. The run with a
    /// lease may still be under way.
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
        plan_named(self.plans, &schedule.plan).map_or(0, Applied::ends_ms)
    }

    /// Returns the index of the schedule whose run has been due for longest.
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

    /// When the device is to ask again: when a run is due, and within `most_ms` for new plans.
    fn wake_ms(&self, most_ms: u64, rng: &mut Rng) -> u64 {
        // Random, so that devices that asked together do not stay together.
        let half_ms = most_ms / 2;
        let rest_ms = u64::from(rng.below(u32::try_from(half_ms).unwrap_or(u32::MAX)));
        let latest_ms = self.now_ms + half_ms + rest_ms;
        let schedules = self.device.schedules.iter().filter(|it| it.due_ms < self.ends_ms(it));
        let wakes = schedules.map(Schedule::wake_ms).min().unwrap_or(u64::MAX);
        wakes.min(latest_ms).max(self.now_ms + POLL_LEAST_MS)
    }
}
