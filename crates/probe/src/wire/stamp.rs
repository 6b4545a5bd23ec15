//! The unauthenticated base packets of RFC 8762 section 4.2.1 and 4.3.1, with the session
//! identifier of RFC 8972 section 3.

use super::{ErrorEstimate, NtpTimestamp, Tlvs, WireError, field};

/// Bytes of a base packet, equal in both directions.
pub const BASE_LEN: usize = 44;
/// Bytes of the shortest test packet of TWAMP Light senders: sequence, time, error.
pub const SHORT_LEN: usize = 14;

/// The base fields of a sender's test packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderPacket {
    /// Counts test packets of the session from 0.
    pub sequence: u32,
    /// When the sender sent the packet, by the sender's clock.
    pub timestamp: NtpTimestamp,
    pub error_estimate: ErrorEstimate,
    /// Distinguishes sessions between the same two addresses (RFC 8972 section 3).
    pub session: u16,
}

impl SenderPacket {
    /// Writes the base packet to the first [`BASE_LEN`] bytes of `out`.
    ///
    /// # Errors
    /// Returns [`WireError::BufferTooSmall`] if `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), WireError> {
        let len = out.len();
        let error = WireError::BufferTooSmall { len, needed: BASE_LEN };
        let base = out.get_mut(..BASE_LEN).ok_or(error)?;
        base.fill(0);
        base[0..4].copy_from_slice(&self.sequence.to_be_bytes());
        base[4..12].copy_from_slice(&self.timestamp.to_bytes());
        base[12..14].copy_from_slice(&self.error_estimate.0.to_be_bytes());
        base[14..16].copy_from_slice(&self.session.to_be_bytes());
        Ok(())
    }

    /// Decodes a test packet. Returns it and its extensions, which are not parsed yet.
    ///
    /// # Errors
    /// Returns [`WireError::TooShort`] below [`SHORT_LEN`] bytes; a packet shorter than
    /// [`BASE_LEN`] is filled up with zeros.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Tlvs<'_>), WireError> {
        if bytes.len() < SHORT_LEN {
            return Err(WireError::TooShort { len: bytes.len(), needed: SHORT_LEN });
        }
        let packet = Self {
            sequence: u32::from_be_bytes(field(bytes, 0)),
            timestamp: NtpTimestamp::from_bytes(field(bytes, 4)),
            error_estimate: ErrorEstimate(u16::from_be_bytes(field(bytes, 12))),
            session: u16::from_be_bytes(field(bytes, 14)),
        };
        Ok((packet, Tlvs::new(bytes.get(BASE_LEN..).unwrap_or_default())))
    }
}

/// The base fields of a reflector's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The reflector's count, or a copy of `sender.sequence` if the reflector is stateless.
    pub sequence: u32,
    /// When the reflector sent the answer, by the reflector's clock.
    pub timestamp: NtpTimestamp,
    pub error_estimate: ErrorEstimate,
    /// When the test packet reached the reflector; [`NtpTimestamp::UNKNOWN`] in a short answer.
    pub received: NtpTimestamp,
    /// The base fields of the test packet; its session is also the answer's.
    pub sender: SenderPacket,
    /// Time to live (or hop limit) of the test packet on arrival.
    pub sender_ttl: u8,
}

impl ReflectorPacket {
    /// Writes the base packet to the first [`BASE_LEN`] bytes of `out`.
    ///
    /// # Errors
    /// Returns [`WireError::BufferTooSmall`] if `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), WireError> {
        let Self { sequence, timestamp, error_estimate, sender, .. } = *self;
        let session = sender.session;
        SenderPacket { sequence, timestamp, error_estimate, session }.encode(out)?;
        out[16..24].copy_from_slice(&self.received.to_bytes());
        out[24..28].copy_from_slice(&self.sender.sequence.to_be_bytes());
        out[28..36].copy_from_slice(&self.sender.timestamp.to_bytes());
        out[36..38].copy_from_slice(&self.sender.error_estimate.0.to_be_bytes());
        out[40] = self.sender_ttl;
        Ok(())
    }

    /// Decodes an answer. Returns it and its extensions, which are not parsed yet.
    ///
    /// # Errors
    /// Returns [`WireError::TooShort`] below [`SHORT_LEN`] bytes. Fields that a short answer lacks
    /// read as zero, except that `sender.sequence` then is `sequence`, as of a stateless reflector.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Tlvs<'_>), WireError> {
        let (base, extensions) = SenderPacket::decode(bytes)?;
        let sender_sequence = u32::from_be_bytes(field(bytes, 24));
        let sender = SenderPacket {
            sequence: if bytes.len() < 28 { base.sequence } else { sender_sequence },
            timestamp: NtpTimestamp::from_bytes(field(bytes, 28)),
            error_estimate: ErrorEstimate(u16::from_be_bytes(field(bytes, 36))),
            session: base.session,
        };
        let packet = Self {
            sequence: base.sequence,
            timestamp: base.timestamp,
            error_estimate: base.error_estimate,
            received: NtpTimestamp::from_bytes(field(bytes, 16)),
            sender,
            sender_ttl: u8::from_be_bytes(field(bytes, 40)),
        };
        Ok((packet, extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Section 4.2.1's figure, built by hand: sequence 5, 2026-11-20 00:00:00.5 UTC, S = 1 with
    /// scale 1 and multiplier 2, session 7.
    const SENDER_BYTES: [u8; BASE_LEN] = [
        0, 0, 0, 5, 0xee, 0xaa, 0x0c, 0x00, 0x80, 0, 0, 0, 0x81, 0x02, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn sender() -> SenderPacket {
        SenderPacket {
            sequence: 5,
            timestamp: NtpTimestamp::from_unix_nanos(1_795_132_800_500_000_000),
            error_estimate: ErrorEstimate(0x8102),
            session: 7,
        }
    }

    #[test]
    fn a_sender_packet_has_the_bytes_of_the_rfc() {
        let mut out = [0xff; BASE_LEN];
        sender().encode(&mut out).unwrap();
        assert_eq!(out, SENDER_BYTES);
        assert_eq!(SenderPacket::decode(&out).unwrap().0, sender());
    }

    #[test]
    fn a_reflector_packet_has_the_bytes_of_the_rfc() {
        let packet = ReflectorPacket {
            sequence: 0x0102_0304,
            timestamp: NtpTimestamp(0x1111_1111_2222_2222),
            error_estimate: ErrorEstimate(0x0001),
            received: NtpTimestamp(0x3333_3333_4444_4444),
            sender: sender(),
            sender_ttl: 63,
        };
        let mut out = [0xff; BASE_LEN];
        packet.encode(&mut out).unwrap();
        let expected: [u8; BASE_LEN] = [
            1, 2, 3, 4, 0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22, 0, 1, 0, 7, 0x33, 0x33,
            0x33, 0x33, 0x44, 0x44, 0x44, 0x44, 0, 0, 0, 5, 0xee, 0xaa, 0x0c, 0x00, 0x80, 0, 0, 0,
            0x81, 0x02, 0, 0, 63, 0, 0, 0,
        ];
        assert_eq!(out, expected);
        assert_eq!(ReflectorPacket::decode(&out).unwrap().0, packet);
    }

    #[test]
    fn short_packets_are_zero_filled_and_shorter_ones_refused() {
        let (packet, _) = SenderPacket::decode(&SENDER_BYTES[..SHORT_LEN]).unwrap();
        assert_eq!(packet, SenderPacket { session: 0, ..sender() });
        let error = SenderPacket::decode(&SENDER_BYTES[..13]).unwrap_err();
        assert_eq!(error, WireError::TooShort { len: 13, needed: 14 });
        let (answer, _) = ReflectorPacket::decode(&SENDER_BYTES[..SHORT_LEN]).unwrap();
        assert_eq!((answer.sender.sequence, answer.received), (5, NtpTimestamp::UNKNOWN));
        let error = sender().encode(&mut [0; 43]).unwrap_err();
        assert_eq!(error, WireError::BufferTooSmall { len: 43, needed: 44 });
    }

    proptest! {
        #[test]
        fn reflector_packets_decode_as_encoded(
            numbers in any::<(u32, u64, u16, u64, u32, u64)>(),
            rest in any::<(u16, u16, u8)>(),
        ) {
            let packet = ReflectorPacket {
                sequence: numbers.0,
                timestamp: NtpTimestamp(numbers.1),
                error_estimate: ErrorEstimate(numbers.2),
                received: NtpTimestamp(numbers.3),
                sender: SenderPacket {
                    sequence: numbers.4,
                    timestamp: NtpTimestamp(numbers.5),
                    error_estimate: ErrorEstimate(rest.0),
                    session: rest.1,
                },
                sender_ttl: rest.2,
            };
            let mut out = [0; BASE_LEN];
            packet.encode(&mut out).unwrap();
            prop_assert_eq!(ReflectorPacket::decode(&out).unwrap().0, packet);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let decoded = SenderPacket::decode(&bytes);
            prop_assert_eq!(decoded.is_ok(), bytes.len() >= SHORT_LEN);
            prop_assert_eq!(ReflectorPacket::decode(&bytes).is_ok(), bytes.len() >= SHORT_LEN);
        }
    }
}
