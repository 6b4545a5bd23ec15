//! Packet classifiers (22, 23) and upstream drop classifiers (60), which hold the same settings
//! under other names in the `Main` form.

use super::extension::extension;
use super::{Field, Kind, MAX16, MAX32, Scope, hex, nested, u8, u16, u32};
use crate::code::{classifier, header};

const fn ipv4_fields(names: [&'static str; 10]) -> [Field; 10] {
    [
        hex(
            header::IPV4_TOS,
            "IpTos",
            3,
            3,
            "lowest, highest and mask of the TOS byte (DSCP and ECN): b4b4fc is \
        DSCP 45 (NQB), 010101 is ECT(1) or CE",
        )
        .main(names[0]),
        u16(2, "IpProtocol", 0, 257, "protocol number; 256 any, 257 TCP or UDP").main(names[1]),
        Field::new(3, "IpSourceAddress", Kind::Ipv4, "source address").main(names[2]),
        Field::new(4, "IpSourceMask", Kind::Ipv4, "mask of the source address").main(names[3]),
        Field::new(5, "IpDestinationAddress", Kind::Ipv4, "destination address").main(names[4]),
        Field::new(6, "IpDestinationMask", Kind::Ipv4, "mask of the destination").main(names[5]),
        u16(7, "SourcePortStart", 0, MAX16, "lowest source port").main(names[6]),
        u16(8, "SourcePortEnd", 0, MAX16, "highest source port").main(names[7]),
        u16(9, "DestinationPortStart", 0, MAX16, "lowest destination port").main(names[8]),
        u16(10, "DestinationPortEnd", 0, MAX16, "highest destination port").main(names[9]),
    ]
}

const IPV4: Scope = &ipv4_fields([
    "IpTos",
    "IpProto",
    "IpSrcAddr",
    "IpSrcMask",
    "IpDstAddr",
    "IpDstMask",
    "SrcPortStart",
    "SrcPortEnd",
    "DstPortStart",
    "DstPortEnd",
]);

const IPV4_DROP: Scope = &ipv4_fields([
    "IPv4Tos",
    "IPProtocol",
    "IPv4SourceAddress",
    "IPv4SourceMask",
    "IPv4DestinationAddress",
    "IPv4DestinationMask",
    "SourcePortStart",
    "SourcePortEnd",
    "DestinationPortStart",
    "DestinationPortEnd",
]);

const fn ipv6_fields(names: [&'static str; 7]) -> [Field; 7] {
    [
        hex(
            header::IPV6_TRAFFIC_CLASS,
            "Ipv6TrafficClassRangeAndMask",
            3,
            3,
            "lowest, highest and mask of the traffic class",
        )
        .main(names[0]),
        hex(2, "Ipv6FlowLabel", 4, 4, "flow label").main(names[1]),
        u16(3, "Ipv6NextHeaderType", 0, 257, "next header; 256 any, 257 TCP or UDP").main(names[2]),
        Field::new(4, "Ipv6SourceAddress", Kind::Ipv6, "source address").main(names[3]),
        u8(5, "Ipv6SourcePrefixLength", 0, 128, "bits of the source address that count")
            .unit("bits")
            .main(names[4]),
        Field::new(6, "Ipv6DestinationAddress", Kind::Ipv6, "destination").main(names[5]),
        u8(7, "Ipv6DestinationPrefixLength", 0, 128, "bits of the destination that count")
            .unit("bits")
            .main(names[6]),
    ]
}

const IPV6: Scope = &ipv6_fields([
    "PcIPv6TrafficClassRangeAndMask",
    "PcIPv6FlowLabel",
    "PcIPv6NextHeaderType",
    "PcIPv6SourceAddress",
    "PcIPv6SourcePrefixLength",
    "PcIPv6DestAddress",
    "PcIPv6DestPrefixLength",
]);

const IPV6_DROP: Scope = &ipv6_fields([
    "IPv6TrafficClassRangeandMask",
    "IPv6FlowLabel",
    "IPv6NextHeaderType",
    "IPv6SourceAddress",
    "IPv6SourcePrefixLength",
    "IPv6DestinationAddress",
    "IPv6DestinationPrefixLength",
]);

const fn llc_fields(names: [&'static str; 3]) -> [Field; 3] {
    [
        Field::new(1, "DestinationMacAddress", Kind::MacMask, "destination address and mask")
            .main(names[0]),
        Field::new(2, "SourceMacAddress", Kind::Mac, "source address").main(names[1]),
        hex(3, "EtherType", 3, 3, "kind of match, then the type").main(names[2]),
    ]
}

const LLC: Scope = &llc_fields(["DstMacAddress", "SrcMacAddress", "EtherType"]);

const LLC_DROP: Scope =
    &llc_fields(["DestinationMACAddress", "SourceMACAddress", "EthertypeDSAPMacType"]);

const IEEE_802_1Q: Scope = &[
    Field::new(
        1,
        "UserPriority",
        Kind::List { width: 1, low: 2, high: 2 },
        "lowest and highest priority code point",
    ),
    u16(2, "VlanId", 0, MAX16, "VLAN identifier in the upper 12 bits")
        .main("VlanID")
        .main_range(0, 4096),
];

const ICMP: Scope = &[
    u8(1, "IcmpTypeStart", 0, 255, "lowest ICMP type").main("ICMPv4ICMPv6TypeStart"),
    u8(2, "IcmpTypeEnd", 0, 255, "highest ICMP type").main("ICMPv4ICMPv6TypeEnd"),
];

const STAG_CTAG: Scope = &[
    hex(1, "STPID", 2, 2, "tag protocol identifier of the outer tag"),
    hex(2, "SVID", 2, 2, "VLAN identifier of the outer tag"),
    hex(3, "SPCP", 1, 1, "priority code point of the outer tag"),
    hex(4, "SDEI", 1, 1, "drop eligibility of the outer tag"),
    hex(5, "CTPID", 2, 2, "tag protocol identifier of the inner tag"),
    hex(6, "CVID", 2, 2, "VLAN identifier of the inner tag"),
    hex(7, "CPCP", 1, 1, "priority code point of the inner tag"),
    hex(8, "CCFI", 1, 1, "canonical format indicator of the inner tag"),
    hex(9, "STCI", 2, 2, "the whole control information of the outer tag"),
    hex(10, "CTCI", 2, 2, "the whole control information of the inner tag"),
];

const IEEE_802_1AH: Scope = &[
    hex(1, "ITPID", 2, 2, "tag protocol identifier of the service tag"),
    hex(2, "ISID", 3, 3, "service identifier"),
    hex(3, "ITCI", 5, 5, "the whole control information of the service tag"),
    hex(4, "IPCP", 1, 1, "priority code point of the service tag"),
    hex(5, "IDEI", 1, 1, "drop eligibility of the service tag"),
    hex(6, "IUCA", 1, 1, "use of customer addresses"),
    hex(7, "BTPID", 2, 2, "tag protocol identifier of the backbone tag"),
    hex(8, "BTCI", 2, 2, "the whole control information of the backbone tag"),
    hex(9, "BPCP", 1, 1, "priority code point of the backbone tag"),
    hex(10, "BDEI", 1, 1, "drop eligibility of the backbone tag"),
    hex(11, "BVID", 2, 2, "VLAN identifier of the backbone tag"),
    Field::new(12, "BDA", Kind::Mac, "backbone destination address"),
    Field::new(13, "BSA", Kind::Mac, "backbone source address"),
];

const MPLS: Scope = &[
    hex(1, "MPLSTCbits", 1, 1, "traffic class bits of the label"),
    hex(2, "MPLSLabel", 3, 3, "label"),
];

const fn tagged() -> Field {
    nested(14, "STagCTagFrameClassification", STAG_CTAG, "match on service and customer VLAN tags")
}
const fn backbone() -> Field {
    nested(
        15,
        "IEEE8021ahPacketClassification",
        IEEE_802_1AH,
        "match on provider backbone bridging (802.1ah)",
    )
}
const fn labels() -> Field {
    nested(17, "MPLSClassificationEncoding", MPLS, "match on MPLS")
}
const fn reference() -> Field {
    u8(
        classifier::REFERENCE,
        "ClassifierReference",
        1,
        255,
        "number by which this file refers to the classifier",
    )
    .main("ClassifierRef")
}
const fn identifier() -> Field {
    u16(2, "ClassifierIdentifier", 1, MAX16, "assigned by the CMTS; not for a file")
        .main("ClassifierId")
}
const fn priority() -> Field {
    u8(classifier::PRIORITY, "RulePriority", 0, 255, "order of evaluation, highest first")
}
const fn ipv4(scope: Scope, main_name: &'static str) -> Field {
    nested(classifier::IPV4, "Ipv4PacketClassification", scope, "match on IPv4, TCP and UDP")
        .main(main_name)
}
const fn llc(scope: Scope, main_name: &'static str) -> Field {
    nested(10, "EthernetLlcPacketClassification", scope, "match on Ethernet").main(main_name)
}
const fn vlan(main_name: &'static str) -> Field {
    nested(11, "Ieee8021PqPacketClassification", IEEE_802_1Q, "match on VLAN tags").main(main_name)
}
const fn ipv6(scope: Scope, main_name: &'static str) -> Field {
    nested(classifier::IPV6, "Ipv6PacketClassification", scope, "match on IPv6").main(main_name)
}
const fn icmp() -> Field {
    nested(16, "Icmpv4Icmpv6PacketClassification", ICMP, "match on ICMP")
        .main("ICMPv4ICMPv6PacketClassification")
}
const fn interfaces(main_name: &'static str) -> Field {
    hex(13, "CmInterfaceMask", 0, 255, "modem interfaces that the classifier looks at")
        .main(main_name)
}
/// Classifiers that lead packets into a service flow, alike in both directions.
pub(super) const CLASSIFIER: Scope = &[
    reference(),
    identifier(),
    u16(
        classifier::FLOW_REFERENCE,
        "ServiceFlowReference",
        1,
        MAX16,
        "flow that matching packets enter",
    )
    .main("ServiceFlowRef"),
    u32(4, "ServiceFlowIdentifier", 1, MAX32, "assigned by the CMTS; not for a file")
        .main("ServiceFlowId"),
    priority(),
    u8(classifier::ACTIVATION, "ClassifierActivationState", 0, 1, "1 active, 0 inactive")
        .main("ActivationState"),
    u8(7, "DynamicServiceChangeAction", 0, 2, "for dynamic changes; not for a file")
        .main("DscAction"),
    ipv4(IPV4, "IpPacketClassifier"),
    llc(LLC, "LLCPacketClassifier"),
    vlan("IEEE802Classifier"),
    ipv6(IPV6, "PcIPv6PacketClassification"),
    interfaces("PcCMIMEncoding"),
    tagged(),
    backbone(),
    icmp(),
    labels(),
    extension(),
];

/// Classifiers whose packets the modem drops.
pub(super) const DROP: Scope = &[
    reference().main("ClassifierReference"),
    identifier().main("ClassifierIdentifier"),
    priority(),
    u8(7, "DynamicServiceChangeAction", 0, 2, "for dynamic changes; not for a file"),
    ipv4(IPV4_DROP, "IPv4PacketClassification"),
    llc(LLC_DROP, "EthernetLLCPacketClassification"),
    vlan("IEEE8021PQPacketClassification"),
    ipv6(IPV6_DROP, "IPv6PacketClassification"),
    interfaces("CMInterfaceMaskEncoding"),
    tagged(),
    backbone(),
    icmp(),
    labels(),
    extension(),
];
