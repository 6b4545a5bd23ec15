//! Messages over TLS with a time limit for each, so that a silent or slow peer holds nothing up.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ServiceError;
use super::message::{body_len, decode, encode};

/// How long one call may wait before the time limit and the stop signal are looked at.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Handshake, question and answer together.
pub(super) const CONVERSATION_MAX: Duration = Duration::from_secs(10);

/// Makes every call on `socket` end within [`LOOK_INTERVAL`].
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    socket.set_write_timeout(Some(LOOK_INTERVAL))
}

/// Reads one message before `until`.
///
/// # Errors
/// [`ServiceError::Socket`] for what the other end, the kernel or the clock did;
/// [`ServiceError::Protocol`] if it is no such message.
pub(super) fn read_message<T: DeserializeOwned>(
    stream: &mut impl Read,
    until: Instant,
) -> Result<T, ServiceError> {
    let mut len = [0; 2];
    read_exact(stream, &mut len, until)?;
    let mut body = vec![0; body_len(len)?];
    read_exact(stream, &mut body, until)?;
    decode(&body)
}

/// Writes one message before `until`.
///
/// # Errors
/// As [`read_message`].
pub(super) fn write_message(
    stream: &mut impl Write,
    message: &impl Serialize,
    until: Instant,
) -> Result<(), ServiceError> {
    let octets = encode(message)?;
    let mut rest = octets.as_slice();
    while !rest.is_empty() {
        let written = stream.write(rest);
        rest = rest.get(progress(written, until, WRITING)?..).unwrap_or_default();
    }
    loop {
        let flushed = stream.flush().map(|()| 1);
        if progress(flushed, until, WRITING)? == 1 {
            return Ok(());
        }
    }
}

const READING: &str = "reading from the control connection";
const WRITING: &str = "writing to the control connection";

fn read_exact(
    stream: &mut impl Read,
    octets: &mut [u8],
    until: Instant,
) -> Result<(), ServiceError> {
    let mut filled = 0;
    while filled < octets.len() {
        let read = match stream.read(&mut octets[filled..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        filled += progress(read, until, READING)?;
    }
    Ok(())
}

/// What a call achieved; nothing, if it only took too long for one look.
fn progress(
    outcome: io::Result<usize>,
    until: Instant,
    step: &'static str,
) -> Result<usize, ServiceError> {
    match outcome {
        Err(error) if is_temporary(&error) => {
            if Instant::now() >= until {
                let source = io::ErrorKind::TimedOut.into();
                return Err(ServiceError::Socket { step, source });
            }
            Ok(0)
        }
        // Octets that trickle in one by one do not stretch the time limit either.
        Ok(_) if Instant::now() >= until => {
            Err(ServiceError::Socket { step, source: io::ErrorKind::TimedOut.into() })
        }
        other => other.map_err(|source| ServiceError::Socket { step, source }),
    }
}

pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
