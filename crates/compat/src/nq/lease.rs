//! The lease of a connection: the time and bytes that are left to it, and its share of the server.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use underload_record::schema::Direction;
use underload_service::CompatShare;

/// Limits of the wait for more of the share; the end of a lease is checked after each wait.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Time and volume that a connection may still use.
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

    pub(super) fn begin_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_request(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
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
