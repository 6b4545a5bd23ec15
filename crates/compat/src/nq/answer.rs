//! Bodies of requests and responses, within the lease of their connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use tokio::time::{Sleep, sleep};
use underload_probe::load::payload;
use underload_record::schema::Direction;

use super::lease::Lease;
use super::transfer::Reader;

/// A request that has not ended on a connection.
pub(super) struct InFlight {
    pub(super) lease: Arc<Lease>,
    /// Reads the round trips of the connection as long as the request loads it.
    pub(super) reader: Option<Reader>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.lease.end_request();
    }
}

impl InFlight {
    /// Counts a request that begins; it ends when the returned value is dropped.
    pub(super) fn new(lease: &Arc<Lease>) -> Self {
        lease.begin_request();
        Self { lease: Arc::clone(lease), reader: None }
    }
}

pub(super) enum Content {
    Ready(Option<Bytes>),
    /// Payload that is generated until `left` is 0 or the lease expires.
    Generated {
        left: u64,
        request: InFlight,
        /// Bytes passed to the connection up to now.
        written: Arc<AtomicU64>,
        /// Runs until the share allows more bytes.
        pause: Option<Pin<Box<Sleep>>>,
    },
}

/// The lease ended within a body; HTTP/2 resets the stream.
#[derive(Debug, thiserror::Error)]
#[error("the lease of this connection has expired")]
pub(super) struct Expired;

/// Largest frame of generated payload.
const CHUNK_BYTES: usize = 64 << 10;

/// Returns the payload of a frame, which is generated once and shared by all connections.
fn chunk() -> Bytes {
    static CHUNK: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    CHUNK.get_or_init(|| Bytes::from(payload(CHUNK_BYTES))).clone()
}

impl Content {
    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Ready(Some(bytes.into()))
    }

    pub(super) fn generated(left: u64, request: InFlight, written: Arc<AtomicU64>) -> Self {
        Self::Generated { left, request, written, pause: None }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Expired;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Expired>>> {
        let (left, request, written, pause) = match &mut *self {
            Self::Ready(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
            Self::Generated { left: 0, .. } => return Poll::Ready(None),
            Self::Generated { left, request, written, pause } => (left, request, written, pause),
        };
        loop {
            if let Some(until) = pause {
                ready!(until.as_mut().poll(context));
                *pause = None;
            }
            let lease = &request.lease;
            if lease.is_over() {
                return Poll::Ready(Some(Err(Expired)));
            }
            let bytes_max = CHUNK_BYTES.min(usize::try_from(*left).unwrap_or(CHUNK_BYTES));
            match lease.take(Direction::Down, bytes_max) {
                Ok(bytes) => {
                    *left -= bytes as u64;
                    lease.spend(bytes);
                    written.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Poll::Ready(Some(Ok(Frame::data(chunk().slice(..bytes)))));
                }
                Err(wait) => *pause = Some(Box::pin(sleep(wait))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Ready(None) | Self::Generated { left: 0, .. })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Ready(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Self::Generated { left, .. } => *left,
        })
    }
}

/// Makes a response with a content type and the length of its body.
pub(super) fn response(kind: &'static str, content: Content) -> Response<Content> {
    let len = content.size_hint().lower();
    let mut response = Response::new(content);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    response
}

/// Makes a response that browsers and proxies must not store.
pub(super) fn uncached_response(kind: &'static str, bytes: impl Into<Bytes>) -> Response<Content> {
    let mut response = response(kind, Content::bytes(bytes));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
