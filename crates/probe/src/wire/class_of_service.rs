//! The Class of Service TLV: the marking that the answer should carry, and the one that arrived.
//!
//! RFC 8972 section 4.4 (with verified erratum 8199) defines DSCP1, DSCP2, ECN and RP;
//! draft-ietf-ippm-stamp-cos-ecn uses the reserved bits compatibly, so that a sender can also
//! request the ECN field of the answer. The value is
//! `DSCP1(6) DSCP2(6) EC2(2) RPD(2) EC1(2) RPE(2) reserved(12)`.

use super::WireError;
use super::tlv::tlv_type;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassOfService {
    /// DSCP1: the DSCP that the answer should carry.
    pub dscp_requested: u8,
    /// EC1: the ECN codepoint that the answer should carry.
    pub ecn_requested: u8,
    /// DSCP2: the DSCP of the test packet when it reached the reflector.
    pub dscp_received: u8,
    /// EC2: the ECN codepoint of the test packet when it reached the reflector.
    pub ecn_received: u8,
    /// RPD = 01: the reflector's policy refused DSCP1; the answer carries DSCP2 instead.
    pub dscp_refused: bool,
    pub ecn_reply: EcnReply,
}

/// How a reflector handled the requested ECN codepoint (RPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnReply {
    /// 00: the sender's initial value, or a reflector without ECN support (RFC 8972 alone).
    #[default]
    Unsupported,
    /// The unassigned value 01.
    Reserved,
    /// 10: the codepoint could not be set; the answer is Not-ECT.
    Refused,
    /// 11: the answer carries EC1.
    Set,
}

/// Markings that a reflector sends on request. A refused codepoint is reported in the TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkingPolicy {
    /// Bit `n` is set if DSCP `n` may be sent.
    pub dscp_allowed: u64,
    /// Whether an answer may carry CE, which claims that this host saw congestion.
    pub congestion_experienced_allowed: bool,
}

impl MarkingPolicy {
    /// Allows every marking: for a lab with its own network.
    pub const LAB: Self = Self { dscp_allowed: u64::MAX, congestion_experienced_allowed: true };
    /// Allows best effort (0), CS1 (8) and NQB (45), of which none gains priority on the Internet.
    pub const PUBLIC: Self =
        Self { dscp_allowed: 1 | 1 << 8 | 1 << 45, congestion_experienced_allowed: false };

    pub fn allows_dscp(self, dscp: u8) -> bool {
        self.dscp_allowed >> (dscp & 0x3f) & 1 == 1
    }
}

impl ClassOfService {
    pub const LEN: usize = 4;

    /// Returns a sender's request for an answer with this marking.
    pub fn request(dscp: u8, ecn: u8) -> Self {
        Self { dscp_requested: dscp & 0x3f, ecn_requested: ecn & 3, ..Self::default() }
    }

    /// Returns the reflector's TLV, and the traffic class (`DSCP << 2 | ECN`) of the answer.
    #[must_use]
    pub fn answered(self, received_traffic_class: u8, policy: MarkingPolicy) -> (Self, u8) {
        let dscp_received = received_traffic_class >> 2;
        let dscp_refused = !policy.allows_dscp(self.dscp_requested);
        let ecn_refused = self.ecn_requested == 3 && !policy.congestion_experienced_allowed;
        let answer = Self {
            dscp_received,
            ecn_received: received_traffic_class & 3,
            dscp_refused,
            ecn_reply: if ecn_refused { EcnReply::Refused } else { EcnReply::Set },
            ..self
        };
        let dscp = if dscp_refused { dscp_received } else { self.dscp_requested };
        let ecn = if ecn_refused { 0 } else { self.ecn_requested };
        (answer, dscp << 2 | ecn)
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let bits = u32::from(self.dscp_requested & 0x3f) << 26
            | u32::from(self.dscp_received & 0x3f) << 20
            | u32::from(self.ecn_received & 3) << 18
            | u32::from(self.dscp_refused) << 16
            | u32::from(self.ecn_requested & 3) << 14
            | (self.ecn_reply as u32) << 12;
        bits.to_be_bytes()
    }

    /// Decodes the value. Reserved bits, and RPD values other than 00 and 01, are ignored.
    ///
    /// # Errors
    /// Returns [`WireError::TlvLength`] unless `value` has four bytes.
    pub fn decode(value: &[u8]) -> Result<Self, WireError> {
        use EcnReply::{Refused, Reserved, Set, Unsupported};
        let bytes: [u8; Self::LEN] = value.try_into().map_err(|_| WireError::TlvLength {
            tlv_type: tlv_type::CLASS_OF_SERVICE,
            len: value.len(),
            needed: Self::LEN,
        })?;
        let bits = u32::from_be_bytes(bytes);
        Ok(Self {
            dscp_requested: (bits >> 26) as u8 & 0x3f,
            dscp_received: (bits >> 20) as u8 & 0x3f,
            ecn_received: (bits >> 18) as u8 & 3,
            dscp_refused: bits >> 16 & 3 == 1,
            ecn_requested: (bits >> 14) as u8 & 3,
            ecn_reply: [Unsupported, Reserved, Refused, Set][(bits >> 12 & 3) as usize],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dscp_45_with_ect_1_has_the_bytes_of_other_implementations() {
        let request = ClassOfService::request(45, 1);
        assert_eq!(request.encode(), [0xb4, 0x00, 0x40, 0x00]);
        let (answer, traffic_class) = request.answered(0xb5, MarkingPolicy::PUBLIC);
        assert_eq!(answer.encode(), [0xb6, 0xd4, 0x70, 0x00]);
        assert_eq!(traffic_class, 0xb5);
    }

    #[test]
    fn a_refused_marking_is_named_and_not_sent() {
        // EF was requested; the path bleached the request to DSCP 0 and marked it CE.
        let request = ClassOfService::request(46, 3);
        let (answer, traffic_class) = request.answered(0x03, MarkingPolicy::PUBLIC);
        assert!(answer.dscp_refused);
        assert_eq!(answer.ecn_reply, EcnReply::Refused);
        assert_eq!((answer.dscp_received, answer.ecn_received, traffic_class), (0, 3, 0));
        let (answer, traffic_class) = request.answered(0x03, MarkingPolicy::LAB);
        assert!(!answer.dscp_refused);
        assert_eq!(traffic_class, 46 << 2 | 3);
    }

    #[test]
    fn another_length_is_refused() {
        let error = ClassOfService::decode(&[0; 5]).unwrap_err();
        assert_eq!(error, WireError::TlvLength { tlv_type: 4, len: 5, needed: 4 });
    }

    proptest! {
        #[test]
        fn values_survive_the_round_trip(
            dscp in (0u8..64, 0u8..64), ecn in (0u8..4, 0u8..4),
            refused in any::<bool>(), reply in 0u8..4,
        ) {
            let value = ClassOfService {
                dscp_requested: dscp.0, dscp_received: dscp.1,
                ecn_requested: ecn.0, ecn_received: ecn.1,
                dscp_refused: refused,
                ecn_reply: [EcnReply::Unsupported, EcnReply::Reserved, EcnReply::Refused,
                    EcnReply::Set][usize::from(reply)],
            };
            prop_assert_eq!(ClassOfService::decode(&value.encode()), Ok(value));
        }
    }
}
