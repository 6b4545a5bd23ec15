//! The header that a TUN device with offload puts before each packet: `struct virtio_net_hdr`
//! (VIRTIO 1.2 section 5.1.6).

/// The offloads of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CHECKSUM`], or other flags that are ignored.
    pub flags: u8,
    /// [`VnetHeader::GSO_NONE`], `GSO_TCP4` or `GSO_TCP6`, the latter optionally with `GSO_ECN`.
    pub gso_type: u8,
    /// Length of all headers, as a hint.
    pub header_len: u16,
    /// Payload bytes of each segment of a super-packet.
    pub gso_size: u16,
    /// Start of the bytes that the checksum covers.
    pub checksum_start: u16,
    /// Position of the checksum, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Length on the device.
    pub const LEN: usize = 10;
    /// The transport checksum is the sum of the pseudo-header only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    pub const GSO_NONE: u8 = 0;
    /// A TCP super-packet over IPv4.
    pub const GSO_TCP4: u8 = 1;
    /// A TCP super-packet over IPv6.
    pub const GSO_TCP6: u8 = 4;
    /// Only the first segment has CWR (RFC 3168 section 6.1.2).
    pub const GSO_ECN: u8 = 0x80;

    /// Parses the first bytes of a frame.
    pub fn read(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// Returns the first bytes of a frame.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether the frame is a TCP super-packet, the only kind that the kernel is allowed to
    /// deliver.
    pub fn is_tcp_super_packet(self) -> bool {
        matches!(self.gso_type & !Self::GSO_ECN, Self::GSO_TCP4 | Self::GSO_TCP6)
    }
}
