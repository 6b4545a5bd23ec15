//! Header suppression, filters, and Ethernet services that the modem offers.

use super::extension::INSIDE;
use super::{CLASS_NAME, Kind, MAX16, MAX32, Scope, U16, U32, hex, nested, u8, u16, u32};

pub(super) const SUPPRESSION: Scope = &fields! {
    1, "PHSClassifierRef", u8(1, 255), "reference of the classifier that the rule applies to";
    2, "PHSClassifierId", u16(1, MAX16), "assigned by the CMTS; not for a file";
    3, "PHSServiceFlowRef", u16(1, MAX16), "reference of the flow that the rule applies to";
    4, "PHSServiceFlowId", u32(1, MAX32), "assigned by the CMTS; not for a file";
    5, "PHSDSCAction", u8(0, 3), "for dynamic changes; not for a file";
    7, "PHSField", hex(1, 255), "bytes that are suppressed";
    8, "PHSIndex", u8(1, 255), "number of the rule";
    9, "PHSMask", hex(1, 255), "bit n, counted from the left, suppresses byte n";
    10, "PHSSize", u8(1, 255), "number of bytes that the rule covers", unit("bytes");
    11, "PHSVerify", u8(0, 1), "0 checks the bytes before suppressing them, 1 does not";
    13, "PHSDBCAction", u8(0, 1), "for dynamic bonding changes; not for a file";
    INSIDE;
};

pub(super) const UNENCRYPTED_FILTER: Scope = &fields! {
    1, "DUTControl", u8(0, 1), "1 filters the traffic";
    2, "DUTCMIM", hex(0, 255), "modem interfaces that this applies to";
};

pub(super) const STATIC_MULTICAST: Scope = &fields! {
    1, "CMTSStaticMulticastSessionGroup", Kind::Ip, "group";
    2, "CMTSStaticMulticastSessionSource", Kind::Ip, "source";
    3, "CMTSStaticMulticastSessionCMIM", hex(0, 255), "modem interfaces that receive the session";
};

pub(super) const ADDRESS_AGING: Scope = &fields! {
    1, "L2VPNMACAgingMode", u8(0, 1), "whether MAC addresses age out";
};

pub(super) const ADDRESS_LEARNING: Scope = &fields! {
    1, "MACAddressLearningControl", u8(0, 1), "1 removes addresses when their interface goes down";
    2, "MACAddressLearningHoldoffTimer", u8(0, 10), "delay before the removal", unit("s");
};

const COLOR_MODE: Scope = &fields! {
    1, "ColorIdentificationField", u8(0, 9), "field that carries the color";
    2, "ColorIdentificationFieldValue", hex(1, 1), "value of the field";
};

const COLOR_MARKING: Scope = &fields! {
    1, "ColorMarkingField", u8(0, 5), "field that the color is written to";
    2, "ColorMarkingFieldValue", hex(1, 1), "value of the field";
};

const MESP_BANDWIDTH_PROFILE: Scope = &fields! {
    1, "CIR", U32, "committed information rate";
    2, "CBR", U32, "committed burst";
    3, "EIR", U32, "excess information rate";
    4, "EBS", U32, "excess burst";
    5, "CouplingFlag", u8(0, 1), "1 lets unused committed rate serve the excess";
    6, "ColorMode", nested(COLOR_MODE), "how the color of a frame is identified";
    7, "ColorMarking", nested(COLOR_MARKING), "how the color of a frame is marked";
};

pub(super) const METRO_ETHERNET: Scope = &fields! {
    1, "MESPReference", u8(1, 255), "number by which this file refers to the profile";
    2, "MESPBandwidthProfile", nested(MESP_BANDWIDTH_PROFILE), "rates and bursts";
    3, "MESPName", Kind::TextNul { low: 2, high: 254 }, "name of the profile";
};

pub(super) const TIMING: Scope = &fields! {
    1, "NetworkTimingProfileReference", u16(1, MAX16),
        "number by which this file refers to the profile";
    2, "NetworkTimingProfileName", CLASS_NAME, "profile at the CMTS";
};

pub(super) const SUBSCRIBER_INTERFACE: Scope = &fields! {
    1, "ContextCMIM", hex(0, 255), "interface to configure";
    2, "UNIAdminStatus", u8(0, 1), "1 turns the interface on";
    3, "UNIAutoNegotiationStatus", u8(0, 1), "1 negotiates speed and duplex";
    4, "UNIOperatingSpeed", u8(0, 6), "speed without negotiation";
    5, "UNIDuplex", u8(0, 2), "duplex mode without negotiation";
    6, "EEEStatus", u8(0, 1), "1 saves energy (802.3az)";
    7, "MaximumFrameSize", U16, "largest frame", unit("bytes");
    8, "PowerOverEthernetStatus", u8(0, 1), "1 powers the device";
    9, "MediaType", u8(0, 1), "which of two connectors is used";
};
