//! TCP: one connection that carries data one way.
//!
//! Segments keep their boundaries, so sequence numbers count segments; all are full except the last
//! of a transfer of known size. The model follows Linux with GSO, TSO and GRO off, as a queue sees
//! it on the wire: every segment is one packet; without pacing the sender answers each
//! acknowledgement at once with the two or three segments that it allows. Paced senders release one
//! segment at a time, with Linux's credit of half a segment.
//!
//! | part | source |
//! |---|---|
//! | `receiver` | RFC 5681 delayed acknowledgements with Linux's timer and quick start, RFC 2018, RFC 2883, RFC 7323, RFC 3168, AccECN's packet counter, Linux's joined acknowledgements beyond a gap |
//! | `accurate_ecn` | RFC 9768: the counter of three bits and how it is read |
//! | `scoreboard` | SACK bookkeeping, and which transmissions are overdue |
//! | `rack` | RACK's newest delivered segment and reordering window (RFC 8985) |
//! | `rtt` | RFC 6298 with Linux's bounds and variation |
//! | `recovery` | proportional rate reduction (RFC 6937, Linux's variant) |
//! | `undo` | whether a reduction proves spurious (RFC 3522, RFC 3708) |
//! | `sender` | timers (RTO, tail loss probe, reordering), windows, pacing |
//! | `sender::writer` | where the writes of an application end, as in the worlds with Linux's TCP |
//! | `sender::repair` | states, F-RTO (RFC 5682), undo, as Linux `tcp_fastretrans_alert` |
//!
//! Not modelled: window scaling, receive buffer tuning, urgent data, Nagle, closing handshake,
//! a smaller window after idle time (RFC 2861), jiffies, a reordering timer that waits for the last
//! of several segments instead of the first. Beyond Linux: a timeout is also undone when a
//! retransmission arrives that was sent before it (`sender::repair`).

mod accurate_ecn;
mod config;
mod delivery;
mod rack;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod sender;
mod undo;

use underload_aqm::packet::{Ecn, Packet};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Metric};

use crate::congestion::{Controller, Setup};
use crate::endpoint::{BULK_QUANTILES, Endpoint, Port, delay_metrics};
use crate::net::{Acknowledgement, Body, Segment};
use crate::sys::prefetch;

use config::SYN_BYTES;
use delivery::Delivery;
use receiver::Receiver;
use sender::Sender;
pub use sender::TcpStats;

pub use crate::congestion::EcnUse;
pub use config::TcpConfig;

/// Both ends of a connection. The fields that a data packet uses come first and fill two cache
/// lines: with thousands of flows each line comes from main memory.
#[repr(C, align(64))]
pub(crate) struct Tcp {
    receiver: Receiver,
    delivery: Option<Box<Delivery>>,
    /// When the next timer of the sender is due: a copy, so that handling a data packet does not
    /// touch the sender's memory.
    sender_deadline: Time,
    header_bytes: u32,
    direction: Direction,
    sender: Sender,
}

const _: () = assert!(std::mem::offset_of!(Tcp, sender) == 128, "what a data packet needs");

impl Tcp {
    pub(crate) fn new(config: &TcpConfig, direction: Direction, rng: Rng) -> Self {
        let setup = Setup {
            segment_bytes: u32::from(config.segment_bytes),
            packet_bytes: u32::from(config.segment_bytes) + u32::from(config.header_bytes),
            initial_window: config.initial_window,
            slow_start_exit: config.slow_start_exit,
            prague: config.prague,
            rng,
        };
        let controller = match &config.own {
            Some(own) => Controller::own(own, setup),
            None => Controller::new(config.algorithm, setup),
        };
        Self {
            receiver: Receiver::new(config.ecn.is_accurate()),
            delivery: config.notes_delivery.then(Box::default),
            sender_deadline: Time::MAX,
            header_bytes: u32::from(config.header_bytes),
            direction,
            sender: Sender::new(config, direction, controller),
        }
    }

    /// Opens this direction at once, after the handshake of the other direction. `rtt` is the round
    /// trip of the handshake, if nothing was retransmitted.
    pub(crate) fn accept(&mut self, now: Time, rtt: Option<Span>) {
        self.sender.accept(now, rtt);
        self.receiver.set_timeout(self.sender.timeout());
        self.sender_deadline = self.sender.deadline();
    }

    /// Appends `bytes` to the data to send.
    pub(crate) fn write(&mut self, port: &mut Port<'_>, bytes: u64) {
        self.sender.write(port, bytes);
        self.note_sender(port.now);
    }

    /// Stops sending new data; segments in flight are still repaired.
    pub(crate) fn stop(&mut self) {
        self.sender.stop();
    }

    /// Fixes the congestion window at `segments`.
    pub(crate) fn steer(&mut self, segments: u32) {
        self.sender.steer(segments);
    }

    /// Prefetches the end that `segment` will reach.
    #[inline]
    pub(crate) fn prefetch(&self, segment: &Segment) {
        match segment.body {
            Body::Data(_) => prefetch(&self.receiver),
            Body::Ack(_) => self.sender.prefetch(),
            _ => {}
        }
    }

    /// Prefetches the record of the oldest segment in flight, which an acknowledgement reads first.
    #[inline]
    pub(crate) fn prefetch_rest(&self, segment: &Segment) {
        if let Body::Ack(_) = segment.body {
            self.sender.prefetch_oldest();
        }
    }

    #[inline]
    pub(crate) fn stats(&self) -> TcpStats {
        self.sender.stats()
    }

    /// Updates the copies of the sender's state after the sender ran.
    #[inline]
    fn note_sender(&mut self, now: Time) {
        self.sender_deadline = self.sender.deadline();
        if let Some(delivery) = &mut self.delivery {
            delivery.sent_before(now, self.sender.next_sequence());
        }
    }

    fn acknowledge(&self, port: &mut Port<'_>, ack: Acknowledgement) {
        let blocks = ack.block_count() as u32;
        // SACK option: two bytes, eight per block, padded to words (RFC 2018 section 3).
        let option = if blocks == 0 { 0 } else { 4 + 8 * blocks };
        let len = self.header_bytes + option;
        port.send(self.direction.opposite(), len, Ecn::NotEct, Body::Ack(ack));
    }
}

impl Endpoint for Tcp {
    fn start(&mut self, port: &mut Port<'_>) {
        self.sender.connect(port);
        self.note_sender(port.now);
    }

    #[inline]
    fn receive(&mut self, port: &mut Port<'_>, _: Direction, packet: &Packet<Segment>) {
        match packet.payload.body {
            Body::Data(data) => {
                if let Some(delivery) = &mut self.delivery {
                    delivery.arrived(port.now, data.sequence);
                }
                if let Some(ack) = self.receiver.on_data(port.now, data, packet.meta.ecn) {
                    self.acknowledge(port, ack);
                }
                return;
            }
            Body::Ack(ack) => self.sender.on_ack(port, &ack),
            Body::Syn => {
                port.send(self.direction.opposite(), SYN_BYTES, Ecn::NotEct, Body::SynAck);
            }
            Body::SynAck => {
                self.sender.on_connected(port);
                self.receiver.set_timeout(self.sender.timeout());
            }
            _ => {}
        }
        self.note_sender(port.now);
    }

    fn on_timer(&mut self, port: &mut Port<'_>) {
        if let Some(ack) = self.receiver.on_timer(port.now) {
            self.acknowledge(port, ack);
        }
        if self.sender_deadline <= port.now {
            self.sender.on_timer(port);
            self.note_sender(port.now);
        }
    }

    #[inline]
    fn deadline(&self) -> Time {
        self.receiver.deadline().min(self.sender_deadline)
    }

    fn received_bytes(&self) -> u64 {
        self.receiver.received_bytes
    }

    /// Returns the delivery delays if the configuration requests them.
    fn metrics(&self) -> Vec<Metric> {
        let Some(delivery) = &self.delivery else { return Vec::new() };
        let stats = self.stats();
        let sent = u64::from(self.sender.next_sequence()) + stats.retransmits;
        let again = (sent > 0).then(|| stats.retransmits as f64 * 100.0 / sent as f64);
        let mut metrics =
            delay_metrics("delivery", BULK_QUANTILES, delivery.distribution()).to_vec();
        metrics.push(Metric { name: "retransmitted".into(), unit: "%".into(), value: again });
        metrics
    }
}
