//! Messages of operators to an orchestrator, each sent with `POST` and a token, and the answers.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device::{Attributes, DeviceId};
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

/// The empty answer of a successful request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Done {}
