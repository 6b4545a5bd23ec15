//! Unanswered datagrams at a constant rate.

use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::rate::Rate;
use underload_aqm::time::{Span, Time};
use underload_record::link::distribution;
use underload_record::schema::{Direction, Metric};
use underload_record::stats::Histogram;

use crate::endpoint::{BULK_QUANTILES, Endpoint, Port, UDP_HEADER_BYTES, delay_metrics};
use crate::net::{Body, Datagram, Segment};

#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Rate at the IP layer.
    pub rate: Rate,
    pub payload_bytes: u16,
    pub ecn: Ecn,
}

pub(super) struct Udp {
    direction: Direction,
    config: UdpConfig,
    gap: Span,
    stop: Time,
    next: Time,
    sequence: u32,
    received_bytes: u64,
    /// Delays from sending to arrival.
    delays: Histogram,
}

impl Udp {
    pub(super) fn new(config: &UdpConfig, direction: Direction, stop: Time) -> Self {
        let bytes = u64::from(config.payload_bytes) + u64::from(UDP_HEADER_BYTES);
        Self {
            direction,
            config: config.clone(),
            gap: config.rate.time_for(bytes).unwrap_or(Span::from_nanos(u64::MAX)),
            stop,
            next: Time::MAX,
            sequence: 0,
            received_bytes: 0,
            delays: Histogram::new(),
        }
    }
}

impl Endpoint for Udp {
    fn start(&mut self, port: &mut Port<'_>) {
        self.next = port.now;
        self.on_timer(port);
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        while self.next <= port.now && self.next < self.stop {
            let len = self.config.payload_bytes;
            let sent_us = (port.now.as_nanos() / 1_000) as u32;
            let datagram = Datagram { sequence: self.sequence, len, sent_us };
            let bytes = u32::from(len) + UDP_HEADER_BYTES;
            port.send(self.direction, bytes, self.config.ecn, Body::Datagram(datagram));
            self.sequence += 1;
            self.next += self.gap;
        }
    }

    fn receive(&mut self, port: &mut Port<'_>, _: Direction, packet: &Packet<Segment>) {
        if let Body::Datagram(datagram) = packet.payload.body {
            self.received_bytes += u64::from(datagram.len);
            let sent = Time::from_micros(u64::from(datagram.sent_us));
            self.delays.record(port.now.since(sent).as_nanos());
        }
    }

    /// Delays and losses over the whole trial.
    fn metrics(&self) -> Vec<Metric> {
        let delays = distribution(&self.delays);
        let arrived = delays.map_or(0, |delays| delays.count);
        let sent = u64::from(self.sequence);
        let lost = (sent > 0).then(|| sent.saturating_sub(arrived) as f64 * 100.0 / sent as f64);
        let mut metrics = delay_metrics("delay", BULK_QUANTILES, delays).to_vec();
        metrics.push(Metric { name: "lost".to_owned(), unit: "%".to_owned(), value: lost });
        metrics
    }

    fn deadline(&self) -> Time {
        if self.next < self.stop { self.next } else { Time::MAX }
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}
