//! The messages before a flow's payload, and the reports about it.
//!
//! Every flow begins with a TCP connection to the load server, on which the client sends a
//! [`Request`] and receives a [`Response`]. Then, by kind of flow:
//!
//! - TCP up: the client sends payload; the server sends a [`Report`] every 100 ms.
//! - TCP down: the server sends blocks of [`BLOCK_BYTES`], each with a [`BlockHeader`] at its start
//!   and behind it, as [`BlockReadings`], the round trips read since the previous block.
//! - UDP up: the client sends datagrams with a [`DatagramHeader`] to the port in the response; the
//!   server sends reports over TCP as above.
//! - UDP down: the client sends one such datagram from the address that shall receive the payload.
//!   The server sends only after the cookie has arrived from the TCP peer's address, and reports
//!   what it sent.
//!
//! All numbers are big-endian. Payload is generated and hard to compress, never copied from a peer.

use subtle::ConstantTimeEq as _;
use underload_record::schema::Marking;
use underload_record::text::one_line;

use super::congestion::is_name;
use super::round_trips::RoundTrip;
use super::tcp_info::{TcpInfo, part};
use super::{LoadError, congestion};

/// A secret that a load server and its clients share.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; 16]);

/// Compares in constant time, so that the duration does not reveal how many bytes were right.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Transport and direction of a flow, as seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowKind {
    TcpUp = 1,
    TcpDown = 2,
    UdpUp = 3,
    UdpDown = 4,
}

impl FlowKind {
    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Self::TcpUp | Self::TcpDown)
    }
}

/// A client's request for one load flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: FlowKind,
    /// Marking of the packets that the server sends.
    pub marking: Marking,
    /// Rate of whole IP packets, bit/s; 0 for TCP.
    pub rate_bit_per_s: u64,
    /// Bytes of an IP packet; 0 for TCP.
    pub packet_bytes: u16,
    /// Packets that are sent back to back; 0 for TCP, and 0 or 1 for even spacing.
    pub burst_packets: u16,
    /// Longest duration of the flow, ms; the server then ends it.
    pub duration_max_ms: u32,
    /// Name of the congestion control; empty for UDP.
    pub congestion_control: String,
    /// Zeros if the server needs no token.
    pub token: Token,
}

/// The first bytes of a flow's connection in both directions.
pub const MAGIC: [u8; 4] = *b"ULD1";

impl Request {
    pub const LEN: usize = 64;

    /// Encodes the request for the wire.
    ///
    /// # Errors
    /// Returns [`LoadError::Parameter`] if the congestion control's name is malformed.
    pub fn encode(&self) -> Result<[u8; Self::LEN], LoadError> {
        let name = self.congestion_control.as_bytes();
        if self.kind.is_tcp() && !is_name(&self.congestion_control)
            || name.len() > congestion::NAME_MAX
        {
            return Err(LoadError::Parameter {
                name: "congestion control",
                value: format!("{:?}", self.congestion_control),
                accepted: "1 to 15 letters, digits, '_' or '-'",
            });
        }
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.marking.to_byte();
        bytes[6..8].copy_from_slice(&self.packet_bytes.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rate_bit_per_s.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.duration_max_ms.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.burst_packets.to_be_bytes());
        bytes[24..24 + name.len()].copy_from_slice(name);
        bytes[40..56].copy_from_slice(&self.token.0);
        Ok(bytes)
    }

    /// Decodes a request from the wire.
    ///
    /// # Errors
    /// Returns [`LoadError::Protocol`] for bytes that [`Request::encode`] cannot produce.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, LoadError> {
        let error = |what| LoadError::Protocol { what };
        if bytes[..4] != MAGIC {
            return Err(error("not a load request"));
        }
        let kinds = [FlowKind::TcpUp, FlowKind::TcpDown, FlowKind::UdpUp, FlowKind::UdpDown];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[4]);
        let kind = kind.ok_or(error("unknown kind of flow"))?;
        let name: Vec<u8> = bytes[24..40].iter().copied().take_while(|o| *o != 0).collect();
        let congestion_control = String::from_utf8(name)
            .ok()
            .filter(|name| name.len() <= congestion::NAME_MAX && (!kind.is_tcp() || is_name(name)))
            .ok_or(error("malformed name of a congestion control"))?;
        Ok(Self {
            kind,
            marking: Marking::from_byte(bytes[5]),
            packet_bytes: u16::from_be_bytes(part(bytes, 6)),
            burst_packets: u16::from_be_bytes(part(bytes, 20)),
            rate_bit_per_s: u64::from_be_bytes(part(bytes, 8)),
            duration_max_ms: u32::from_be_bytes(part(bytes, 16)),
            congestion_control,
            token: Token(part(bytes, 40)),
        })
    }
}

/// The server's answer to a request for a load flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Accepted {
        /// The server's UDP port for the flow; 0 for TCP.
        udp_port: u16,
        /// The number at the start of every datagram of the flow; 0 for TCP.
        cookie: u64,
    },
    Refused {
        /// Text for the user, at most 255 bytes.
        reason: String,
    },
}

impl Response {
    /// Bytes before the reason.
    pub const HEAD_LEN: usize = 16;

    /// Encodes the response; truncates a reason to 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::HEAD_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        match self {
            Self::Accepted { udp_port, cookie } => {
                bytes[6..8].copy_from_slice(&udp_port.to_be_bytes());
                bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
            }
            Self::Refused { reason } => {
                let text = &reason.as_bytes()[..reason.len().min(255)];
                bytes[4] = 1;
                bytes[5] = text.len() as u8;
                bytes.extend_from_slice(text);
            }
        }
        bytes
    }

    /// Returns the length of the reason that follows this head.
    ///
    /// # Errors
    /// Returns [`LoadError::Protocol`] if `head` is not the head of a response.
    pub fn reason_len(head: &[u8; Self::HEAD_LEN]) -> Result<usize, LoadError> {
        match (head[..4] == MAGIC, head[4]) {
            (true, 0) => Ok(0),
            (true, 1) => Ok(usize::from(head[5])),
            _ => Err(LoadError::Protocol { what: "not a load response" }),
        }
    }

    /// Decodes a response from its head and its reason, whose control characters are replaced.
    pub fn decode(head: &[u8; Self::HEAD_LEN], reason: &[u8]) -> Result<Self, LoadError> {
        Self::reason_len(head)?;
        if head[4] == 0 {
            let udp_port = u16::from_be_bytes(part(head, 6));
            return Ok(Self::Accepted { udp_port, cookie: u64::from_be_bytes(part(head, 8)) });
        }
        Ok(Self::Refused { reason: one_line(&String::from_utf8_lossy(reason)) })
    }
}

/// The server's counters of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Since the server accepted the flow, by the server's clock, ns.
    pub elapsed_ns: u64,
    /// Payload received (flows up) or sent (flows down).
    pub bytes: u64,
    pub packets: u64,
}

impl Report {
    pub(crate) const LEN: usize = 24;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.elapsed_ns.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[16..].copy_from_slice(&self.packets.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            elapsed_ns: u64::from_be_bytes(part(bytes, 0)),
            bytes: u64::from_be_bytes(part(bytes, 8)),
            packets: u64::from_be_bytes(part(bytes, 16)),
        }
    }
}

/// Bytes of a block of a TCP flow down, with its header: 13 ms at 10 Mbit/s.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;

/// The sender's state, at the start of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// When `info` was read: since the server accepted the flow, by the server's clock, ns.
    pub elapsed_ns: u64,
    pub info: TcpInfo,
}

impl BlockHeader {
    pub(crate) const LEN: usize = 8 + TcpInfo::LEN;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.elapsed_ns.to_be_bytes());
        bytes[8..].copy_from_slice(&self.info.to_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            elapsed_ns: u64::from_be_bytes(part(bytes, 0)),
            info: TcpInfo::from_bytes(&part(bytes, 8)),
        }
    }
}

/// Round trips that the server read since the previous block, after the [`BlockHeader`].
pub(crate) struct BlockReadings;

impl BlockReadings {
    /// Maximum number of readings of a block; a sender that has more thins them.
    pub(crate) const MAX: usize = 64;
    pub(crate) const LEN: usize = 8 + 8 * Self::MAX;
    /// Payload never begins like this: it is the same in every run.
    const MARK: [u8; 4] = *b"ULR1";

    /// Writes at most [`Self::MAX`] readings to `bytes`. Their times are relative to the instant
    /// that `elapsed_ns` is relative to.
    pub(crate) fn encode(readings: &[RoundTrip], elapsed_ns: u64, bytes: &mut [u8; Self::LEN]) {
        let readings = &readings[..readings.len().min(Self::MAX)];
        bytes[..4].copy_from_slice(&Self::MARK);
        bytes[4..6].copy_from_slice(&(readings.len() as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&[0; 2]);
        for (slot, reading) in bytes[8..].chunks_exact_mut(8).zip(readings) {
            let age_us = elapsed_ns.saturating_sub(reading.time_ns) / 1_000;
            let age_us = u32::try_from(age_us).unwrap_or(u32::MAX);
            slot[..4].copy_from_slice(&age_us.to_be_bytes());
            slot[4..].copy_from_slice(&reading.rtt_us.to_be_bytes());
        }
    }

    /// Returns the readings of a block whose header has `elapsed_ns`; an empty list if the bytes
    /// cannot be parsed. Ignores readings that are older than the flow.
    pub(crate) fn decode(
        bytes: &[u8; Self::LEN],
        elapsed_ns: u64,
    ) -> impl Iterator<Item = RoundTrip> {
        let count = usize::from(u16::from_be_bytes(part(bytes, 4)));
        let is_list = bytes[..4] == Self::MARK && count <= Self::MAX;
        let slots = bytes[8..].chunks_exact(8).take(if is_list { count } else { 0 });
        slots.filter_map(move |slot| {
            let age_ns = u64::from(u32::from_be_bytes(part(slot, 0))) * 1_000;
            let time_ns = elapsed_ns.checked_sub(age_ns)?;
            Some(RoundTrip { time_ns, rtt_us: u32::from_be_bytes(part(slot, 4)) })
        })
    }
}

/// Header at the start of every datagram of a UDP load flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    pub cookie: u64,
    pub sequence: u64,
}

impl DatagramHeader {
    pub(crate) const LEN: usize = 16;

    /// Returns a cookie with 48 bits of `random`. The first two bytes mark it as a cookie: a probe
    /// begins with a sequence number, which would have to exceed 1.4 thousand million.
    pub(crate) fn cookie(random: u64) -> u64 {
        Self::COOKIE_MARK | (random >> 16)
    }

    /// Returns true if the datagram belongs to a load flow.
    pub(crate) fn has_cookie(self) -> bool {
        self.cookie & 0xffff << 48 == Self::COOKIE_MARK
    }

    const COOKIE_MARK: u64 = 0x554c << 48;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes = datagram.first_chunk::<{ Self::LEN }>()?;
        let cookie = u64::from_be_bytes(part(bytes, 0));
        Some(Self { cookie, sequence: u64::from_be_bytes(part(bytes, 8)) })
    }
}

/// Decodes any bytes as a server's report and as a datagram header, for the fuzz target, and
/// encodes them again.
#[cfg(feature = "fuzzing")]
pub fn read_reports(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<{ Report::LEN }>() {
        assert_eq!(Report::decode(head).encode(), *head);
    }
    if let Some(head) = bytes.first_chunk::<{ BlockHeader::LEN }>() {
        let header = BlockHeader::decode(head);
        assert_eq!(BlockHeader::decode(&header.encode()), header);
    }
    if let Some(list) = bytes.first_chunk::<{ BlockReadings::LEN }>() {
        assert!(BlockReadings::decode(list, u64::MAX).count() <= BlockReadings::MAX);
    }
    if let Some(header) = DatagramHeader::decode(bytes) {
        assert!(bytes.starts_with(&header.encode()));
    }
}

/// Returns `len` bytes of payload that no link can compress: xorshift64* from a fixed seed.
pub fn payload(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use underload_record::schema::Ecn;

    fn request() -> Request {
        Request {
            kind: FlowKind::TcpDown,
            marking: Marking { dscp: 45, ecn: Ecn::Ect1 },
            rate_bit_per_s: 0,
            packet_bytes: 0,
            burst_packets: 0,
            duration_max_ms: 11_000,
            congestion_control: "cubic".to_owned(),
            token: Token([7; 16]),
        }
    }

    #[test]
    fn a_request_has_these_bytes() {
        let bytes = request().encode().unwrap();
        let head =
            [b'U', b'L', b'D', b'1', 2, 0xb5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x2a, 0xf8];
        assert_eq!(bytes[..20], head);
        assert_eq!(&bytes[24..30], b"cubic\0");
        assert_eq!(Request::decode(&bytes).unwrap(), request());
        let nameless = Request { congestion_control: String::new(), ..request() };
        assert!(nameless.encode().is_err());
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_loses_its_control_characters() {
        let refused = Response::Refused { reason: "no \u{1b}[2J room".to_owned() };
        let bytes = refused.encode();
        let head: [u8; Response::HEAD_LEN] = bytes[..16].try_into().unwrap();
        assert_eq!(Response::reason_len(&head).unwrap(), bytes.len() - 16);
        let read = Response::decode(&head, &bytes[16..]).unwrap();
        assert_eq!(read, Response::Refused { reason: "no \u{fffd}[2J room".to_owned() });
        let accepted = Response::Accepted { udp_port: 99, cookie: 1 << 60 };
        let bytes = accepted.encode();
        assert_eq!(Response::decode(&bytes.try_into().unwrap(), &[]).unwrap(), accepted);
        assert!(Response::decode(&[0; 16], &[]).is_err());
    }

    #[test]
    fn readings_survive_the_round_trip_and_payload_has_none() {
        let reading =
            |number: u64| RoundTrip { time_ns: number * 10_000_000, rtt_us: 1_000 + number as u32 };
        let readings: Vec<RoundTrip> = (1..=70).map(reading).collect();
        let mut bytes = [0xff; BlockReadings::LEN];
        let decoded = |bytes: &[u8; BlockReadings::LEN], elapsed_ns| -> Vec<RoundTrip> {
            BlockReadings::decode(bytes, elapsed_ns).collect()
        };
        BlockReadings::encode(&readings, 800_000_000, &mut bytes);
        assert_eq!(decoded(&bytes, 800_000_000), readings[..BlockReadings::MAX]);
        assert_eq!(decoded(&bytes, 300_000_000).len(), 15, "the others are older than the flow");
        BlockReadings::encode(&[], 5, &mut bytes);
        assert!(decoded(&bytes, 5).is_empty());
        bytes[4..6].copy_from_slice(&65_u16.to_be_bytes());
        assert!(decoded(&bytes, u64::MAX).is_empty(), "more than a block has");
        for block in payload(16 * BLOCK_BYTES).chunks_exact(BLOCK_BYTES) {
            let after = &block[BlockHeader::LEN..];
            assert!(decoded(after.first_chunk().unwrap(), u64::MAX).is_empty());
        }
    }

    #[test]
    fn tokens_match_whole_or_not_at_all() {
        assert_eq!(Token([7; 16]), Token([7; 16]));
        for index in 0..16 {
            let mut other = [7; 16];
            other[index] = 6;
            assert_ne!(Token([7; 16]), Token(other));
        }
        assert_eq!(format!("{:?}", Token([7; 16])), "Token(hidden)");
    }

    #[test]
    fn payload_does_not_repeat_soon() {
        let bytes = payload(4096);
        assert_eq!(bytes.len(), 4096);
        let words: std::collections::BTreeSet<_> = bytes.chunks(8).collect();
        assert_eq!(words.len(), 512);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in any::<[u8; 32]>(), kind in 0u8..6) {
            let mut request = [0; Request::LEN];
            request[..4].copy_from_slice(&MAGIC);
            request[4] = kind;
            request[5..37].copy_from_slice(&bytes);
            if let Ok(decoded) = Request::decode(&request)
                && matches!(decoded.kind, FlowKind::TcpUp | FlowKind::TcpDown)
            {
                let again = decoded.encode().unwrap();
                prop_assert_eq!(Request::decode(&again).unwrap(), decoded);
            }
            let head: [u8; 16] = bytes[..16].try_into().unwrap();
            let _ = Response::decode(&head, &bytes);
        }

        #[test]
        fn reports_and_headers_survive_the_round_trip(numbers in any::<(u64, u64, u64)>()) {
            let report =
                Report { elapsed_ns: numbers.0, bytes: numbers.1, packets: numbers.2 };
            prop_assert_eq!(Report::decode(&report.encode()), report);
            let header = DatagramHeader { cookie: numbers.0, sequence: numbers.1 };
            prop_assert_eq!(DatagramHeader::decode(&header.encode()), Some(header));
            let info = TcpInfo { rtt_us: numbers.0 as u32, ..TcpInfo::default() };
            let block = BlockHeader { elapsed_ns: numbers.2, info };
            prop_assert_eq!(BlockHeader::decode(&block.encode()), block);
        }
    }
}
