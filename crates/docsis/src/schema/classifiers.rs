//! Packet classifiers (22, 23) and upstream drop classifiers (60).

use super::settings::EXTENSION;
use super::{Field, Kind, MAX16, MAX32, Scope, hex, nested, u8, u16, u32};

const IPV4: Scope = &[
    hex(
        1,
        "IpTos",
        3,
        3,
        "lowest, highest and mask of the TOS byte (DSCP and ECN): b4b4fc is \
        DSCP 45 (NQB), 010101 is ECT(1) or CE",
    ),
    u16(2, "IpProtocol", 0, 257, "protocol number; 256 any, 257 TCP or UDP").main("IpProto"),
    Field::new(3, "IpSourceAddress", Kind::Ipv4, "source address").main("IpSrcAddr"),
    Field::new(4, "IpSourceMask", Kind::Ipv4, "mask of the source address").main("IpSrcMask"),
    Field::new(5, "IpDestinationAddress", Kind::Ipv4, "destination address").main("IpDstAddr"),
    Field::new(6, "IpDestinationMask", Kind::Ipv4, "mask of the destination").main("IpDstMask"),
    u16(7, "SourcePortStart", 0, MAX16, "lowest source port").main("SrcPortStart"),
    u16(8, "SourcePortEnd", 0, MAX16, "highest source port").main("SrcPortEnd"),
    u16(9, "DestinationPortStart", 0, MAX16, "lowest destination port").main("DstPortStart"),
    u16(10, "DestinationPortEnd", 0, MAX16, "highest destination port").main("DstPortEnd"),
];

const IPV6: Scope = &[
    hex(1, "Ipv6TrafficClassRangeAndMask", 3, 3, "lowest, highest and mask of the traffic class")
        .main("PcIPv6TrafficClassRangeAndMask"),
    hex(2, "Ipv6FlowLabel", 4, 4, "flow label").main("PcIPv6FlowLabel"),
    u16(3, "Ipv6NextHeaderType", 0, 257, "next header; 256 any, 257 TCP or UDP")
        .main("PcIPv6NextHeaderType"),
    Field::new(4, "Ipv6SourceAddress", Kind::Ipv6, "source address").main("PcIPv6SourceAddress"),
    u8(5, "Ipv6SourcePrefixLength", 0, 128, "bits of the source address that count")
        .main("PcIPv6SourcePrefixLength")
        .unit("bits"),
    Field::new(6, "Ipv6DestinationAddress", Kind::Ipv6, "destination").main("PcIPv6DestAddress"),
    u8(7, "Ipv6DestinationPrefixLength", 0, 128, "bits of the destination that count")
        .main("PcIPv6DestPrefixLength")
        .unit("bits"),
];

const LLC: Scope = &[
    Field::new(1, "DestinationMacAddress", Kind::MacMask, "destination address and mask")
        .main("DstMacAddress"),
    Field::new(2, "SourceMacAddress", Kind::Mac, "source address").main("SrcMacAddress"),
    hex(3, "EtherType", 3, 3, "kind of match, then the type"),
];

const IEEE_802_1Q: Scope = &[
    Field::new(
        1,
        "UserPriority",
        Kind::List { width: 1, low: 2, high: 2 },
        "lowest and highest priority code point",
    ),
    u16(2, "VlanId", 0, MAX16, "VLAN identifier in the upper 12 bits").main("VlanID"),
];

const ICMP: Scope = &[
    u8(1, "IcmpTypeStart", 0, 255, "lowest ICMP type").main("ICMPv4ICMPv6TypeStart"),
    u8(2, "IcmpTypeEnd", 0, 255, "highest ICMP type").main("ICMPv4ICMPv6TypeEnd"),
];

const fn reference() -> Field {
    u8(1, "ClassifierReference", 1, 255, "number by which this file refers to the classifier")
        .main("ClassifierRef")
}
const fn identifier() -> Field {
    u16(2, "ClassifierIdentifier", 1, MAX16, "assigned by the CMTS; not for a file")
        .main("ClassifierId")
}
const fn priority() -> Field {
    u8(5, "RulePriority", 0, 255, "order of evaluation, highest first")
}
const fn ipv4(main_name: &'static str) -> Field {
    nested(9, "Ipv4PacketClassification", IPV4, "match on IPv4, TCP and UDP").main(main_name)
}
const fn llc(main_name: &'static str) -> Field {
    nested(10, "EthernetLlcPacketClassification", LLC, "match on Ethernet").main(main_name)
}
const fn vlan(main_name: &'static str) -> Field {
    nested(11, "Ieee8021PqPacketClassification", IEEE_802_1Q, "match on VLAN tags").main(main_name)
}
const fn ipv6(main_name: &'static str) -> Field {
    nested(12, "Ipv6PacketClassification", IPV6, "match on IPv6").main(main_name)
}
const fn icmp() -> Field {
    nested(16, "Icmpv4Icmpv6PacketClassification", ICMP, "match on ICMP")
        .main("ICMPv4ICMPv6PacketClassification")
}
const fn interfaces(main_name: &'static str) -> Field {
    hex(13, "CmInterfaceMask", 0, 255, "modem interfaces that the classifier looks at")
        .main(main_name)
}
const fn extension() -> Field {
    Field::new(43, "VendorSpecific", Kind::Extension(EXTENSION), "extension or vendor settings")
        .repeats()
}

/// Classifiers that lead packets into a service flow, alike in both directions.
pub(super) const CLASSIFIER: Scope = &[
    reference(),
    identifier(),
    u16(3, "ServiceFlowReference", 1, MAX16, "flow that matching packets enter")
        .main("ServiceFlowRef"),
    u32(4, "ServiceFlowIdentifier", 1, MAX32, "assigned by the CMTS; not for a file")
        .main("ServiceFlowId"),
    priority(),
    u8(6, "ClassifierActivationState", 0, 1, "1 active, 0 inactive").main("ActivationState"),
    u8(7, "DynamicServiceChangeAction", 0, 2, "for dynamic changes; not for a file")
        .main("DscAction"),
    ipv4("IpPacketClassifier"),
    llc("LLCPacketClassifier"),
    vlan("IEEE802Classifier"),
    ipv6("PcIPv6PacketClassification"),
    interfaces("PcCMIMEncoding"),
    icmp(),
    extension(),
];

/// Classifiers whose packets the modem drops.
pub(super) const DROP: Scope = &[
    reference().main("ClassifierReference"),
    identifier().main("ClassifierIdentifier"),
    priority(),
    u8(7, "DynamicServiceChangeAction", 0, 2, "for dynamic changes; not for a file"),
    ipv4("IPv4PacketClassification"),
    llc("EthernetLLCPacketClassification"),
    vlan("IEEE8021PQPacketClassification"),
    ipv6("IPv6PacketClassification"),
    interfaces("CMInterfaceMaskEncoding"),
    icmp(),
    extension(),
];
