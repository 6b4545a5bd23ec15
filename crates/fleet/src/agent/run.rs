//! A run that a device was assigned and has not finished.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::limits::{Limits, TRIES_MAX, TRY_PAUSE, is_lease, is_name, is_server};
use super::task::{Local, RunTask};
use super::{Began, POLL_MOST};
use crate::message::{Alone, AssignedStep, Assignment, Move, ServerAddress};
use crate::outcome::Outcome;
use crate::plan::Kind;
use crate::schedule::Window;

#[derive(Clone, Debug, Default)]
pub(super) struct PendingRun {
    pub plan: String,
    pub run: u64,
    pub from: Time,
    /// Latest time to begin.
    pub until: Time,
    pub lease_id: Option<u64>,
    /// Reason of the last server that refused the run.
    pub why: String,
    /// Limit of this home that the run violates.
    fault: Option<String>,
    request: u64,
    steps: Vec<AssignedStep>,
    lease: Option<String>,
    /// Servers left to try, the next one first.
    servers: Vec<ServerAddress>,
    tried: Vec<String>,
}

impl PendingRun {
    /// A run from an orchestrator's answer; `None` if a name, lease or server is malformed.
    pub(super) fn leased(
        run: Assignment,
        (from, until): (Time, Time),
        request: u64,
        limits: &Limits,
    ) -> Option<Self> {
        let mut servers = run.servers;
        // The lease is for the first server only.
        servers.truncate(1);
        if !is_name(&run.plan) || !is_lease(&run.lease) || !servers.iter().all(is_server) {
            return None;
        }
        Some(Self {
            plan: run.plan,
            run: run.run,
            from,
            until,
            lease_id: Some(run.lease_id),
            fault: limits.fault(&run.steps),
            request,
            steps: run.steps,
            lease: Some(run.lease),
            servers,
            ..Self::default()
        })
    }

    /// A run without a lease, of the measurements that [`acceptable`] returned.
    pub(super) fn alone(alone: &Alone, now: Time, rng: &mut Rng) -> Self {
        let mut servers = alone.servers.clone();
        let first = rng.below((servers.len() as u32).max(1));
        servers.rotate_left(first as usize);
        Self {
            plan: alone.plan.clone(),
            from: now,
            until: now + POLL_MOST,
            steps: alone.steps.clone(),
            servers,
            ..Self::default()
        }
    }

    /// Returns whether the run can no longer begin.
    pub(super) fn is_late(&self, now: Time) -> bool {
        now > self.until
    }

    pub(super) fn late_at(&self) -> Time {
        self.until + Span::from_millis(1)
    }

    /// Returns the outcome and reason if it must not begin now.
    pub(super) fn is_void(
        &self,
        now: Time,
        local: &Local,
        exhausted: Option<&'static str>,
    ) -> Option<(Outcome, String)> {
        if now < self.from {
            return None;
        }
        let failed = |reason: &str| Some((Outcome::Failed, reason.to_owned()));
        if self.is_late(now) {
            return failed(LATE);
        }
        if self.servers.is_empty() {
            return failed("it names no server");
        }
        if let Some(fault) = &self.fault {
            return failed(fault);
        }
        // A run that has begun may try its other servers.
        if let Some(reason) = exhausted.filter(|_| self.tried.is_empty()) {
            return failed(reason);
        }
        if local.is_metered {
            return failed("the connection is metered");
        }
        let busy = "the home used its line before";
        local.is_busy.then(|| (Outcome::CrossTraffic, busy.to_owned()))
    }

    pub(super) fn task(&self, now_ms: u64, bytes_max: u64) -> Box<RunTask> {
        let server = self.servers.first().cloned().unwrap_or_else(nowhere);
        let began = Began {
            request: self.request,
            plan: self.plan.clone(),
            run: self.run,
            at_ms: now_ms,
            lease_id: self.lease_id,
            server: server.name.clone(),
        };
        let (steps, lease) = (self.steps.clone(), self.lease.clone());
        Box::new(RunTask { began, steps, server, lease, bytes_max })
    }

    pub(super) fn to_move(&self) -> Move {
        // Only runs with a lease move.
        Move { lease_id: self.lease_id.unwrap_or(0), tried: self.tried.clone() }
    }

    pub(super) fn goes_to(&mut self, server: ServerAddress, lease: String) {
        self.servers = vec![server];
        self.lease = Some(lease);
    }

    /// Records that the first server refused the run; the next one is tried after a pause.
    pub(super) fn turned_away(&mut self, reason: String, now: Time) {
        self.why = reason;
        self.from = now + TRY_PAUSE;
        if !self.servers.is_empty() {
            self.tried.push(self.servers.remove(0).name);
        }
    }

    pub(super) fn is_first_try(&self) -> bool {
        self.tried.is_empty()
    }

    pub(super) fn may_try_again(&self) -> bool {
        let may_move = self.lease_id.is_some() || !self.servers.is_empty();
        may_move && self.tried.len() < TRIES_MAX
    }

    /// Returns the name of the server that the run uses, or else of the last one that it tried.
    pub(super) fn server_name(&self) -> String {
        let first = self.servers.first().map(|server| &server.name);
        first.or(self.tried.last()).cloned().unwrap_or_default()
    }
}

pub(super) const LATE: &str = "its time had passed before it began";

fn nowhere() -> ServerAddress {
    ServerAddress { name: String::new(), address: String::new(), fingerprint: String::new() }
}

/// Reduces an answer to measurements that need no lease: latency, at no more servers than a run may
/// try, and no more often than this home allows. `None` if none is left.
pub(super) fn acceptable(mut alone: Alone, limits: &Limits) -> Option<Alone> {
    alone.steps.retain(|step| step.kind == Kind::Latency);
    alone.servers.retain(is_server);
    alone.servers.truncate(TRIES_MAX);
    alone.runs_per_day = alone.runs_per_day.min(f64::from(limits.runs_per_day));
    let is_good = is_name(&alone.plan)
        && !alone.servers.is_empty()
        && alone.runs_per_day > 0.0
        && limits.fault(&alone.steps).is_none();
    is_good.then_some(alone)
}

pub(super) fn window_of(alone: &Alone) -> Window {
    let window = Window {
        from: Span::from_secs(u64::from(alone.from_s)),
        until: Span::from_secs(u64::from(alone.until_s).min(86_400)),
    };
    if window.from < window.until { window } else { Window::ALWAYS }
}
