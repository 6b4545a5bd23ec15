//! A run that a device has in hand.

use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use super::task::{Local, RunTask};
use super::{Began, POLL_MOST};
use crate::message::{Alone, AssignedStep, Assignment, Move, ServerAddress};
use crate::outcome::Outcome;
use crate::plan::Kind;
use crate::schedule::Window;

/// What is to be run, where, and until when.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub plan: String,
    pub run: u64,
    pub from: Time,
    /// Not to begin after.
    pub until: Time,
    pub lease_id: Option<u64>,
    /// Why the last server did not take it.
    pub why: String,
    request: u64,
    steps: Vec<AssignedStep>,
    lease: Option<String>,
    /// Those that may be gone to; the first is the next.
    servers: Vec<ServerAddress>,
    tried: Vec<String>,
}

impl Held {
    pub(super) fn leased(run: Assignment, from: Time, until: Time, request: u64) -> Self {
        let mut servers = run.servers;
        // The lease is for the first alone.
        servers.truncate(1);
        Self {
            plan: run.plan,
            run: run.run,
            from,
            until,
            lease_id: Some(run.lease_id),
            why: String::new(),
            request,
            steps: run.steps,
            lease: Some(run.lease),
            servers,
            tried: Vec::new(),
        }
    }

    /// A run that nobody gave; `None` where there is nothing that may be done without a lease.
    pub(super) fn alone(alone: &Alone, now: Time, rng: &mut Rng) -> Option<Self> {
        let needs_none = |step: &&AssignedStep| step.kind == Kind::Latency;
        let steps: Vec<_> = alone.steps.iter().filter(needs_none).cloned().collect();
        if steps.is_empty() || alone.servers.is_empty() {
            return None;
        }
        let mut servers = alone.servers.clone();
        servers.rotate_left(rng.below(alone.servers.len() as u32) as usize);
        Some(Self {
            plan: alone.plan.clone(),
            run: 0,
            from: now,
            until: now + POLL_MOST,
            lease_id: None,
            why: String::new(),
            request: 0,
            steps,
            lease: None,
            servers,
            tried: Vec::new(),
        })
    }

    /// Whether its time was over before it began.
    pub(super) fn is_late(&self, now: Time) -> bool {
        now > self.until
    }

    /// From then on its time is over.
    pub(super) fn late_at(&self) -> Time {
        self.until + Span::from_millis(1)
    }

    /// Why it is not to be made now, if it is not.
    pub(super) fn is_void(&self, now: Time, local: &Local) -> Option<(Outcome, &'static str)> {
        if now < self.from {
            return None;
        }
        if self.is_late(now) {
            return Some((Outcome::Failed, LATE));
        }
        if self.servers.is_empty() {
            return Some((Outcome::Failed, "it names no server"));
        }
        local.is_busy.then_some((Outcome::CrossTraffic, "the home used its line before"))
    }

    pub(super) fn task(&self, now_ms: u64) -> Box<RunTask> {
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
        Box::new(RunTask { began, steps, server, lease })
    }

    pub(super) fn to_move(&self) -> Move {
        // The number is of a lease: whoever has none does not move.
        Move { lease_id: self.lease_id.unwrap_or(0), tried: self.tried.clone() }
    }

    pub(super) fn goes_to(&mut self, server: ServerAddress, lease: String) {
        self.servers = vec![server];
        self.lease = Some(lease);
    }

    /// The first server did not take it. Whether another is known that may.
    pub(super) fn turned_away(&mut self, reason: String) -> bool {
        self.why = reason;
        if !self.servers.is_empty() {
            self.tried.push(self.servers.remove(0).name);
        }
        !self.servers.is_empty()
    }

    /// Where it went, or would have gone.
    pub(super) fn server_name(&self) -> String {
        let first = self.servers.first().map(|server| &server.name);
        first.or(self.tried.last()).cloned().unwrap_or_default()
    }
}

/// Why it was not made.
pub(super) const LATE: &str = "its time was over before it began";

fn nowhere() -> ServerAddress {
    ServerAddress { name: String::new(), address: String::new(), fingerprint: String::new() }
}

pub(super) fn window_of(alone: &Alone) -> Window {
    let window = Window {
        from: Span::from_secs(u64::from(alone.from_s)),
        until: Span::from_secs(u64::from(alone.until_s).min(86_400)),
    };
    if window.from < window.until { window } else { Window::ALWAYS }
}
