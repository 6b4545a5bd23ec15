//! Header suppression, filters, and Ethernet services that the modem offers.

use super::extension::extension;
use super::{Field, Kind, MAX16, MAX32, Scope, class_name, hex, nested, u8, u16, u32};

pub(super) const SUPPRESSION: Scope = &[
    u8(1, "PHSClassifierRef", 1, 255, "classifier of this file whose packets it is about"),
    u16(2, "PHSClassifierId", 1, MAX16, "assigned by the CMTS; not for a file"),
    u16(3, "PHSServiceFlowRef", 1, MAX16, "flow of this file that it is about"),
    u32(4, "PHSServiceFlowId", 1, MAX32, "assigned by the CMTS; not for a file"),
    u8(5, "PHSDSCAction", 0, 3, "for dynamic changes; not for a file"),
    hex(7, "PHSField", 1, 255, "bytes that are suppressed"),
    u8(8, "PHSIndex", 1, 255, "number of the rule"),
    hex(9, "PHSMask", 1, 255, "bit n, counted from the left, suppresses byte n"),
    u8(10, "PHSSize", 1, 255, "bytes that the rule is about").unit("bytes"),
    u8(11, "PHSVerify", 0, 1, "0 checks the bytes before suppressing them, 1 does not"),
    u8(13, "PHSDBCAction", 0, 1, "for dynamic bonding changes; not for a file"),
    extension(),
];

pub(super) const UNENCRYPTED_FILTER: Scope = &[
    u8(1, "DUTControl", 0, 1, "1 filters it"),
    hex(2, "DUTCMIM", 0, 255, "modem interfaces that it is about"),
];

pub(super) const STATIC_MULTICAST: Scope = &[
    Field::new(1, "CMTSStaticMulticastSessionGroup", Kind::Ip, "group"),
    Field::new(2, "CMTSStaticMulticastSessionSource", Kind::Ip, "source"),
    hex(3, "CMTSStaticMulticastSessionCMIM", 0, 255, "modem interfaces that it is for"),
];

pub(super) const ADDRESS_AGING: Scope =
    &[u8(1, "L2VPNMACAgingMode", 0, 1, "whether addresses age")];

pub(super) const ADDRESS_LEARNING: Scope = &[
    u8(1, "MACAddressLearningControl", 0, 1, "1 removes addresses when their interface goes down"),
    u8(2, "MACAddressLearningHoldoffTimer", 0, 10, "wait before that").unit("s"),
];

const COLOR_MODE: Scope = &[
    u8(1, "ColorIdentificationField", 0, 9, "field that tells it"),
    hex(2, "ColorIdentificationFieldValue", 1, 1, "value of the field"),
];

const COLOR_MARKING: Scope = &[
    u8(1, "ColorMarkingField", 0, 5, "field that is written"),
    hex(2, "ColorMarkingFieldValue", 1, 1, "value of the field"),
];

const MESP_BANDWIDTH_PROFILE: Scope = &[
    u32(1, "CIR", 0, MAX32, "committed information rate"),
    u32(2, "CBR", 0, MAX32, "committed burst"),
    u32(3, "EIR", 0, MAX32, "excess information rate"),
    u32(4, "EBS", 0, MAX32, "excess burst"),
    u8(5, "CouplingFlag", 0, 1, "1 lets unused committed rate serve the excess"),
    nested(6, "ColorMode", COLOR_MODE, "how the color of a frame is told"),
    nested(7, "ColorMarking", COLOR_MARKING, "how the color of a frame is written"),
];

pub(super) const METRO_ETHERNET: Scope = &[
    u8(1, "MESPReference", 1, 255, "number by which this file refers to the profile"),
    nested(2, "MESPBandwidthProfile", MESP_BANDWIDTH_PROFILE, "rates and bursts"),
    Field::new(3, "MESPName", Kind::TextNul { low: 2, high: 254 }, "name of the profile"),
];

pub(super) const TIMING: Scope = &[
    u16(
        1,
        "NetworkTimingProfileReference",
        1,
        MAX16,
        "number by which this file refers to the profile",
    ),
    class_name(2, "NetworkTimingProfileName", "profile at the CMTS"),
];

pub(super) const SUBSCRIBER_INTERFACE: Scope = &[
    hex(1, "ContextCMIM", 0, 255, "interface that it is about"),
    u8(2, "UNIAdminStatus", 0, 1, "1 turns it on"),
    u8(3, "UNIAutoNegotiationStatus", 0, 1, "1 negotiates speed and duplex"),
    u8(4, "UNIOperatingSpeed", 0, 6, "speed where it is not negotiated"),
    u8(5, "UNIDuplex", 0, 2, "duplex where it is not negotiated"),
    u8(6, "EEEStatus", 0, 1, "1 saves energy (802.3az)"),
    u16(7, "MaximumFrameSize", 0, MAX16, "largest frame").unit("bytes"),
    u8(8, "PowerOverEthernetStatus", 0, 1, "1 powers the device"),
    u8(9, "MediaType", 0, 1, "which of two connectors is used"),
];
