//! What is said on the control connection: one question, one answer, in JSON behind a length.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ServiceError;

/// Version of the conversation.
pub(super) const PROTOCOL: u32 = 1;
/// Octets of a message at most, the two of its length not counted.
pub(super) const MESSAGE_MAX: usize = 4096;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    pub protocol: u32,
    /// The server's shared secret, where it has one.
    pub secret: Option<String>,
    pub up_bit_per_s: u64,
    pub down_bit_per_s: u64,
    pub duration_ms: u64,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Answer {
    /// A session, for as long as the connection stays open and the lease lasts.
    Granted {
        /// 32 hexadecimal digits.
        token: String,
        /// TCP port of the load server.
        load_port: u16,
        /// UDP port of the reflector.
        probe_port: u16,
        lease_ms: u64,
    },
    Busy {
        retry_after_ms: u64,
    },
    Refused {
        reason: String,
    },
}

/// A message with its length in front.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    let wrong = |what: String| ServiceError::Protocol { what };
    let body = serde_json::to_vec(message).map_err(|error| wrong(error.to_string()))?;
    if body.len() > MESSAGE_MAX {
        return Err(wrong(format!("a message of {} octets, at most {MESSAGE_MAX}", body.len())));
    }
    let mut octets = (body.len() as u16).to_be_bytes().to_vec();
    octets.extend(body);
    Ok(octets)
}

/// The length of the message that begins with `octets`.
pub(super) fn body_len(octets: [u8; 2]) -> Result<usize, ServiceError> {
    let len = usize::from(u16::from_be_bytes(octets));
    if len > MESSAGE_MAX {
        let what = format!("a message of {len} octets, at most {MESSAGE_MAX}");
        return Err(ServiceError::Protocol { what });
    }
    Ok(len)
}

/// A message without its length.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ServiceError> {
    serde_json::from_slice(body).map_err(|error| ServiceError::Protocol { what: error.to_string() })
}

/// 16 octets as 32 hexadecimal digits.
pub(super) fn to_hex(octets: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 15)]).collect()
}

/// The reverse of [`to_hex`]; `None` unless there are exactly `N` octets.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let mut octets = [0; N];
    for (target, pair) in octets.iter_mut().zip(digits.chunks_exact(2)) {
        *target = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_round_trip_and_strangers_do_not() {
        let question = Question {
            protocol: 1,
            secret: Some("open sesame".to_owned()),
            up_bit_per_s: 1,
            down_bit_per_s: u64::MAX,
            duration_ms: 3,
        };
        let octets = encode(&question).unwrap();
        assert_eq!(body_len([octets[0], octets[1]]).unwrap(), octets.len() - 2);
        assert_eq!(decode::<Question>(&octets[2..]).unwrap(), question);
        assert!(decode::<Question>(br#"{"protocol":1,"surprise":2}"#).is_err());
        assert!(body_len([0x10, 0x01]).is_err());
        let long = Answer::Refused { reason: "x".repeat(5_000) };
        assert!(encode(&long).is_err());
    }

    proptest! {
        #[test]
        fn hexadecimal_survives_the_round_trip(octets in any::<[u8; 16]>()) {
            prop_assert_eq!(from_hex(&to_hex(&octets)), Some(octets));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}", body in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = from_hex::<16>(&text);
            let _ = decode::<Question>(&body);
            let _ = decode::<Answer>(&body);
        }
    }
}
