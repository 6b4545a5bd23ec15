//! A control connection: bytes of state, and JSON with its length in front.

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

/// What a control connection was opened with: 36 characters and a zero.
pub(super) type Cookie = [u8; 37];

/// Why a conversation ended early.
#[derive(Debug)]
pub(super) enum Ended {
    /// The test is not allowed; the client is told.
    Refused(Refusal),
    /// Its time is over, or nothing moves; the client is told.
    Lease,
    /// The server stops; the client is told.
    Stopped,
    /// The machine has no thread for it; the client is told.
    Overloaded,
    /// The client went away, or does not speak the protocol.
    Client,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        // What the kernel says about a connection is always about the client's end of it.
        Self::Client
    }
}

/// Reads that end at a deadline and when the server stops.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
}

/// How long a client may take to take in what it is told.
const WRITE_MAX: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn new(stream: TcpStream, stop: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, stop })
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
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

    /// The next state that the client says, if it says one within [`POLL_INTERVAL`].
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

    /// While the client has nothing to say: fails if it is gone, or says something.
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

    /// A client that does not take in what it is told, however slowly it does, ends with
    /// [`WRITE_MAX`].
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
            // After the first try, so that a client can be told that the server stops.
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            if Instant::now() >= until {
                return Err(Ended::Client);
            }
        }
    }

    pub(super) fn say(&mut self, state: i8) -> Result<(), Ended> {
        self.write(&[state as u8])
    }

    /// What an error of iperf3's is: the state, its number, and that no system call failed.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<(), Ended> {
        let mut bytes = vec![state::SERVER_ERROR as u8];
        bytes.extend_from_slice(&refusal.0.to_be_bytes());
        bytes.extend_from_slice(&0i32.to_be_bytes());
        self.write(&bytes)
    }

    /// JSON of at most `bytes_max`, which nothing is allocated for before it is checked.
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
