//! What a token says: its bearer can read for which server it is, only its issuer can check it.
//!
//! A token is `ul1.CLAIMS.TAG`: claims in JSON and their HMAC-SHA-256, both in hexadecimal.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::message::MESSAGE_MAX;

/// What a token says, of whatever server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Name of the key.
    pub key: String,
    /// Fingerprint of the server's key.
    pub server: String,
    /// The token's identifier, 32 hexadecimal digits.
    pub id: String,
    /// When it was made, seconds since 1970.
    pub issued: u64,
    /// The end of its validity, seconds since 1970.
    pub expires: u64,
    /// Sessions that it is good for.
    pub uses: u32,
    /// Highest rate of a session in either direction, bit/s; `None` leaves it to the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_bit_per_s: Option<u64>,
    /// Longest session, s; `None` leaves it to the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_s: Option<u64>,
}

/// What a token begins with.
pub const PREFIX: &str = "ul1";

/// The server that a token names, for its bearer: only the issuer can check the rest. `None` if it
/// is no token.
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
