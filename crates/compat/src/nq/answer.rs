//! Bodies: one byte, much payload, or a few words; and the lease that ends them.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use tokio::time::{Sleep, sleep};
use underload_probe::load::payload;
use underload_record::schema::Direction;
use underload_service::CompatShare;

/// Bytes and time that a connection may still use.
#[derive(Debug)]
pub(super) struct Lease {
    until: Instant,
    bytes_left: AtomicI64,
    requests: AtomicU64,
    in_flight: AtomicU64,
    /// Of what the server gives away; none for a client, and before the first request for load.
    share: OnceLock<CompatShare>,
}

/// A request under way on a connection.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Lease>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlight {
    pub(super) fn lease(&self) -> &Lease {
        &self.0
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
            share: OnceLock::new(),
        })
    }

    /// A request begins.
    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Requests so far; `None` while one is under way.
    pub(super) fn requests_at_rest(&self) -> Option<u64> {
        let is_at_rest = self.in_flight.load(Ordering::Relaxed) == 0;
        is_at_rest.then(|| self.requests.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
            || self.bytes_left.load(Ordering::Relaxed) <= 0
            || self.share.get().is_some_and(CompatShare::is_over)
    }

    /// Sees to it that the connection has a share; `enter` is asked for one if it has none yet, and
    /// its error is the answer.
    pub(super) fn have_share<E>(
        &self,
        enter: impl FnOnce() -> Result<CompatShare, E>,
    ) -> Result<(), E> {
        if self.share.get().is_none() {
            // Of two requests at once one is first; the other's share goes back.
            let _ = self.share.set(enter()?);
        }
        Ok(())
    }

    /// Takes at most `bytes_max`, and says how many; or how long to wait before asking again.
    pub(super) fn take(&self, direction: Direction, bytes_max: usize) -> Result<usize, Duration> {
        let Some(share) = self.share.get() else { return Ok(bytes_max) };
        let bytes = bytes_max.min(share.chunk_bytes(direction)).max(1);
        share.take(direction, bytes as u64).map_err(|wait| wait.clamp(WAIT_MIN, WAIT_MAX))?;
        Ok(bytes)
    }

    pub(super) fn spend(&self, bytes: usize) {
        self.bytes_left.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

/// The body of a request or of an answer of ours.
pub(super) enum Content {
    /// Bytes that are ready to be sent.
    Ready(Option<Bytes>),
    /// Generated until so many are written or the lease is over.
    Generated {
        /// Bytes still to come.
        left: u64,
        /// The request, with the lease whose end is this body's end.
        request: InFlight,
        /// What was handed over so far, for whoever wants to know.
        written: Arc<AtomicU64>,
        /// Until more may be sent.
        pause: Option<Pin<Box<Sleep>>>,
    },
}

/// The lease is over in the middle of a body: its stream is reset.
#[derive(Debug, thiserror::Error)]
#[error("the lease of this connection is over")]
pub(super) struct Expired;

/// Bytes of one HTTP frame of generated payload.
const CHUNK_BYTES: usize = 64 << 10;
/// Between two questions for more of the rate: the end of a lease is noticed in between.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The payload of a frame, generated once and shared by all connections.
fn chunk() -> Bytes {
    static CHUNK: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    CHUNK.get_or_init(|| Bytes::from(payload(CHUNK_BYTES))).clone()
}

impl Content {
    pub(super) fn of(bytes: impl Into<Bytes>) -> Self {
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

pub(super) fn payload_response(content: Content, len: u64) -> Response<Content> {
    let mut response = Response::new(content);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    response
}
