//! The reflector as a function from the bytes of a request to the bytes of the answer.

use super::class_of_service::{ClassOfService, MarkingPolicy};
use super::stamp::{BASE_LEN, ReflectorPacket, SenderPacket};
use super::tlv::{Tlv, TlvFlags, Tlvs, tlv_type};
use super::{ErrorEstimate, NtpTimestamp, WireError};

/// The properties of a request that the reflector's socket reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the request arrived, by the wall clock.
    pub received: NtpTimestamp,
    /// DSCP and ECN of the request, as the IP header's byte.
    pub traffic_class: u8,
    /// Time to live or hop limit of the request.
    pub ttl: u8,
}

/// The length of an answer, and its marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Bytes of the answer, never more than the request had.
    pub len: usize,
    /// DSCP and ECN of the answer: those that a Class of Service TLV requested, else the request's
    /// DSCP and Not-ECT (RFC 8762 section 4.3, RFC 8972 section 4.4).
    pub traffic_class: u8,
}

/// Writes the answer to `request` into `out`.
///
/// The reflector is stateless: it copies the sender's sequence number (RFC 8762 section 4.3.1). The
/// answer's transmit time stamp is zero until [`Reply::stamp`] sets it.
///
/// # Errors
/// Returns [`WireError::TooShort`] if `request` is shorter than a test packet,
/// [`WireError::BufferTooSmall`] if `out` is shorter than `request` or than a base packet. A
/// malformed TLV is answered with its M flag set (RFC 8972 section 4) and is not an error.
pub fn reflect(
    request: &[u8],
    arrival: Arrival,
    policy: MarkingPolicy,
    out: &mut [u8],
) -> Result<Reply, WireError> {
    let (sender, tlvs) = SenderPacket::decode(request)?;
    let needed = request.len().max(BASE_LEN);
    if out.len() < needed {
        return Err(WireError::BufferTooSmall { len: out.len(), needed });
    }
    let packet = ReflectorPacket {
        sequence: sender.sequence,
        timestamp: NtpTimestamp::UNKNOWN,
        error_estimate: ErrorEstimate::UNSYNCHRONIZED,
        received: arrival.received,
        sender,
        sender_ttl: arrival.ttl,
    };
    packet.encode(out)?;
    let mut traffic_class = arrival.traffic_class & !3;
    if let Some(extensions) = request.get(BASE_LEN..) {
        let answer = &mut out[BASE_LEN..request.len()];
        answer.copy_from_slice(extensions);
        traffic_class = answer_tlvs(tlvs, arrival, policy, answer).unwrap_or(traffic_class);
    }
    Ok(Reply { len: request.len(), traffic_class })
}

impl Reply {
    /// Writes the time of sending into the answer in `out`.
    pub fn stamp(self, out: &mut [u8], now: NtpTimestamp) {
        if let Some(field) = out.get_mut(4..12) {
            field.copy_from_slice(&now.to_bytes());
        }
    }
}

/// Sets each TLV's flags, and the values of known types, in the copy that goes back. Returns the
/// traffic class that a Class of Service TLV requested.
fn answer_tlvs(
    tlvs: Tlvs<'_>,
    arrival: Arrival,
    policy: MarkingPolicy,
    answer: &mut [u8],
) -> Option<u8> {
    let mut traffic_class = None;
    for tlv in tlvs {
        let (offset, flags) = match tlv {
            Ok(tlv) => (tlv.offset, answer_tlv(&tlv, arrival, policy, answer, &mut traffic_class)),
            Err(WireError::TlvOverrun { offset }) => (offset, TlvFlags::MALFORMED),
            Err(_) => break,
        };
        if let Some(byte) = answer.get_mut(offset) {
            *byte = flags.0;
        }
    }
    traffic_class
}

fn answer_tlv(
    tlv: &Tlv<'_>,
    arrival: Arrival,
    policy: MarkingPolicy,
    answer: &mut [u8],
    traffic_class: &mut Option<u8>,
) -> TlvFlags {
    match tlv.tlv_type {
        tlv_type::EXTRA_PADDING => TlvFlags::default(),
        tlv_type::CLASS_OF_SERVICE => {
            let Ok(request) = ClassOfService::decode(tlv.value) else {
                return TlvFlags::MALFORMED;
            };
            let (value, reply_class) = request.answered(arrival.traffic_class, policy);
            // The first TLV decides; another one could contradict it.
            traffic_class.get_or_insert(reply_class);
            let start = tlv.offset + 4;
            if let Some(target) = answer.get_mut(start..start + ClassOfService::LEN) {
                target.copy_from_slice(&value.encode());
            }
            TlvFlags::default()
        }
        _ => TlvFlags::UNRECOGNIZED,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EcnReply, write_tlv};
    use super::*;
    use proptest::prelude::*;

    const ARRIVAL: Arrival = Arrival { received: NtpTimestamp(77), traffic_class: 0xb5, ttl: 61 };

    fn request_with(tlv_type: u8, value: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; BASE_LEN + 4 + value.len()];
        let sender = SenderPacket { sequence: 9, session: 7, ..SenderPacket::default() };
        sender.encode(&mut packet).unwrap();
        write_tlv(&mut packet[BASE_LEN..], TlvFlags::UNRECOGNIZED, tlv_type, value).unwrap();
        packet
    }

    #[test]
    fn a_class_of_service_request_is_answered_with_what_arrived() {
        let request = request_with(4, &ClassOfService::request(45, 1).encode());
        assert_eq!(request[BASE_LEN..], [0x80, 4, 0, 4, 0xb4, 0, 0x40, 0]);
        let mut out = [0; 100];
        let reply = reflect(&request, ARRIVAL, MarkingPolicy::PUBLIC, &mut out).unwrap();
        assert_eq!(reply, Reply { len: 52, traffic_class: 0xb5 });
        assert_eq!(out[BASE_LEN..52], [0, 4, 0, 4, 0xb6, 0xd4, 0x70, 0]);
        reply.stamp(&mut out, NtpTimestamp(99));
        let (packet, tlvs) = ReflectorPacket::decode(&out[..reply.len]).unwrap();
        assert_eq!((packet.sequence, packet.sender.sequence, packet.sender_ttl), (9, 9, 61));
        assert_eq!((packet.received.0, packet.timestamp.0), (77, 99));
        let seen = ClassOfService::decode(tlvs.find(4).unwrap().value).unwrap();
        assert_eq!((seen.dscp_received, seen.ecn_received, seen.ecn_reply), (45, 1, EcnReply::Set));
    }

    #[test]
    fn unknown_and_malformed_tlvs_come_back_flagged() {
        let mut out = [0; 100];
        let unknown = request_with(200, &[1, 2, 3]);
        reflect(&unknown, ARRIVAL, MarkingPolicy::PUBLIC, &mut out).unwrap();
        assert_eq!(out[BASE_LEN..51], [0x80, 200, 0, 3, 1, 2, 3]);
        let mut overrun = request_with(4, &[0; 4]);
        overrun[BASE_LEN + 3] = 99;
        let reply = reflect(&overrun, ARRIVAL, MarkingPolicy::PUBLIC, &mut out).unwrap();
        assert_eq!((out[BASE_LEN], reply.len), (0x40, 52));
        assert_eq!(reply.traffic_class, 0xb4, "DSCP of the request, Not-ECT");
    }

    #[test]
    fn a_short_request_draws_an_answer_as_short() {
        let mut out = [0xee; 100];
        let reply = reflect(&[1; 20], ARRIVAL, MarkingPolicy::PUBLIC, &mut out).unwrap();
        assert_eq!(reply.len, 20);
        assert_eq!(out[..4], [1; 4]);
    }

    proptest! {
        #[test]
        fn an_answer_is_as_long_as_its_request(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut out = [0; 300];
            match reflect(&bytes, ARRIVAL, MarkingPolicy::PUBLIC, &mut out) {
                Ok(reply) => prop_assert_eq!(reply.len, bytes.len()),
                Err(error) => {
                    prop_assert!(bytes.len() < 14);
                    let expected = WireError::TooShort { len: bytes.len(), needed: 14 };
                    prop_assert_eq!(error, expected);
                }
            }
        }
    }
}
