//! Messages over TLS, each with a time limit, so that a silent or slow peer does not block others.
//!
//! Within one call a TLS library may read and write its connection any number of times. A limit
//! that is checked between calls therefore fails: a peer that sends one byte now and then keeps the
//! call running. [`Limited`] sits below the TLS library and checks the limit before each single
//! read and write; none of them takes longer than [`LOOK_INTERVAL`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ServiceError;
use super::message::{body_len, decode, encode};
use crate::clock::RunClock;
use crate::network::is_temporary;

/// Longest time one read or write may block before the time limit and the stop signal are checked.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time for handshake, question and answer together.
pub const CONVERSATION_MAX: Duration = Duration::from_secs(10);

/// A clock and a stop signal; tests replace them.
pub trait Watch {
    /// Returns the time since any fixed instant.
    fn now(&self) -> Duration;
    /// Returns true once everything has to end.
    fn is_stopped(&self) -> bool;
}

/// The monotonic clock, and a stop flag that another thread sets.
#[derive(Clone, Debug)]
pub struct Flagged {
    clock: RunClock,
    stop: Arc<AtomicBool>,
}

impl Flagged {
    /// Starts the clock; everything ends once `stop` is true.
    pub fn new(stop: &Arc<AtomicBool>) -> Self {
        Self { clock: RunClock::start(), stop: Arc::clone(stop) }
    }
}

impl Watch for Flagged {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The lease that keeps a connection open.
pub trait Lease {
    /// Returns why the lease has ended; `None` while it lasts.
    fn end(&self) -> Option<&'static str>;
    /// Returns whether the granted rates have limited traffic so far, up and down.
    fn throttled(&self) -> (bool, bool);
}

/// The lease type of a client, which has no lease.
#[derive(Clone, Copy, Debug)]
pub enum NoLease {}

impl Lease for NoLease {
    fn end(&self) -> Option<&'static str> {
        None
    }

    fn throttled(&self) -> (bool, bool) {
        (false, false)
    }
}

/// A byte stream whose every call fails with [`io::ErrorKind::TimedOut`] once its time is up, its
/// lease has ended, or everything stops. A call of `stream` must end within [`LOOK_INTERVAL`].
#[derive(Debug)]
pub struct Limited<S, W, L> {
    stream: S,
    watch: W,
    until: Duration,
    lease: Option<L>,
    /// True while the last message is sent, although the lease has ended: only the time counts
    /// then.
    says_farewell: bool,
}

impl<S, W: Watch, L: Lease> Limited<S, W, L> {
    /// Limits the stream to `allowed` from now on.
    pub fn new(stream: S, watch: W, allowed: Duration) -> Self {
        let until = watch.now() + allowed;
        Self { stream, watch, until, lease: None, says_farewell: false }
    }

    /// Sets the time limit to `allowed` from now on.
    pub fn allow(&mut self, allowed: Duration) {
        self.until = self.watch.now().saturating_add(allowed);
    }

    /// Replaces the time limit by the end of `lease`.
    pub fn hold(&mut self, lease: L) {
        self.lease = Some(lease);
        self.until = Duration::MAX;
    }

    /// Allows `allowed` more for the last message, even after a stop or the end of the lease.
    pub fn say_farewell(&mut self, allowed: Duration) {
        self.allow(allowed);
        self.says_farewell = true;
    }

    /// Returns the lease that keeps the connection open; `None` before [`Limited::hold`].
    pub fn lease(&self) -> Option<&L> {
        self.lease.as_ref()
    }

    pub fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// True if every further call will fail.
    pub fn is_over(&self) -> bool {
        let has_ended = || self.lease.as_ref().is_some_and(|lease| lease.end().is_some());
        self.watch.now() >= self.until
            || !self.says_farewell && (self.watch.is_stopped() || has_ended())
    }

    fn check(&self) -> io::Result<()> {
        // `TimedOut` is not one of the kinds after which a TLS library retries.
        if self.is_over() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl<S: Read, W: Watch, L: Lease> Read for Limited<S, W, L> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.read(bytes)
    }
}

impl<S: Write, W: Watch, L: Lease> Write for Limited<S, W, L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Makes every call on `socket` end within [`LOOK_INTERVAL`].
///
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    socket.set_write_timeout(Some(LOOK_INTERVAL))
}

/// Reads one message from `stream`, a TLS connection over a [`Limited`].
///
/// # Errors
/// Returns [`ServiceError::Socket`] if the peer, the kernel or the time limit ended the attempt;
/// [`ServiceError::Protocol`] if the message is too long; [`ServiceError::Message`] if it is not a
/// `T`.
pub fn read_message<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, ServiceError> {
    let mut len = [0; 2];
    read_exact(stream, &mut len)?;
    let mut body = vec![0; body_len(len)?];
    read_exact(stream, &mut body)?;
    decode(&body)
}

/// Writes one message to `out`, a TLS connection over a [`Limited`].
pub fn write_message(out: &mut impl Write, message: &impl Serialize) -> Result<(), ServiceError> {
    let bytes = encode(message)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let written = out.write(rest);
        rest = rest.get(progress(written, WRITING)?..).unwrap_or_default();
    }
    loop {
        let flushed = out.flush().map(|()| 1);
        if progress(flushed, WRITING)? == 1 {
            return Ok(());
        }
    }
}

const READING: &str = "reading from the control connection";
const WRITING: &str = "writing to the control connection";

fn read_exact(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), ServiceError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let read = match stream.read(&mut bytes[filled..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            // The text of rustls is for programmers.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(error.kind().into()),
            other => other,
        };
        filled += progress(read, READING)?;
    }
    Ok(())
}

/// Returns how many bytes a call moved: 0 if it blocked for [`LOOK_INTERVAL`] (`WouldBlock`).
/// `TimedOut`, from a dead connection or a [`Limited`], is final.
fn progress(outcome: io::Result<usize>, step: &'static str) -> Result<usize, ServiceError> {
    match outcome {
        Err(error) if is_temporary(&error) => Ok(0),
        other => other.map_err(|source| ServiceError::Socket { step, source }),
    }
}
