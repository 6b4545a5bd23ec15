//! What a device does next: asks, runs, keeps, hands in, waits.
//!
//! A state machine without a socket, a clock or a file: [`Agent::next`] says what is to be done
//! now, whoever drives it does that, and [`Agent::hear`] is told what came of it. Times are of a
//! clock that only goes forward; what the orchestrator's clock shows is learned from its answers,
//! so that a step of the device's own clock moves nothing.
//!
//! - One thing at a time: nothing is sent while a line is measured.
//! - A run that loads the line needs a lease. While no orchestrator answers only what the last
//!   [`Alone`] allows is measured: latency.
//! - A result is kept before its lease is given back, and handed in until it is known to be stored.
//! - A device that is told to come back later comes back later, at a random instant.
//! - A device stops for good once two signed statements say that it was removed, the second one
//!   [`Settings::confirm_removal`] after the first. Nothing else that an orchestrator answers stops
//!   it.

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
use run::{Held, LATE, acceptable, window_of};

pub use limits::{Limits, Usage};
pub use memory::{Began, Memory, RemovalNotice};
pub use task::{Local, News, Ran, RunTask, Task, Trouble};

/// What does not change while a device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many orchestrators it knows, at least one; they are told apart by their place.
    pub orchestrators: usize,
    /// It asks first at a random instant within so long after its start: a power cut ends for many
    /// at once.
    pub start_within: Span,
    /// The program and its version, for results.
    pub version: String,
    /// What the device knows of its line, told once.
    pub attributes: Option<crate::device::Attributes>,
    /// How long after the first statement of its removal a second one makes the device stop for
    /// good.
    pub confirm_removal: Span,
    /// Limits of this home.
    pub limits: Limits,
}

/// A device's decisions.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    /// What the orchestrator's clock showed, and when.
    clock: (Time, u64),
    request: u64,
    is_answered: bool,
    /// Who is asked now.
    orchestrator: usize,
    /// Orchestrators that did not answer since one did.
    silent: usize,
    /// How often all of them did not.
    rounds: u32,
    /// Nobody is to be asked before.
    contact_at: Time,
    /// It need not ask before.
    poll_at: Time,
    /// Results of a request; 0 where not even one alone is taken.
    batch: usize,
    asked: Asked,
    in_hand: InHand,
    /// A lease to give back, until it will have ended by itself.
    release: Option<(u64, Time)>,
    alone: Option<Alone>,
    alone_at: Option<Time>,
    lost: u64,
    must_renew: bool,
    /// Requests in a row that were outdated.
    outdated: u32,
    removal: Option<RemovalNotice>,
    usage: Usage,
    /// Up to when time has passed for `usage`.
    usage_at: Time,
    pace: Pace,
}

#[derive(Clone, Debug)]
enum InHand {
    Nothing,
    Run(Box<Held>),
    Move(Box<Held>),
    Keep { result: Box<RunResult>, tries: u32, at: Time },
}

/// The request that was made last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Next,
    Move,
    Release,
    HandIn,
}

/// Nobody asks more often, whatever the orchestrator says.
const POLL_LEAST: Span = Span::from_secs(1);
/// Nor less often.
const POLL_MOST: Span = Span::from_millis(POLL_MOST_MS);
const POLL_MOST_MS: u64 = 86_400_000;
/// The shortest and the longest time for which it can be sent away.
const LATER_LEAST_MS: u64 = 1_000;
const LATER_MOST_MS: u64 = 3_600_000;
/// A lease that could not be given back for so long has ended by itself.
const RELEASE_WITHIN: Span = Span::from_secs(60);
/// Approximate bytes of a try that ends without a session: two handshakes.
const TRY_BYTES: u64 = 10_000;
/// Where a result could not be kept it is tried again after so long, so often.
const KEEP_AGAIN: Span = Span::from_secs(60);
const KEEP_TRIES: u32 = 5;

impl Agent {
    /// A device that begins, with what it remembers. `wall_ms` is what its own clock shows, in
    /// milliseconds since 1970, which is believed until an orchestrator's is known.
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
            asked: Asked::Next,
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

    /// What the orchestrator's clock shows, milliseconds since 1970, as far as it is known.
    pub fn now_ms(&self, now: Time) -> u64 {
        let (then, then_ms) = self.clock;
        let ms = |span: Span| span.as_nanos() / 1_000_000;
        // What has been may be asked for, too: a run began before the clock was last looked at.
        then_ms.saturating_add(ms(now.since(then))).saturating_sub(ms(then.since(now)))
    }

    /// The clock was found to show this, for example by what a refusal said.
    pub fn set_clock(&mut self, now: Time, now_ms: u64) {
        self.clock = (now, now_ms);
    }

    /// What it measures while it is alone; worth remembering over a restart.
    pub fn alone(&self) -> Option<&Alone> {
        self.alone.as_ref()
    }

    /// The statement of orchestrators that it was removed, to be stored over a restart.
    pub fn removal(&self) -> Option<RemovalNotice> {
        self.removal
    }

    /// Runs and traffic of the last day and month, to be stored over a restart.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Whether no orchestrator answered when it was last tried.
    pub fn is_away(&self) -> bool {
        self.rounds > 0
    }

    /// What is to be done now. The same again, if nothing was heard since and no time passed.
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
        let passed = Span::from_millis(now.since(self.usage_at).as_nanos() / 1_000_000);
        self.usage.pass(passed);
        self.usage_at += passed;
    }

    fn next_in_hand(&mut self, now: Time, local: &Local) -> Option<Task> {
        let exhausted = self.usage.exhausted(&self.settings.limits);
        let bytes_left = self.usage.bytes_left(&self.settings.limits);
        let void = match &self.in_hand {
            InHand::Run(held) => {
                held.is_void(now, local, exhausted).map(|void| (held.clone(), void))
            }
            InHand::Move(held) if held.is_late(now) => {
                Some((held.clone(), (Outcome::Failed, LATE.to_owned())))
            }
            _ => None,
        };
        if let Some((held, (outcome, reason))) = void {
            self.end_unmeasured(&held, outcome, &reason, now);
        }
        match &self.in_hand {
            InHand::Run(held) if now < held.from => Some(Task::Wait { until: held.from }),
            InHand::Run(held) => Some(Task::Run(held.task(self.now_ms(now), bytes_left))),
            InHand::Move(held) if now < self.contact_at => {
                Some(Task::Wait { until: self.contact_at.min(held.late_at()) })
            }
            InHand::Move(held) => {
                let request = held.to_move();
                self.asked = Asked::Move;
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
                self.asked = Asked::Release;
                return Some(Task::Release { orchestrator, request: Release { lease_id } });
            }
            self.release = None;
        }
        if self.must_renew {
            return Some(Task::Renew);
        }
        if local.waiting > 0 {
            let most = self.batch;
            self.asked = Asked::HandIn;
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
        self.asked = Asked::Next;
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

    /// A run without a lease, if it is time for one.
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
        let held = Held::alone(alone, now, rng);
        self.in_hand = InHand::Run(Box::new(held));
        self.next_in_hand(now, local)
    }

    /// When there is something to do next, unless something is heard before.
    fn wake_at(&self, now: Time, local: &Local) -> Time {
        let must_contact = local.waiting > 0 || self.release.is_some() || self.must_renew;
        let contact =
            if must_contact { self.contact_at } else { self.contact_at.max(self.poll_at) };
        let mut wake = contact;
        match &self.in_hand {
            InHand::Keep { at, .. } if must_contact => wake = wake.min(*at),
            // It asks for nothing before.
            InHand::Keep { at, .. } => wake = *at,
            _ if self.rounds > 0 => wake = self.alone_at.map_or(wake, |at| wake.min(at)),
            _ => {}
        }
        wake.max(now + Span::from_millis(1))
    }

    /// What came of the task that [`Agent::next`] gave last.
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
        // Told once.
        self.settings.attributes = None;
        // Whatever an answer says, it is within what a span can be.
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
        if let Some(held) = Held::leased(run, (from, until), self.request, limits) {
            self.in_hand = InHand::Run(Box::new(held));
        }
    }

    fn moved(&mut self, now: Time, moved: Moved) {
        let InHand::Move(held) = &self.in_hand else { return };
        let mut held = held.clone();
        if let (Some(lease), Some(server)) = (moved.lease, moved.server)
            && is_lease(&lease)
            && is_server(&server)
        {
            held.goes_to(server, lease);
            self.in_hand = InHand::Run(held);
            return;
        }
        // The orchestrator has ended it.
        held.lease_id = None;
        let reason = held.why.clone();
        self.end_unmeasured(&held, Outcome::Refused, &reason, now);
    }

    fn ran(&mut self, now: Time, ran: Ran) {
        let InHand::Run(held) = &self.in_hand else { return };
        let mut held = held.clone();
        match ran {
            Ran::Over { outcome, reason, began, steps, bytes } => {
                self.count_run(&held, bytes);
                let mut result = self.result_of(&held.plan, held.run, outcome, &reason);
                result.at_ms = self.now_ms(began);
                result.server = held.server_name();
                result.steps = steps;
                self.end(&held, result, now);
            }
            Ran::TurnedAway { reason } => {
                self.count_run(&held, TRY_BYTES);
                held.turned_away(reason, now);
                if !held.may_try_again() {
                    let reason = held.why.clone();
                    self.end_unmeasured(&held, Outcome::Failed, &reason, now);
                } else if held.lease_id.is_some() {
                    self.in_hand = InHand::Move(held);
                } else {
                    self.in_hand = InHand::Run(held);
                }
            }
        }
    }

    fn count_run(&mut self, held: &Held, bytes: u64) {
        self.usage.add_bytes(bytes);
        if held.is_first_try() {
            self.usage.add_run();
        }
    }

    fn trouble(&mut self, now: Time, trouble: Trouble, rng: &mut Rng) {
        match trouble {
            Trouble::Removed { at_ms } => self.stated_removed(now, at_ms),
            Trouble::Later { after_ms } => {
                let after = Span::from_millis(after_ms.clamp(LATER_LEAST_MS, LATER_MOST_MS));
                // Those who were sent away together do not come back together.
                self.contact_at = now + after + share_of(after, uniform(rng));
            }
            Trouble::Outdated => {
                self.must_renew = true;
                self.contact_at = now + retry_after(rng, self.outdated);
                self.outdated = self.outdated.saturating_add(1);
            }
            Trouble::Unfit if self.asked == Asked::HandIn => {
                // One of its results is one that nobody takes.
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
    /// nothing until an orchestrator answers otherwise, and stops for good once the removal is
    /// stated again, by another orchestrator where there is one.
    fn stated_removed(&mut self, now: Time, at_ms: u64) {
        let first_ms = self.removal.map_or(at_ms, |notice| notice.first_ms.min(at_ms));
        let confirm_ms = self.settings.confirm_removal.as_nanos() / 1_000_000;
        let left_ms = confirm_ms.saturating_sub(at_ms.saturating_sub(first_ms));
        self.removal = Some(RemovalNotice { first_ms, is_confirmed: left_ms == 0 });
        self.alone = None;
        self.give_up(now);
        self.next_orchestrator();
        self.contact_at = now + Span::from_millis(left_ms);
    }

    fn no_answer(&mut self, now: Time, rng: &mut Rng) {
        if self.asked == Asked::HandIn {
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

    /// What was asked for last will not be had: a lease ends by itself, too.
    fn give_up(&mut self, now: Time) {
        if self.asked == Asked::Release {
            self.release = None;
        }
        if let InHand::Move(held) = &self.in_hand {
            let held = held.clone();
            let reason = held.why.clone();
            self.end_unmeasured(&held, Outcome::Failed, &reason, now);
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

    /// A run ends without having measured.
    fn end_unmeasured(&mut self, held: &Held, outcome: Outcome, reason: &str, now: Time) {
        let mut result = self.result_of(&held.plan, held.run, outcome, reason);
        result.at_ms = self.now_ms(now);
        result.server = held.server_name();
        self.end(held, result, now);
    }

    fn end(&mut self, held: &Held, result: RunResult, now: Time) {
        self.release = held.lease_id.map(|id| (id, now + RELEASE_WITHIN));
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
