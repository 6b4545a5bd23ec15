//! A control connection: states of one byte, and JSON behind a length.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use underload_probe::network::{POLL_INTERVAL, is_temporary, wait_for};

use super::parameters::Refusal;
use super::state;

/// The first bytes of a control connection: 36 characters and a zero.
pub(super) type Cookie = [u8; 37];

/// Why a test ended early. The client is notified unless it is the cause.
#[derive(Debug)]
pub(super) enum Ended {
    Refused(Refusal),
    /// The time of the test is up, or nothing moves.
    Lease,
    Stopped,
    Overloaded,
    /// The client closed the connection, or violates the protocol.
    Client,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        // A socket error concerns the client's end of the connection.
        Self::Client
    }
}

/// A control connection whose reads end at a deadline and when the server stops.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) stream: TcpStream,
    stop: Arc<AtomicBool>,
}

/// Longest time for a client to receive a message.
const WRITE_MAX: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn new(stream: TcpStream, stop: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, stop })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8], until: Instant) -> Result<(), Ended> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Err(Ended::Client),
                Ok(bytes) => filled += bytes,
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if filled < buffer.len() && Instant::now() >= until {
                return Err(Ended::Client);
            }
        }
        Ok(())
    }

    /// Returns the next state from the client; `None` if none arrives within [`POLL_INTERVAL`].
    pub(super) fn poll_state(&mut self) -> Result<Option<i8>, Ended> {
        if self.is_stopped() {
            return Err(Ended::Stopped);
        }
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => Err(Ended::Client),
            Ok(_) => Ok(Some(byte[0] as i8)),
            Err(error) if is_temporary(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the client has closed the connection or sends anything, which it must not do now.
    pub(super) fn check(&mut self) -> Result<(), Ended> {
        let ready = wait_for(self.stream.as_fd(), PollFlags::POLLIN, Duration::ZERO)?;
        if ready.is_empty() && !self.is_stopped() {
            return Ok(());
        }
        match self.poll_state()? {
            Some(_) => Err(Ended::Client),
            None => Ok(()),
        }
    }

    /// Writes within [`WRITE_MAX`], even if the client reads slowly.
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        let until = Instant::now() + WRITE_MAX;
        loop {
            match self.stream.write(bytes) {
                Ok(0) => return Err(Ended::Client),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_temporary(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if bytes.is_empty() {
                return Ok(());
            }
            // Checked after the first attempt, so that the client can be notified that the server
            // stops.
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            if Instant::now() >= until {
                return Err(Ended::Client);
            }
        }
    }

    pub(super) fn send_state(&mut self, state: i8) -> Result<(), Ended> {
        self.write(&[state as u8])
    }

    /// Sends an error as iperf3 does: the state, the error's number, and that no system call
    /// failed.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<(), Ended> {
        let mut bytes = vec![state::SERVER_ERROR as u8];
        bytes.extend_from_slice(&refusal.0.to_be_bytes());
        bytes.extend_from_slice(&0i32.to_be_bytes());
        self.write(&bytes)
    }

    /// Reads JSON of at most `bytes_max`. The length is checked before memory is allocated.
    pub(super) fn read_json(&mut self, bytes_max: usize, until: Instant) -> Result<Vec<u8>, Ended> {
        let mut len = [0; 4];
        self.read(&mut len, until)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > bytes_max {
            return Err(Ended::Refused(Refusal::PARAMETERS));
        }
        let mut json = vec![0; len];
        self.read(&mut json, until)?;
        Ok(json)
    }

    pub(super) fn write_json(&mut self, json: &[u8]) -> Result<(), Ended> {
        let len = u32::try_from(json.len()).map_err(|_| Ended::Client)?;
        self.write(&[&len.to_be_bytes(), json].concat())
    }
}
