//! The contents of a simulated packet.

use std::num::NonZeroI16;

use underload_aqm::packet::Ecn;
use underload_aqm::time::{Span, Time};

/// The payload of a simulated packet: header fields and lengths, without payload bytes.
// Not `Copy`, because a `Copy` type is copied whenever it is passed to a function.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Position of the flow in the trial.
    pub flow: u16,
    /// Number of the connection or stream within the flow.
    pub channel: u16,
    pub body: Body,
}

impl Segment {
    /// The initial value of a buffer for segments.
    pub(crate) const NONE: Self = Self { flow: 0, channel: 0, body: Body::Syn };
}

/// The kinds of packets. The tag is a whole word, which also stores the tags of enclosing types, so
/// that a packet is copied in aligned words.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Body {
    Syn,
    SynAck,
    Data(Data),
    Ack(Acknowledgement),
    /// A datagram of a UDP flow.
    Datagram(Datagram),
    /// A datagram of an application.
    Message(Message),
    /// Feedback of the receiver of an application's datagrams.
    Report(Report),
    /// A packet of a Sprout flow.
    Flight(Flight),
    /// A Sprout receiver's forecast of the link.
    Forecast(Forecast),
    /// A probe on its way to the server; `sequence` is its slot.
    Request {
        sequence: u32,
    },
    /// A probe on its way back, with the ECN field that reached the server.
    Reply {
        sequence: u32,
        far_ecn: Ecn,
    },
}

const _: () = assert!(size_of::<Segment>() <= 32, "a packet with its metadata is one cache line");

/// A TCP segment with data. Sequence numbers count segments: retransmissions have the same ends.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    pub sequence: u32,
    /// Payload bytes of the packet.
    pub len: u16,
    pub retransmission: bool,
    /// Congestion window reduced (RFC 3168).
    pub window_reduced: bool,
    /// The end of a write of an application that always has more data (PSH).
    pub push: bool,
    /// Time stamp of this transmission (`TSval`).
    pub sent: Stamp,
}

/// A TCP acknowledgement. Its window is constant: the application reads all data at once.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// The first segment not received.
    pub cumulative: u32,
    /// Time stamp of the segment that last moved the window's left edge (`TSecr`).
    pub echoed: Stamp,
    /// Selectively acknowledged blocks, most recent first, as offsets from `cumulative`.
    pub blocks: [SackBlock; 3],
    /// Count of data packets that arrived CE, modulo 8 (the ACE field of RFC 9768).
    pub ce_count: u8,
    /// ECN echo (RFC 3168).
    pub echo: bool,
    /// The segment that caused the acknowledgement, as distance from `cumulative`, if it had
    /// arrived before (a D-SACK block, RFC 2883). Never 0: `cumulative` has not arrived.
    pub duplicate: Option<NonZeroI16>,
}

/// A TCP time stamp (RFC 7323) in microseconds; it wraps around after 71 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u32);

impl Stamp {
    pub const fn of(time: Time) -> Self {
        Self((time.as_nanos() / 1_000) as u32)
    }

    /// Returns whether it was taken earlier than `other`, within half an hour.
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns the time since the time stamp.
    pub const fn age(self, now: Time) -> Span {
        Span::from_micros(Self::of(now).0.wrapping_sub(self.0) as u64)
    }
}

impl Acknowledgement {
    /// Returns the number of blocks in use.
    pub fn block_count(&self) -> usize {
        self.blocks.iter().take_while(|block| block.end > 0).count()
    }

    /// Returns the segment that arrived again.
    pub fn duplicate(&self) -> Option<u32> {
        self.duplicate.map(|distance| self.cumulative.saturating_add_signed(distance.get().into()))
    }
}

/// Received segments `start..end`, as offsets from the cumulative acknowledgement; unused if empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    pub start: u16,
    pub end: u16,
}

/// A datagram of an application.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Number of the datagram in its direction, from 0.
    pub sequence: u32,
    /// Number of the unit that it is part of, for example a video frame.
    pub part_of: u32,
    /// Time stamp, in microseconds of the trial.
    pub sent_us: u32,
}

impl Message {
    /// Returns the time since it was sent.
    pub fn age(&self, now: Time) -> Span {
        now.since(Time::from_micros(u64::from(self.sent_us)))
    }
}

/// Feedback of the receiver of an application's datagrams, sent on the arrival of one of them.
/// Counts start with the flow, so that a lost report loses no information.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The number after the highest that has arrived.
    pub end: u32,
    /// Datagrams that have arrived.
    pub received: u32,
    /// Datagrams that have arrived with CE.
    pub marked: u32,
    /// Time stamp of the datagram that caused the report, in microseconds of the trial.
    pub sent_us: u32,
    /// Smallest delay of the CE datagrams since the previous report minus the smallest delay of all
    /// datagrams, microseconds; 0 without CE datagrams.
    pub marked_depth_us: u32,
}

impl Report {
    /// Returns the time since the datagram that caused the report was sent: the round trip.
    pub fn age(&self, now: Time) -> Span {
        now.since(Time::from_micros(u64::from(self.sent_us)))
    }
}

/// A packet of a Sprout flow. Byte counts wrap around.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Payload bytes sent before this packet.
    pub sequence: u32,
    /// This number of bytes before this packet may still arrive; all earlier bytes have arrived or
    /// are lost (the protocol's throwaway number).
    pub unsettled_bytes: u16,
    /// Longest silence of the sender after this packet; 0 within a flight.
    pub time_to_next_ms: u16,
    /// Payload bytes; 0 in a heartbeat.
    pub len: u16,
}

/// A forecast of a Sprout receiver.
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// Number of the tick in which it was made.
    pub tick: u32,
    /// Payload bytes received or lost up to now.
    pub received_or_lost: u32,
    /// Packets that will be delivered within one to eight ticks with at least 95 % probability.
    pub packets: [u8; 8],
}

/// A datagram of a UDP flow.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    pub sequence: u32,
    /// Payload bytes of the packet.
    pub len: u16,
    /// Time stamp, in microseconds of the trial.
    pub sent_us: u32,
}
