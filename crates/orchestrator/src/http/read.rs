//! A request's body: how large, for how long, and who pays for it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::problem::Failure;

/// Memory for bodies that are being read, shared by all connections.
#[derive(Debug)]
pub(super) struct Bodies {
    room_kib: Semaphore,
    time_max: Duration,
}

impl Bodies {
    pub fn new(bytes_max: usize, time_max: Duration) -> Self {
        Self { room_kib: Semaphore::new(bytes_max / 1024), time_max }
    }

    /// Reads a body of at most `max` bytes. The room that it takes is held with the permit.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        max: usize,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Failure> {
        let too_large = || {
            let message = format!("the body is longer than {max} bytes: send less at once");
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message)
        };
        let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let told = told.and_then(|length| length.parse::<usize>().ok());
        if told.is_some_and(|length| length > max) {
            return Err(too_large());
        }
        let kib = (told.unwrap_or(max) / 1024 + 1) as u32;
        let room = self.room_kib.try_acquire_many(kib);
        let room = room.map_err(|_| Failure::busy("too many requests are being read"))?;
        let read = timeout(self.time_max, Limited::new(body, max).collect()).await;
        let Ok(read) = read else {
            let message = format!("the body took longer than {} s", self.time_max.as_secs());
            return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "too-slow", message));
        };
        match read {
            Ok(body) => Ok((body.to_bytes(), room)),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            // Whoever broke off will not read this.
            Err(_) => Err(Failure::new(StatusCode::BAD_REQUEST, "broken-off", "no whole body")),
        }
    }
}

/// What a body says.
pub(super) fn message<M: DeserializeOwned>(body: &[u8]) -> Result<M, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, "not-json", error.to_string()))
}
