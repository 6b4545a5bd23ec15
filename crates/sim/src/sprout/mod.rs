//! Sprout (Winstein, Sivaraman and Balakrishnan, NSDI 2013): a transport over UDP for cellular
//! links that keeps the delay of 95 % of its packets below 100 ms.
//!
//! The receiver infers from the packets of each tick of 20 ms how fast the link is, and forecasts
//! how many packets it will deliver within the next one to eight ticks with at least 95 %
//! probability. The sender limits the data in flight to the forecast for 100 ms. Nothing is
//! retransmitted; applications handle losses.
//!
//! | part | what it does |
//! |---|---|
//! | `model` | the link as a Poisson process whose rate is in Brownian motion: belief and forecast |
//! | `receiver` | counts arrivals and losses, interprets silence, sends forecasts |
//! | `sender` | the window, flights, heartbeats, time-to-next |
//!
//! Constants are those of the paper and of the authors' program: 256 rates up to 1000 packets per
//! second (so at most 12 Mbit/s), standard deviation 200 packets per second after a second, outages
//! that end at a rate of 1 per second, the 5th percentile, a window of five ticks, a heartbeat
//! after 50 ms.
//!
//! Deviations:
//!
//! * Data flows in one direction. The receiver sends each forecast in a separate packet every tick;
//!   the authors' program sends data in both directions and adds forecasts to data packets.
//! * The gap after the end of a flight carries no information about the link up to its announced
//!   length, so the receiver excludes it from the observed time and treats the packet that ends it
//!   only as a sign that the link works. The program counts the whole tick if anything arrived in
//!   it. With data in one direction and a forecast every tick, that would have an equilibrium in
//!   which a packet per tick is sent because a packet per tick arrives; the program's flights, one
//!   per round trip, are large enough to escape it.
//! * 256 rates from 0 to 1000 inclusive; the program uses the middles of 257 bins.
//! * Whether an outage ends is decided first (with probability 1 - exp(-20 ms x 1/s)), then the new
//!   rate; the program scales the two sides of the normal distribution instead, which is nearly
//!   equal after normalisation.
//! * More than 30 packets in a tick count as 30 in forecasts; the program drops that probability,
//!   which makes its forecasts for the fastest links slightly bolder.
//! * The queue estimate falls by what the forecast expects *of* each tick that passes, as the paper
//!   describes; the program subtracts the cumulative forecast *up to* that tick.
//! * Only full packets and heartbeats are sent.

mod model;
mod receiver;
mod sender;

use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::time::Time;
use underload_record::schema::Direction;

use crate::endpoint::{Endpoint, Port, UDP_HEADER_BYTES};
use crate::net::{Body, Segment};

use receiver::Receiver;
use sender::Sender;

/// Name in scenarios and records, in place of a congestion control.
pub const NAME: &str = "sprout";

/// Both ends of a Sprout flow that always has data to send.
pub(crate) struct Sprout {
    direction: Direction,
    stop: Time,
    sender: Sender,
    receiver: Receiver,
}

impl Sprout {
    pub(crate) fn new(direction: Direction, stop: Time) -> Self {
        Self { direction, stop, sender: Sender::new(), receiver: Receiver::new() }
    }
}

impl Endpoint for Sprout {
    fn start(&mut self, port: &mut Port<'_>) {
        self.sender.start(port.now);
        self.send(port);
    }

    fn receive(&mut self, port: &mut Port<'_>, _: Direction, packet: &Packet<Segment>) {
        match packet.payload.body {
            Body::Flight(flight) => self.receiver.on_packet(port.now, &flight),
            Body::Forecast(forecast) => {
                self.sender.on_forecast(port.now, &forecast);
                self.send(port);
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if let Some(forecast) = self.receiver.on_timer(port.now) {
            let bytes = FORECAST_PAYLOAD_BYTES + UDP_HEADER_BYTES;
            port.send(self.direction.opposite(), bytes, Ecn::NotEct, Body::Forecast(forecast));
        }
        self.send(port);
    }

    fn deadline(&self) -> Time {
        let sender = self.sender.deadline();
        let sender = if sender < self.stop { sender } else { Time::MAX };
        let receiver = self.receiver.tick_end;
        let receiver = if receiver < self.stop { receiver } else { Time::MAX };
        sender.min(receiver)
    }

    fn received_bytes(&self) -> u64 {
        self.receiver.received_bytes
    }
}

impl Sprout {
    fn send(&mut self, port: &mut Port<'_>) {
        if port.now >= self.stop {
            return;
        }
        while let Some(packet) = self.sender.next_packet(port.now) {
            let bytes = u32::from(packet.len) + OVERHEAD_BYTES + UDP_HEADER_BYTES;
            port.send(self.direction, bytes, Ecn::NotEct, Body::Flight(packet));
        }
    }
}

/// The program's nonce, sequence number, time stamps, throwaway number, time-to-next and
/// authentication tag: a full packet has 1500 bytes.
const OVERHEAD_BYTES: u32 = 32;
/// The overhead and a forecast: a time, a count of bytes and eight counts of packets.
const FORECAST_PAYLOAD_BYTES: u32 = OVERHEAD_BYTES + 32;
