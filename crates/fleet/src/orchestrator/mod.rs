//! The rules of an orchestrator: its answers to requests, as changes of a
//! [`Transaction`](crate::store::Transaction).
//!
//! Each method handles one request: it reads and changes the store, and returns the answer. Time,
//! randomness and the sender are arguments, so that the same code runs behind HTTPS and in
//! simulations. What an orchestrator must not forget is in the store, so several may share one; each
//! has its own memory of the latest requests for sessions. A rejected request has changed nothing.
//!
//! # Every run that was due has one outcome
//!
//! A device's [`Schedule`](crate::store::Schedule) counts the runs of a plan. A run ends in one of
//! two ways, unless it was due in a time that is not counted (`readings`). Each removes it from the
//! schedule in the transaction that stores its outcome:
//!
//! - It was not assigned to the device: the orchestrator makes the outcome. The run was refused or
//!   postponed for the home's own traffic until `start_within` had passed, or missed because the
//!   device did not ask in time. [`Orchestrator::settle`] does so for silent devices.
//! - It was assigned ([`OpenRun`](crate::store::OpenRun)): the first result that the device sends
//!   for this run is its outcome. The orchestrator counts the run as missed once no result can
//!   come: the device asks for another run and reports that no result waits, it is removed, or it
//!   is silent for [`OWED_MS`].
//!
//! An outcome that the orchestrator makes is stored as a result of the device with the epoch
//! [`MADE_EPOCH`], which no device may use.

mod admit;
mod enrol;
mod lines;
mod next;
mod operate;
mod readings;
mod results;
mod settle;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use underload_aqm::time::{Span, Time};

use crate::admission::{Reason, Refusal, Rules};
use crate::device::DeviceId;
use crate::lease::Claims;
use crate::plan::Plan;
use crate::removal::{Removal, Removed};
use crate::store::{Device, HeldLease, PlanRow, StoreError, Tx};

pub use crate::store::MADE_EPOCH;
pub use admit::withdraw;
pub use lines::LINES_MAX;
pub use operate::{NewCode, applicable};
use readings::Readings;

/// An assigned run may begin within this time.
pub const START_MS: u64 = 30_000;
/// Time of a step beyond its warm-up and duration: connecting, and waiting for the last answers.
pub const STEP_EXTRA_MS: u64 = 3_000;
/// A silent device may send the result of a run for this long after the run was assigned.
pub const OWED_MS: u64 = 30 * 86_400_000;
/// Maximum number of runs without a result; a device with as many is assigned no other.
pub const OPEN_MAX: usize = 64;
/// Maximum number of plans that have not ended.
pub const PLANS_MAX: usize = 32;
/// Maximum number of outcomes that one request makes; the next request continues.
const MADE_MAX: usize = 256;
/// Maximum number of leases that a heartbeat may end.
pub const HEARTBEAT_ENDED_MAX: usize = 4_096;
/// Interval of a server's heartbeats.
pub const HEARTBEAT_MS: u64 = 10_000;

/// Name of the setting that records which attributes of a device's line an operator wrote.
pub fn line_setting(device: DeviceId) -> String {
    format!("line/{device}")
}

/// Name of the setting that records when a forgotten device enrolled, milliseconds since 1970 as
/// text. It has a hash of the identifier, from which nobody can compute the identifier.
pub fn forgotten_setting(device: DeviceId) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &device.0);
    format!("forgotten/{}", data_encoding::HEXLOWER.encode(digest.as_ref()))
}

/// Rejects a device that was forgotten, so that it stops. Anyone who knows the identifier learns of
/// this: the key that could prove more is forgotten, too.
fn check_forgotten(tx: Tx<'_>, device: DeviceId) -> Result<(), Stop> {
    let Some(stored) = tx.setting(&forgotten_setting(device))? else { return Ok(()) };
    let enrolled_ms = String::from_utf8_lossy(&stored).parse().unwrap_or(0);
    let message = "the line of this device was forgotten: it measures again after it enrols with a \
                   new code";
    let gone = Rejection::gone(Removed { device, enrolled_ms });
    Err(Rejection { message: message.to_owned(), ..gone }.into())
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub rules: Rules,
    /// Longest interval between requests of a device that has nothing to do.
    pub poll_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rules: Rules::default(), poll_ms: 6 * 3_600_000 }
    }
}

/// The kind of a rejection; its value is the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    BadRequest = 400,
    Unauthorized = 401,
    Forbidden = 403,
    NotFound = 404,
    Conflict = 409,
    /// The sender was removed and stops for good.
    Gone = 410,
    TooLarge = 413,
    TooMany = 429,
}

impl Kind {
    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        self as u16
    }
}

/// Why a request was rejected. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    pub kind: Kind,
    /// Identifier for programs, for example `not-enrolled`.
    pub code: &'static str,
    pub message: String,
    /// Delay after which a retry may succeed; `None` if it cannot.
    pub retry_after_s: Option<u64>,
    /// With [`Kind::Gone`], the enrolment that ended; see [`Orchestrator::sign_removal`].
    pub removed: Option<Removed>,
}

impl Rejection {
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), retry_after_s: None, removed: None }
    }

    fn gone(removed: Removed) -> Self {
        let message = "this device or server was removed";
        Self { removed: Some(removed), ..Self::new(Kind::Gone, "removed", message) }
    }
}

/// The answer to a request, or why it was rejected, unless the store failed.
pub type Answer<T> = Result<Result<T, Rejection>, StoreError>;

fn reject<T, E: From<Rejection>>(
    kind: Kind,
    code: &'static str,
    message: impl Into<String>,
) -> Result<T, E> {
    Err(Rejection::new(kind, code, message).into())
}

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

/// Runs `work`, which ends early with a [`Stop`], and returns its answer.
fn answer<T>(work: impl FnOnce() -> Result<T, Stop>) -> Answer<T> {
    match work() {
        Ok(answer) => Ok(Ok(answer)),
        Err(Stop::Rejected(rejection)) => Ok(Err(rejection)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Admits runs and stores results; see the [module](self).
#[derive(Debug)]
pub struct Orchestrator {
    settings: Settings,
    lease_key: Ed25519KeyPair,
    fleet_secret: [u8; 32],
    /// Parsed plans by name, each with its text.
    parsed: Mutex<BTreeMap<String, (String, Arc<Plan>)>>,
    /// Runs that were held back since the start, by reason: [`Reason::HomeBusy`] and the refusals.
    held_back: [AtomicU64; Refusal::ALL.len() + 1],
    /// The readings of the clock, and those that were stored last; `None` until they are read.
    readings: Mutex<Option<(Readings, Readings)>>,
    /// The latest time of each sender's requests for sessions that were answered.
    opened: Mutex<BTreeMap<DeviceId, u64>>,
}

#[derive(Debug, Clone)]
struct Applied {
    row: PlanRow,
    plan: Arc<Plan>,
}

impl Applied {
    /// No run is due at or after this time.
    fn ends_ms(&self) -> u64 {
        let until = self.plan.until_ms.unwrap_or(u64::MAX);
        self.row.stopped_ms.map_or(until, |stopped| stopped.min(until))
    }
}

/// Converts milliseconds of the store.
fn time(ms: u64) -> Time {
    Time::from_nanos(ms.saturating_mul(1_000_000))
}

/// Converts to milliseconds of the store, rounded up so that nothing is due before `time`.
fn millis(time: Time) -> u64 {
    time.as_nanos().div_ceil(1_000_000)
}

fn span_ms(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000)
}

impl Orchestrator {
    /// An orchestrator that signs leases with `lease_key`, and sessions with the secret that all
    /// orchestrators of the fleet share.
    pub fn new(settings: Settings, lease_key: Ed25519KeyPair, fleet_secret: [u8; 32]) -> Self {
        let (parsed, held_back) = (Mutex::default(), std::array::from_fn(|_| AtomicU64::new(0)));
        let (readings, opened) = (Mutex::default(), Mutex::default());
        Self { settings, lease_key, fleet_secret, parsed, held_back, readings, opened }
    }
    /// Returns how many due runs were held back since this orchestrator started, by reason.
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

    /// Returns the public key of its leases.
    pub fn lease_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.lease_key.public_key().as_ref());
        key
    }

    /// Signs that an enrolment ended, for the device that asked.
    pub fn sign_removal(&self, removed: Removed, now_ms: u64) -> Removal {
        removed.sign(&self.lease_key, now_ms)
    }

    /// Reads all plans, including those that have ended. A plan that cannot be read is an error,
    /// because its limits are unknown.
    fn plans(&self, tx: Tx<'_>) -> Result<Vec<Applied>, StoreError> {
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

/// Returns the device that sent a request.
fn enrolled(tx: Tx<'_>, sender: DeviceId) -> Result<Device, Stop> {
    let Some(device) = tx.device(sender)? else {
        check_forgotten(tx, sender)?;
        return reject(Kind::Forbidden, "not-a-device", "not a device");
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

/// Longest time that a run takes once it has begun.
fn lasts_ms(plan: &Plan) -> u64 {
    span_ms(plan.run_lasts()) + plan.steps.len() as u64 * STEP_EXTRA_MS
}

#[cfg(test)]
mod tests;
