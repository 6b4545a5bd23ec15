//! Adaptive video over HTTP: 48 chunks of 193 s in total, at six bit rates as in section VII-B of
//! the BoDe paper, or at others.
//!
//! The player requests one chunk after the other on one connection, and pauses while its buffer is
//! full. Playback starts with the first chunk and stalls whenever the buffer is empty. The size of
//! a chunk is its bit rate times its length.
//!
//! Quality of experience is that of Yin et al. (2015) with the paper's penalty: the sum of the
//! chunks' bit rates in Mbit/s, minus the highest bit rate, which is the paper's 4.3, per second of
//! rebuffering and of start-up, minus the sum of the changes of bit rate.

mod adaptation;

use underload_aqm::packet::Packet;
use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

pub use adaptation::Player;

use super::connection::Connection;
use super::numbers::metric;
use crate::congestion::Algorithm;
use crate::endpoint::{Endpoint, Port};
use crate::net::{Body, Segment};
use crate::tcp::TcpConfig;
use adaptation::{Adaptation, View};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoConfig {
    /// Algorithm that chooses the bit rate.
    pub player: Player,
    /// Bit rates of the film, ascending; at least one.
    pub rates: Vec<Rate>,
    /// Capacity of the player's buffer.
    pub buffer: Span,
    /// Congestion control of both ends.
    pub algorithm: Algorithm,
}

impl Default for VideoConfig {
    /// Returns a player with BB, the rates of [`LADDER`], a buffer of one minute, and CUBIC.
    fn default() -> Self {
        let rate = |mbit: f64| Rate::from_bits_per_second(libm::round(mbit * 1e6) as u64);
        Self {
            player: Player::Bb,
            rates: LADDER.map(rate).to_vec(),
            buffer: Span::from_secs(60),
            algorithm: Algorithm::Cubic,
        }
    }
}

pub(super) struct Video {
    config: VideoConfig,
    stop: Time,
    rng: Rng,
    adaptation: Adaptation,
    /// Bit rates in Mbit/s, ascending.
    ladder: Vec<f64>,
    connection: Option<Connection>,
    started: Time,
    /// When the next chunk is requested.
    alarm: Time,
    next_rung: usize,
    requested: Time,
    playback: Playback,
    rungs: Vec<usize>,
    throughputs: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Playback {
    startup: Option<Span>,
    updated: Time,
    buffer: Span,
    stalled: Span,
}

impl Playback {
    fn advanced_to(self, now: Time) -> Self {
        if self.startup.is_none() {
            return self;
        }
        let passed = now.since(self.updated);
        Self {
            updated: now,
            buffer: self.buffer.saturating_sub(passed),
            stalled: self.stalled + passed.saturating_sub(self.buffer),
            ..self
        }
    }
}

impl Video {
    pub(super) fn new(config: &VideoConfig, stop: Time, rng: Rng) -> Self {
        Self {
            stop,
            rng,
            adaptation: Adaptation::new(config.player),
            ladder: config.rates.iter().map(|rate| rate.bits_per_second() as f64 / 1e6).collect(),
            connection: None,
            started: Time::ZERO,
            alarm: Time::MAX,
            next_rung: 0,
            requested: Time::ZERO,
            playback: Playback::default(),
            rungs: Vec::with_capacity(CHUNKS),
            throughputs: Vec::with_capacity(CHUNKS),
            config: config.clone(),
        }
    }

    /// Chooses the next chunk and when to request it.
    fn plan(&mut self, now: Time) {
        let choice = self.adaptation.choose(&View {
            ladder: &self.ladder,
            chunk_s: CHUNK.as_secs_f64(),
            buffer_s: self.playback.buffer.as_secs_f64(),
            buffer_max_s: self.config.buffer.as_secs_f64(),
            throughputs: &self.throughputs,
            rungs: &self.rungs,
            chunks_left: CHUNKS - self.rungs.len(),
        });
        self.next_rung = choice.rung;
        let full = (self.playback.buffer + CHUNK).saturating_sub(self.config.buffer);
        self.alarm = now + choice.wait.max(full);
    }

    fn request(&mut self, port: &mut Port<'_>) {
        self.alarm = Time::MAX;
        self.requested = port.now;
        let bytes = bytes_at(self.ladder[self.next_rung]) + RESPONSE_HEADER_BYTES;
        if let Some(connection) = &mut self.connection {
            connection.fetch(port, REQUEST_BYTES, bytes);
        }
    }

    fn on_chunk(&mut self, now: Time) {
        let bits = bytes_at(self.ladder[self.next_rung]) as f64 * 8.0;
        let download = now.since(self.requested).as_secs_f64().max(1e-9);
        self.throughputs.push(bits / download / 1e6);
        self.rungs.push(self.next_rung);
        self.playback = self.playback.advanced_to(now);
        if self.playback.startup.is_none() {
            self.playback.startup = Some(now.since(self.started));
            self.playback.updated = now;
        }
        self.playback.buffer = self.playback.buffer + CHUNK;
        if self.rungs.len() < CHUNKS {
            self.plan(now);
        } else {
            self.connection = None;
        }
    }

    fn is_complete(&self) -> bool {
        self.rungs.len() == CHUNKS
    }

    fn on_due(&mut self, port: &mut Port<'_>) {
        if self.alarm <= port.now {
            self.request(port);
        }
    }
}

impl Endpoint for Video {
    fn start(&mut self, port: &mut Port<'_>) {
        let tcp = TcpConfig::of(self.config.algorithm);
        self.started = port.now;
        self.connection = Some(Connection::open(port, 1, &tcp, &self.rng));
        self.plan(port.now);
        self.on_due(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        if port.now >= self.stop || matches!(packet.payload.body, Body::Message(_)) {
            return;
        }
        let Some(connection) = &mut self.connection else { return };
        if connection.receive(port, direction, packet) {
            self.on_chunk(port.now);
            self.on_due(port);
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if port.now >= self.stop {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.on_timer(port);
        }
        self.on_due(port);
    }

    fn deadline(&self) -> Time {
        let connection = self.connection.as_ref().map_or(Time::MAX, Connection::deadline);
        let next = connection.min(self.alarm);
        if next < self.stop { next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        let playback =
            if self.is_complete() { self.playback } else { self.playback.advanced_to(self.stop) };
        let rates = self.rungs.iter().map(|&rung| self.ladder[rung]).collect();
        let highest = self.ladder.last().copied().unwrap_or_default();
        let Playback { startup, stalled, .. } = playback;
        Viewing { rates, highest, startup, stalled }.metrics()
    }
}

/// Playback of the film until its flow stopped, by this model and by a real player.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Viewing {
    /// Bit rates of the loaded chunks in Mbit/s, in the order of the film.
    pub rates: Vec<f64>,
    /// The highest bit rate of the film in Mbit/s: the penalty of a second without a picture.
    pub highest: f64,
    /// Time from the start to the first picture; `None` before it.
    pub startup: Option<Span>,
    /// Time in which playback stood still after the first picture.
    pub stalled: Span,
}

impl Viewing {
    pub fn metrics(&self) -> Vec<Metric> {
        let rates = &self.rates;
        let total: f64 = rates.iter().sum();
        let changes = || rates.windows(2).map(|pair| libm::fabs(pair[1] - pair[0]));
        let switches = changes().filter(|change| *change > 0.0).count();
        let stalled = self.stalled.as_secs_f64();
        let startup = self.startup.map(Span::as_secs_f64);
        let is_complete = rates.len() == CHUNKS;
        let experience = startup
            .filter(|_| is_complete)
            .map(|startup| total - self.highest * (stalled + startup) - changes().sum::<f64>());
        let mean = (!rates.is_empty()).then(|| total / rates.len() as f64);
        vec![
            metric("qoe", "", experience),
            metric("bit_rate", "Mbit/s", mean),
            metric("rebuffering", "s", Some(stalled)),
            metric("startup", "s", startup),
            metric("switches", "", Some(switches as f64)),
            metric("chunks_loaded", "", Some(rates.len() as f64)),
        ]
    }
}

/// Returns the size of a chunk of the bit rate `LADDER[rung]`.
pub fn chunk_bytes(rung: usize) -> u64 {
    bytes_at(LADDER[rung])
}

fn bytes_at(mbit_per_s: f64) -> u64 {
    (mbit_per_s * 1e6 / 8.0 * CHUNK.as_secs_f64()) as u64
}

/// Bit rates of the paper's film, 240p to 1440p, Mbit/s.
pub const LADDER: [f64; 6] = [0.3, 0.75, 1.2, 1.85, 2.85, 4.3];
/// Chunks of the film.
pub const CHUNKS: usize = 48;
/// Length of a chunk: 193 s over 48 chunks.
pub const CHUNK: Span = Span::from_nanos(4_020_833_333);
const REQUEST_BYTES: u64 = 400;
const RESPONSE_HEADER_BYTES: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playback_drains_the_buffer_and_then_stalls() {
        let playing = Playback {
            startup: Some(Span::from_secs(1)),
            updated: Time::from_secs(1),
            buffer: Span::from_secs(4),
            stalled: Span::ZERO,
        };
        let later = playing.advanced_to(Time::from_secs(4));
        assert_eq!((later.buffer, later.stalled), (Span::from_secs(1), Span::ZERO));
        let stalled = later.advanced_to(Time::from_secs(7));
        assert_eq!((stalled.buffer, stalled.stalled), (Span::ZERO, Span::from_secs(2)));
        // Before the first chunk nothing plays and nothing stalls.
        let waiting = Playback::default().advanced_to(Time::from_secs(9));
        assert_eq!(waiting.stalled, Span::ZERO);
    }
}
