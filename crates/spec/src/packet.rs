//! The facts about a packet that a discipline may use.

use core::net::IpAddr;

use crate::time::Time;

crate::named! {
    /// The ECN field (RFC 3168 section 5, RFC 9331 section 2), in the order of its two bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Ecn {
        /// Not ECN-capable: congestion is signalled by loss.
        #[default]
        NotEct = "not-ect",
        /// ECN-capable, for L4S (RFC 9331).
        Ect1 = "ect1",
        /// ECN-capable, for classic senders (RFC 3168).
        Ect0 = "ect0",
        /// Congestion experienced: a queue has marked the packet (RFC 3168).
        Ce = "ce",
    }
}

impl Ecn {
    /// Returns the codepoint of the two lowest bits of a TOS or traffic class byte.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self::ALL[(bits & 3) as usize]
    }

    /// Returns the two bits of the header field.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark instead of dropping: ECT(0), ECT(1) or CE.
    #[inline]
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// A Differentiated Services codepoint, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Default forwarding, best effort.
    pub const DEFAULT: Self = Self(0);
    /// The non-queue-building codepoint (RFC 9956).
    pub const NON_QUEUE_BUILDING: Self = Self(45);
    /// Expedited forwarding (RFC 3246).
    pub const EXPEDITED: Self = Self(46);

    /// Returns a codepoint; `None` above 63.
    #[inline]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// Returns the codepoint of the six highest bits of a TOS or traffic class byte.
    #[inline]
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }

    /// Returns the class selector: the three lower bits are zero (RFC 2474, section 4.2.2).
    #[must_use]
    #[inline]
    pub const fn class_selector(self) -> Self {
        Self(self.0 & 0b11_1000)
    }

    /// Returns the codepoint, 0 to 63.
    #[inline]
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// All that a discipline may know of a packet. It is parsed once, when the packet enters.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Bytes as the link charges them; a link adds its overhead on entry.
    pub len: u32,
    /// The hash or number of the 5-tuple, which the caller chooses: runs are repeatable.
    pub flow: u32,
    /// Hash or number of the source host, for per-host fairness.
    pub src: u32,
    /// Hash or number of the destination host.
    pub dst: u32,
    /// The owner's number for the packet; disciplines never read it.
    pub id: u32,
    /// Changed only by [rules](crate::remark) behind a link, and by queue protection on request.
    pub dscp: Dscp,
    /// A discipline may change it from ECT to CE, and changes no other field.
    pub ecn: Ecn,
    /// Whether the packet is a TCP segment that acknowledges, without data, SYN, FIN and RST.
    pub is_pure_ack: bool,
    /// The end of enqueue, stamped by the queue.
    pub arrived: Time,
}

const _: () = assert!(size_of::<Meta>() <= 32, "two packets' metadata share a cache line");

impl Meta {
    /// Returns DSCP and ECN in one byte, as in an IP header (RFC 2474, section 3; RFC 3168, 5).
    #[inline]
    pub const fn tos(&self) -> u8 {
        self.dscp.value() << 2 | self.ecn.bits()
    }

    /// Returns a best effort packet of `len` bytes of `flow`.
    #[inline]
    pub const fn new(len: u32, flow: u32) -> Self {
        Self {
            len,
            flow,
            src: 0,
            dst: 0,
            id: 0,
            dscp: Dscp::DEFAULT,
            ecn: Ecn::NotEct,
            is_pure_ack: false,
            arrived: Time::ZERO,
        }
    }
}

/// The key of the hashes of flows and hosts. Equal keys give equal hashes, so that runs are
/// repeatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey(pub u64);

impl FlowKey {
    /// Returns what a discipline may know of an IP packet of `len` bytes with this TOS or traffic
    /// class byte, these addresses (source, destination) and this protocol.
    ///
    /// `body` starts at the header of the protocol, `start` bytes into the packet, and is empty for
    /// a fragment: ports, or the identifier of an ICMP echo, are part of the flow.
    pub fn meta(
        self,
        len: u32,
        tos: u8,
        hosts: [IpAddr; 2],
        (protocol, start): (u8, usize),
        body: &[u8],
    ) -> Meta {
        let [src, dst] = hosts.map(|address| self.host(address));
        let selector = u64::from(selector(protocol, body));
        let flow = mix(mix(src, dst.rotate_left(32)), selector << 8 | u64::from(protocol));
        Meta {
            src: src as u32,
            dst: dst as u32,
            dscp: Dscp::from_tos(tos),
            ecn: Ecn::from_bits(tos),
            is_pure_ack: protocol == 6 && is_pure_ack((len as usize).saturating_sub(start), body),
            ..Meta::new(len, flow as u32)
        }
    }

    fn host(self, address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => mix(self.0 ^ 4, u64::from(address.to_bits())),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                mix(self.0 ^ 6, mix((bits >> 64) as u64, bits as u64 ^ 6))
            }
        }
    }
}

/// Returns the part of the transport header that distinguishes flows between two hosts.
fn selector(protocol: u8, body: &[u8]) -> u32 {
    match (protocol, body.first_chunk::<4>(), body.first_chunk::<6>()) {
        // The ports of TCP, UDP, SCTP and UDP-Lite.
        (6 | 17 | 132 | 136, Some(ports), _) => u32::from_be_bytes(*ports),
        // Echo request and reply, in ICMP and in ICMPv6.
        (1 | 58, _, Some(&[8 | 0 | 128 | 129, _, _, _, high, low])) => {
            u32::from(u16::from_be_bytes([high, low]))
        }
        _ => 0,
    }
}

/// Whether the TCP segment of `len` bytes whose header is in `body` acknowledges and has no data.
fn is_pure_ack(len: usize, body: &[u8]) -> bool {
    const FIN_SYN_RST_ACK: u8 = 0x17;
    const ACK: u8 = 0x10;
    body.first_chunk().is_some_and(|header: &[u8; 14]| {
        usize::from(header[12] >> 4) * 4 == len && header[13] & FIN_SYN_RST_ACK == ACK
    })
}

/// Two rounds of multiply-and-fold. It is not cryptographic, because collisions on one's own
/// emulated link gain an attacker nothing, but the key has to change the whole result.
fn mix(a: u64, b: u64) -> u64 {
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        (product >> 64) as u64 ^ product as u64
    };
    let first = fold(a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xd1b5_4a32_d192_ed03);
    fold(first ^ 0x8cb9_2ba7_2f3d_8dd7, b.rotate_left(29) ^ 0xaef1_7502_108e_f2d9)
}

/// A packet. `P` is a simulated segment, a buffer handle, or `()`; disciplines never read it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<P> {
    /// Length and header fields, which disciplines read.
    pub meta: Meta,
    /// The owner's data, which disciplines never read.
    pub payload: P,
}
