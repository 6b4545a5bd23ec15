//! The state machine of a device, which determines the next request, run or wait.
//!
//! The agent has no socket, clock or file. [`Agent::next`] returns the next task, the caller
//! executes it, and [`Agent::hear`] receives the result. Times are of a monotonic clock; the agent
//! learns the orchestrator's clock from answers, so a step of the device's own clock changes
//! nothing.
//!
//! - One task at a time: nothing is sent while a line is measured.
//! - A run that loads the line needs a lease. While no orchestrator answers, the device measures
//!   only what the last [`Alone`] allows: latency.
//! - A result is on disk before its lease is released, and is sent until an orchestrator has
//!   acknowledged it.
//! - A device that is asked to come back later does so at a random instant.
//! - A device stops for good once two signed statements say that it was removed, the second one
//!   [`Settings::confirm_removal`] after the first. No other answer stops it.

pub mod limits;
mod memory;
mod run;
mod task;

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::message::{Alone, Moved, Next, NextAnswer, RESULTS_MAX, Release};
use crate::outcome::{Outcome, RunResult};
use crate::schedule::{next_run, retry_after, uniform};
use limits::{Pace, is_lease, is_server};
use run::{LATE, PendingRun, acceptable, window_of};

pub use limits::{Limits, Usage};
pub use memory::{Began, Memory, RemovalNotice};
pub use task::{Local, News, Ran, RunTask, Task, Trouble};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of known orchestrators, at least one. Each is identified by its index.
    pub orchestrators: usize,
    /// The first request is sent at a random instant within this time after the start, because a
    /// power cut ends for many devices at once.
    pub start_within: Span,
    /// The program and its version, stored with results.
    pub version: String,
    /// Attributes of the line, sent with the first request only.
    pub attributes: Option<crate::device::Attributes>,
    /// A second statement of the removal, at least this long after the first, stops the device for
    /// good.
    pub confirm_removal: Span,
    pub limits: Limits,
}

#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    /// A reading of the orchestrator's clock in milliseconds since 1970, and when it was taken.
    clock: (Time, u64),
    request: u64,
    is_answered: bool,
    /// Index of the orchestrator that receives the next request.
    orchestrator: usize,
    /// Orchestrators in a row that did not answer.
    silent: usize,
    /// Rounds in a row in which no orchestrator answered.
    rounds: u32,
    /// Earliest time of the next request of any kind.
    contact_at: Time,
    /// Earliest time of the next request for a run.
    poll_at: Time,
    /// Results per request; 0 after an orchestrator rejected a single result.
    batch: usize,
    last_request: RequestKind,
    in_hand: InHand,
    /// A lease to release, and when it has expired at the latest.
    release: Option<(u64, Time)>,
    alone: Option<Alone>,
    alone_at: Option<Time>,
    /// Results that could not be stored.
    lost: u64,
    must_renew: bool,
    /// Consecutive requests that were answered with [`Trouble::Outdated`].
    outdated: u32,
    removal: Option<RemovalNotice>,
    /// Runs and traffic of the last day and month, to be stored over a restart.
    pub usage: Usage,
    /// The time up to which `usage` has been advanced.
    usage_at: Time,
    pace: Pace,
}

#[derive(Clone, Debug)]
enum InHand {
    Nothing,
    Run(Box<PendingRun>),
    Move(Box<PendingRun>),
    Keep { result: Box<RunResult>, tries: u32, at: Time },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Next,
    Move,
    Release,
    HandIn,
}

/// The shortest and the longest interval between requests for runs; answers cannot override them.
const POLL_LEAST: Span = Span::from_secs(1);
const POLL_MOST: Span = Span::from_millis(POLL_MOST_MS);
const POLL_MOST_MS: u64 = 86_400_000;
/// Bounds of the delay that [`Trouble::Later`] may demand.
const LATER_LEAST_MS: u64 = 1_000;
const LATER_MOST_MS: u64 = 3_600_000;
/// A lease that could not be released for this long has expired.
const RELEASE_WITHIN: Span = Span::from_secs(60);
/// Approximate traffic of an attempt that ends without a session: two handshakes.
const TRY_BYTES: u64 = 10_000;
/// Interval and number of the attempts to store a result.
const KEEP_AGAIN: Span = Span::from_secs(60);
const KEEP_TRIES: u32 = 5;

impl Agent {
    /// Starts a device with what it stored before. `wall_ms` is its own clock, in milliseconds
    /// since 1970, which is used until an orchestrator's clock is known.
    pub fn begin(
        settings: Settings,
        memory: Memory,
        now: Time,
        wall_ms: u64,
        rng: &mut Rng,
    ) -> Self {
        let start = now + share_of(settings.start_within, uniform(rng));
        let mut agent = Self {
            clock: (now, wall_ms),
            request: memory.request,
            is_answered: memory.is_answered(),
            orchestrator: 0,
            silent: 0,
            rounds: 0,
            contact_at: start,
            poll_at: start,
            batch: RESULTS_MAX,
            last_request: RequestKind::Next,
            in_hand: InHand::Nothing,
            release: None,
            alone: memory.alone.and_then(|alone| acceptable(alone, &settings.limits)),
            alone_at: None,
            lost: 0,
            must_renew: false,
            outdated: 0,
            removal: memory.removal,
            usage: memory.usage,
            usage_at: now,
            pace: Pace::new(now),
            settings,
        };
        if let Some(began) = memory.interrupted {
            agent.usage.add_run();
            agent.usage.add_interrupted(&agent.settings.limits);
            agent.release = began.lease_id.map(|id| (id, start + RELEASE_WITHIN));
            let reason = "the agent was stopped in the middle of it";
            let mut result = agent.result_of(&began.plan, began.run, Outcome::Failed, reason);
            (result.at_ms, result.server) = (began.at_ms, began.server);
            agent.keep(result, now);
        }
        agent
    }

    /// Returns the orchestrator's clock at `now`, milliseconds since 1970.
    pub fn now_ms(&self, now: Time) -> u64 {
        let (then, then_ms) = self.clock;
        // `now` may be before the last reading: a run began before the clock was last read.
        then_ms
            .saturating_add(now.since(then).as_millis())
            .saturating_sub(then.since(now).as_millis())
    }

    /// Sets the orchestrator's clock, for example from the time in a refusal.
    pub fn set_clock(&mut self, now: Time, now_ms: u64) {
        self.clock = (now, now_ms);
    }

    /// Returns the measurements allowed without an orchestrator, to be stored over a restart.
    pub fn alone(&self) -> Option<&Alone> {
        self.alone.as_ref()
    }

    /// Returns the statement of orchestrators that the device was removed, to be stored.
    pub fn removal(&self) -> Option<RemovalNotice> {
        self.removal
    }

    /// Whether no orchestrator answered in the last round of requests.
    pub fn is_away(&self) -> bool {
        self.rounds > 0
    }

    /// Returns the task to execute now. A repeated call at the same time, with nothing heard in
    /// between, returns the same task.
    pub fn next(&mut self, now: Time, local: &Local, rng: &mut Rng) -> Task {
        if self.removal.is_some_and(|notice| notice.is_confirmed) {
            return Task::Stop;
        }
        self.pass(now);
        if let Some(task) = self.next_in_hand(now, local) {
            return task;
        }
        let may_ask = now >= self.contact_at;
        if may_ask && let Some(task) = self.next_contact(now, local) {
            return task;
        }
        let is_keeping = matches!(self.in_hand, InHand::Keep { .. });
        if !is_keeping && let Some(task) = self.next_alone(now, local, rng) {
            return task;
        }
        Task::Wait { until: self.wake_at(now, local) }
    }

    fn pass(&mut self, now: Time) {
        let passed = Span::from_millis(now.since(self.usage_at).as_millis());
        self.usage.pass(passed);
        self.usage_at += passed;
    }

    fn next_in_hand(&mut self, now: Time, local: &Local) -> Option<Task> {
        let exhausted = self.usage.exhausted(&self.settings.limits);
        let bytes_left = self.usage.bytes_left(&self.settings.limits);
        let void = match &self.in_hand {
            InHand::Run(pending) => {
                pending.is_void(now, local, exhausted).map(|void| (pending.clone(), void))
            }
            InHand::Move(pending) if pending.is_late(now) => {
                Some((pending.clone(), (Outcome::Failed, LATE.to_owned())))
            }
            _ => None,
        };
        if let Some((pending, (outcome, reason))) = void {
            self.end_unmeasured(&pending, outcome, &reason, now);
        }
        match &self.in_hand {
            InHand::Run(pending) if now < pending.from => Some(Task::Wait { until: pending.from }),
            InHand::Run(pending) => Some(Task::Run(pending.task(self.now_ms(now), bytes_left))),
            InHand::Move(pending) if now < self.contact_at => {
                Some(Task::Wait { until: self.contact_at.min(pending.late_at()) })
            }
            InHand::Move(pending) => {
                let request = pending.to_move();
                self.last_request = RequestKind::Move;
                Some(Task::Move { orchestrator: self.orchestrator, request })
            }
            InHand::Keep { result, at, .. } if now >= *at => Some(Task::Keep(result.clone())),
            InHand::Keep { .. } | InHand::Nothing => None,
        }
    }

    fn next_contact(&mut self, now: Time, local: &Local) -> Option<Task> {
        let orchestrator = self.orchestrator;
        if let Some((lease_id, until)) = self.release {
            if now < until {
                self.last_request = RequestKind::Release;
                return Some(Task::Release { orchestrator, request: Release { lease_id } });
            }
            self.release = None;
        }
        if self.must_renew {
            return Some(Task::Renew);
        }
        if local.waiting > 0 {
            let most = self.batch;
            self.last_request = RequestKind::HandIn;
            let hand_in = Task::HandIn { orchestrator, most };
            return Some(if most == 0 { Task::Discard } else { hand_in });
        }
        if now < self.poll_at || matches!(self.in_hand, InHand::Keep { .. }) {
            return None;
        }
        if self.is_answered {
            self.request += 1;
            self.is_answered = false;
        }
        self.last_request = RequestKind::Next;
        let request = Next {
            epoch: local.epoch,
            request: self.request,
            is_busy: local.is_busy,
            waiting: local.waiting,
            dropped: local.dropped + self.lost,
            attributes: self.settings.attributes.clone(),
        };
        Some(Task::Ask { orchestrator, request })
    }

    /// Begins a run without a lease when one is due.
    fn next_alone(&mut self, now: Time, local: &Local, rng: &mut Rng) -> Option<Task> {
        let alone = self.alone.as_ref().filter(|_| self.rounds > 0)?;
        let now_ms = self.now_ms(now);
        if alone.until_ms.is_some_and(|until| now_ms >= until) {
            return None;
        }
        let is_exhausted = self.usage.exhausted(&self.settings.limits).is_some();
        let at = self.alone_at.filter(|at| now < *at || !is_exhausted);
        let Some(at) = at else {
            let of_day = Time::from_nanos(now_ms.saturating_mul(1_000_000));
            let at = next_run(rng, of_day, alone.runs_per_day, window_of(alone));
            self.alone_at = Some(now + at.since(of_day));
            return None;
        };
        if now < at {
            return None;
        }
        self.alone_at = None;
        let pending = PendingRun::alone(alone, now, rng);
        self.in_hand = InHand::Run(Box::new(pending));
        self.next_in_hand(now, local)
    }

    /// Returns when the next task is due if no news arrives before.
    fn wake_at(&self, now: Time, local: &Local) -> Time {
        let must_contact = local.waiting > 0 || self.release.is_some() || self.must_renew;
        let contact =
            if must_contact { self.contact_at } else { self.contact_at.max(self.poll_at) };
        let mut wake = contact;
        match &self.in_hand {
            InHand::Keep { at, .. } if must_contact => wake = wake.min(*at),
            // No other request is due before.
            InHand::Keep { at, .. } => wake = *at,
            _ if self.rounds > 0 => wake = self.alone_at.map_or(wake, |at| wake.min(at)),
            _ => {}
        }
        wake.max(now + Span::from_millis(1))
    }

    /// Receives the result of the task that [`Agent::next`] returned last.
    pub fn hear(&mut self, now: Time, news: News, rng: &mut Rng) {
        match news {
            News::Next(answer) => {
                self.answered(now);
                self.take(now, *answer);
            }
            News::Moved(moved) => {
                self.answered(now);
                self.moved(now, moved);
            }
            News::Released => {
                self.answered(now);
                self.release = None;
            }
            News::Stored => {
                self.answered(now);
                self.batch = RESULTS_MAX;
            }
            News::Discarded => self.batch = RESULTS_MAX,
            News::Renewed => {
                self.must_renew = false;
                (self.request, self.is_answered) = (0, true);
            }
            News::Kept => self.in_hand = InHand::Nothing,
            News::NotKept => self.not_kept(now),
            News::Ran(ran) => self.ran(now, *ran),
            News::Trouble(trouble) => self.trouble(now, trouble, rng),
        }
    }

    fn answered(&mut self, now: Time) {
        (self.silent, self.rounds, self.alone_at) = (0, 0, None);
        self.removal = None;
        self.contact_at = now;
    }

    fn take(&mut self, now: Time, answer: NextAnswer) {
        self.clock = (now, answer.now_ms);
        self.is_answered = true;
        self.outdated = 0;
        // Attributes are sent once.
        self.settings.attributes = None;
        // Limits the delay that an answer may demand.
        let from_now =
            |at_ms: u64| Span::from_millis(at_ms.saturating_sub(answer.now_ms).min(POLL_MOST_MS));
        let limits = &self.settings.limits;
        self.poll_at = now + from_now(answer.next_poll_ms).clamp(POLL_LEAST, POLL_MOST);
        self.pace.count(now, limits);
        self.poll_at = self.poll_at.max(self.pace.next(limits));
        self.alone = answer.alone.and_then(|alone| acceptable(alone, limits));
        let Some(run) = answer.run else { return };
        let from = now + from_now(run.not_before_ms).min(POLL_MOST);
        let until = now + from_now(run.not_after_ms).min(POLL_MOST);
        if let Some(pending) = PendingRun::leased(run, (from, until), self.request, limits) {
            self.in_hand = InHand::Run(Box::new(pending));
        }
    }

    fn moved(&mut self, now: Time, moved: Moved) {
        let InHand::Move(pending) = &self.in_hand else { return };
        let mut pending = pending.clone();
        if let (Some(lease), Some(server)) = (moved.lease, moved.server)
            && is_lease(&lease)
            && is_server(&server)
        {
            pending.goes_to(server, lease);
            self.in_hand = InHand::Run(pending);
            return;
        }
        // The orchestrator has released the lease.
        pending.lease_id = None;
        let reason = pending.why.clone();
        self.end_unmeasured(&pending, Outcome::Refused, &reason, now);
    }

    fn ran(&mut self, now: Time, ran: Ran) {
        let InHand::Run(pending) = &self.in_hand else { return };
        let mut pending = pending.clone();
        match ran {
            Ran::Over { outcome, reason, began, steps, bytes } => {
                self.count_run(&pending, bytes);
                let mut result = self.result_of(&pending.plan, pending.run, outcome, &reason);
                result.at_ms = self.now_ms(began);
                result.server = pending.server_name();
                result.steps = steps;
                self.end(&pending, result, now);
            }
            Ran::TurnedAway { reason } => {
                self.count_run(&pending, TRY_BYTES);
                pending.turned_away(reason, now);
                if !pending.may_try_again() {
                    let reason = pending.why.clone();
                    self.end_unmeasured(&pending, Outcome::Failed, &reason, now);
                } else if pending.lease_id.is_some() {
                    self.in_hand = InHand::Move(pending);
                } else {
                    self.in_hand = InHand::Run(pending);
                }
            }
        }
    }

    fn count_run(&mut self, pending: &PendingRun, bytes: u64) {
        self.usage.add_bytes(bytes);
        if pending.is_first_try() {
            self.usage.add_run();
        }
    }

    fn trouble(&mut self, now: Time, trouble: Trouble, rng: &mut Rng) {
        match trouble {
            Trouble::Removed { at_ms } => self.stated_removed(now, at_ms),
            Trouble::Later { after_ms } => {
                let after = Span::from_millis(after_ms.clamp(LATER_LEAST_MS, LATER_MOST_MS));
                // Spreads devices that were sent away together.
                self.contact_at = now + after + share_of(after, uniform(rng));
            }
            Trouble::Outdated => {
                self.must_renew = true;
                self.contact_at = now + retry_after(rng, self.outdated);
                self.outdated = self.outdated.saturating_add(1);
            }
            Trouble::Unfit if self.last_request == RequestKind::HandIn => {
                // The batch contains a result that orchestrators reject.
                self.batch /= 2;
            }
            Trouble::Unfit | Trouble::Refused => {
                self.give_up(now);
                self.contact_at = now + retry_after(rng, self.rounds);
                self.rounds = self.rounds.saturating_add(1);
            }
            Trouble::NoAnswer => self.no_answer(now, rng),
        }
    }

    /// An orchestrator stated, and signed, that this device was removed. The device measures
    /// nothing until an orchestrator answers otherwise, and stops for good once another statement
    /// confirms the first. If there are several orchestrators, the next one is asked for the
    /// statement.
    fn stated_removed(&mut self, now: Time, at_ms: u64) {
        let first_ms = self.removal.map_or(at_ms, |notice| notice.first_ms.min(at_ms));
        let confirm_ms = self.settings.confirm_removal.as_millis();
        let left_ms = confirm_ms.saturating_sub(at_ms.saturating_sub(first_ms));
        self.removal = Some(RemovalNotice { first_ms, is_confirmed: left_ms == 0 });
        self.alone = None;
        self.give_up(now);
        self.next_orchestrator();
        self.contact_at = now + Span::from_millis(left_ms);
    }

    fn no_answer(&mut self, now: Time, rng: &mut Rng) {
        if self.last_request == RequestKind::HandIn {
            // A smaller request may get through: it takes less time, and proxies limit its size.
            self.batch = (self.batch / 2).max(1);
        }
        self.silent += 1;
        self.next_orchestrator();
        if self.silent < self.settings.orchestrators {
            return;
        }
        self.silent = 0;
        self.contact_at = now + retry_after(rng, self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.give_up(now);
    }

    fn next_orchestrator(&mut self) {
        self.orchestrator = (self.orchestrator + 1) % self.settings.orchestrators.max(1);
    }

    /// Abandons the last request. Its lease, if it has one, expires.
    fn give_up(&mut self, now: Time) {
        if self.last_request == RequestKind::Release {
            self.release = None;
        }
        if let InHand::Move(pending) = &self.in_hand {
            let pending = pending.clone();
            let reason = pending.why.clone();
            self.end_unmeasured(&pending, Outcome::Failed, &reason, now);
        }
    }

    fn not_kept(&mut self, now: Time) {
        let InHand::Keep { tries, at, .. } = &mut self.in_hand else { return };
        (*tries, *at) = (*tries + 1, now + KEEP_AGAIN);
        if *tries >= KEEP_TRIES {
            self.lost += 1;
            self.in_hand = InHand::Nothing;
        }
    }

    /// Ends a run that measured nothing.
    fn end_unmeasured(&mut self, pending: &PendingRun, outcome: Outcome, reason: &str, now: Time) {
        let mut result = self.result_of(&pending.plan, pending.run, outcome, reason);
        result.at_ms = self.now_ms(now);
        result.server = pending.server_name();
        self.end(pending, result, now);
    }

    fn end(&mut self, pending: &PendingRun, result: RunResult, now: Time) {
        self.release = pending.lease_id.map(|id| (id, now + RELEASE_WITHIN));
        self.keep(result, now);
    }

    fn keep(&mut self, result: RunResult, now: Time) {
        self.in_hand = InHand::Keep { result: Box::new(result), tries: 0, at: now };
    }

    fn result_of(&self, plan: &str, run: u64, outcome: Outcome, reason: &str) -> RunResult {
        let mut reason = reason.to_owned();
        reason.truncate(reason.floor_char_boundary(RunResult::NAME_MAX));
        RunResult {
            plan: plan.to_owned(),
            run,
            at_ms: 0,
            outcome,
            reason,
            server: String::new(),
            version: self.settings.version.clone(),
            steps: Vec::new(),
        }
    }
}

fn share_of(span: Span, share: f64) -> Span {
    Span::from_nanos((span.as_nanos() as f64 * share) as u64)
}

#[cfg(test)]
mod tests;
