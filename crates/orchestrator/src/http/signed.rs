//! Authenticates requests of devices and servers.

use axum::http::{HeaderMap, StatusCode};
use underload_fleet::device::DeviceId;
use underload_fleet::request::{Authenticated, RequestError, holder, parse_time, verify};

use super::problem::Failure;

pub(super) struct Signed<'a> {
    session: &'a str,
    tag: &'a str,
    at_ms: u64,
}

pub const SESSION: &str = "underload-session";
/// When the request was sent, milliseconds since 1970.
pub const TIME: &str = "underload-time";
pub const TAG: &str = "underload-tag";

impl<'a> Signed<'a> {
    pub fn read(headers: &'a HeaderMap) -> Result<Self, Failure> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let found = (text(SESSION), text(TIME).and_then(parse_time), text(TAG));
        let (Some(session), Some(at_ms), Some(tag)) = found else {
            let message = format!("needs a session: headers {SESSION}, {TIME} and {TAG}");
            return Err(Failure::new(StatusCode::UNAUTHORIZED, "no-session", message));
        };
        Ok(Self { session, tag, at_ms })
    }

    /// Returns the holder of the session, before the body is read.
    pub fn holder(&self, secret: &[u8; 32], now_ms: u64) -> Result<DeviceId, Failure> {
        holder(secret, now_ms, self.session).map_err(refused)
    }

    /// Verifies that the holder of the session sent this request.
    pub fn verify(
        &self,
        secret: &[u8; 32],
        now_ms: u64,
        (method, target): (&str, &str),
        body: &[u8],
    ) -> Result<(), Failure> {
        let Self { session, tag, at_ms } = *self;
        let request = Authenticated { session, tag, at_ms, method, target, body };
        verify(secret, now_ms, &request).map_err(refused)
    }
}

fn refused(error: RequestError) -> Failure {
    let code = match error {
        RequestError::Session => "no-session",
        RequestError::Expired => "session-over",
        RequestError::Stale => "stale",
        RequestError::Forged => "forged",
    };
    Failure::new(StatusCode::UNAUTHORIZED, code, error.to_string())
}
