//! Rows of a store.

use serde::{Deserialize, Serialize};

use crate::admission::Reason;
use crate::device::{Attributes, DeviceId, Pseudonym};
use crate::line::Line;
use crate::message::ServerAddress;
use crate::outcome::RunResult;
use crate::removal::Removed;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub id: DeviceId,
    /// Ed25519 public key.
    pub public_key: [u8; 32],
    /// Attributes of its line at its last request, or when they were last recorded.
    pub attributes: Attributes,
    /// External identifier of its line; empty if the operator has not recorded the line.
    pub line: String,
    /// Whether its line is retired: no plan includes the device.
    pub is_retired: bool,
    /// When it enrolled, milliseconds since 1970.
    pub enrolled_ms: u64,
    /// When it last requested a run, milliseconds since 1970.
    pub seen_ms: u64,
    pub is_removed: bool,
    /// See [`crate::message::Next::epoch`].
    pub epoch: u32,
    /// Number of the last request that was answered.
    pub request: u64,
    /// Results that have not been sent, as the device reported.
    pub waiting: u64,
    /// Results that were lost, as the device reported.
    pub dropped: u64,
    /// The schedules, one for each plan that includes the device.
    pub schedules: Vec<Schedule>,
    /// When the orchestrator has to make the next outcome, milliseconds since 1970; `u64::MAX` if
    /// none is owed.
    pub settle_ms: u64,
    /// Number of outcomes that the orchestrator made for this device; their sequence numbers.
    pub made: u64,
}

/// A line, and the device that measures it.
pub type LineRow = (Line, Option<Device>);

/// The runs of a device under a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub plan: String,
    /// Number of the next run, from 1.
    pub run: u64,
    /// When this run is due, milliseconds since 1970.
    pub due_ms: u64,
    /// Why the run could not begin at the last request; `None` before the first request.
    pub held_back: Option<Reason>,
    /// How often the run was refused.
    pub refusals: u32,
    /// Earliest time of the next attempt, milliseconds since 1970.
    pub retry_ms: u64,
    /// Runs that were assigned and have no outcome, in ascending order.
    pub open: Vec<OpenRun>,
    /// The rate limit of runs without an assignment: when the stored ones would have been due at
    /// that rate, milliseconds since 1970.
    pub own_ms: u64,
}

/// An assigned run whose result the device owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    pub run: u64,
    /// When it was due, milliseconds since 1970.
    pub due_ms: u64,
    /// When it was assigned, milliseconds since 1970.
    pub given_ms: u64,
}

/// The kind of sender that a code enrols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CodeFor {
    Device,
    Server,
}

/// A code for enrolment. Its text is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// SHA-256 of the text.
    pub hash: [u8; 32],
    pub makes: CodeFor,
    /// The operator's attributes of the line; the device fills in the empty ones.
    pub attributes: Attributes,
    /// External identifier of the line that the device will measure; empty for none.
    pub line: String,
    /// The end of its validity, milliseconds since 1970.
    pub expires_ms: u64,
    /// The key that used it, which may use it again if the answer was lost.
    pub used_by: Option<DeviceId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Name and address; the name is unique.
    pub address: ServerAddress,
    /// Identifier that follows from the public key, as for a device.
    pub device: DeviceId,
    /// Ed25519 public key.
    pub public_key: [u8; 32],
    pub is_removed: bool,
    /// Capacity towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Capacity from the server, bit/s.
    pub down_bit_per_s: u64,
    /// Reserved towards the server, bit/s.
    pub reserved_up_bit_per_s: u64,
    /// Reserved from the server, bit/s.
    pub reserved_down_bit_per_s: u64,
    /// Traffic towards the server, as it reported, bit/s.
    pub carried_up_bit_per_s: u64,
    /// Traffic from the server, as it reported, bit/s.
    pub carried_down_bit_per_s: u64,
    /// Sessions, as the server reported.
    pub sessions: u32,
    /// Time of the last heartbeat, milliseconds since 1970; 0 if none.
    pub heard_ms: u64,
}

/// A lease that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    pub id: u64,
    pub device: DeviceId,
    pub server: String,
    /// The segment that is loaded; `None` for a run without load.
    pub segment: Option<String>,
    /// Reserved towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Reserved from the server, bit/s.
    pub down_bit_per_s: u64,
    pub plan: String,
    pub run: u64,
    /// When it was granted, milliseconds since 1970.
    pub given_ms: u64,
    /// When it expires, milliseconds since 1970.
    pub expires_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    pub name: String,
    /// The plan's file, unchanged.
    pub text: String,
    /// When it was first applied, milliseconds since 1970.
    pub applied_ms: u64,
    /// When it was stopped, milliseconds since 1970.
    pub stopped_ms: Option<u64>,
}

/// A result with the line that it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResult {
    pub device: DeviceId,
    /// See [`crate::message::Results::epoch`].
    pub epoch: u32,
    /// See [`crate::message::Numbered::sequence`].
    pub sequence: u64,
    /// When it was stored, milliseconds since 1970.
    pub stored_ms: u64,
    /// The device's pseudonym in its plan.
    pub pseudonym: Pseudonym,
    /// Cohort of the line; empty if the plan has none.
    pub cohort: String,
    /// Attributes of the line at that time.
    pub attributes: Attributes,
    pub result: RunResult,
}

impl Device {
    /// A device that has just enrolled.
    pub fn new(
        id: DeviceId,
        public_key: [u8; 32],
        attributes: Attributes,
        enrolled_ms: u64,
    ) -> Self {
        Self {
            id,
            public_key,
            attributes,
            line: String::new(),
            is_retired: false,
            enrolled_ms,
            seen_ms: enrolled_ms,
            is_removed: false,
            epoch: 0,
            request: 0,
            waiting: 0,
            dropped: 0,
            schedules: Vec::new(),
            settle_ms: u64::MAX,
            made: 0,
        }
    }

    /// Returns the enrolment that a removal of this device ends.
    pub fn enrolment(&self) -> Removed {
        Removed { device: self.id, enrolled_ms: self.enrolled_ms }
    }
}

impl Server {
    /// A server that has just enrolled and has sent no heartbeat.
    pub fn new(address: ServerAddress, device: DeviceId, public_key: [u8; 32]) -> Self {
        Self {
            address,
            device,
            public_key,
            is_removed: false,
            up_bit_per_s: 0,
            down_bit_per_s: 0,
            reserved_up_bit_per_s: 0,
            reserved_down_bit_per_s: 0,
            carried_up_bit_per_s: 0,
            carried_down_bit_per_s: 0,
            sessions: 0,
            heard_ms: 0,
        }
    }

    /// Returns the enrolment that a removal of this server ends.
    pub fn enrolment(&self) -> Removed {
        Removed { device: self.device, enrolled_ms: 0 }
    }
}

impl StoredResult {
    /// Day on which the run began, days since 1970, UTC.
    pub fn day(&self) -> u32 {
        u32::try_from(self.result.at_ms / 86_400_000).unwrap_or(u32::MAX)
    }

    /// Whether the run was due. Runs that a device makes while no orchestrator answers have no
    /// number, and do not count as outcomes.
    pub fn was_due(&self) -> bool {
        self.result.run > 0
    }

    /// Hour of the day in which the run began, UTC.
    pub fn hour(&self) -> u8 {
        (self.result.at_ms / 3_600_000 % 24) as u8
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Name of the operator's token.
    pub who: String,
    pub what: String,
}
