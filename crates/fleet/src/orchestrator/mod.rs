//! What an orchestrator answers, as changes of a [`Transaction`].
//!
//! Each method is one request: it looks at the store, changes it, and says what to answer. Time,
//! randomness and the sender are arguments, so that the same code runs behind HTTPS and in
//! simulations. Orchestrators know nothing that is not in the store: any number of them may share
//! one. A rejected request has changed nothing.
//!
//! # Every run that was due has one outcome
//!
//! A device's [`Schedule`](crate::store::Schedule) counts the runs of a plan. A run ends in one of
//! two ways, and each takes it off the schedule in the transaction that keeps its outcome:
//!
//! - It was not given to the device: the orchestrator says what became of it. Refused or held back
//!   by the home's own traffic until `start_within` was over, or missed where the device did not
//!   ask in time. While a device is silent, [`Orchestrator::settle`] does so.
//! - It was given ([`OpenRun`](crate::store::OpenRun)): the device says what became of it, and the
//!   first result that it hands in for that run counts. Only where no result can come any more the
//!   orchestrator says that it was missed: the device asks for more and says that nothing waits,
//!   it is removed, or it is silent for [`OWED_MS`].
//!
//! What the orchestrator says is kept as a result of the device, with the epoch [`MADE_EPOCH`],
//! which no device may use.

mod admit;
mod enrol;
mod next;
mod operate;
mod results;
mod settle;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::admission::{Reason, Refusal, Rules};
use crate::device::DeviceId;
use crate::lease::Claims;
use crate::message::{
    Enrol, Enrolled, Heartbeat, HeartbeatAnswer, Move, Moved, Next, NextAnswer, OpenSession,
    Release, Released, Results, Session, Stored,
};
use crate::plan::Plan;
use crate::removal::{Removal, Removed};
use crate::store::{Device, HeldLease, PlanRow, StoreError, Transaction};

pub use crate::store::MADE_EPOCH;
pub use operate::{NewCode, applicable};

/// A run that was given may begin within so long.
pub const START_MS: u64 = 30_000;
/// A step takes so much longer than it measures and loads: connections, and the last answers.
pub const STEP_EXTRA_MS: u64 = 3_000;
/// A silent device's results are waited for so long after their runs were given.
pub const OWED_MS: u64 = 30 * 86_400_000;
/// Runs at most whose results a device owes; it gets no other before.
pub const OPEN_MAX: usize = 64;
/// Plans at most that are not over.
pub const PLANS_MAX: usize = 32;
/// Outcomes at most that one request makes; the next one goes on.
const MADE_MAX: usize = 256;
/// Leases that a heartbeat may end at most.
pub const HEARTBEAT_ENDED_MAX: usize = 4_096;
/// The setting of a store that records what an operator wrote of a device's line.
pub fn line_setting(device: DeviceId) -> String {
    format!("line/{device}")
}

/// Servers send a heartbeat so often.
pub const HEARTBEAT_MS: u64 = 10_000;

/// What an orchestrator is told at its start.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What holds for all runs.
    pub rules: Rules,
    /// A device that has nothing to do asks again within so long.
    pub poll_ms: u64,
    /// Keys that leases may still be signed with, besides the present one; newest first.
    pub previous_lease_keys: Vec<[u8; 32]>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rules: Rules::default(), poll_ms: 6 * 3_600_000, previous_lease_keys: Vec::new() }
    }
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is none that could be answered.
    BadRequest,
    /// Its sender is not who it says.
    Unauthorized,
    /// Its sender may not.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It does not go with what is there.
    Conflict,
    /// Its sender is to stop for good.
    Gone,
    /// It asks for too much at once.
    TooLarge,
    /// Not so often.
    TooMany,
    /// Not now.
    Unavailable,
}

impl Kind {
    /// The status of HTTP.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Gone => 410,
            Self::TooLarge => 413,
            Self::TooMany => 429,
            Self::Unavailable => 503,
        }
    }
}

/// A request is not answered. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// What kind of fault it is.
    pub kind: Kind,
    /// For programs, for example `not-enrolled`.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// When another try may help, seconds.
    pub retry_after_s: Option<u64>,
    /// With [`Kind::Gone`], the enrolment that was ended; see [`Orchestrator::sign_removal`].
    pub removed: Option<Removed>,
}

impl Rejection {
    fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), retry_after_s: None, removed: None }
    }

    /// The sender was removed.
    fn gone(removed: Removed) -> Self {
        let message = "this device or server was removed";
        Self { removed: Some(removed), ..Self::new(Kind::Gone, "removed", message) }
    }
}

/// What came of a request: the answer or why there is none, unless the store failed.
pub type Answer<T> = Result<Result<T, Rejection>, StoreError>;

/// Why a request ends before its answer.
enum Stop {
    Rejected(Rejection),
    Failed(StoreError),
}

impl From<Rejection> for Stop {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn answer<T>(done: Result<T, Stop>) -> Answer<T> {
    match done {
        Ok(answer) => Ok(Ok(answer)),
        Err(Stop::Rejected(rejection)) => Ok(Err(rejection)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Admits runs and takes results. See the module.
#[derive(Debug)]
pub struct Orchestrator {
    settings: Settings,
    lease_key: Ed25519KeyPair,
    fleet_secret: [u8; 32],
    /// Plans that were parsed, with their texts.
    parsed: Mutex<BTreeMap<String, (String, Arc<Plan>)>>,
    held_back: [AtomicU64; Refusal::ALL.len() + 1],
}

/// A plan that was applied.
#[derive(Debug, Clone)]
struct Applied {
    row: PlanRow,
    plan: Arc<Plan>,
}

impl Applied {
    /// No run is due from then on.
    fn ends_ms(&self) -> u64 {
        let until = self.plan.until_ms.unwrap_or(u64::MAX);
        self.row.stopped_ms.map_or(until, |stopped| stopped.min(until))
    }
}

/// A store's answer, as an instant.
fn time(ms: u64) -> Time {
    Time::from_nanos(ms.saturating_mul(1_000_000))
}

/// An instant, as a store keeps it; rounded up, so that what is due has come.
fn millis(time: Time) -> u64 {
    time.as_nanos().div_ceil(1_000_000)
}

fn span_ms(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000)
}

#[expect(clippy::missing_errors_doc, reason = "the store's, which changes nothing")]
impl Orchestrator {
    /// An orchestrator that signs leases with that key, and sessions with that secret of its
    /// fleet.
    pub fn new(settings: Settings, lease_key: Ed25519KeyPair, fleet_secret: [u8; 32]) -> Self {
        let (parsed, held_back) = (Mutex::default(), std::array::from_fn(|_| AtomicU64::new(0)));
        Self { settings, lease_key, fleet_secret, parsed, held_back }
    }

    /// Somebody becomes a device or a server.
    pub fn enrol(&self, tx: &mut dyn Transaction, now_ms: u64, it: &Enrol) -> Answer<Enrolled> {
        answer(self.enrol_or_stop(tx, now_ms, it))
    }

    /// A device or a server proves its key.
    pub fn open_session(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        it: &OpenSession,
    ) -> Answer<Session> {
        answer(self.open_session_or_stop(tx, now_ms, it))
    }

    /// A device asks whether it is its turn.
    pub fn next(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        it: &Next,
    ) -> Answer<NextAnswer> {
        answer(self.next_or_stop(tx, now_ms, rng, sender, it))
    }

    /// A device was turned away by the server of its lease.
    pub fn move_lease(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        sender: DeviceId,
        it: &Move,
    ) -> Answer<Moved> {
        answer(self.move_or_stop(tx, now_ms, rng, sender, it))
    }

    /// A device gives back its lease.
    pub fn release(
        &self,
        tx: &mut dyn Transaction,
        sender: DeviceId,
        it: &Release,
    ) -> Answer<Released> {
        answer(admit::release_or_stop(tx, sender, it))
    }

    /// A device hands in what it measured.
    pub fn results(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        sender: DeviceId,
        it: &Results,
    ) -> Answer<Stored> {
        answer(self.results_or_stop(tx, now_ms, sender, it))
    }

    /// A server is alive.
    pub fn heartbeat(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        sender: DeviceId,
        it: &Heartbeat,
    ) -> Answer<HeartbeatAnswer> {
        answer(self.heartbeat_or_stop(tx, now_ms, sender, it))
    }

    /// How often a run that was due was held back since this orchestrator began, by reason.
    pub fn held_back(&self) -> Vec<(Reason, u64)> {
        let refused = Refusal::ALL.into_iter().map(Reason::Refused);
        let reasons = std::iter::once(Reason::HomeBusy).chain(refused);
        let counts = self.held_back.iter().map(|count| count.load(Ordering::Relaxed));
        reasons.zip(counts).collect()
    }

    fn count(&self, reason: Reason) {
        let place = match reason {
            Reason::HomeBusy => 0,
            Reason::Refused(refusal) => {
                1 + Refusal::ALL.iter().position(|it| *it == refusal).unwrap_or(0)
            }
        };
        self.held_back[place].fetch_add(1, Ordering::Relaxed);
    }

    /// The public key of its leases.
    pub fn lease_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.lease_key.public_key().as_ref());
        key
    }

    /// Signs that an enrolment was ended, for the device that asked.
    pub fn sign_removal(&self, removed: Removed, now_ms: u64) -> Removal {
        removed.sign(&self.lease_key, now_ms)
    }

    /// All plans, also those that are over. One that cannot be read stops everything: what it
    /// demanded is not known.
    fn plans(&self, tx: &mut dyn Transaction) -> Result<Vec<Applied>, StoreError> {
        let rows = tx.plans()?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = |row: PlanRow| {
            let known = parsed.get(&row.name).filter(|(text, _)| *text == row.text);
            let plan = match known {
                Some((_, plan)) => Arc::clone(plan),
                None => {
                    let plan = Plan::parse(&row.text).map_err(|error| {
                        StoreError::broken(format!("the plan `{}` cannot be read", row.name))
                            .because(error)
                    })?;
                    let plan = Arc::new(plan);
                    parsed.insert(row.name.clone(), (row.text.clone(), Arc::clone(&plan)));
                    plan
                }
            };
            Ok(Applied { row, plan })
        };
        rows.into_iter().map(&mut read).collect()
    }
}

/// The device that sent a request.
fn enrolled(tx: &mut dyn Transaction, sender: DeviceId) -> Result<Device, Stop> {
    let Some(device) = tx.device(sender)? else {
        return Err(Rejection::new(Kind::Forbidden, "not-a-device", "not a device").into());
    };
    if device.is_removed {
        return Err(Rejection::gone(device.enrolment()).into());
    }
    Ok(device)
}

fn claims(lease: &HeldLease, plan: &Plan) -> Claims {
    let lasts_ms = lasts_ms(plan);
    Claims {
        id: lease.id,
        device: lease.device,
        server: lease.server.clone(),
        up_bit_per_s: lease.up_bit_per_s,
        down_bit_per_s: lease.down_bit_per_s,
        not_before_ms: lease.given_ms,
        not_after_ms: lease.given_ms.saturating_add(START_MS),
        lasts_ms,
        expires_ms: lease.expires_ms,
    }
}

/// How long a run takes at most once it has begun.
fn lasts_ms(plan: &Plan) -> u64 {
    span_ms(plan.run_lasts()) + plan.steps.len() as u64 * STEP_EXTRA_MS
}

#[cfg(test)]
mod tests;
