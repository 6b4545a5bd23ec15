//! TCP: one connection that carries data one way.
//!
//! Segments keep their boundaries, so sequence numbers count segments; all are full except the last
//! of a transfer of known size. What is modelled follows Linux with GSO, TSO and GRO off, as a
//! queue sees it on the wire: every segment is a packet of its own; without pacing the sender
//! answers each acknowledgement with the two or three segments it allows, at once. Paced senders
//! release one segment at a time, with Linux's credit of half a segment.
//!
//! | part | source |
//! |---|---|
//! | `receiver` | RFC 5681 delayed acknowledgements with Linux's timer and quick start, RFC 2018, RFC 2883, RFC 7323, RFC 3168, AccECN's packet counter |
//! | `accurate_ecn` | RFC 9768: the counter of three bits and how it is read |
//! | `scoreboard` | SACK bookkeeping, and which transmissions are overdue |
//! | `rack` | RACK's newest delivery and reordering window (RFC 8985) |
//! | `rtt` | RFC 6298 with Linux's bounds and variation |
//! | `recovery` | proportional rate reduction (RFC 6937, Linux's variant) |
//! | `undo` | whether a reduction proves spurious (RFC 3522, RFC 3708) |
//! | `sender` | timers (RTO, tail loss probe, reordering), windows, pacing |
//! | `sender::repair` | states, F-RTO (RFC 5682), undo, as Linux `tcp_fastretrans_alert` |
//!
//! Not modelled: window scaling (the window is what it is), receive buffer tuning, urgent data,
//! Nagle, closing handshake, compressed selective acknowledgements (Linux delays some by up to 1
//! ms), a smaller window after idle time (RFC 2861), jiffies, a reordering timer that waits for the
//! last of several segments instead of the first. Beyond Linux: a timeout is also undone by itself
//! when a retransmission comes through that was sent before it (`sender::repair`).

mod accurate_ecn;
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

use crate::congestion::{Algorithm, Controller, OwnControl, PragueConfig, Setup, SlowStartExit};
use crate::flow::{BULK_QUANTILES, Endpoint, Port, delay_metrics};
use crate::net::{Acknowledgement, Body, Segment};
use crate::sys::prefetch;

use delivery::Delivery;
use receiver::Receiver;
use sender::Sender;
pub use sender::TcpStats;

/// Use of ECN by a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnUse {
    /// No ECN: packets are Not-ECT.
    #[default]
    Off,
    /// ECT(0), one reaction per window (RFC 3168).
    Classic,
    /// ECT(0) with a count of marks as feedback (DCTCP).
    Accurate,
    /// ECT(1) with a count of marks as feedback (Prague, RFC 9331).
    L4s,
}

impl EcnUse {
    /// The codepoint of data segments.
    const fn codepoint(self) -> Ecn {
        match self {
            Self::Off => Ecn::NotEct,
            Self::Classic | Self::Accurate => Ecn::Ect0,
            Self::L4s => Ecn::Ect1,
        }
    }

    const fn is_accurate(self) -> bool {
        matches!(self, Self::Accurate | Self::L4s)
    }
}

/// A connection to simulate.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// A congestion control of the caller's instead of `algorithm`.
    pub own: Option<OwnControl>,
    /// Use of ECN.
    pub ecn: EcnUse,
    /// The condition that ends slow start before the first loss.
    pub slow_start_exit: SlowStartExit,
    /// Payload bytes of a full segment.
    pub segment_bytes: u16,
    /// IP and TCP headers with options, bytes.
    pub header_bytes: u16,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Payload bytes that may be under way, whatever the congestion window: the receive window or
    /// the send buffer, whichever is smaller.
    pub receive_window_bytes: u32,
    /// Payload bytes to transfer; `None`: until the flow is stopped.
    pub transfer_bytes: Option<u64>,
    /// Whether to note how long each segment takes, retransmissions included.
    pub notes_delivery: bool,
    /// How much Prague depends on its round trip; others do not look at it.
    pub prague: PragueConfig,
}

impl TcpConfig {
    /// The default with another congestion control, and slow start as Linux ends it there.
    pub fn of(algorithm: Algorithm) -> Self {
        let slow_start_exit = algorithm.slow_start_exit();
        Self { algorithm, slow_start_exit, ..Self::default() }
    }
}

impl Default for TcpConfig {
    /// Linux over Ethernet: CUBIC, no ECN, 1448 bytes in 1500, ten segments, and what the send
    /// buffer lets be under way.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            own: None,
            ecn: EcnUse::Off,
            slow_start_exit: SlowStartExit::HyStart,
            segment_bytes: 1_448,
            header_bytes: 52,
            initial_window: 10,
            receive_window_bytes: SEND_BUFFER_BYTES,
            transfer_bytes: None,
            notes_delivery: false,
            prague: PragueConfig::default(),
        }
    }
}

/// Both ends of a connection. What a data packet needs comes first and fills two cache lines: with
/// thousands of flows each line is fetched from far away.
#[repr(C, align(64))]
pub(crate) struct Tcp {
    receiver: Receiver,
    delivery: Option<Box<Delivery>>,
    /// When the sender's timers are due, so that a data packet need not look at the sender.
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
            delivery: config.notes_delivery.then(|| Box::new(Delivery::new())),
            sender_deadline: Time::MAX,
            header_bytes: u32::from(config.header_bytes),
            direction,
            sender: Sender::new(config, direction, controller),
        }
    }

    /// Opens this end at once: the other direction of the connection has shaken hands. `rtt` is the
    /// round trip of the handshake, if nothing of it was sent twice.
    pub(crate) fn accept(&mut self, now: Time, rtt: Option<Span>) {
        self.sender.accept(now, rtt);
        self.sender_deadline = self.sender.deadline();
    }

    /// Appends `bytes` to what is to be sent.
    pub(crate) fn write(&mut self, port: &mut Port<'_>, bytes: u64) {
        self.sender.write(port, bytes);
        self.note_sender(port.now);
    }

    /// Sends nothing new from now on; what is under way is completed.
    pub(crate) fn stop(&mut self) {
        self.sender.stop();
    }

    /// Has a window of so many segments from now on, whatever happens.
    pub(crate) fn steer(&mut self, segments: u32) {
        self.sender.steer(segments);
    }

    /// Has the end fetched from memory that `segment` will reach.
    #[inline]
    pub(crate) fn prefetch(&self, segment: &Segment) {
        match segment.body {
            Body::Data(_) => prefetch(&self.receiver),
            Body::Ack(_) => self.sender.prefetch(),
            _ => {}
        }
    }

    /// Has the record of the oldest segment under way fetched: an acknowledgement begins with it.
    #[inline]
    pub(crate) fn prefetch_rest(&self, segment: &Segment) {
        if let Body::Ack(_) = segment.body {
            self.sender.prefetch_oldest();
        }
    }

    pub(crate) fn stats(&self) -> TcpStats {
        self.sender.stats()
    }

    /// Takes note of what the sender has just done.
    #[inline]
    fn note_sender(&mut self, now: Time) {
        self.sender_deadline = self.sender.deadline();
        if let Some(delivery) = &mut self.delivery {
            delivery.sent_before(now, self.sender.next_sequence());
        }
    }

    fn backwards(&self) -> Direction {
        self.direction.opposite()
    }

    fn acknowledge(&self, port: &mut Port<'_>, ack: Acknowledgement) {
        let blocks = ack.block_count() as u32;
        // SACK option: two bytes, eight per block, padded to words (RFC 2018 section 3).
        let option = if blocks == 0 { 0 } else { 4 + 8 * blocks };
        port.send(self.backwards(), self.header_bytes + option, Ecn::NotEct, Body::Ack(ack));
    }
}

impl Endpoint for Tcp {
    /// Opens the connection.
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
            Body::Syn => port.send(self.backwards(), SYN_BYTES, Ecn::NotEct, Body::SynAck),
            Body::SynAck => self.sender.on_connected(port),
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

    /// What was noted of deliveries, for the record; nothing unless asked for.
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

    fn bytes_reserved(&self) -> usize {
        let delivery = self.delivery.as_ref().map_or(0, |delivery| delivery.bytes_reserved());
        self.sender.bytes_reserved() + delivery
    }
}

/// Payload that Linux lets be under way with its default send buffer (`tcp_wmem`, 4 MiB): it counts
/// the memory of a packet, about 2,470 bytes where one holds one segment. On an idle machine 2.4
/// MB were seen at 12 Mbit/s, 2.6 at 30, 2.7 at 60 and 2.8 at 100; on a busy one, where it is
/// rarely woken and makes larger packets, 3.3 to 3.8.
const SEND_BUFFER_BYTES: u32 = 2_500_000;
/// IP and TCP headers with the options of a connection request.
const SYN_BYTES: u32 = 60;
