//! What a discipline may know of a packet.

use crate::time::Time;

/// The Explicit Congestion Notification field (RFC 3168 section 5, RFC 9331 section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN: congestion is signalled by loss.
    #[default]
    NotEct = 0,
    /// ECN-capable and L4S (RFC 9331).
    Ect1 = 1,
    /// ECN-capable, classic.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the two lowest bits of the TOS or traffic class byte.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits of the header field.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark instead of dropping: ECT(0), ECT(1) or already CE.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }

    /// The name used in packet scripts: `not-ect`, `ect0`, `ect1`, `ce`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotEct => "not-ect",
            Self::Ect1 => "ect1",
            Self::Ect0 => "ect0",
            Self::Ce => "ce",
        }
    }

    /// The codepoint of a name that [`Ecn::name`] gives.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce].into_iter().find(|ecn| ecn.name() == name)
    }
}

/// A Differentiated Services codepoint, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Default forwarding, best effort.
    pub const DEFAULT: Self = Self(0);
    /// Non-queue-building (RFC 9956).
    pub const NON_QUEUE_BUILDING: Self = Self(45);
    /// Expedited forwarding (RFC 3246).
    pub const EXPEDITED: Self = Self(46);

    /// A codepoint, or `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// From the six highest bits of the TOS or traffic class byte.
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }

    /// The same with the three lower bits zero: CS0 to CS7 (RFC 2474, section 4.2.2).
    #[must_use]
    pub const fn class_selector(self) -> Self {
        Self(self.0 & 0b11_1000)
    }

    /// The codepoint, 0 to 63.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// All a discipline may know of a packet. Parsed once at the edge, never re-read from bytes.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Bytes as the link charges them; a [`Link`](crate::link::Link) adds its overhead on entry.
    pub len: u32,
    /// Keyed hash or number of the 5-tuple; the caller owns the key, so runs repeat.
    pub flow: u32,
    /// Hash or number of the source host, for per-host fairness.
    pub src: u32,
    /// Hash or number of the destination host.
    pub dst: u32,
    /// The number that its owner knows it by; disciplines never look.
    pub id: u32,
    /// Differentiated Services codepoint; only [rules](crate::remark) behind a link change it, and
    /// queue protection where it is told to.
    pub dscp: Dscp,
    /// The only other field that a discipline may change, and only from ECT to CE.
    pub ecn: Ecn,
    /// End of enqueue, stamped by the queue.
    pub arrived: Time,
}

const _: () = assert!(size_of::<Meta>() <= 32, "two packets' metadata share a cache line");

impl Meta {
    /// DSCP and ECN as an IP header has them, in one byte (RFC 2474, section 3; RFC 3168, 5).
    pub const fn tos(&self) -> u8 {
        self.dscp.value() << 2 | self.ecn.bits()
    }

    /// Metadata of a best effort packet of `len` bytes that belongs to `flow`.
    pub const fn new(len: u32, flow: u32) -> Self {
        Self {
            len,
            flow,
            src: 0,
            dst: 0,
            id: 0,
            dscp: Dscp::DEFAULT,
            ecn: Ecn::NotEct,
            arrived: Time::ZERO,
        }
    }
}

/// A packet on its way. `P` is a simulated segment, a buffer handle, or `()`; disciplines never
/// look inside.
#[derive(Clone, Copy, Debug)]
pub struct Packet<P> {
    /// Length and header fields that disciplines see.
    pub meta: Meta,
    /// Whatever the packet's owner needs; disciplines do not look at it.
    pub payload: P,
}
