//! The header that a TUN device with offload puts before each packet: `struct virtio_net_hdr`
//! (VIRTIO 1.2 section 5.1.6).

/// What the kernel left for us to do, or what we leave for the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CHECKSUM`] or nothing of interest.
    pub flags: u8,
    /// [`VnetHeader::GSO_NONE`], `GSO_TCP4` or `GSO_TCP6`, perhaps with `GSO_ECN`.
    pub gso_type: u8,
    /// Bytes of all headers, as a hint.
    pub header_len: u16,
    /// Payload bytes of each segment of a super-packet.
    pub gso_size: u16,
    /// Where the checksum to be finished starts to count.
    pub checksum_start: u16,
    /// Where it is stored, from `checksum_start`.
    pub checksum_offset: u16,
}

impl VnetHeader {
    /// Length on the device.
    pub const LEN: usize = 10;
    /// The transport checksum holds the pseudo-header sum only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// One packet.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4 to be cut.
    pub const GSO_TCP4: u8 = 1;
    /// TCP over IPv6 to be cut.
    pub const GSO_TCP6: u8 = 4;
    /// The first segment carries CWR, the others must not (RFC 3168 section 6.1.2).
    pub const GSO_ECN: u8 = 0x80;

    /// From the first bytes of a frame.
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

    /// As the first bytes of a frame.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether it announces a super-packet of TCP segments, the only kind we let the kernel make.
    pub fn is_tcp_super_packet(self) -> bool {
        matches!(self.gso_type & !Self::GSO_ECN, Self::GSO_TCP4 | Self::GSO_TCP6)
    }
}
