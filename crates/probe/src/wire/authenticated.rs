//! STAMP's authenticated mode: packets with a keyed digest (RFC 8762 sections 4.2.2, 4.3.2, 4.4),
//! and extensions with a separate digest (RFC 8972 section 4.8).
//!
//! A packet with a wrong digest is not answered. Extensions other than padding whose digest is
//! wrong or missing come back with the I flag, and their requests are ignored.

use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::reflect::{Arrival, Reply, answer_tlvs, set_flags};
use super::stamp::SenderPacket;
use super::tlv::{HEADER_LEN, TlvFlags, Tlvs, tlv_type};
use super::{ErrorEstimate, MarkingPolicy, NtpTimestamp, WireError, field};

/// Bytes of an authenticated base packet, equal in both directions.
pub const KEYED_LEN: usize = 112;
/// Offset of the base packet's digest, which covers all bytes before it.
const DIGEST_AT: usize = 96;
const DIGEST_LEN: usize = 16;
/// A sender's packet is zero from here to the digest (RFC 8972 section 3); a reflector's is not.
const ZERO_FROM: usize = 28;

/// A key that both ends share. The digest is HMAC-SHA-256, truncated to 128 bits.
#[derive(Clone)]
pub struct StampKey(hmac::Key);

impl std::fmt::Debug for StampKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StampKey")
    }
}

impl StampKey {
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn digest(&self, parts: [&[u8]; 2]) -> [u8; DIGEST_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        field(context.sign().as_ref(), 0)
    }

    /// Compares the digests in constant time.
    fn signs(&self, parts: [&[u8]; 2], digest: &[u8]) -> bool {
        self.digest(parts).as_slice().ct_eq(digest).into()
    }

    /// Returns true for the packet of a sender with this key. A reflector's packet is not a
    /// request: two reflectors would otherwise answer each other forever.
    pub fn is_request(&self, packet: &[u8]) -> bool {
        packet.len() >= KEYED_LEN
            && packet[ZERO_FROM..DIGEST_AT].iter().all(|byte| *byte == 0)
            && self.signs([&packet[..DIGEST_AT], &[]], &packet[DIGEST_AT..KEYED_LEN])
    }

    /// Returns true if the digest at `place` of `extensions` matches the TLVs before it.
    fn seals(&self, request: &[u8], extensions: &[u8], place: usize) -> bool {
        let parts = [&request[..4], &extensions[..place - HEADER_LEN]];
        self.signs(parts, &extensions[place..place + DIGEST_LEN])
    }

    /// Writes the time of sending, and then the digest, into an answer of [`reflect_keyed`].
    pub fn seal(&self, answer: &mut [u8], now: NtpTimestamp) {
        if answer.len() < KEYED_LEN {
            return;
        }
        answer[16..24].copy_from_slice(&now.to_bytes());
        let digest = self.digest([&answer[..DIGEST_AT], &[]]);
        answer[DIGEST_AT..KEYED_LEN].copy_from_slice(&digest);
    }
}

/// Answers a packet for which [`StampKey::is_request`] was true, as [`super::reflect`] answers
/// packets without a key. The caller then calls [`StampKey::seal`].
pub fn reflect_keyed(
    request: &[u8],
    arrival: Arrival,
    key: &StampKey,
    policy: MarkingPolicy,
    out: &mut [u8],
) -> Result<Reply, WireError> {
    let len = request.len();
    let Some(extensions) = request.get(KEYED_LEN..) else {
        return Err(WireError::TooShort { len, needed: KEYED_LEN });
    };
    if out.len() < len {
        return Err(WireError::BufferTooSmall { len: out.len(), needed: len });
    }
    encode_base(&sender_of(request), arrival, out);
    let answer = &mut out[KEYED_LEN..len];
    answer.copy_from_slice(extensions);
    let mut traffic_class = arrival.traffic_class & !3;
    match digest_place(extensions) {
        Extensions::Unsealed => {
            let _ = answer_tlvs(Tlvs::new(extensions), arrival, policy, answer);
        }
        Extensions::Sealed(place) if key.seals(request, extensions, place) => {
            let asked = answer_tlvs(Tlvs::new(extensions), arrival, policy, answer);
            traffic_class = asked.unwrap_or(traffic_class);
            let header = place - HEADER_LEN;
            answer[header] = TlvFlags::default().0;
            let digest = key.digest([&request[..4], &answer[..header]]);
            answer[place..place + DIGEST_LEN].copy_from_slice(&digest);
        }
        Extensions::Sealed(_) | Extensions::Wrong => {
            set_flags(Tlvs::new(extensions), answer, |_, _| TlvFlags::INTEGRITY_FAILED);
        }
    }
    Ok(Reply { len, traffic_class })
}

fn sender_of(request: &[u8]) -> SenderPacket {
    SenderPacket {
        sequence: u32::from_be_bytes(field(request, 0)),
        timestamp: NtpTimestamp::from_bytes(field(request, 16)),
        error_estimate: ErrorEstimate(u16::from_be_bytes(field(request, 24))),
        session: u16::from_be_bytes(field(request, 26)),
    }
}

/// Writes all fields except the time of sending and the digest. `out` has [`KEYED_LEN`] bytes.
fn encode_base(sender: &SenderPacket, arrival: Arrival, out: &mut [u8]) {
    let base = &mut out[..KEYED_LEN];
    base.fill(0);
    base[0..4].copy_from_slice(&sender.sequence.to_be_bytes());
    base[24..26].copy_from_slice(&ErrorEstimate::UNSYNCHRONIZED.0.to_be_bytes());
    base[26..28].copy_from_slice(&sender.session.to_be_bytes());
    base[32..40].copy_from_slice(&arrival.received.to_bytes());
    base[48..52].copy_from_slice(&sender.sequence.to_be_bytes());
    base[64..72].copy_from_slice(&sender.timestamp.to_bytes());
    base[72..74].copy_from_slice(&sender.error_estimate.0.to_be_bytes());
    base[80] = arrival.ttl;
}

/// The digest of an authenticated packet's extensions.
#[derive(Debug, PartialEq, Eq)]
enum Extensions {
    /// The rest is at most padding, which needs no digest.
    Unsealed,
    /// Offset of the digest within the extensions.
    Sealed(usize),
    /// The digest is missing, is followed by other TLVs than padding, or cannot be parsed.
    Wrong,
}

fn digest_place(extensions: &[u8]) -> Extensions {
    let (mut place, mut needs_one) = (None, false);
    for tlv in Tlvs::new(extensions) {
        let Ok(tlv) = tlv else { return Extensions::Wrong };
        match tlv.tlv_type {
            tlv_type::EXTRA_PADDING => {}
            tlv_type::HMAC if place.is_none() && tlv.value.len() == DIGEST_LEN => {
                place = Some(tlv.offset + HEADER_LEN);
            }
            tlv_type::HMAC => return Extensions::Wrong,
            _ if place.is_some() => return Extensions::Wrong,
            _ => needs_one = true,
        }
    }
    match (place, needs_one) {
        (Some(place), _) => Extensions::Sealed(place),
        (None, false) => Extensions::Unsealed,
        (None, true) => Extensions::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClassOfService, write_tlv};
    use super::*;
    use proptest::prelude::*;

    const ARRIVAL: Arrival = Arrival { received: NtpTimestamp(77), traffic_class: 0xb5, ttl: 61 };

    fn key() -> StampKey {
        StampKey::new(b"Jefe")
    }

    /// A sender's packet, built by hand from figure 4 of RFC 8762 and figure 2 of RFC 8972.
    fn request(extensions: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; KEYED_LEN];
        packet[..4].copy_from_slice(&[0, 0, 0, 9]);
        packet[16..24].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        packet[24..28].copy_from_slice(&[0x81, 2, 0, 7]);
        let digest = key().digest([&packet[..96], &[]]);
        packet[96..].copy_from_slice(&digest);
        packet.extend_from_slice(extensions);
        packet
    }

    /// A Class of Service request, the digest that covers it, and padding after it.
    fn sealed_extensions() -> [u8; 34] {
        let mut extensions = [0; 34];
        let class = ClassOfService::request(45, 1).encode();
        write_tlv(&mut extensions, TlvFlags::UNRECOGNIZED, 4, &class).unwrap();
        let digest = key().digest([&[0, 0, 0, 9], &extensions[..8]]);
        write_tlv(&mut extensions[8..], TlvFlags::UNRECOGNIZED, 8, &digest).unwrap();
        write_tlv(&mut extensions[28..], TlvFlags::UNRECOGNIZED, 1, &[0; 2]).unwrap();
        extensions
    }

    fn answered(request: &[u8]) -> (Reply, Vec<u8>) {
        let mut out = vec![0xee; request.len()];
        let policy = MarkingPolicy::PUBLIC;
        let reply = reflect_keyed(request, ARRIVAL, &key(), policy, &mut out).unwrap();
        key().seal(&mut out, NtpTimestamp(99));
        (reply, out)
    }

    #[test]
    fn the_digest_is_hmac_sha_256_cut_to_128_bits() {
        // RFC 4231 section 4.3, which has this key.
        let digest = key().digest([b"what do ya want ", b"for nothing?"]);
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
            0x75, 0xc7,
        ];
        assert_eq!(digest, expected);
    }

    #[test]
    fn an_answer_has_the_bytes_of_the_rfc_and_is_no_request() {
        let request = request(&[]);
        assert!(key().is_request(&request));
        assert!(!StampKey::new(b"other").is_request(&request));
        let (reply, answer) = answered(&request);
        assert_eq!(reply, Reply { len: 112, traffic_class: 0xb4 });
        let mut expected = [0; 96];
        expected[3] = 9;
        expected[23] = 99;
        expected[24..28].copy_from_slice(&[0x3f, 0xff, 0, 7]);
        expected[39] = 77;
        expected[51] = 9;
        expected[64..74].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0x81, 2]);
        expected[80] = 61;
        assert_eq!(answer[..96], expected);
        assert_eq!(answer[96..], key().digest([&expected, &[]]), "sealed as sent");
        assert!(!key().is_request(&answer), "no reflector answers it");
    }

    #[test]
    fn a_packet_with_any_flipped_bit_is_rejected() {
        let request = request(&[]);
        for bit in 0..KEYED_LEN * 8 {
            let mut changed = request.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!key().is_request(&changed), "bit {bit}");
        }
        assert!(!key().is_request(&request[..111]) && !key().is_request(&[]));
    }

    #[test]
    fn extensions_are_obeyed_with_their_digest_and_flagged_without() {
        let extensions = sealed_extensions();
        let (reply, answer) = answered(&request(&extensions));
        assert_eq!(reply.traffic_class, 0xb5, "as asked for");
        assert_eq!(answer[112..120], [0, 4, 0, 4, 0xb6, 0xd4, 0x70, 0]);
        assert_eq!(answer[120..124], [0, 8, 0, 16]);
        assert_eq!(answer[124..140], key().digest([&answer[..4], &answer[112..120]]));
        assert_eq!(answer[140], 0, "padding is known");
        let mut forged = extensions;
        forged[5] ^= 1;
        // Without the digest, with a wrong one, with another TLV behind it.
        let behind = [&extensions[..], &[0x80, 200, 0, 0]].concat();
        for wrong in [&extensions[..8], &forged, &behind] {
            let (reply, answer) = answered(&request(wrong));
            assert_eq!((reply.traffic_class, answer[112]), (0xb4, 0x20), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_extensions_come_back_as_long_as_they_came(
            extensions in prop::collection::vec(0u8..12, 0..120),
        ) {
            let (reply, _) = answered(&request(&extensions));
            prop_assert_eq!(reply.len, KEYED_LEN + extensions.len());
        }
    }
}
