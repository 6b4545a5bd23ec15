//! Devices and the attributes of their lines.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::line::{LineError, error};

/// Identifies a device to the operator: the first half of the SHA-256 of its public key. Results of
/// a study have a [`Pseudonym`] instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[0-9a-f]{32}$"))]
#[serde(try_from = "String", into = "String")]
pub struct DeviceId(pub [u8; 16]);

/// Identifies a device within one study, so that devices of two studies cannot be matched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pseudonym(pub [u8; 16]);

/// Attributes of a line and its device. Each text has at most [`Attributes::CHARACTERS_MAX`]
/// characters and must not contain an address of hardware or network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Attributes {
    /// Model of the modem or gateway.
    pub model: String,
    /// Firmware of the modem or gateway.
    pub firmware: String,
    /// Upstream rate that the line is sold with, bit/s; 0 if unknown.
    pub tier_up_bit_per_s: u64,
    /// Downstream rate that the line is sold with, bit/s; 0 if unknown.
    pub tier_down_bit_per_s: u64,
    /// Segment of the access network that the line shares, such as a CMTS service group.
    pub segment: String,
    /// Region, as coarse as the operator chooses.
    pub region: String,
    /// Buffer, AQM and low latency setting of the upstream as configured.
    pub configured: String,
    /// Buffer, AQM and low latency setting of the upstream as `underload path` measured them.
    pub measured: String,
}

impl Attributes {
    /// Maximum number of characters of a text.
    pub const CHARACTERS_MAX: usize = 64;

    /// Attributes that a plan may choose cohorts by and a page may filter by.
    pub const NAMES: [&str; 7] =
        ["model", "firmware", "tier", "segment", "region", "configured", "measured"];

    /// Attributes that an operator records of a line, the columns of a list of lines.
    pub const RECORDED: [&str; 7] = [
        "model", "firmware", "segment", "region", "configured", "tier_up_bit_per_s",
        "tier_down_bit_per_s",
    ];

    /// The error message for an unknown column.
    pub const COLUMNS: &str = "one of the columns external_id, name, device, model, firmware, segment, \
                           region, configured, tier_up_bit_per_s, tier_down_bit_per_s";

    /// Sets one of the attributes [`Self::RECORDED`]; an empty value is unknown.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LineError> {
        let text = match name {
            "model" => &mut self.model,
            "firmware" => &mut self.firmware,
            "segment" => &mut self.segment,
            "region" => &mut self.region,
            "configured" => &mut self.configured,
            "tier_up_bit_per_s" | "tier_down_bit_per_s" => {
                let number = if value.is_empty() { Ok(0) } else { value.parse() };
                let Some(rate) = number.ok().filter(|rate| *rate <= RATE_MAX) else {
                    return error(name, "a whole number of bit/s up to 10^15, such as 35000000");
                };
                let is_up = name == "tier_up_bit_per_s";
                *(if is_up {
                    &mut self.tier_up_bit_per_s
                } else {
                    &mut self.tier_down_bit_per_s
                }) = rate;
                return Ok(());
            }
            _ => return error(name, Self::COLUMNS),
        };
        value.clone_into(text);
        if self.is_acceptable() {
            Ok(())
        } else {
            error(name, "at most 64 characters, none of them a control character")
        }
    }

    /// Returns the value that [`Self::set`] sets.
    pub(crate) fn recorded(&self, name: &str) -> String {
        match name {
            "tier_up_bit_per_s" => self.tier_up_bit_per_s.to_string(),
            "tier_down_bit_per_s" => self.tier_down_bit_per_s.to_string(),
            text => self.get(text).unwrap_or_default(),
        }
    }

    /// Returns an attribute by its name, as text; the tier as `UP/DOWN` in Mbit/s.
    pub fn get(&self, name: &str) -> Option<String> {
        let mbit = |rate: u64| rate as f64 / 1e6;
        Some(match name {
            "model" => self.model.clone(),
            "firmware" => self.firmware.clone(),
            "segment" => self.segment.clone(),
            "region" => self.region.clone(),
            "configured" => self.configured.clone(),
            "measured" => self.measured.clone(),
            "tier" => {
                format!("{}/{}", mbit(self.tier_up_bit_per_s), mbit(self.tier_down_bit_per_s))
            }
            _ => return None,
        })
    }

    /// The error message for attributes that are not [acceptable](Self::is_acceptable).
    pub const LIMITS: &str = "an attribute is longer than 64 characters, contains control \
                              characters, or is a rate above a petabit per second";

    /// Whether every text is short enough and without control characters, and every rate plausible.
    pub fn is_acceptable(&self) -> bool {
        let texts = [
            &self.model, &self.firmware, &self.segment, &self.region, &self.configured,
            &self.measured,
        ];
        let rates = [self.tier_up_bit_per_s, self.tier_down_bit_per_s];
        rates.into_iter().all(|rate| rate <= RATE_MAX)
            && texts.iter().all(|text| {
                is_within(text, Self::CHARACTERS_MAX) && !text.chars().any(char::is_control)
            })
    }
}

/// Highest plausible rate of a line, bit/s. Databases count to 2^63.
const RATE_MAX: u64 = 1_000_000_000_000_000;

/// Whether a text has at most `most` characters. JSON schemas count characters, not bytes.
pub(crate) fn is_within(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().nth(most).is_none()
}

/// The error for a text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits")]
pub struct NotAnIdentifier;

macro_rules! identifier {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NotAnIdentifier;

            fn from_str(text: &str) -> Result<Self, NotAnIdentifier> {
                let bytes = data_encoding::HEXLOWER.decode(text.as_bytes());
                let bytes = bytes.map_err(|_| NotAnIdentifier)?;
                Ok(Self(bytes.try_into().map_err(|_| NotAnIdentifier)?))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAnIdentifier;

            fn try_from(text: String) -> Result<Self, NotAnIdentifier> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

identifier!(DeviceId);
identifier!(Pseudonym);

impl DeviceId {
    /// Returns the identifier of the device with this Ed25519 public key.
    pub fn of_key(public_key: &[u8; 32]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, public_key);
        let mut id = [0; 16];
        id.copy_from_slice(&digest.as_ref()[..16]);
        Self(id)
    }
}

impl Pseudonym {
    /// Returns the pseudonym of a device in the study with this key.
    pub fn of(study_key: &[u8; 32], device: DeviceId) -> Self {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, study_key);
        let tag = ring::hmac::sign(&key, &device.0);
        let mut pseudonym = [0; 16];
        pseudonym.copy_from_slice(&tag.as_ref()[..16]);
        Self(pseudonym)
    }
}
