//! Messages over TLS with a time limit for each, so that a silent or slow peer holds nothing up.
//!
//! A TLS library reads and writes its connection as often as it needs to within one call, so a
//! limit that is looked at between calls is none: a peer that sends a byte now and then keeps the
//! call going. [`Limited`] sits below the library and looks at the limit before each single read
//! and write, of which none takes longer than [`LOOK_INTERVAL`].

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

/// How long one call may wait before the time limit and the stop signal are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Handshake, question and answer together.
pub const CONVERSATION_MAX: Duration = Duration::from_secs(10);

/// Time, and whether to stop early: of the machine, or of a test.
pub trait Watch {
    /// Since any fixed instant.
    fn now(&self) -> Duration;
    /// True once everything has to end.
    fn is_stopped(&self) -> bool;
}

/// The machine's clock, and a flag that somebody raises.
#[derive(Clone, Debug)]
pub struct Flagged {
    clock: RunClock,
    stop: Arc<AtomicBool>,
}

impl Flagged {
    /// The clock starts now; everything ends once `stop` is true.
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

/// What a connection is held open for.
pub trait Lease {
    /// Why it is over; `None` while it is not.
    fn end(&self) -> Option<&'static str>;
    /// Whether the granted rates held it up so far, up and down.
    fn throttled(&self) -> (bool, bool);
}

/// For who holds none.
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
/// lease is over, or everything stops. Its own calls must end within [`LOOK_INTERVAL`].
#[derive(Debug)]
pub struct Limited<S, W, L> {
    stream: S,
    watch: W,
    until: Duration,
    lease: Option<L>,
    /// The last words are said although it is over; then only the time counts.
    says_farewell: bool,
}

impl<S, W: Watch, L: Lease> Limited<S, W, L> {
    /// With `allowed` from now on.
    pub fn new(stream: S, watch: W, allowed: Duration) -> Self {
        let until = watch.now() + allowed;
        Self { stream, watch, until, lease: None, says_farewell: false }
    }

    /// From now on this much more.
    pub fn allow(&mut self, allowed: Duration) {
        self.until = self.watch.now().saturating_add(allowed);
    }

    /// As long as `lease` lasts.
    pub fn hold(&mut self, lease: L) {
        self.lease = Some(lease);
        self.until = Duration::MAX;
    }

    /// This much longer for the last words, whatever else is over.
    pub fn say_farewell(&mut self, allowed: Duration) {
        self.allow(allowed);
        self.says_farewell = true;
    }

    /// The lease that the connection is held open for; `None` before [`Limited::hold`].
    pub fn lease(&self) -> Option<&L> {
        self.lease.as_ref()
    }

    /// True once everything has to end.
    pub fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    /// Returns the underlying stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream below, to change it.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// True if no call will do anything any more.
    pub fn is_over(&self) -> bool {
        let has_ended = || self.lease.as_ref().is_some_and(|lease| lease.end().is_some());
        self.watch.now() >= self.until
            || !self.says_farewell && (self.watch.is_stopped() || has_ended())
    }

    fn check(&self) -> io::Result<()> {
        // Not one of the kinds that a TLS library takes for "try again".
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
/// # Errors
/// Returns the error of the socket option that the kernel refused.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    socket.set_write_timeout(Some(LOOK_INTERVAL))
}

/// Reads one message. `stream` stands on a [`Limited`], which ends the attempt.
///
/// # Errors
/// [`ServiceError::Socket`] for what the other end, the kernel or the clock did;
/// [`ServiceError::Protocol`] if it is no such message.
pub fn read_message<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, ServiceError> {
    let mut len = [0; 2];
    read_exact(stream, &mut len)?;
    let mut body = vec![0; body_len(len)?];
    read_exact(stream, &mut body)?;
    decode(&body)
}

/// Writes one message. `stream` stands on a [`Limited`], which ends the attempt.
///
/// # Errors
/// As [`read_message`].
pub fn write_message(
    stream: &mut impl Write,
    message: &impl Serialize,
) -> Result<(), ServiceError> {
    let bytes = encode(message)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let written = stream.write(rest);
        rest = rest.get(progress(written, WRITING)?..).unwrap_or_default();
    }
    loop {
        let flushed = stream.flush().map(|()| 1);
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
            other => other,
        };
        filled += progress(read, READING)?;
    }
    Ok(())
}

/// What a call achieved; nothing, if it only took too long for one look, which is `WouldBlock`.
/// `TimedOut` is what a dead connection or a [`Limited`] says, and final.
fn progress(outcome: io::Result<usize>, step: &'static str) -> Result<usize, ServiceError> {
    match outcome {
        Err(error) if is_temporary(&error) => Ok(0),
        other => other.map_err(|source| ServiceError::Socket { step, source }),
    }
}
