//! What is kept of each thing.

use serde::{Deserialize, Serialize};

use crate::admission::Reason;
use crate::device::{Attributes, DeviceId, Pseudonym};
use crate::message::ServerAddress;
use crate::outcome::RunResult;
use crate::removal::Removed;

/// A device, and where it stands with its plans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its identifier.
    pub id: DeviceId,
    /// Ed25519.
    pub public_key: [u8; 32],
    /// What its line is.
    pub attributes: Attributes,
    /// When it became one, milliseconds since 1970.
    pub enrolled_ms: u64,
    /// When it asked last, milliseconds since 1970.
    pub seen_ms: u64,
    /// It is to stop for good.
    pub is_removed: bool,
    /// See [`crate::message::Next::epoch`].
    pub epoch: u32,
    /// The last request that was answered.
    pub request: u64,
    /// Results that it says wait.
    pub waiting: u64,
    /// Results that it says were lost.
    pub dropped: u64,
    /// Where it stands with each plan that it takes part in.
    pub schedules: Vec<Schedule>,
    /// When an outcome is owed that only the orchestrator can give, milliseconds since 1970;
    /// `u64::MAX` for never.
    pub settle_ms: u64,
    /// Outcomes that the orchestrator made in its stead; numbers them.
    pub made: u64,
}

/// Where a device stands with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The plan's name.
    pub plan: String,
    /// Number of the next run, from 1.
    pub run: u64,
    /// When it is due, milliseconds since 1970.
    pub due_ms: u64,
    /// Why it did not begin when it was asked for last; `None` before it was asked for.
    pub held_back: Option<Reason>,
    /// How often it was refused since.
    pub refusals: u32,
    /// Not to be asked for again before, milliseconds since 1970.
    pub retry_ms: u64,
    /// Runs that were given to the device and that no outcome is known of, rising.
    pub open: Vec<OpenRun>,
    /// When the device's own runs that were stored would have been due at the rate that they are
    /// limited to, milliseconds since 1970.
    #[serde(default)]
    pub own_ms: u64,
}

/// A run that a device was given, and whose result it owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// Its number.
    pub run: u64,
    /// When it was due, milliseconds since 1970.
    pub due_ms: u64,
    /// When it was given, milliseconds since 1970.
    pub given_ms: u64,
}

/// What a code makes of who shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CodeFor {
    /// A device.
    Device,
    /// A measurement server.
    Server,
}

/// A code for enrolment. Its text is known to nobody but who it was given to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// SHA-256 of the text.
    pub hash: [u8; 32],
    /// What for.
    pub makes: CodeFor,
    /// What the operator knows of the line; fields that are empty are the device's to fill.
    pub attributes: Attributes,
    /// The end of its validity, milliseconds since 1970.
    pub expires_ms: u64,
    /// Who used it; a code is good once. The same key may show it again, if the answer was lost.
    pub used_by: Option<DeviceId>,
}

/// A measurement server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Where it is; its name is unique.
    pub address: ServerAddress,
    /// Who it is: follows from its key, as a device's identifier does. It is no device.
    pub device: DeviceId,
    /// Ed25519.
    pub public_key: [u8; 32],
    /// It is to stop for good.
    pub is_removed: bool,
    /// What it takes, bit/s.
    pub up_bit_per_s: u64,
    /// What it sends, bit/s.
    pub down_bit_per_s: u64,
    /// Reserved of what it takes, bit/s.
    pub reserved_up_bit_per_s: u64,
    /// Reserved of what it sends, bit/s.
    pub reserved_down_bit_per_s: u64,
    /// What it said to carry, towards it, bit/s.
    pub carried_up_bit_per_s: u64,
    /// What it said to carry, from it, bit/s.
    pub carried_down_bit_per_s: u64,
    /// Sessions that it said to serve.
    pub sessions: u32,
    /// When it was heard of last, milliseconds since 1970; 0: never.
    pub heard_ms: u64,
}

/// A lease that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// Its number.
    pub id: u64,
    /// Who holds it.
    pub device: DeviceId,
    /// At which server, by its name.
    pub server: String,
    /// The segment that is loaded; `None` for a run without load.
    pub segment: Option<String>,
    /// Reserved towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Reserved from the server, bit/s.
    pub down_bit_per_s: u64,
    /// The run that it is for: its plan.
    pub plan: String,
    /// The run's number.
    pub run: u64,
    /// When it was given, milliseconds since 1970.
    pub given_ms: u64,
    /// When it ends by itself, milliseconds since 1970.
    pub expires_ms: u64,
}

/// A plan that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    /// Its name.
    pub name: String,
    /// Its file, as it was given.
    pub text: String,
    /// When it was applied first, milliseconds since 1970.
    pub applied_ms: u64,
    /// When it was stopped, milliseconds since 1970.
    pub stopped_ms: Option<u64>,
}

/// A result as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResult {
    /// Who handed it in.
    pub device: DeviceId,
    /// See [`crate::message::Results::epoch`].
    pub epoch: u32,
    /// See [`crate::message::Numbered::sequence`].
    pub sequence: u64,
    /// When it came, milliseconds since 1970.
    pub stored_ms: u64,
    /// The device within its plan.
    pub pseudonym: Pseudonym,
    /// Its cohort; empty where its plan has none.
    pub cohort: String,
    /// What was known of the line then.
    pub attributes: Attributes,
    /// What happened.
    pub result: RunResult,
}

impl Device {
    /// The enrolment that a removal of this device ends.
    pub fn enrolment(&self) -> Removed {
        Removed { device: self.id, enrolled_ms: self.enrolled_ms }
    }
}

impl Server {
    /// The enrolment that a removal of this server ends.
    pub fn enrolment(&self) -> Removed {
        Removed { device: self.device, enrolled_ms: 0 }
    }
}

impl StoredResult {
    /// The day on which it began, days since 1970, UTC.
    pub fn day(&self) -> u32 {
        u32::try_from(self.result.at_ms / 86_400_000).unwrap_or(u32::MAX)
    }

    /// Whether the run was due: what a device measured on its own, as it does while nobody answers,
    /// has no number and says nothing of the runs that were.
    pub fn was_due(&self) -> bool {
        self.result.run > 0
    }

    /// The hour of the day in which it began, UTC.
    pub fn hour(&self) -> u8 {
        (self.result.at_ms / 3_600_000 % 24) as u8
    }
}

/// What an operator did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Who, by the name of the token.
    pub who: String,
    /// What, in words.
    pub what: String,
}
