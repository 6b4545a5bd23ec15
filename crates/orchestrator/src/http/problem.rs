//! Error answers of the API.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use underload_fleet::message::Problem;
use underload_fleet::removal::Removal;

use super::batch::NotDone;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: StatusCode,
    problem: Problem,
    retry_after_s: Option<u64>,
}

/// Characters of a message, which may quote a peer.
const MESSAGE_MAX: usize = 300;
/// Minimum `Retry-After` of a request that was refused for load.
const BUSY_S: u64 = 5;

impl Failure {
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let message: String = message.into().chars().take(MESSAGE_MAX).collect();
        let problem = Problem { code: code.to_owned(), message, removal: None };
        Self { status, problem, retry_after_s: None }
    }

    pub fn with_removal(mut self, removal: Option<Removal>) -> Self {
        self.problem.removal = removal.map(Box::new);
        self
    }

    /// Sets `Retry-After` to `seconds`, with jitter up to twice that.
    pub fn after(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(jittered(seconds.max(1))), ..self }
    }

    pub fn busy(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).after(BUSY_S)
    }
}

/// Returns a random number from `seconds` to twice that, so that senders that were refused together
/// do not retry together.
fn jittered(seconds: u64) -> u64 {
    static KEYED: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let random = KEYED.hash_one(COUNTER.fetch_add(1, Ordering::Relaxed));
    seconds.saturating_add(random % seconds.saturating_add(1))
}

impl From<NotDone> for Failure {
    fn from(reason: NotDone) -> Self {
        match reason {
            NotDone::Full => Self::busy("too many requests wait"),
            // A database's error may name its host, which only the operator may see.
            NotDone::Away { .. } => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self::new(status, "store-away", "nothing can be stored now").after(BUSY_S)
            }
            NotDone::Broken { .. } => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self::new(status, "internal", "the orchestrator cannot do this")
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.problem)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Underload"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_jittered() {
        let waits: std::collections::BTreeSet<u64> = (0..1_000).map(|_| jittered(60)).collect();
        assert!(waits.first() >= Some(&60) && waits.last() <= Some(&120), "{waits:?}");
        assert!(waits.len() > 50, "{waits:?}");
    }

    #[test]
    fn quoted_messages_are_truncated() {
        let failure = Failure::new(StatusCode::BAD_REQUEST, "json", "é".repeat(100_000));
        assert_eq!(failure.problem.message.chars().count(), MESSAGE_MAX);
    }
}
