//! Messages of operators to an orchestrator, each sent with `POST` and a token, and the answers.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device::{Attributes, DeviceId};
use crate::line::{Line, LineUpdate};
use crate::plan::Load;
use crate::store::CodeFor;

/// A message of an operator.
pub trait Message: Serialize + DeserializeOwned {
    /// Path of the requests with this message.
    const PATH: &'static str;
    type Answer: Serialize + DeserializeOwned;
}

macro_rules! messages {
    ($($message:ident, $path:literal => $answer:ident;)*) => {
        $(impl Message for $message {
            const PATH: &'static str = $path;
            type Answer = $answer;
        })*
    };
}

messages! {
    NewCodes, "/v1/operator/codes" => Codes;
    ApplyPlan, "/v1/operator/plans" => AppliedPlan;
    StopPlan, "/v1/operator/plans/stop" => Done;
    RemoveDevice, "/v1/operator/devices/remove" => Done;
    SetServerAddress, "/v1/operator/servers/address" => Done;
    PutLines, "/v1/operator/lines" => PutLinesAnswer;
    ListLines, "/v1/operator/lines/list" => ListedLines;
}

/// Makes codes for enrolment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewCodes {
    /// The kind of sender that enrols with the codes.
    pub makes: CodeFor,
    /// Attributes of each line. One code is made for each, at most 1000.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub attributes: Vec<Attributes>,
    /// External identifiers of the lines, in the order of the attributes; empty if no line is
    /// recorded.
    #[serde(default)]
    pub lines: Vec<String>,
    /// Days until the codes expire.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 366))]
    pub valid_days: u16,
}

/// The answer to [`NewCodes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Codes {
    /// In the order of the attributes. The texts of codes are not stored.
    pub codes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplyPlan {
    /// Text of the plan's file.
    pub text: String,
}

/// The answer to [`ApplyPlan`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppliedPlan {
    /// Name of the plan.
    pub name: String,
    /// Load of the plan.
    pub load: Load,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StopPlan {
    /// Name of the plan.
    pub name: String,
}

/// Removes a device or a server for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RemoveDevice {
    /// Identifier of the device or server.
    pub device: DeviceId,
}

/// Changes the address to which agents of a server connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetServerAddress {
    /// Name of the server.
    pub name: String,
    /// The new address, `HOST:PORT`.
    pub address: String,
}

/// Records lines: creates them, or changes their names, devices and attributes. All or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutLines {
    /// At most 1000 updates, each of another line.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub lines: Vec<LineUpdate>,
    /// When the values of attributes became valid, milliseconds since 1970. Without it, the first
    /// value of an attribute was always valid, and a later one is valid from now.
    pub from_ms: Option<u64>,
    /// Whether lines that are unknown are created. If not, they are an error.
    pub is_import: bool,
    /// Only checks the updates.
    pub is_check: bool,
}

/// The answer to [`PutLines`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutLinesAnswer {
    pub created: u32,
    /// Number of lines that existed and differ now.
    pub changed: u32,
}

/// Lists lines, ordered by their external identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListLines {
    /// The external identifier of the only line. The log records who looked at it.
    pub external_id: Option<String>,
    /// A part of the name or of the external identifier, in any case.
    pub text: String,
    /// Present values of model, firmware, tier, segment, region, configured and measured.
    pub attributes: BTreeMap<String, String>,
    /// Only lines in use whose device made no request for this number of days.
    pub silent_days: Option<u32>,
    /// The identifier after which the list continues.
    pub after: String,
}

/// The answer to [`ListLines`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListedLines {
    pub lines: Vec<LineState>,
    /// The identifier after which to continue; `None` at the end. A page may be empty.
    pub next: Option<String>,
}

/// A line as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LineState {
    pub line: Line,
    pub attributes: Attributes,
    /// The last request of its device, milliseconds since 1970; `None` without a device.
    pub seen_ms: Option<u64>,
    pub is_retired: bool,
}

/// The empty answer of a successful request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Done {}

impl From<()> for Done {
    fn from((): ()) -> Self {
        Self {}
    }
}
