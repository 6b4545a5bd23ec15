//! A test of one direction.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use socket2::SockRef;
use tungstenite::error::ProtocolError;
use tungstenite::{Bytes, Error, Message};
use underload_probe::load::{TcpInfo, acknowledged_bytes, congestion_control_of, payload};
use underload_record::schema::Direction;

use super::channel::Channel;
use super::{DURATION, Measurement, Ndt7Error, Ndt7Target};
use crate::nq::NqTrust;

#[derive(Clone, Debug)]
pub struct Ndt7Test {
    pub target: Ndt7Target,
    pub trust: NqTrust,
    pub direction: Direction,
    /// The test ends after this time at the latest; the server may end it sooner.
    pub duration_max: Duration,
    /// Congestion control of uploads; `None` keeps the system's. For downloads the server decides.
    pub congestion_control: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ndt7Result {
    pub address: SocketAddr,
    /// Duration of the TCP handshake, before any load.
    pub handshake: Duration,
    pub elapsed: Duration,
    /// Payload over the whole test, as ndt7 defines its rate, bit/s: for downloads the bytes that
    /// TLS returned here, for uploads those acknowledged by the server's TCP. Both include the
    /// framing of WebSocket, uploads also that of TLS (0.2 % together).
    pub goodput_bit_per_s: f64,
    /// Returns the rate without the first two seconds of slow start.
    pub settled_bit_per_s: Option<f64>,
    /// Smallest round trip measured by the sender's kernel, us.
    pub rtt_min_us: Option<f64>,
    /// Congestion control of an upload, as the kernel names it. Servers do not report theirs.
    pub congestion_control: Option<String>,
    /// Smoothed round trips of the sender's kernel, us, with their time since the load began.
    pub readings: Vec<(Duration, f64)>,
    /// Payload moved since the load began, with the time; ten times a second.
    pub moved: Vec<(Duration, u64)>,
    /// Share of retransmitted bytes, percent, as the server reports it for downloads.
    pub sent_again_percent: Option<f64>,
    /// The goodput that the server reports.
    pub server: Option<ServerCount>,
    /// Messages of the server that were used, and those that were ignored.
    pub messages: (u64, u64),
    pub end: End,
}

impl Ndt7Result {
    /// Round trips under load, us: those after the first second.
    pub fn loaded_rtt_us(&self) -> Vec<f64> {
        let loaded = self.readings.iter().filter(|(at, _)| *at >= LOADED);
        loaded.map(|(_, rtt_us)| *rtt_us).collect()
    }
}

/// Goodput as a server measured it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerCount {
    pub goodput_bit_per_s: f64,
    /// Length of the measured part of the test, s.
    pub elapsed_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Time,
    Server,
    /// The connection broke; by the protocol the results until then are valid.
    Broken,
    Cancelled,
}

/// End of slow start.
const SETTLED: Duration = Duration::from_secs(2);
/// Round trips before this time are ignored.
const LOADED: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_millis(100);
/// Time for the server to close after the end of the test (the protocol's limit is 13 s).
const GRACE: Duration = Duration::from_secs(3);
/// Largest number of measurements read in one test; the protocol allows ten a second.
const MEASUREMENTS_MAX: u64 = 400;
/// Largest number of pings in one test: each is answered.
const PINGS_MAX: u64 = 1_000;
/// First and largest size of an upload's messages.
const UPLOAD_BYTES_MIN: usize = 1 << 13;
const UPLOAD_BYTES_MAX: usize = 1 << 20;
/// The size of messages grows while it is less than this share of the bytes sent.
const UPLOAD_SHARE: u64 = 16;

impl Ndt7Test {
    /// Runs the test. `watch` gets the bytes up to now, ten times a second.
    ///
    /// # Errors
    /// Returns an error if there is no connection, no ndt7 server, or no result.
    pub fn run(
        &self,
        watch: &mut dyn FnMut(Duration, u64),
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Ndt7Result, Ndt7Error> {
        let tls: Arc<ClientConfig> = self.trust.client_config(b"http/1.1")?;
        let (path, congestion_control) = match self.direction {
            Direction::Down => (&self.target.download, None),
            Direction::Up => (&self.target.upload, self.congestion_control.as_deref()),
        };
        let named_by = &self.target.named_by;
        let channel = Channel::open(path, named_by, tls, congestion_control, cancelled)?;
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
                // The stream broke at its limit: the next turn of the loop sees the time or the flag.
                Ok(Some(End::Broken)) if running.channel.is_over() => {}
                Ok(Some(end)) => break end,
                Err(what) => {
                    return Err(Ndt7Error::Protocol { host: self.target.name.clone(), what });
                }
            }
        };
        running.finish(end, &self.target.name)
    }
}

struct Running {
    channel: Channel,
    direction: Direction,
    duration_max: Duration,
    start: Instant,
    /// Bytes from TLS, or acknowledged, before the start.
    before: u64,
    written: u64,
    chunk: Bytes,
    chunk_bytes: usize,
    /// A message waits in a buffer because the socket is full.
    is_blocked: bool,
    samples: Vec<(Duration, u64)>,
    rtt_min_us: Option<f64>,
    readings: Vec<(Duration, f64)>,
    last: Measurement,
    messages: (u64, u64),
    pings: u64,
}

impl Running {
    fn new(mut channel: Channel, test: &Ndt7Test) -> Self {
        let before = match test.direction {
            Direction::Down => channel.web.get_ref().read_bytes,
            Direction::Up => acknowledged_bytes(&channel.socket).unwrap_or(0),
        };
        let is_up = test.direction == Direction::Up;
        let (start, duration_max) = (Instant::now(), test.duration_max.min(DURATION));
        channel.allow(duration_max);
        Self {
            channel,
            direction: test.direction,
            duration_max,
            start,
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
            pings: 0,
        }
    }

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
        // For an upload this kernel is the sender; for a download only the server's messages have
        // them.
        if self.direction == Direction::Up
            && let Ok(info) = TcpInfo::read(&self.channel.socket)
        {
            self.add_round_trips(f64::from(info.rtt_us), f64::from(info.rtt_min_us), elapsed);
        }
    }

    fn add_round_trips(&mut self, rtt_us: f64, rtt_min_us: f64, elapsed: Duration) {
        if rtt_min_us > 0.0 {
            self.rtt_min_us = Some(self.rtt_min_us.map_or(rtt_min_us, |it| it.min(rtt_min_us)));
        }
        if rtt_us > 0.0 {
            self.readings.push((elapsed, rtt_us));
        }
    }

    /// Moves what can be moved now, then waits. Returns the reason if the test has ended.
    fn turn(&mut self) -> Result<Option<End>, &'static str> {
        for _ in 0..MESSAGES_A_TURN {
            match self.channel.web.read() {
                Ok(message) => {
                    if self.receive(message)? {
                        return Ok(Some(End::Server));
                    }
                }
                Err(error) => match end_from(&error)? {
                    None => break,
                    end => return Ok(end),
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
            if let Err(error) = &written
                && let Some(end) = end_from(error)?
            {
                return Ok(Some(end));
            }
            self.is_blocked = written.is_err();
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

    /// Processes a message of the server. Returns whether it closes the test.
    fn receive(&mut self, message: Message) -> Result<bool, &'static str> {
        match message {
            Message::Binary(_) if self.direction == Direction::Up => {
                Err("it sends load although the test is an upload")
            }
            Message::Text(text) => {
                // By the protocol a client ignores messages that it cannot use.
                match Measurement::decode(text.as_str()) {
                    Ok(measurement) if self.messages.0 < MEASUREMENTS_MAX => {
                        self.update(measurement);
                        self.messages.0 += 1;
                    }
                    _ => self.messages.1 += 1,
                }
                Ok(false)
            }
            Message::Close(_) => Ok(true),
            Message::Ping(_) | Message::Pong(_) => {
                self.pings += 1;
                if self.pings > PINGS_MAX {
                    return Err("it sends more than 1,000 pings in a test");
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn update(&mut self, new: Measurement) {
        self.last = Measurement {
            received: new.received.or(self.last.received),
            moved: new.moved.or(self.last.moved),
            sent_bytes: new.sent_bytes.or(self.last.sent_bytes),
            sent_again_bytes: new.sent_again_bytes.or(self.last.sent_again_bytes),
            ..new
        };
        if self.direction == Direction::Down {
            let (rtt, smallest) = (new.rtt_us.unwrap_or(0.0), new.rtt_min_us.unwrap_or(0.0));
            self.add_round_trips(rtt, smallest, self.start.elapsed());
        }
    }

    fn finish(mut self, end: End, host: &str) -> Result<Ndt7Result, Ndt7Error> {
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

    /// Closes the WebSocket and waits for the server's close, so that the server keeps its record.
    fn close(&mut self, end: End) {
        if matches!(end, End::Broken | End::Cancelled) {
            return;
        }
        self.channel.allow(GRACE);
        let _ = self.channel.web.close(None);
        while !self.channel.is_over() {
            match self.channel.web.read() {
                Ok(Message::Text(text)) if self.messages.0 < MEASUREMENTS_MAX => {
                    if let Ok(measurement) = Measurement::decode(text.as_str()) {
                        // The server's last count. Round trips after it are not measured under
                        // load.
                        self.last.received = measurement.received.or(self.last.received);
                        self.messages.0 += 1;
                    }
                }
                Ok(_) => {}
                Err(error) => match end_from(&error) {
                    Ok(None) => self.channel.wait(false),
                    _ => return,
                },
            }
        }
    }
}

/// Largest number of messages read before the time is checked.
const MESSAGES_A_TURN: usize = 64;

/// Returns how an error of the WebSocket ends the test, or `None` if nothing can be moved now.
fn end_from(error: &Error) -> Result<Option<End>, &'static str> {
    match error {
        Error::Io(source) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Error::Io(_)
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Ok(Some(End::Broken)),
        // After a close frame nothing more may be sent.
        Error::ConnectionClosed | Error::Protocol(ProtocolError::SendAfterClosing) => {
            Ok(Some(End::Server))
        }
        Error::Capacity(_) => Err("it sends a larger message than the protocol allows"),
        _ => Err("it violates the WebSocket protocol"),
    }
}
