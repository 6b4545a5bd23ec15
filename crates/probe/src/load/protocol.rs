//! What is said before a flow's payload, and what is said about it.
//!
//! Every flow begins with a TCP connection to the load server, on which the client sends a
//! [`Request`] and gets a [`Response`]. Then, by kind of flow:
//!
//! - TCP up: the client sends payload; the server sends a [`Report`] every 100 ms.
//! - TCP down: the server sends blocks of [`BLOCK_BYTES`], each with a [`BlockHeader`] in front.
//! - UDP up: the client sends datagrams that begin with a [`DatagramHeader`] to the port that the
//!   response names; the server reports over TCP as above.
//! - UDP down: the client sends one such datagram from where it wants the payload; only after its
//!   cookie has come from the TCP peer's address does the server send, and reports what it sent.
//!
//! All numbers are big-endian. Payload is generated and hard to compress, never copied from a peer.

use subtle::ConstantTimeEq as _;
use underload_record::schema::Marking;

use super::congestion::is_name;
use super::tcp_info::TcpInfo;
use super::{LoadError, congestion};

/// A shared secret that a load server may ask for.
#[derive(Clone, Copy)]
pub struct Token(pub [u8; 16]);

/// Takes the same time wherever two tokens differ: its duration says nothing of how much was right.
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
pub enum FlowKind {
    /// Payload to the server over TCP.
    TcpUp,
    /// Payload from the server over TCP.
    TcpDown,
    /// Datagrams to the server.
    UdpUp,
    /// Datagrams from the server.
    UdpDown,
}

/// A client's request for one load flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Transport and direction of the flow.
    pub kind: FlowKind,
    /// Marking of the packets that the server sends.
    pub marking: Marking,
    /// Rate of IP packets, bit/s; 0 for TCP.
    pub rate_bit_per_s: u64,
    /// IP packet, bytes; 0 for TCP.
    pub packet_bytes: u16,
    /// Packets that leave back to back; 0 for TCP, and 0 or 1 for even spacing.
    pub burst_packets: u16,
    /// The longest that the flow will last, ms; the server ends it then.
    pub duration_max_ms: u32,
    /// For TCP; empty for UDP.
    pub congestion_control: String,
    /// Zeros where the server asks for none.
    pub token: Token,
}

/// What a flow's connection begins with, in both directions.
pub const MAGIC: [u8; 4] = *b"ULD1";

impl Request {
    /// Bytes on the wire.
    pub const LEN: usize = 64;

    /// Encodes the request for the wire.
    ///
    /// # Errors
    /// [`LoadError::Parameter`] if the congestion control's name cannot be one.
    pub fn encode(&self) -> Result<[u8; Self::LEN], LoadError> {
        let over_tcp = matches!(self.kind, FlowKind::TcpUp | FlowKind::TcpDown);
        let name = self.congestion_control.as_bytes();
        if over_tcp && !is_name(&self.congestion_control) || name.len() > congestion::NAME_MAX {
            return Err(LoadError::Parameter {
                name: "congestion control",
                value: format!("{:?}", self.congestion_control),
                accepted: "1 to 15 letters, digits, '_' or '-'",
            });
        }
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            FlowKind::TcpUp => 1,
            FlowKind::TcpDown => 2,
            FlowKind::UdpUp => 3,
            FlowKind::UdpDown => 4,
        };
        bytes[5] = self.marking.to_byte();
        bytes[6..8].copy_from_slice(&self.packet_bytes.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rate_bit_per_s.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.duration_max_ms.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.burst_packets.to_be_bytes());
        bytes[24..24 + name.len()].copy_from_slice(name);
        bytes[40..56].copy_from_slice(&self.token.0);
        Ok(bytes)
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`LoadError::Protocol`] for anything that [`Request::encode`] cannot have made.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, LoadError> {
        let wrong = |what| LoadError::Protocol { what };
        if bytes[..4] != MAGIC {
            return Err(wrong("no load request"));
        }
        let kind = match bytes[4] {
            1 => FlowKind::TcpUp,
            2 => FlowKind::TcpDown,
            3 => FlowKind::UdpUp,
            4 => FlowKind::UdpDown,
            _ => return Err(wrong("unknown kind of flow")),
        };
        let name: Vec<u8> = bytes[24..40].iter().copied().take_while(|o| *o != 0).collect();
        let congestion_control =
            String::from_utf8(name).map_err(|_| wrong("congestion control is no name"))?;
        let over_tcp = matches!(kind, FlowKind::TcpUp | FlowKind::TcpDown);
        let is_too_long = congestion_control.len() > congestion::NAME_MAX;
        if is_too_long || over_tcp && !is_name(&congestion_control) {
            return Err(wrong("congestion control is no name"));
        }
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
    /// The flow may begin.
    Accepted {
        /// UDP port that the client sends its datagrams to; 0 for TCP.
        udp_port: u16,
        /// Number that every datagram of the flow begins with; 0 for TCP.
        cookie: u64,
    },
    /// The flow is refused.
    Refused {
        /// The reason, as text for the user of at most 255 bytes.
        reason: String,
    },
}

impl Response {
    /// Bytes before the reason.
    pub const HEAD_LEN: usize = 16;

    /// As it travels; a reason is cut at 255 bytes.
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

    /// Bytes of reason that follow this head.
    ///
    /// # Errors
    /// [`LoadError::Protocol`] if it is no head of a response.
    pub fn reason_len(head: &[u8; Self::HEAD_LEN]) -> Result<usize, LoadError> {
        match (head[..4] == MAGIC, head[4]) {
            (true, 0) => Ok(0),
            (true, 1) => Ok(usize::from(head[5])),
            _ => Err(LoadError::Protocol { what: "no load response" }),
        }
    }

    /// Reads a response from its head and its reason; control characters in the reason become '?'.
    ///
    /// # Errors
    /// [`LoadError::Protocol`] if it is no response.
    pub fn decode(head: &[u8; Self::HEAD_LEN], reason: &[u8]) -> Result<Self, LoadError> {
        Self::reason_len(head)?;
        if head[4] == 0 {
            let udp_port = u16::from_be_bytes(part(head, 6));
            return Ok(Self::Accepted { udp_port, cookie: u64::from_be_bytes(part(head, 8)) });
        }
        let text = String::from_utf8_lossy(reason);
        let printable = |c: char| if c.is_control() { '?' } else { c };
        Ok(Self::Refused { reason: text.chars().map(printable).collect() })
    }
}

/// Bytes and packets that the server has counted of a flow so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Since it accepted the flow, by its clock, ns.
    pub elapsed_ns: u64,
    /// Payload received (flows up) or sent (flows down), bytes.
    pub bytes: u64,
    /// Datagrams received or sent.
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

/// Bytes of a block of a TCP flow down, header included: 13 ms at 10 Mbit/s.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;

/// The sender's state, in front of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// Since it accepted the flow, by its clock, ns; when `info` was taken.
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

/// Header at the start of every datagram of a UDP load flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    pub cookie: u64,
    pub sequence: u64,
}

impl DatagramHeader {
    pub(crate) const LEN: usize = 16;

    /// A cookie with this much chance in it. The first two bytes say that it is one: probes begin
    /// with a sequence number, which would have to be above 1.4 thousand million.
    pub(crate) fn cookie(chance: u64) -> u64 {
        Self::COOKIE_MARK | (chance >> 16)
    }

    /// True if the datagram is a load flow's.
    pub(crate) fn is_of_a_flow(self) -> bool {
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

/// Reads any bytes as what a server says of a flow and what a datagram begins with, for the fuzz
/// target; each can be said again.
#[cfg(fuzzing)]
pub fn read_reports(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<{ Report::LEN }>() {
        assert_eq!(Report::decode(head).encode(), *head);
    }
    if let Some(head) = bytes.first_chunk::<{ BlockHeader::LEN }>() {
        let header = BlockHeader::decode(head);
        assert_eq!(BlockHeader::decode(&header.encode()), header);
    }
    if let Some(header) = DatagramHeader::decode(bytes) {
        assert!(bytes.starts_with(&header.encode()));
    }
}

/// `len` bytes of payload that no link on the way can compress: xorshift64* from a fixed seed.
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

fn part<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
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
        assert_eq!(read, Response::Refused { reason: "no ?[2J room".to_owned() });
        let accepted = Response::Accepted { udp_port: 99, cookie: 1 << 60 };
        let bytes = accepted.encode();
        assert_eq!(Response::decode(&bytes.try_into().unwrap(), &[]).unwrap(), accepted);
        assert!(Response::decode(&[0; 16], &[]).is_err());
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
