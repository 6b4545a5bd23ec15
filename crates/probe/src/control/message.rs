//! Messages on the control connection, in JSON behind a length: one question, one answer, then
//! notices of the server.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::ServiceError;

pub const PROTOCOL: u32 = 2;
/// Maximum number of flows of one session at once, in both directions together.
pub const FLOWS_PER_SESSION_MAX: usize = 64;
/// Longest message in bytes, without the two bytes of its length.
pub const MESSAGE_MAX: usize = 4096;

/// Rates and duration that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Highest rate towards the server, bit/s; `None` for no limit.
    pub up_bit_per_s: Option<u64>,
    /// Highest rate from the server, bit/s; `None` for no limit.
    pub down_bit_per_s: Option<u64>,
    pub duration: Duration,
}

/// A message of the client on the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The client's version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Issued by the server's operator; `None` if the client has no token.
    pub token: Option<String>,
    /// Highest rate towards the server, bit/s; `None` for no limit.
    pub up_bit_per_s: Option<u64>,
    /// Highest rate from the server, bit/s; `None` for no limit.
    pub down_bit_per_s: Option<u64>,
    pub duration_ms: u64,
}

/// A message of the server on the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// A session. It lasts while the connection is open, at most for the lease.
    Granted {
        /// Token of the session as 32 hexadecimal digits.
        session: String,
        /// UDP port of probes and load. TCP load uses the port of this connection.
        udp_port: u16,
        /// Longest duration of the session, ms.
        lease_ms: u64,
        /// Highest rate towards the server, bit/s; the server reads no faster.
        up_bit_per_s: u64,
        /// Highest rate from the server, bit/s.
        down_bit_per_s: u64,
        /// Largest volume of both directions together, bytes.
        #[serde(rename = "volume_octets")]
        volume_bytes: u64,
        /// The DSCPs that the server sends: bit `n` for DSCP `n`.
        dscp_allowed: u64,
    },
    /// The server cannot grant a session now; the client may retry.
    Busy {
        retry_after_ms: u64,
        /// Shown to the user.
        reason: String,
    },
    /// The server rejects the question; retrying it does not help.
    Refused {
        /// Shown to the user.
        reason: String,
    },
}

/// A message of the server about a running session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Notice {
    /// The granted rate limited the session's traffic, in one direction or both.
    Throttled {
        /// True if the granted rate limited traffic towards the server.
        up: bool,
        /// True if the granted rate limited traffic from the server.
        down: bool,
    },
    Ended {
        /// Shown to the user.
        reason: String,
    },
}

/// Encodes a message with its length in front.
///
/// # Errors
/// Returns [`ServiceError::Protocol`] if the message is longer than [`MESSAGE_MAX`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    let body = serde_json::to_vec(message).map_err(ServiceError::Encode)?;
    if body.len() > MESSAGE_MAX {
        return Err(too_long(body.len()));
    }
    let mut bytes = (body.len() as u16).to_be_bytes().to_vec();
    bytes.extend(body);
    Ok(bytes)
}

/// Returns the length of the message that begins with `bytes`.
///
/// # Errors
/// Returns [`ServiceError::Protocol`] if it is longer than [`MESSAGE_MAX`].
pub fn body_len(bytes: [u8; 2]) -> Result<usize, ServiceError> {
    let len = usize::from(u16::from_be_bytes(bytes));
    if len > MESSAGE_MAX {
        return Err(too_long(len));
    }
    Ok(len)
}

/// Parses a message without its length.
///
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ServiceError> {
    serde_json::from_slice(body).map_err(ServiceError::Message)
}

fn too_long(len: usize) -> ServiceError {
    ServiceError::Protocol { what: format!("a message has {len} bytes, at most {MESSAGE_MAX}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::from_hex;
    use data_encoding::HEXLOWER;
    use proptest::prelude::*;

    #[test]
    fn messages_decode_as_encoded_and_unknown_ones_are_refused() {
        let question = Question {
            protocol: 2,
            token: Some("open sesame".to_owned()),
            up_bit_per_s: None,
            down_bit_per_s: Some(u64::MAX),
            duration_ms: 3,
        };
        let bytes = encode(&question).unwrap();
        assert_eq!(body_len([bytes[0], bytes[1]]).unwrap(), bytes.len() - 2);
        assert_eq!(decode::<Question>(&bytes[2..]).unwrap(), question);
        assert!(decode::<Question>(br#"{"protocol":2,"surprise":2}"#).is_err());
        assert!(body_len([0x10, 0x01]).is_err());
        let granted = Answer::Granted {
            session: "00".repeat(16),
            udp_port: 1,
            lease_ms: 2,
            up_bit_per_s: 3,
            down_bit_per_s: 4,
            volume_bytes: 5,
            dscp_allowed: 6,
        };
        let said = encode(&granted).unwrap();
        let said = std::str::from_utf8(&said[2..]).unwrap();
        assert!(
            said.contains(r#""volume_octets":5"#),
            "as clients of every version read it: {said}"
        );
        let long = Answer::Refused { reason: "x".repeat(5_000) };
        assert!(encode(&long).is_err());
    }

    proptest! {
        #[test]
        fn hexadecimal_survives_the_round_trip(bytes in any::<[u8; 16]>()) {
            prop_assert_eq!(from_hex(&HEXLOWER.encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC{0,40}", body in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = from_hex::<16>(&text);
            let _ = decode::<Question>(&body);
            let _ = decode::<Answer>(&body);
            let _ = decode::<Notice>(&body);
        }
    }
}
