//! What a simulated packet carries.

use std::num::NonZeroI16;

use underload_aqm::packet::Ecn;
use underload_aqm::time::{Span, Time};

/// The payload of a simulated packet: everything its endpoints want to know, and no bytes.
// Not `Copy`: what can be copied is copied at every call that it is handed to.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Position of the flow in the trial.
    pub flow: u16,
    /// Which of the flow's connections or streams, where it has several.
    pub channel: u16,
    /// Transport header and payload.
    pub body: Body,
}

impl Segment {
    /// Stands for no segment where a place for one is needed.
    pub(crate) const NONE: Self = Self { flow: 0, channel: 0, body: Body::Syn };
}

/// The kinds of packets. The tag is a whole word with room for the tags of the types around it, so
/// that copying a packet never splits it at odd bytes.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Body {
    /// TCP connection request.
    Syn,
    /// Answer to a `Syn`.
    SynAck,
    /// A TCP segment with data.
    Data(Data),
    /// A TCP acknowledgement without data.
    Ack(Acknowledgement),
    /// A datagram that nobody answers.
    Datagram(Datagram),
    /// A datagram of an application.
    Message(Message),
    /// What the receiver of an application's datagrams tells their sender.
    Report(Report),
    /// A packet of a Sprout flow.
    Flight(Flight),
    /// A Sprout receiver's forecast of the link.
    Forecast(Forecast),
    /// A probe on its way to the server.
    Request {
        /// Slot number.
        sequence: u32,
    },
    /// A probe on its way back.
    Reply {
        /// Slot number of the request.
        sequence: u32,
        /// How the request's ECN field reached the server.
        far_ecn: Ecn,
    },
}

const _: () = assert!(size_of::<Segment>() <= 32, "a packet with its metadata is one cache line");

/// A TCP segment with data. Sequence numbers count segments, since a segment keeps its boundaries
/// when it is sent again.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Number of the segment, from 0.
    pub sequence: u32,
    /// Payload bytes.
    pub len: u16,
    /// Sent before.
    pub retransmission: bool,
    /// Congestion window reduced (RFC 3168).
    pub window_reduced: bool,
    /// Time stamp of this transmission (`TSval`).
    pub sent: Stamp,
}

/// A TCP acknowledgement. The window is the one that the receiver announced at the handshake: what
/// arrives is read at once.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// The first segment not received yet.
    pub cumulative: u32,
    /// Time stamp of the segment that last moved the window's left edge (`TSecr`).
    pub echoed: Stamp,
    /// Selectively acknowledged blocks, most recent first, as offsets from `cumulative`.
    pub blocks: [SackBlock; 3],
    /// Data packets that arrived CE so far, modulo 8 (the ACE field of RFC 9768).
    pub ce_count: u8,
    /// ECN echo (RFC 3168).
    pub echo: bool,
    /// The segment that caused it, as distance from `cumulative`, if it had arrived before (a
    /// D-SACK block, RFC 2883). Never 0: `cumulative` itself has not arrived.
    pub duplicate: Option<NonZeroI16>,
}

/// A TCP time stamp (RFC 7323) in microseconds; it wraps around after 71 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

impl Stamp {
    /// The time stamp of an instant.
    pub const fn of(time: Time) -> Self {
        Self((time.as_nanos() / 1_000) as u32)
    }

    /// Whether it was taken earlier than `other`, within half an hour.
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Time since it was taken.
    pub const fn age(self, now: Time) -> Span {
        Span::from_micros(Self::of(now).0.wrapping_sub(self.0) as u64)
    }
}

impl Acknowledgement {
    /// Number of blocks in use.
    pub fn block_count(&self) -> usize {
        self.blocks.iter().take_while(|block| block.end > 0).count()
    }

    /// The segment that arrived once more.
    pub fn duplicate(&self) -> Option<u32> {
        self.duplicate.map(|distance| self.cumulative.saturating_add_signed(distance.get().into()))
    }
}

/// Received segments `start..end`, counted from the cumulative acknowledgement; unused when empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First segment of the block.
    pub start: u16,
    /// First segment after it.
    pub end: u16,
}

/// A datagram of an application.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Number of the datagram among those of its direction, from 0.
    pub sequence: u32,
    /// What it is a part of, for example a video frame.
    pub part_of: u32,
    /// Time stamp: when it was sent, in microseconds of the trial.
    pub sent_us: u32,
}

impl Message {
    /// Time since it was sent.
    pub fn age(&self, now: Time) -> Span {
        now.since(Time::from_micros(u64::from(self.sent_us)))
    }
}

/// What the receiver of an application's datagrams has seen of them, sent on the arrival of one.
/// Counts are of all that came since the start, so that a lost report costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// One past the highest number that has arrived.
    pub end: u32,
    /// Datagrams that have arrived.
    pub received: u32,
    /// Of these, with CE.
    pub marked: u32,
    /// Time stamp of the datagram that caused it, in microseconds of the trial.
    pub sent_us: u32,
    /// Of the datagrams with CE since the report before, how long the quickest was under way beyond
    /// the quickest of all, microseconds; nothing where none had CE.
    pub marked_depth_us: u32,
}

impl Report {
    /// Time since the datagram that caused it was sent: the round trip, on arrival.
    pub fn age(&self, now: Time) -> Span {
        now.since(Time::from_micros(u64::from(self.sent_us)))
    }
}

/// A packet of a Sprout flow. Byte counts wrap around.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Payload bytes sent before this packet.
    pub sequence: u32,
    /// That many bytes before this packet may yet arrive; all earlier ones have arrived or are lost
    /// (the protocol's throwaway number).
    pub unsettled_bytes: u16,
    /// At most so long the sender will be silent after this packet; 0 within a flight.
    pub time_to_next_ms: u16,
    /// Payload bytes; 0 in a heartbeat.
    pub len: u16,
}

/// A forecast of a Sprout receiver.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// Number of the tick that it was made at.
    pub tick: u32,
    /// Payload bytes received or lost so far.
    pub received_or_lost: u32,
    /// Packets that will be delivered within one to eight ticks, with 95 % probability at least.
    pub packets: [u8; 8],
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Number of the datagram in its flow, from 0.
    pub sequence: u32,
    /// Payload bytes.
    pub len: u16,
    /// Time stamp: when it was sent, in microseconds of the trial.
    pub sent_us: u32,
}
