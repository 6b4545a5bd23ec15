//! Bodies of requests and responses, and the lease of a connection that limits them.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use tokio::time::{Sleep, sleep};
use underload_probe::load::payload;
use underload_record::schema::Direction;
use underload_service::CompatShare;

use super::transfer::Reader;

/// Time and volume that a connection may still use.
#[derive(Debug)]
pub(super) struct Lease {
    until: Instant,
    bytes_left: AtomicI64,
    requests: AtomicU64,
    in_flight: AtomicU64,
    /// Time in which load waited for the share, us.
    waited_us: AtomicU64,
    /// The share of the server's capacity; unset in a client, and before the first request for
    /// load.
    share: OnceLock<CompatShare>,
}

/// A request that has not ended on a connection.
#[derive(Debug)]
pub(super) struct InFlight {
    lease: Arc<Lease>,
    /// Reads the round trips of the connection as long as the request loads it.
    pub(super) reader: Option<Reader>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.lease.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlight {
    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Lease {
    pub(super) fn new(duration: Duration, bytes: u64) -> Arc<Self> {
        let bytes_left = AtomicI64::new(i64::try_from(bytes).unwrap_or(i64::MAX));
        Arc::new(Self {
            until: Instant::now() + duration,
            bytes_left,
            requests: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            share: OnceLock::new(),
        })
    }

    /// Counts a request that begins; it ends when the returned value is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { lease: Arc::clone(self), reader: None }
    }

    /// Returns the requests up to now, or `None` while one of them has not ended.
    pub(super) fn requests_if_idle(&self) -> Option<u64> {
        let is_at_rest = self.in_flight.load(Ordering::Relaxed) == 0;
        is_at_rest.then(|| self.requests.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
            || self.bytes_left.load(Ordering::Relaxed) <= 0
            || self.share.get().is_some_and(CompatShare::is_over)
    }

    /// Makes sure that the connection has a share, which `enter` returns.
    ///
    /// # Errors
    /// Returns the error of `enter`.
    pub(super) fn ensure_share<E>(
        &self,
        enter: impl FnOnce() -> Result<CompatShare, E>,
    ) -> Result<(), E> {
        if self.share.get().is_none() {
            // If two requests arrive at once, the share of one is dropped, which returns it.
            let _ = self.share.set(enter()?);
        }
        Ok(())
    }

    /// Takes at most `bytes_max` of the share and returns how many, or how long to wait before the
    /// next attempt.
    pub(super) fn take(&self, direction: Direction, bytes_max: usize) -> Result<usize, Duration> {
        let Some(share) = self.share.get() else { return Ok(bytes_max) };
        let bytes = bytes_max.min(share.chunk_bytes(direction)).max(1);
        share.take(direction, bytes as u64).map_err(|wait| {
            let wait = wait.clamp(WAIT_MIN, WAIT_MAX);
            self.waited_us.fetch_add(wait.as_micros() as u64, Ordering::Relaxed);
            wait
        })?;
        Ok(bytes)
    }

    /// Returns the time in which load waited for the share.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    pub(super) fn spend(&self, bytes: usize) {
        self.bytes_left.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

pub(super) enum Content {
    Ready(Option<Bytes>),
    /// Payload that is generated until `left` is 0 or the lease is over.
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
#[error("the lease of this connection is over")]
pub(super) struct Expired;

/// Largest frame of generated payload.
const CHUNK_BYTES: usize = 64 << 10;
/// Limits of the wait for more of the share; the end of a lease is checked after each wait.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(100);

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
            let lease = request.lease();
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
