//! What devices and servers say to an orchestrator, and what it answers: JSON over HTTPS.
//!
//! Only devices and servers ask. An instant is in milliseconds since 1970, by the clock of the
//! orchestrator. A request that is sent again gets the same answer and changes nothing more.
//!
//! | request | who | what for |
//! |---|---|---|
//! | `POST /v1/enrol` | anybody with a code | becomes a device or a server with a key of its own |
//! | `POST /v1/session` | device, server | proves the key once, for an hour of requests |
//! | `POST /v1/next` | device | is it my turn, and may I? |
//! | `POST /v1/move` | device | the server refused: another one, please |
//! | `POST /v1/release` | device | the run is over |
//! | `POST /v1/results` | device | what was measured |
//! | `POST /v1/heartbeat` | server | I am alive, have such room, and saw these leases |

use serde::{Deserialize, Serialize};

use crate::admission::Refusal;
use crate::device::{Attributes, DeviceId};
use crate::outcome::RunResult;
use crate::plan::Kind;
use crate::removal::Removal;

/// Bytes of a request at most.
pub const REQUEST_MAX: usize = 1 << 20;
/// Results in a request at most.
pub const RESULTS_MAX: usize = 256;
/// Servers that a device is told at most.
pub const SERVERS_MAX: usize = 4;

/// Becomes a device, or a server; the code is good once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// From the operator.
    pub code: String,
    /// Ed25519, 64 hexadecimal digits.
    pub public_key: String,
    /// Signature over the code by that key, 128 hexadecimal digits: the key is the sender's.
    pub proof: String,
    /// What the line is. What the operator wrote beside the code wins.
    #[serde(default)]
    pub attributes: Attributes,
    /// Where a server is reached; `None` from a device.
    #[serde(default)]
    pub server: Option<ServerAddress>,
}

/// The answer to [`Enrol`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enrolled {
    /// Its identifier from now on.
    pub device: DeviceId,
    /// The key that leases and removals are signed with, 64 hexadecimal digits.
    pub lease_key: String,
    /// When it enrolled, milliseconds since 1970; a removal names it. `None` for a server, and from
    /// an orchestrator of version 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_ms: Option<u64>,
}

/// Opens a session: signed with the sender's own key, over [`OpenSession::signed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// Who.
    pub device: DeviceId,
    /// When; refused if it is further from the orchestrator's clock than five minutes.
    pub at_ms: u64,
    /// 128 hexadecimal digits.
    pub signature: String,
}

/// The answer to [`OpenSession`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Goes with every request.
    pub session: String,
    /// Authenticates every request, 64 hexadecimal digits.
    pub key: String,
    /// When it ends.
    pub expires_ms: u64,
    /// The orchestrator's clock.
    pub now_ms: u64,
}

/// Is it my turn?
///
/// A device asks while it runs nothing, and after what it measured is kept on its disk. Who asks
/// with a new number and says that nothing waits has no result of the runs that it was given
/// before: they count as missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// Counts how often the device lost what it knew; below `u32::MAX`, which numbers the outcomes
    /// that the orchestrator makes in its stead.
    pub epoch: u32,
    /// Counts the requests of this epoch; the same number again gets the same answer.
    pub request: u64,
    /// The home uses its line now.
    #[serde(default)]
    pub is_busy: bool,
    /// Results that wait to be handed in.
    #[serde(default)]
    pub waiting: u64,
    /// Results that were lost because too many waited, in all.
    #[serde(default)]
    pub dropped: u64,
    /// Changes what is known of the line.
    #[serde(default)]
    pub attributes: Option<Attributes>,
}

/// The answer to [`Next`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NextAnswer {
    /// The orchestrator's clock.
    pub now_ms: u64,
    /// Not to ask again before.
    pub next_poll_ms: u64,
    /// What to do now; `None` for nothing.
    #[serde(default)]
    pub run: Option<Assignment>,
    /// Why a run that is due may not start.
    #[serde(default)]
    pub refusal: Option<Refusal>,
    /// What to go on with while no orchestrator answers.
    #[serde(default)]
    pub alone: Option<Alone>,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Assignment {
    /// The plan's name.
    pub plan: String,
    /// Which run of this device, from 1.
    pub run: u64,
    /// Not to begin before.
    pub not_before_ms: u64,
    /// Not to begin after.
    pub not_after_ms: u64,
    /// What to measure.
    pub steps: Vec<AssignedStep>,
    /// The signed lease, for the first of the servers.
    pub lease: String,
    /// To move it and to give it back by.
    pub lease_id: u64,
    /// Where to; the others are asked for one after the other if the first refuses.
    pub servers: Vec<ServerAddress>,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssignedStep {
    /// Its name.
    pub name: String,
    /// The load.
    pub kind: Kind,
    /// How long it measures.
    pub duration_ms: u64,
    /// How long it loads before.
    pub warm_up_ms: u64,
    /// A series of probes for each DSCP.
    pub classes: Vec<u8>,
    /// From one probe of a series to the next.
    pub interval_ms: u64,
    /// Bytes of a probe.
    pub probe_bytes: u32,
}

/// What a device does on its own: latency without load, which needs no lease of anybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alone {
    /// The plan's name.
    pub plan: String,
    /// Mean runs a day.
    pub runs_per_day: f64,
    /// Window of the day, seconds since midnight.
    pub from_s: u32,
    /// Window of the day, seconds since midnight.
    pub until_s: u32,
    /// After this instant the plan is over.
    pub until_ms: Option<u64>,
    /// Only [`Kind::Latency`].
    pub steps: Vec<AssignedStep>,
    /// Where to.
    pub servers: Vec<ServerAddress>,
}

/// Where a measurement server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerAddress {
    /// Its name, unique.
    pub name: String,
    /// `HOST:PORT` of its control port.
    pub address: String,
    /// `sha256:` and 64 hexadecimal digits: its certificate.
    pub fingerprint: String,
}

/// The server refused, or was not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Of the assignment.
    pub lease_id: u64,
    /// The servers that were tried, by name.
    pub tried: Vec<String>,
}

/// The answer to [`Move`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Moved {
    /// The new lease; `None` where no other server has room, and the old one has ended.
    pub lease: Option<String>,
    /// The server that it is for.
    pub server: Option<ServerAddress>,
}

/// A run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Of the assignment.
    pub lease_id: u64,
}

/// The answer to [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Released {
    /// Whether it was held until now.
    pub was_held: bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// See [`Next::epoch`].
    pub epoch: u32,
    /// At most [`RESULTS_MAX`].
    pub results: Vec<Numbered>,
}

/// A result and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Numbered {
    /// Counts the results of this epoch from 1.
    pub sequence: u64,
    /// What happened.
    pub result: RunResult,
}

/// The answer to [`Results`], sent once all of it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stored {
    /// Results that were new.
    pub new: u32,
    /// Results that were there before, or whose runs have their outcomes already.
    pub known: u32,
    /// Results that are not stored: of runs that this device was not given, or of more runs that
    /// it made without being asked than its plan allows.
    #[serde(default)]
    pub refused: u32,
}

/// A server is alive. One that got no answer for 30 s ends the runs that have leases: these are
/// void then, and who held them may have got others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Where it is reached.
    pub address: ServerAddress,
    /// What it takes, bit/s.
    pub up_bit_per_s: u64,
    /// What it sends, bit/s.
    pub down_bit_per_s: u64,
    /// Sessions that it serves now.
    pub sessions: u32,
    /// What it carries now, towards it, bit/s.
    #[serde(default)]
    pub carried_up_bit_per_s: u64,
    /// What it carries now, from it, bit/s.
    #[serde(default)]
    pub carried_down_bit_per_s: u64,
    /// Leases whose sessions ended since the last heartbeat that was answered.
    #[serde(default)]
    pub ended: Vec<u64>,
    /// Leases that sessions hold, all of them; `None` from a server that does not report them. A
    /// lease that is not in the list and that no run could begin with any more when the list was
    /// made is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldLeases>,
    /// It goes away in good order: nobody is to be sent to it any more.
    #[serde(default)]
    pub is_leaving: bool,
}

/// The leases that sessions of a server hold at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldLeases {
    /// When the list was made, by the orchestrator's clock as the server knows it, milliseconds
    /// since 1970: a heartbeat may arrive late.
    pub at_ms: u64,
    /// The leases, by their numbers.
    pub ids: Vec<u64>,
}

/// The answer to [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// The orchestrator's clock.
    pub now_ms: u64,
    /// Keys that leases may be signed with, 64 hexadecimal digits each, newest first.
    pub lease_keys: Vec<String>,
    /// When the next heartbeat is expected.
    pub next_ms: u64,
    /// The address that agents measure to, if it differs from the heartbeat's. Only an operator
    /// changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_sent_to: Option<String>,
}

/// What was wrong with a request; the body of every answer above 399.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// For programs, for example `not-enrolled`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The signed removal, with the code `removed` and if the sender proved to be that device or
    /// server; else `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Box<Removal>>,
}

impl OpenSession {
    /// What its signature covers.
    pub fn signed(device: DeviceId, at_ms: u64) -> String {
        format!("underload session\n{device}\n{at_ms}\n")
    }
}
