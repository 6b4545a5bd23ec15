//! The claims of a token. The bearer can read which server a token is for; only the issuer can
//! verify the token.
//!
//! A token is `ul1.CLAIMS.TAG`: claims in JSON and their HMAC-SHA-256, both in hexadecimal.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::message::MESSAGE_MAX;

/// The claims of a token, for any server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    pub key: String,
    pub server: String,
    /// The token's identifier, 32 hexadecimal digits.
    pub id: String,
    /// When the token was issued, seconds since 1970.
    pub issued: u64,
    /// When the token expires, seconds since 1970.
    pub expires: u64,
    /// Number of sessions that the token is good for.
    pub uses: u32,
    /// Highest rate of a session in either direction, bit/s; `None` leaves it to the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_bit_per_s: Option<u64>,
    /// Longest session, s; `None` leaves it to the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_s: Option<u64>,
}

/// The part of every token before the first dot.
pub const PREFIX: &str = "ul1";

/// Returns the fingerprint of the server that a token names; `None` if `text` is malformed. The
/// HMAC is not checked, because only the issuer can do so.
pub fn server_of(text: &str) -> Option<Fingerprint> {
    let mut parts = text.trim().split('.');
    let claims = parts.next().filter(|prefix| *prefix == PREFIX).and_then(|_| parts.next())?;
    if claims.len() > MESSAGE_MAX {
        return None;
    }
    let json = HEXLOWER_PERMISSIVE.decode(claims.as_bytes()).ok()?;
    let claims: Claims = serde_json::from_slice(&json).ok()?;
    claims.server.parse().ok()
}
