//! One direction of a test.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use socket2::SockRef;
use tungstenite::{Bytes, Error, Message};
use underload_probe::load::{TcpInfo, acknowledged_bytes, congestion_control_of, payload};
use underload_record::schema::Direction;

use super::channel::Channel;
use super::{DURATION, Measurement, Ndt7Error, Ndt7Target};
use crate::nq::NqTrust;

/// A test of one direction, to be run.
#[derive(Clone, Debug)]
pub struct Ndt7Test {
    /// Where to.
    pub target: Ndt7Target,
    /// Whom to believe.
    pub trust: NqTrust,
    /// The direction that is loaded.
    pub direction: Direction,
    /// Ends then, at the latest; the server may end it sooner.
    pub duration_max: Duration,
    /// The congestion control of the way up; `None` leaves it to the system. Of the way down the
    /// server decides.
    pub congestion_control: Option<String>,
}

/// What a test found.
#[derive(Clone, Debug, PartialEq)]
pub struct Ndt7Result {
    /// The address that answered.
    pub address: SocketAddr,
    /// What the TCP handshake took, before any load.
    pub handshake: Duration,
    /// How long the load lasted.
    pub elapsed: Duration,
    /// Payload over the whole test, as ndt7 defines its rate, bit/s. Down it is what came out of
    /// TLS here, up what the server's TCP has acknowledged: both with the framing of WebSocket, up
    /// also TLS's (0.2 % together).
    pub goodput_bit_per_s: f64,
    /// The same without the first two seconds, in which a connection gathers speed.
    pub settled_bit_per_s: Option<f64>,
    /// Smallest round trip that the sending kernel saw, us.
    pub rtt_min_us: Option<f64>,
    /// The congestion control of the way up, as the kernel names it. No server tells its own.
    pub congestion_control: Option<String>,
    /// Readings of the sending kernel's smoothed round trip since the load began, us.
    pub readings: Vec<(Duration, f64)>,
    /// Payload moved since the load began, ten times a second.
    pub moved: Vec<(Duration, u64)>,
    /// Share of the bytes that the sender sent again, percent; what only a server tells.
    pub sent_again_percent: Option<f64>,
    /// What the server says to have counted.
    pub server: Option<ServerCount>,
    /// Messages of the server that were read, and those that were passed over.
    pub messages: (u64, u64),
    /// Why it ended.
    pub end: End,
}

impl Ndt7Result {
    /// Readings under load, us: those after the first second.
    pub fn loaded_rtt_us(&self) -> Vec<f64> {
        let loaded = self.readings.iter().filter(|(at, _)| *at >= LOADED);
        loaded.map(|(_, rtt_us)| *rtt_us).collect()
    }
}

/// A server's own count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerCount {
    /// Payload, bit/s.
    pub goodput_bit_per_s: f64,
    /// Of how much of the test, s.
    pub elapsed_s: f64,
}

/// Why a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time was over.
    Time,
    /// The server closed it.
    Server,
    /// The connection broke; the protocol takes what was measured until then.
    Broken,
    /// The user does not want it any more.
    Cancelled,
}

/// A connection gathers speed until then.
const SETTLED: Duration = Duration::from_secs(2);
/// Round trips count from here on.
const LOADED: Duration = Duration::from_secs(1);
/// From one look at counters to the next.
const SAMPLE: Duration = Duration::from_millis(100);
/// After the end of its time a server gets this long to close (the protocol's 13 s).
const GRACE: Duration = Duration::from_secs(3);
/// Measurements that are read of one test; the protocol allows ten a second.
const MEASUREMENTS_MAX: u64 = 400;
/// Bytes of a message upwards: at first, and at most.
const UPLOAD_BYTES_MIN: usize = 1 << 13;
const UPLOAD_BYTES_MAX: usize = 1 << 20;
/// A message grows while it is less than this share of what was sent.
const UPLOAD_SHARE: u64 = 16;

impl Ndt7Test {
    /// Runs it. `watch` is told the bytes so far, ten times a second.
    ///
    /// # Errors
    /// [`Ndt7Error`]: no connection, no ndt7 server, nothing measured.
    pub fn run(
        &self,
        watch: &mut dyn FnMut(Duration, u64),
        cancelled: &AtomicBool,
    ) -> Result<Ndt7Result, Ndt7Error> {
        let tls: Arc<ClientConfig> = self.trust.client_config(b"http/1.1")?;
        let (path, congestion_control) = match self.direction {
            Direction::Down => (&self.target.download, None),
            Direction::Up => (&self.target.upload, self.congestion_control.as_deref()),
        };
        let channel = Channel::open(path, tls, congestion_control, cancelled)?;
        let mut running = Running::new(channel, self);
        let end = loop {
            if cancelled.load(Ordering::Relaxed) {
                break End::Cancelled;
            }
            let elapsed = running.start.elapsed();
            running.sample(elapsed, watch);
            if elapsed >= running.duration_max {
                break End::Time;
            }
            match running.turn() {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(what) => {
                    return Err(Ndt7Error::Protocol { host: self.target.name.clone(), what });
                }
            }
        };
        running.conclude(end, &self.target.name)
    }
}

struct Running {
    channel: Channel,
    direction: Direction,
    duration_max: Duration,
    start: Instant,
    /// Bytes out of TLS, or acknowledged, before the start.
    before: u64,
    /// Bytes of messages written.
    written: u64,
    chunk: Bytes,
    chunk_bytes: usize,
    /// A message is in the buffers and not yet in the socket.
    is_blocked: bool,
    samples: Vec<(Duration, u64)>,
    rtt_min_us: Option<f64>,
    readings: Vec<(Duration, f64)>,
    last: Measurement,
    messages: (u64, u64),
}

impl Running {
    fn new(channel: Channel, test: &Ndt7Test) -> Self {
        let before = match test.direction {
            Direction::Down => channel.web.get_ref().read_bytes,
            Direction::Up => acknowledged_bytes(&channel.socket).unwrap_or(0),
        };
        let is_up = test.direction == Direction::Up;
        Self {
            channel,
            direction: test.direction,
            duration_max: test.duration_max.min(DURATION),
            start: Instant::now(),
            before,
            written: 0,
            chunk: Bytes::from(if is_up { payload(UPLOAD_BYTES_MAX) } else { Vec::new() }),
            chunk_bytes: UPLOAD_BYTES_MIN,
            is_blocked: false,
            samples: Vec::new(),
            rtt_min_us: None,
            readings: Vec::new(),
            last: Measurement::default(),
            messages: (0, 0),
        }
    }

    /// Bytes that the load has moved.
    fn moved(&self) -> u64 {
        match self.direction {
            Direction::Down => self.channel.web.get_ref().read_bytes - self.before,
            Direction::Up => {
                let acknowledged = acknowledged_bytes(&self.channel.socket).unwrap_or(0);
                acknowledged.saturating_sub(self.before).min(self.written)
            }
        }
    }

    fn sample(&mut self, elapsed: Duration, watch: &mut dyn FnMut(Duration, u64)) {
        let due = self.samples.last().map_or(Duration::ZERO, |(last, _)| *last + SAMPLE);
        if elapsed < due {
            return;
        }
        let moved = self.moved();
        self.samples.push((elapsed, moved));
        watch(elapsed, moved);
        // Of the way up this kernel is the sender; of the way down only the server's messages tell.
        if self.direction == Direction::Up
            && let Ok(info) = TcpInfo::of(&self.channel.socket)
        {
            self.note_round_trips(f64::from(info.rtt_us), f64::from(info.rtt_min_us), elapsed);
        }
    }

    fn note_round_trips(&mut self, rtt_us: f64, rtt_min_us: f64, elapsed: Duration) {
        if rtt_min_us > 0.0 {
            self.rtt_min_us = Some(self.rtt_min_us.map_or(rtt_min_us, |it| it.min(rtt_min_us)));
        }
        if rtt_us > 0.0 {
            self.readings.push((elapsed, rtt_us));
        }
    }

    /// Moves what can be moved now, then waits a moment; why the test is over, if it is.
    fn turn(&mut self) -> Result<Option<End>, &'static str> {
        for _ in 0..MESSAGES_A_TURN {
            match self.channel.web.read() {
                Ok(message) => {
                    if self.take(message)? {
                        return Ok(Some(End::Server));
                    }
                }
                Err(error) => match Outcome::of(&error)? {
                    Outcome::Later => break,
                    Outcome::Over(end) => return Ok(Some(end)),
                },
            }
        }
        let wants_write = self.direction == Direction::Up;
        if wants_write {
            let written = if self.is_blocked {
                self.channel.web.flush()
            } else {
                let message = Message::Binary(self.chunk.slice(..self.chunk_bytes));
                self.written += self.chunk_bytes as u64;
                self.grow();
                self.channel.web.write(message)
            };
            match written.as_ref().err().map(Outcome::of).transpose()? {
                None => self.is_blocked = false,
                Some(Outcome::Later) => self.is_blocked = true,
                Some(Outcome::Over(end)) => return Ok(Some(end)),
            }
        }
        if !wants_write || self.is_blocked {
            self.channel.wait(wants_write);
        }
        Ok(None)
    }

    fn grow(&mut self) {
        if self.chunk_bytes < UPLOAD_BYTES_MAX
            && (self.chunk_bytes as u64) < self.written / UPLOAD_SHARE
        {
            self.chunk_bytes *= 2;
        }
    }

    /// A message of the server; true if it closes the test.
    fn take(&mut self, message: Message) -> Result<bool, &'static str> {
        match message {
            Message::Binary(_) if self.direction == Direction::Up => {
                Err("it sends load although it is asked to take some")
            }
            Message::Text(text) => {
                // The protocol lets a client pass over what it cannot use.
                match Measurement::decode(text.as_str()) {
                    Ok(told) if self.messages.0 < MEASUREMENTS_MAX => {
                        self.measurement(told);
                        self.messages.0 += 1;
                    }
                    _ => self.messages.1 += 1,
                }
                Ok(false)
            }
            Message::Close(_) => Ok(true),
            _ => Ok(false),
        }
    }

    fn measurement(&mut self, told: Measurement) {
        self.last = Measurement {
            received: told.received.or(self.last.received),
            moved: told.moved.or(self.last.moved),
            sent_bytes: told.sent_bytes.or(self.last.sent_bytes),
            sent_again_bytes: told.sent_again_bytes.or(self.last.sent_again_bytes),
            ..told
        };
        if self.direction == Direction::Down {
            let (rtt, smallest) = (told.rtt_us.unwrap_or(0.0), told.rtt_min_us.unwrap_or(0.0));
            self.note_round_trips(rtt, smallest, self.start.elapsed());
        }
    }

    fn conclude(mut self, end: End, host: &str) -> Result<Ndt7Result, Ndt7Error> {
        let (elapsed, moved) = (self.start.elapsed(), self.moved());
        self.close(end);
        let seconds = elapsed.as_secs_f64();
        if moved == 0 || seconds < SAMPLE.as_secs_f64() {
            let what = "the test ended before anything was measured";
            return Err(Ndt7Error::Nothing { host: host.to_owned(), what });
        }
        let is_up = self.direction == Direction::Up;
        let settled = self.samples.iter().find(|(at, _)| *at >= SETTLED).copied();
        let settled = settled.filter(|(at, _)| elapsed.saturating_sub(*at) >= SETTLED);
        let rate = |bytes: f64, seconds: f64| bytes * 8.0 / seconds;
        let counted = if is_up { self.last.received.or(self.last.moved) } else { self.last.moved };
        let congestion_control = congestion_control_of(&SockRef::from(&self.channel.socket));
        Ok(Ndt7Result {
            address: self.channel.address,
            congestion_control: congestion_control.ok().filter(|_| is_up),
            handshake: self.channel.handshake,
            elapsed,
            goodput_bit_per_s: rate(moved as f64, seconds),
            settled_bit_per_s: settled.map(|(at, before)| {
                rate(moved.saturating_sub(before) as f64, elapsed.saturating_sub(at).as_secs_f64())
            }),
            rtt_min_us: self.rtt_min_us,
            readings: self.readings,
            moved: self.samples,
            sent_again_percent: if is_up { None } else { self.last.sent_again_percent() },
            server: counted.map(|(bytes, us)| ServerCount {
                goodput_bit_per_s: rate(bytes, us / 1e6),
                elapsed_s: us / 1e6,
            }),
            messages: self.messages,
            end,
        })
    }

    /// Says goodbye and gives the server a moment to do so, too: it keeps its record of the test.
    fn close(&mut self, end: End) {
        if matches!(end, End::Broken | End::Cancelled) {
            return;
        }
        let until = Instant::now() + GRACE;
        let _ = self.channel.web.close(None);
        while Instant::now() < until {
            match self.channel.web.read() {
                Ok(Message::Text(text)) if self.messages.0 < MEASUREMENTS_MAX => {
                    if let Ok(told) = Measurement::decode(text.as_str()) {
                        // Its last count; round trips of an end are none of a load.
                        self.last.received = told.received.or(self.last.received);
                        self.messages.0 += 1;
                    }
                }
                Ok(_) => {}
                Err(error) => match Outcome::of(&error) {
                    Ok(Outcome::Later) => self.channel.wait(false),
                    _ => return,
                },
            }
        }
    }
}

/// Messages that are read before time is looked at.
const MESSAGES_A_TURN: usize = 64;

/// What an error of the WebSocket means for the test.
enum Outcome {
    /// Nothing can be moved now.
    Later,
    Over(End),
}

impl Outcome {
    fn of(error: &Error) -> Result<Self, &'static str> {
        match error {
            Error::Io(source) if source.kind() == io::ErrorKind::WouldBlock => Ok(Self::Later),
            Error::Io(_) | Error::AlreadyClosed => Ok(Self::Over(End::Broken)),
            Error::ConnectionClosed => Ok(Self::Over(End::Server)),
            // After a close frame nothing more may be sent.
            Error::Protocol(tungstenite::error::ProtocolError::SendAfterClosing) => {
                Ok(Self::Over(End::Server))
            }
            Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
                Ok(Self::Over(End::Broken))
            }
            Error::Capacity(_) => Err("a message that is larger than the protocol allows"),
            _ => Err("it sends what is no WebSocket"),
        }
    }
}
