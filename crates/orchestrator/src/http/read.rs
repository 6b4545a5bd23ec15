//! Reads bodies of requests, with limits on size, time and memory.

use std::pin::pin;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use underload_fleet::device::DeviceId;
use underload_fleet::message::REQUEST_MAX;
use underload_probe::network::{CustomerNetwork, Place, PlaceLimits, Places, unless};

use super::connection::evict;
use super::problem::Failure;

/// Memory for bodies that are being read, shared by all senders. A body uses memory as it arrives,
/// whatever length it announces. When all memory is in use, the sender that uses the most loses its
/// oldest body.
pub(super) struct Bodies {
    room: Places<BodySender>,
    time_max: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BodySender {
    Device(DeviceId),
    Stranger(CustomerNetwork),
}

const UNIT_BYTES: usize = 4_096;
/// The share of the memory that one sender may have, if that is enough for two bodies.
const SENDER_SHARE: usize = 16;

/// Returns the units of the semaphore that a body of `bytes` uses.
const fn units(bytes: usize) -> usize {
    bytes / UNIT_BYTES + 1
}

impl Bodies {
    pub fn new(bytes_max: usize, time_max: Duration) -> Self {
        let in_all = bytes_max / UNIT_BYTES;
        let per_network = (in_all / SENDER_SHARE).max(2 * units(REQUEST_MAX));
        // Without an end of the grace period, a body is never evicted by another of its sender.
        let room = Places::new(PlaceLimits { in_all, per_network, grace: Duration::MAX });
        Self { room, time_max }
    }

    /// Reads a body of at most `max` bytes. Its memory counts until the place is dropped.
    pub async fn read(
        &self,
        sender: BodySender,
        headers: &HeaderMap,
        body: Body,
        max: usize,
    ) -> Result<(Bytes, Place<BodySender>), Failure> {
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<usize>().ok());
        if announced.is_some_and(|length| length > max) {
            return Err(too_large(max));
        }
        let (evict, evicted) = evict();
        let place = self.room.take(Instant::now(), sender, Some(evict)).ok_or_else(no_room)?;
        let read = {
            let read = pin!(timeout(self.time_max, collect(body, max, &place)));
            unless(pin!(evicted), read).await
        };
        let Ok(read) = read.ok_or_else(no_room)? else {
            let message = format!("the body took longer than {} s", self.time_max.as_secs());
            return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "too-slow", message));
        };
        Ok((read?, place))
    }
}

async fn collect(mut body: Body, max: usize, place: &Place<BodySender>) -> Result<Bytes, Failure> {
    let (mut bytes, mut taken) = (Vec::new(), units(0));
    while let Some(frame) = body.frame().await {
        // A sender that closed its connection will not read this answer.
        let broken_off =
            |_| Failure::new(StatusCode::BAD_REQUEST, "broken-off", "the body is incomplete");
        let Ok(data) = frame.map_err(broken_off)?.into_data() else { continue };
        let length = bytes.len().saturating_add(data.len());
        if length > max {
            return Err(too_large(max));
        }
        if !place.grow(units(length) - taken) {
            return Err(no_room());
        }
        taken = units(length);
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

fn too_large(max: usize) -> Failure {
    let message = format!("the body is longer than {max} bytes: send less at once");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message)
}

fn no_room() -> Failure {
    Failure::busy("too many requests are being read")
}

pub(super) fn message<M: DeserializeOwned>(body: &[u8]) -> Result<M, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, "not-json", error.to_string()))
}
