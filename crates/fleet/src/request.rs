//! Authentication of requests.
//!
//! Verifying a signature takes fifty times as long as verifying a keyed hash, and a fleet sends
//! thousands of results a second. So a device proves its key once ([`crate::message::OpenSession`])
//! and gets a session, whose key authenticates each request with HMAC-SHA-256. The orchestrator
//! stores no session: the session's text contains the device and the expiry, authenticated by a
//! secret that all orchestrators of a fleet share, and the session's key is derived from that text.

use data_encoding::HEXLOWER;
use ring::hmac::{self, HMAC_SHA256, Key, sign};

use crate::device::DeviceId;

/// Lifetime of a session.
pub const SESSION_MS: u64 = 3_600_000;
/// Largest difference between a request's time and the orchestrator's clock.
pub const FRESH_MS: u64 = 300_000;

/// The result of checking a request.
type Result<T, E = RequestError> = std::result::Result<T, E>;

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("this is not a session of this fleet")]
    Session,
    #[error("the session is over: open another")]
    Expired,
    #[error("the request's time is more than five minutes off")]
    Stale,
    #[error("the request is not authenticated by its session")]
    Forged,
}

/// The text of a session, which each request carries, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSecrets {
    pub session: String,
    pub key: [u8; 32],
}

pub fn open_session(fleet_secret: &[u8; 32], device: DeviceId, expires_ms: u64) -> SessionSecrets {
    let claims = format!("{device}.{expires_ms}");
    let tag = tagged(fleet_secret, "session", claims.as_bytes());
    let session = format!("{claims}.{}", HEXLOWER.encode(&tag));
    let key = tagged(fleet_secret, "key", session.as_bytes());
    SessionSecrets { session, key }
}

/// Returns the tag of a request: the HMAC-SHA-256 of its method, a space, its target (path and
/// query), a line feed, its time, a line feed and its body.
pub fn authenticate(key: &[u8; 32], method: &str, target: &str, at_ms: u64, body: &[u8]) -> String {
    let covered = covered(method, target, at_ms, body);
    HEXLOWER.encode(sign(&Key::new(HMAC_SHA256, key), &covered).as_ref())
}

/// Parses the time of a request. Only one spelling is accepted: decimal digits without a sign or
/// leading zeros.
pub fn parse_time(text: &str) -> Option<u64> {
    text.parse().ok().filter(|at_ms: &u64| at_ms.to_string() == text)
}

/// Returns the device of a valid session. [`verify`] checks that this device sent the request.
///
/// # Errors
/// [`RequestError::Session`] or [`RequestError::Expired`].
pub fn holder(fleet_secret: &[u8; 32], now_ms: u64, session: &str) -> Result<DeviceId> {
    let (claims, tag) = session.rsplit_once('.').ok_or(RequestError::Session)?;
    let tag = HEXLOWER.decode(tag.as_bytes()).map_err(|_| RequestError::Session)?;
    let secret = derived(fleet_secret, "session");
    hmac::verify(&secret, claims.as_bytes(), &tag).map_err(|_| RequestError::Session)?;
    let (device, expires) = claims.split_once('.').ok_or(RequestError::Session)?;
    let device = device.parse().map_err(|_| RequestError::Session)?;
    let expires: u64 = expires.parse().map_err(|_| RequestError::Session)?;
    if now_ms >= expires {
        return Err(RequestError::Expired);
    }
    Ok(device)
}

/// Verifies that the holder of the session's key sent exactly this request, at most [`FRESH_MS`]
/// ago. [`holder`] checks the session itself.
///
/// # Errors
/// [`RequestError::Stale`] or [`RequestError::Forged`].
pub fn verify(fleet_secret: &[u8; 32], now_ms: u64, request: &Authenticated<'_>) -> Result<()> {
    if now_ms.abs_diff(request.at_ms) > FRESH_MS {
        return Err(RequestError::Stale);
    }
    let key = tagged(fleet_secret, "key", request.session.as_bytes());
    let tag = HEXLOWER.decode(request.tag.as_bytes()).map_err(|_| RequestError::Forged)?;
    let Authenticated { method, target, at_ms, body, .. } = *request;
    let key = Key::new(HMAC_SHA256, &key);
    hmac::verify(&key, &covered(method, target, at_ms, body), &tag)
        .map_err(|_| RequestError::Forged)
}

/// Returns the sender of a request: calls [`holder`] and [`verify`].
pub fn sender(
    fleet_secret: &[u8; 32],
    now_ms: u64,
    request: &Authenticated<'_>,
) -> Result<DeviceId> {
    let device = holder(fleet_secret, now_ms, request.session)?;
    verify(fleet_secret, now_ms, request)?;
    Ok(device)
}

#[derive(Clone, Copy, Debug)]
pub struct Authenticated<'a> {
    pub session: &'a str,
    /// The result of [`authenticate`].
    pub tag: &'a str,
    /// When it was sent, milliseconds since 1970.
    pub at_ms: u64,
    /// The HTTP method, such as `POST`.
    pub method: &'a str,
    pub target: &'a str,
    pub body: &'a [u8],
}

fn covered(method: &str, target: &str, at_ms: u64, body: &[u8]) -> Vec<u8> {
    let mut covered = format!("{method} {target}\n{at_ms}\n").into_bytes();
    covered.extend_from_slice(body);
    covered
}

fn derived(secret: &[u8; 32], purpose: &str) -> Key {
    let key = sign(&Key::new(HMAC_SHA256, secret), purpose.as_bytes());
    Key::new(HMAC_SHA256, key.as_ref())
}

fn tagged(secret: &[u8; 32], purpose: &str, text: &[u8]) -> [u8; 32] {
    let tag = sign(&derived(secret, purpose), text);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [9; 32];
    const DEVICE: DeviceId = DeviceId([3; 16]);

    fn signed<'a>(session: &'a str, tag: &'a str) -> Authenticated<'a> {
        let (method, target) = ("POST", "/v1/next");
        Authenticated { session, tag, at_ms: 5_000_000, method, target, body: b"{}" }
    }

    #[test]
    fn a_request_is_valid_unchanged_and_while_fresh() {
        let opened = open_session(&SECRET, DEVICE, 10_000_000);
        let tag = authenticate(&opened.key, "POST", "/v1/next", 5_000_000, b"{}");
        let good = signed(&opened.session, &tag);
        let believed = |now, request: &Authenticated<'_>| sender(&SECRET, now, request);
        assert_eq!(believed(5_000_000, &good), Ok(DEVICE));
        assert_eq!(believed(5_300_001, &good), Err(RequestError::Stale));
        assert_eq!(believed(10_000_000, &good), Err(RequestError::Expired));
        let changed = [
            Authenticated { body: b"{ }", ..good },
            Authenticated { target: "/v1/results", ..good },
            Authenticated { target: "/v1/next?x=1", ..good },
            Authenticated { method: "PUT", ..good },
            Authenticated { at_ms: 5_000_001, ..good },
            Authenticated { tag: "00", ..good },
        ];
        for request in changed {
            assert_eq!(believed(5_000_000, &request), Err(RequestError::Forged), "{request:?}");
        }
        assert_eq!(sender(&[8; 32], 5_000_000, &good), Err(RequestError::Session));
    }

    #[test]
    fn a_time_has_one_spelling() {
        assert_eq!(parse_time("1800000000000"), Some(1_800_000_000_000));
        for other in ["+1", "01", "", " 1", "-1", "1.0", "18446744073709551616"] {
            assert_eq!(parse_time(other), None, "{other}");
        }
    }

    #[test]
    fn a_session_cannot_be_lengthened_or_given_to_another() {
        let opened = open_session(&SECRET, DEVICE, 10_000_000);
        let [device, expires, tag] =
            <[&str; 3]>::try_from(opened.session.split('.').collect::<Vec<_>>()).expect("three");
        let other = DeviceId([4; 16]).to_string();
        for forged in [
            format!("{device}.{expires}0.{tag}"),
            format!("{other}.{expires}.{tag}"),
            String::new(),
            format!("{device}.{expires}"),
        ] {
            let found = sender(&SECRET, 5_000_000, &signed(&forged, ""));
            assert_eq!(found, Err(RequestError::Session), "{forged}");
        }
    }
}
