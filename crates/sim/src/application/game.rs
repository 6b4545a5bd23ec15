//! An online game: small packets in both directions.
//!
//! The model of CableLabs' residential scenario for ns-3: up 128 bytes every 33 ms, down 450 bytes
//! every 33 ms, with normally distributed sizes (standard deviations 20 and 120 bytes) and gaps (3
//! and 5 ms). Sizes are UDP payload.
//!
//! The round trip of an update is its delay up plus the delay down of the next packet that the
//! server sends: the delay that the network adds to a player's reaction, without the server's tick.
//! Some games admit only players with round trips below 130 ms (CM-GL-Buffer-V01, section 5.2.1).

use std::collections::VecDeque;

use underload_aqm::packet::Packet;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

use super::numbers::{metric, normal, percent};
use super::samples::Samples;
use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
use crate::net::{Body, Segment};

/// A game; it has no parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GameConfig;

struct Stream {
    direction: Direction,
    size_bytes: f64,
    size_deviation: f64,
    gap_ms: f64,
    gap_deviation: f64,
    rng: Rng,
    next: Time,
    sent: u32,
    received: u32,
}

impl Stream {
    fn new(direction: Direction, [size, gap]: [(f64, f64); 2], rng: &Rng) -> Self {
        Self {
            direction,
            size_bytes: size.0,
            size_deviation: size.1,
            gap_ms: gap.0,
            gap_deviation: gap.1,
            rng: rng.child(direction.name()),
            next: Time::MAX,
            sent: 0,
            received: 0,
        }
    }

    fn send(&mut self, port: &mut Port<'_>) {
        let bytes = self.size_bytes + self.size_deviation * normal(&mut self.rng);
        let gap = self.gap_ms + self.gap_deviation * normal(&mut self.rng);
        port.send_message(self.direction, bytes.max(1.0) as u32, self.sent, self.sent);
        self.sent += 1;
        self.next += Span::from_nanos((gap.max(1.0) * 1e6) as u64);
    }

    fn lost(&self) -> Option<f64> {
        percent((self.sent - self.received) as usize, self.sent as usize)
    }
}

/// Sizes in bytes and gaps in ms, each with its standard deviation.
pub(super) const UP: [(f64, f64); 2] = [(128.0, 20.0), (33.0, 3.0)];
pub(super) const DOWN: [(f64, f64); 2] = [(450.0, 120.0), (33.0, 5.0)];

/// Returns the mean rate of a direction, bit/s at the IP layer.
pub(super) fn bit_per_s([(bytes, _), (gap_ms, _)]: [(f64, f64); 2]) -> u64 {
    ((bytes + f64::from(UDP_HEADER_BYTES)) * 8e3 / gap_ms) as u64
}

pub(super) struct Game {
    stop: Time,
    up: Stream,
    down: Stream,
    /// Updates at the server: the number of the packet that answers, and the delay of the update.
    unanswered: VecDeque<(u32, Span)>,
    round_trips: Samples,
}

impl Game {
    pub(super) fn new(stop: Time, rng: &Rng) -> Self {
        Self {
            stop,
            up: Stream::new(Direction::Up, UP, rng),
            down: Stream::new(Direction::Down, DOWN, rng),
            unanswered: VecDeque::with_capacity(64),
            round_trips: Samples::default(),
        }
    }
}

impl Endpoint for Game {
    fn start(&mut self, port: &mut Port<'_>) {
        let shortest_gap = Span::from_millis(15);
        self.round_trips.reserve_for(self.stop.since(port.now), shortest_gap);
        self.up.next = port.now;
        self.down.next = port.now;
        self.on_timer(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, direction: Direction, packet: &Packet<Segment>) {
        let Body::Message(message) = packet.payload.body else { return };
        let age = message.age(port.now);
        match direction {
            Direction::Up => {
                self.up.received += 1;
                self.unanswered.push_back((self.down.sent, age));
            }
            Direction::Down => {
                self.down.received += 1;
                while let Some(&(answer, way_up)) = self.unanswered.front() {
                    if answer > message.sequence {
                        break;
                    }
                    self.unanswered.pop_front();
                    self.round_trips.push(way_up + age);
                }
            }
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        for stream in [&mut self.up, &mut self.down] {
            while stream.next <= port.now && stream.next < self.stop {
                stream.send(port);
            }
        }
    }

    fn deadline(&self) -> Time {
        let next = self.up.next.min(self.down.next);
        if next < self.stop { next } else { Time::MAX }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.round_trips.report("round_trip").to_vec();
        let in_time = self.round_trips.up_to(ADMISSION);
        let admitted = percent(in_time, self.up.sent as usize);
        metrics.push(metric("round_trips_below_130ms", "%", admitted));
        metrics.push(metric("updates_lost_up", "%", self.up.lost()));
        metrics.push(metric("updates_lost_down", "%", self.down.lost()));
        metrics
    }
}

/// The longest round trip with which a game admits a player.
const ADMISSION: Span = Span::from_millis(130);
