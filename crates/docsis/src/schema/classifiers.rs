//! Packet classifiers (22, 23) and upstream drop classifiers (60), which have the same settings
//! under other names in the `Main` form.
//!
//! Functions with the argument `drop` make the table of one kind: 0 classifier, 1 drop classifier.

use super::extension::INSIDE;
use super::{Field, Kind, MAX16, MAX32, Scope, U8, U16, hex, join, list, nested, u8, u16, u32};
use crate::code::{classifier, header};

const fn ipv4(drop: usize) -> [Field; 10] {
    fields! {
        header::IPV4_TOS, "IpTos", hex(3, 3),
            "lowest, highest and mask of the TOS byte (DSCP and ECN): b4b4fc is DSCP 45 (NQB), \
             010101 is ECT(1) or CE", main(["IpTos", "IPv4Tos"][drop]);
        2, "IpProtocol", u16(0, 257), "protocol number; 256 any, 257 TCP or UDP",
            main(["IpProto", "IPProtocol"][drop]);
        3, "IpSourceAddress", Kind::Ipv4, "source address",
            main(["IpSrcAddr", "IPv4SourceAddress"][drop]);
        4, "IpSourceMask", Kind::Ipv4, "mask of the source address",
            main(["IpSrcMask", "IPv4SourceMask"][drop]);
        5, "IpDestinationAddress", Kind::Ipv4, "destination address",
            main(["IpDstAddr", "IPv4DestinationAddress"][drop]);
        6, "IpDestinationMask", Kind::Ipv4, "mask of the destination",
            main(["IpDstMask", "IPv4DestinationMask"][drop]);
        7, "SourcePortStart", U16, "lowest source port",
            main(["SrcPortStart", "SourcePortStart"][drop]);
        8, "SourcePortEnd", U16, "highest source port", main(["SrcPortEnd", "SourcePortEnd"][drop]);
        9, "DestinationPortStart", U16, "lowest destination port",
            main(["DstPortStart", "DestinationPortStart"][drop]);
        10, "DestinationPortEnd", U16, "highest destination port",
            main(["DstPortEnd", "DestinationPortEnd"][drop]);
    }
}

const fn ipv6(drop: usize) -> [Field; 7] {
    fields! {
        header::IPV6_TRAFFIC_CLASS, "Ipv6TrafficClassRangeAndMask", hex(3, 3),
            "lowest, highest and mask of the traffic class",
            main(["PcIPv6TrafficClassRangeAndMask", "IPv6TrafficClassRangeandMask"][drop]);
        2, "Ipv6FlowLabel", hex(4, 4), "flow label",
            main(["PcIPv6FlowLabel", "IPv6FlowLabel"][drop]);
        3, "Ipv6NextHeaderType", u16(0, 257), "next header; 256 any, 257 TCP or UDP",
            main(["PcIPv6NextHeaderType", "IPv6NextHeaderType"][drop]);
        4, "Ipv6SourceAddress", Kind::Ipv6, "source address",
            main(["PcIPv6SourceAddress", "IPv6SourceAddress"][drop]);
        5, "Ipv6SourcePrefixLength", u8(0, 128), "prefix length of the source address",
            unit("bits"), main(["PcIPv6SourcePrefixLength", "IPv6SourcePrefixLength"][drop]);
        6, "Ipv6DestinationAddress", Kind::Ipv6, "destination",
            main(["PcIPv6DestAddress", "IPv6DestinationAddress"][drop]);
        7, "Ipv6DestinationPrefixLength", u8(0, 128), "prefix length of the destination",
            unit("bits"), main(["PcIPv6DestPrefixLength", "IPv6DestinationPrefixLength"][drop]);
    }
}

const fn llc(drop: usize) -> [Field; 3] {
    fields! {
        1, "DestinationMacAddress", Kind::MacMask, "destination address and mask",
            main(["DstMacAddress", "DestinationMACAddress"][drop]);
        2, "SourceMacAddress", Kind::Mac, "source address",
            main(["SrcMacAddress", "SourceMACAddress"][drop]);
        3, "EtherType", hex(3, 3), "kind of match, then the type",
            main(["EtherType", "EthertypeDSAPMacType"][drop]);
    }
}

const IPV4: [Scope; 2] = [&ipv4(0), &ipv4(1)];
const IPV6: [Scope; 2] = [&ipv6(0), &ipv6(1)];
const LLC: [Scope; 2] = [&llc(0), &llc(1)];

const IEEE_802_1Q: Scope = &fields! {
    1, "UserPriority", list(1, 2, 2), "lowest and highest priority code point";
    2, "VlanId", U16, "VLAN identifier in the upper 12 bits", main("VlanID"), main_range(0, 4096);
};

const ICMP: Scope = &fields! {
    1, "IcmpTypeStart", U8, "lowest ICMP type", main("ICMPv4ICMPv6TypeStart");
    2, "IcmpTypeEnd", U8, "highest ICMP type", main("ICMPv4ICMPv6TypeEnd");
};

const STAG_CTAG: Scope = &fields! {
    1, "STPID", hex(2, 2), "tag protocol identifier of the outer tag";
    2, "SVID", hex(2, 2), "VLAN identifier of the outer tag";
    3, "SPCP", hex(1, 1), "priority code point of the outer tag";
    4, "SDEI", hex(1, 1), "drop eligibility of the outer tag";
    5, "CTPID", hex(2, 2), "tag protocol identifier of the inner tag";
    6, "CVID", hex(2, 2), "VLAN identifier of the inner tag";
    7, "CPCP", hex(1, 1), "priority code point of the inner tag";
    8, "CCFI", hex(1, 1), "canonical format indicator of the inner tag";
    9, "STCI", hex(2, 2), "the whole control information of the outer tag";
    10, "CTCI", hex(2, 2), "the whole control information of the inner tag";
};

const IEEE_802_1AH: Scope = &fields! {
    1, "ITPID", hex(2, 2), "tag protocol identifier of the service tag";
    2, "ISID", hex(3, 3), "service identifier";
    3, "ITCI", hex(5, 5), "the whole control information of the service tag";
    4, "IPCP", hex(1, 1), "priority code point of the service tag";
    5, "IDEI", hex(1, 1), "drop eligibility of the service tag";
    6, "IUCA", hex(1, 1), "use of customer addresses";
    7, "BTPID", hex(2, 2), "tag protocol identifier of the backbone tag";
    8, "BTCI", hex(2, 2), "the whole control information of the backbone tag";
    9, "BPCP", hex(1, 1), "priority code point of the backbone tag";
    10, "BDEI", hex(1, 1), "drop eligibility of the backbone tag";
    11, "BVID", hex(2, 2), "VLAN identifier of the backbone tag";
    12, "BDA", Kind::Mac, "backbone destination address";
    13, "BSA", Kind::Mac, "backbone source address";
};

const MPLS: Scope = &fields! {
    1, "MPLSTCbits", hex(1, 1), "traffic class bits of the label";
    2, "MPLSLabel", hex(3, 3), "label";
};

/// The settings that classifiers of both kinds have.
const fn common(drop: usize) -> [Field; 14] {
    fields! {
        classifier::REFERENCE, "ClassifierReference", u8(1, 255),
            "number by which this file refers to the classifier",
            main(["ClassifierRef", "ClassifierReference"][drop]);
        2, "ClassifierIdentifier", u16(1, MAX16), "assigned by the CMTS; not for a file",
            main(["ClassifierId", "ClassifierIdentifier"][drop]);
        classifier::PRIORITY, "RulePriority", U8, "order of evaluation, highest first";
        7, "DynamicServiceChangeAction", u8(0, 2), "for dynamic changes; not for a file",
            main(["DscAction", "DynamicServiceChangeAction"][drop]);
        classifier::IPV4, "Ipv4PacketClassification", nested(IPV4[drop]),
            "match on IPv4, TCP and UDP",
            main(["IpPacketClassifier", "IPv4PacketClassification"][drop]);
        10, "EthernetLlcPacketClassification", nested(LLC[drop]), "match on Ethernet",
            main(["LLCPacketClassifier", "EthernetLLCPacketClassification"][drop]);
        11, "Ieee8021PqPacketClassification", nested(IEEE_802_1Q), "match on VLAN tags",
            main(["IEEE802Classifier", "IEEE8021PQPacketClassification"][drop]);
        classifier::IPV6, "Ipv6PacketClassification", nested(IPV6[drop]), "match on IPv6",
            main(["PcIPv6PacketClassification", "IPv6PacketClassification"][drop]);
        13, "CmInterfaceMask", hex(0, 255), "modem interfaces that the classifier applies to",
            main(["PcCMIMEncoding", "CMInterfaceMaskEncoding"][drop]);
        14, "STagCTagFrameClassification", nested(STAG_CTAG),
            "match on service and customer VLAN tags";
        15, "IEEE8021ahPacketClassification", nested(IEEE_802_1AH),
            "match on provider backbone bridging (802.1ah)";
        16, "Icmpv4Icmpv6PacketClassification", nested(ICMP), "match on ICMP",
            main("ICMPv4ICMPv6PacketClassification");
        17, "MPLSClassificationEncoding", nested(MPLS), "match on MPLS";
        INSIDE;
    }
}

const FLOW_ONLY: [Field; 3] = fields! {
    classifier::FLOW_REFERENCE, "ServiceFlowReference", u16(1, MAX16),
        "flow that matching packets enter", main("ServiceFlowRef");
    4, "ServiceFlowIdentifier", u32(1, MAX32), "assigned by the CMTS; not for a file",
        main("ServiceFlowId");
    classifier::ACTIVATION, "ClassifierActivationState", u8(0, 1), "1 active, 0 inactive",
        main("ActivationState");
};
/// Classifiers that lead packets into a service flow, alike in both directions.
pub(super) const CLASSIFIER: Scope = &join::<_, _, 17>(common(0), FLOW_ONLY);

/// Classifiers whose packets the modem drops.
pub(super) const DROP: Scope = &common(1);
