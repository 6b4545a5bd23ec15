//! Messages of devices and servers to an orchestrator, and its answers: JSON over HTTPS.
//!
//! Only devices and servers send requests. Instants are in milliseconds since 1970 by the
//! orchestrator's clock. A repeated request gets the same answer and changes nothing.
//!
//! | request | sender | purpose |
//! |---|---|---|
//! | `POST /v1/enrol` | anyone with a code | enrols a device or a server with its own key |
//! | `POST /v1/session` | device, server | proves the key once, for an hour of requests |
//! | `POST /v1/next` | device | requests a run |
//! | `POST /v1/move` | device | requests another server, because one refused the run |
//! | `POST /v1/release` | device | releases the lease after the run |
//! | `POST /v1/results` | device | sends results |
//! | `POST /v1/heartbeat` | server | reports that it is alive, its capacity, and its leases |

use serde::{Deserialize, Serialize};

use crate::admission::Refusal;
use crate::device::{Attributes, DeviceId};
use crate::outcome::RunResult;
use crate::plan::Kind;
use crate::removal::Removal;

/// Longest request, in bytes.
pub const REQUEST_MAX: usize = 1 << 20;
/// Maximum number of results in a request.
pub const RESULTS_MAX: usize = 256;
/// Maximum number of servers in an answer to a device.
pub const SERVERS_MAX: usize = 4;

/// Enrols a device or a server; each code is valid once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// Code from the operator.
    pub code: String,
    /// Ed25519 public key, 64 hexadecimal digits.
    pub public_key: String,
    /// Signature of the code by that key, 128 hexadecimal digits; proves that the sender has it.
    pub proof: String,
    /// Attributes of the line. Those that the operator wrote beside the code take precedence.
    #[serde(default)]
    pub attributes: Attributes,
    /// Address of a server; `None` from a device.
    pub server: Option<ServerAddress>,
}

/// The answer to [`Enrol`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enrolled {
    /// Identifier of the device or server.
    pub device: DeviceId,
    /// Public key of leases and removals, 64 hexadecimal digits.
    pub lease_key: String,
    /// When the device enrolled, milliseconds since 1970; a removal names this instant. `None` for
    /// a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_ms: Option<u64>,
}

/// Opens a session. The sender signs [`OpenSession::signed`] with its own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// Identifier of the sender.
    pub device: DeviceId,
    /// Time of the request; refused if it differs from the orchestrator's clock by more than five
    /// minutes.
    pub at_ms: u64,
    /// Signature, 128 hexadecimal digits.
    pub signature: String,
}

/// The answer to [`OpenSession`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Token that every request of the session carries.
    pub session: String,
    /// Key that authenticates the requests of the session, 64 hexadecimal digits.
    pub key: String,
    /// End of the session.
    pub expires_ms: u64,
    /// Time of the orchestrator's clock.
    pub now_ms: u64,
}

/// A device's request for its next run.
///
/// A device sends this while it runs nothing, and after all results of earlier runs are on its
/// disk. A request with a new number and without waiting results states that the device has no
/// result of the runs that it was assigned before: they count as missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// Incremented when the device loses its memory; below `u32::MAX`, which numbers the outcomes
    /// that the orchestrator makes.
    pub epoch: u32,
    /// Number of the request in this epoch. A repeated number gets the same answer.
    pub request: u64,
    /// Whether the home uses its line now.
    #[serde(default)]
    pub is_busy: bool,
    /// Results that have not been sent.
    #[serde(default)]
    pub waiting: u64,
    /// Results that were lost because too many waited, in total.
    #[serde(default)]
    pub dropped: u64,
    /// Attributes of the line that have changed.
    pub attributes: Option<Attributes>,
}

/// The answer to [`Next`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NextAnswer {
    /// Time of the orchestrator's clock.
    pub now_ms: u64,
    /// Earliest time of the next request.
    pub next_poll_ms: u64,
    /// The run to make now, if one is due and admitted.
    pub run: Option<Assignment>,
    /// Why a due run may not begin.
    pub refusal: Option<Refusal>,
    /// Measurements to take while no orchestrator answers.
    pub alone: Option<Alone>,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Assignment {
    /// Name of the plan.
    pub plan: String,
    /// Number of the device's run, from 1.
    pub run: u64,
    pub not_before_ms: u64,
    pub not_after_ms: u64,
    pub steps: Vec<AssignedStep>,
    /// Signed lease for the first server.
    pub lease: String,
    /// Number of the lease, for moving and releasing it.
    pub lease_id: u64,
    /// Servers, the one of the lease first. If it refuses, the device requests a move to another.
    pub servers: Vec<ServerAddress>,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssignedStep {
    /// Name of the step.
    pub name: String,
    /// Load beside the probes.
    pub kind: Kind,
    /// Time that is measured.
    pub duration_ms: u64,
    /// Time of load before the measurement.
    pub warm_up_ms: u64,
    /// DSCP of each series of probes.
    pub classes: Vec<u8>,
    /// Interval between probes of a series.
    pub interval_ms: u64,
    /// Size of a probe in bytes.
    pub probe_bytes: u32,
}

/// Measurements that a device takes on its own: latency without load, which needs no lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alone {
    /// Name of the plan.
    pub plan: String,
    /// Mean runs a day.
    pub runs_per_day: f64,
    /// Start of the daily window, seconds since midnight.
    pub from_s: u32,
    /// End of the daily window, seconds since midnight.
    pub until_s: u32,
    /// End of the plan; `None` if it has none.
    pub until_ms: Option<u64>,
    /// Steps without load ([`Kind::Latency`]).
    pub steps: Vec<AssignedStep>,
    /// Servers to measure to.
    pub servers: Vec<ServerAddress>,
}

/// The address of a measurement server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerAddress {
    pub name: String,
    /// `HOST:PORT` of its control port.
    pub address: String,
    /// Fingerprint of its certificate: `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
}

/// Requests another server, because the server of the lease refused the run or was unreachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Number of the lease from the assignment.
    pub lease_id: u64,
    /// Names of the servers that were tried.
    pub tried: Vec<String>,
}

/// The answer to [`Move`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Moved {
    /// The new lease; `None` if no other server has enough capacity, in which case the old lease
    /// has ended.
    pub lease: Option<String>,
    /// Server of the new lease.
    pub server: Option<ServerAddress>,
}

/// Releases the lease of a run that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Number of the lease from the assignment.
    pub lease_id: u64,
}

/// The answer to [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    /// Whether the lease existed until now.
    pub was_held: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// See [`Next::epoch`].
    pub epoch: u32,
    /// Results, at most [`RESULTS_MAX`].
    pub results: Vec<Numbered>,
}

/// A result and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Numbered {
    /// Number of the result in this epoch, from 1.
    pub sequence: u64,
    pub result: RunResult,
}

/// The answer to [`Results`], sent once they are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stored {
    /// Number of new results.
    pub new: u32,
    /// Results that were stored before, or whose runs already have outcomes.
    pub known: u32,
    /// Results that are not stored, because the device was not assigned their runs, or made more
    /// runs without an assignment than its plan allows.
    #[serde(default)]
    pub refused: u32,
}

/// Reports that a server is alive. A server without an answer for 30 s ends the runs with leases:
/// their leases are void then, and their devices may have been granted others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Name and address of the server.
    pub address: ServerAddress,
    /// Capacity towards the server, bit/s.
    pub up_bit_per_s: u64,
    /// Capacity from the server, bit/s.
    pub down_bit_per_s: u64,
    pub sessions: u32,
    /// Present traffic towards the server, bit/s.
    #[serde(default)]
    pub carried_up_bit_per_s: u64,
    /// Present traffic from the server, bit/s.
    #[serde(default)]
    pub carried_down_bit_per_s: u64,
    /// Leases whose sessions ended since the last heartbeat that was answered.
    #[serde(default)]
    pub ended: Vec<u64>,
    /// All leases that sessions use; `None` from a server that does not report them. A lease that
    /// is missing here, and that no run could have begun to use any more when the list was made,
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldLeases>,
    /// Whether the server shuts down and accepts no more runs.
    #[serde(default)]
    pub is_leaving: bool,
}

/// The leases that the sessions of a server use at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldLeases {
    /// When the list was made, by the orchestrator's clock as the server knows it, milliseconds
    /// since 1970: a heartbeat may arrive late.
    pub at_ms: u64,
    /// Numbers of the leases.
    pub ids: Vec<u64>,
}

/// The answer to [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// Time of the orchestrator's clock.
    pub now_ms: u64,
    /// Public keys that leases may be signed with, 64 hexadecimal digits each, newest first.
    pub lease_keys: Vec<String>,
    /// When the next heartbeat is due.
    pub next_ms: u64,
    /// The address that agents are sent to, if it differs from that of the heartbeat. Only an
    /// operator changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_sent_to: Option<String>,
}

/// Why a request failed; the body of every answer with a status above 399.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Identifier for programs, for example `not-enrolled`.
    pub code: String,
    pub message: String,
    /// The signed removal, with the code `removed` if the sender proved its identity; else `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Box<Removal>>,
}

impl OpenSession {
    /// Returns the text that the signature covers.
    pub fn signed(device: DeviceId, at_ms: u64) -> String {
        format!("underload session\n{device}\n{at_ms}\n")
    }
}
