//! The top level of a file and the settings that are not about flows.

use super::snmp_access::{access_view, coexistence, mib_object};
use super::{
    Field, Kind, MAX16, MAX32, Scope, capabilities, classifiers, device, embedded, extension,
    flows, hex, nested, services, text, u8, u16, u32,
};
use crate::code::top;

const CLASS_OF_SERVICE: Scope = &[
    u8(1, "ClassId", 1, 16, "number of the class").main("ClassID"),
    u32(2, "MaximumDownstreamRate", 0, MAX32, "downstream rate")
        .main("MaxRateDown")
        .main_range(0, 1_334_880_000)
        .unit("bit/s"),
    u32(3, "MaximumUpstreamRate", 0, MAX32, "upstream rate")
        .main("MaxRateUp")
        .main_range(0, 183_900_000)
        .unit("bit/s"),
    u8(4, "UpstreamChannelPriority", 0, 7, "upstream priority").main("PriorityUp"),
    u32(5, "GuaranteedMinimumUpstreamRate", 0, MAX32, "reserved upstream rate")
        .main("GuaranteedUp")
        .main_range(0, 183_900_000)
        .unit("bit/s"),
    u16(6, "MaximumUpstreamBurst", 0, MAX16, "largest upstream burst")
        .main("MaxBurstUp")
        .unit("bytes"),
    u8(7, "ClassOfServicePrivacyEnable", 0, 1, "1 turns baseline privacy on").main("PrivacyEnable"),
];

const PRIVACY: Scope = &[
    u32(1, "AuthorizeWaitTimeout", 1, 30, "wait for an authorization reply")
        .main("AuthTimeout")
        .unit("s"),
    u32(2, "ReauthorizeWaitTimeout", 1, 30, "wait for a reauthorization reply")
        .main("ReAuthTimeout")
        .unit("s"),
    u32(3, "AuthorizationGraceTime", 1, 6_047_999, "how long before expiry to reauthorize")
        .main("AuthGraceTime")
        .unit("s"),
    u32(4, "OperationalWaitTimeout", 1, 10, "wait for a key reply").main("OperTimeout").unit("s"),
    u32(5, "RekeyWaitTimeout", 1, 10, "wait for a rekey reply").main("ReKeyTimeout").unit("s"),
    u32(6, "TekGraceTime", 1, 302_399, "how long before expiry to rekey")
        .main("TEKGraceTime")
        .unit("s"),
    u32(7, "AuthorizeRejectWaitTimeout", 1, 600, "wait after a rejection")
        .main("AuthRejectTimeout")
        .unit("s"),
    u32(8, "SaMapWaitTimeout", 1, 10, "wait for a map reply").main("SAMapWaitTimeout").unit("s"),
    u32(9, "SaMapMaximumRetries", 0, 10, "attempts at a map request").main("SAMapMaxRetries"),
];

const KICKSTART: Scope = &[
    text(1, "SecurityName", 1, 16, "SNMPv3 user").main("SnmpV3SecurityName"),
    hex(2, "ManagerPublicNumber", 1, 514, "Diffie-Hellman number").main("SnmpV3MgrPublicNumber"),
];

const NOTIFICATION: Scope = &[
    Field::new(1, "Ipv4Address", Kind::Ipv4, "receiver's address").main("SnmpV3TrapRxIP"),
    u16(2, "UdpPort", 0, MAX16, "receiver's port").main("SnmpV3TrapRxPort"),
    u16(3, "NotificationType", 1, 5, "1 SNMPv1 trap ... 5 SNMPv3 inform").main("SnmpV3TrapRxType"),
    u16(4, "Timeout", 0, MAX16, "wait for an answer to an inform")
        .main("SnmpV3TrapRxTimeout")
        .unit("ms"),
    u16(5, "Retries", 0, MAX16, "attempts at an inform").main("SnmpV3TrapRxRetries"),
    Field::new(6, "FilterOid", Kind::Oid, "subtree whose notifications are sent")
        .main("SnmpV3TrapRxFilterOID"),
    text(7, "SecurityName", 1, 16, "SNMPv3 user").main("SnmpV3TrapRxSecurityName"),
    Field::new(8, "Ipv6Address", Kind::Ipv6, "receiver's address").main("SnmpV3TrapRxIP6"),
];

const SINGLE_CHANNEL: Scope = &[
    u16(1, "Timeout", 0, MAX16, "time spent on the channel").main("SingleDsTimeout").unit("s"),
    u32(2, "Frequency", 0, MAX32, "center frequency").main("SingleDsFrequency").unit("Hz"),
];
const FREQUENCY_RANGE: Scope = &[
    u16(1, "Timeout", 0, MAX16, "time spent on each step").main("DsFreqRangeTimeout").unit("s"),
    u32(2, "Start", 0, MAX32, "first frequency").main("DsFreqRangeStart").unit("Hz"),
    u32(3, "End", 0, MAX32, "last frequency").main("DsFreqRangeEnd").unit("Hz"),
    u32(4, "StepSize", 0, MAX32, "step").main("DsFreqRangeStepSize").unit("Hz"),
];
const CHANNEL_LIST: Scope = &[
    nested(1, "SingleDownstreamChannel", SINGLE_CHANNEL, "one channel to try")
        .main("SingleDsChannel")
        .repeats(),
    nested(2, "DownstreamFrequencyRange", FREQUENCY_RANGE, "channels to try")
        .main("DsFreqRange")
        .repeats(),
    u16(3, "DefaultScanning", 0, MAX16, "time before the modem's own scan")
        .main("DefaultScanTimeout")
        .unit("s"),
];

const CHANNEL_ASSIGNMENT: Scope = &[
    u8(1, "TransmitChannelAssignment", 0, 255, "upstream channel").main("CaTransmit").repeats(),
    u32(2, "ReceiveChannelAssignment", 0, MAX32, "downstream frequency")
        .main("CaReceive")
        .main_range(88_000_000, 860_000_000)
        .unit("Hz")
        .repeats(),
];

/// The top level of a file.
pub const TOP: Scope = &[
    u32(
        top::DOWNSTREAM_FREQUENCY,
        "DownstreamFrequency",
        88_000_000,
        1_218_000_000,
        "channel to use",
    )
    .main_range(88_000_000, 1_008_000_000)
    .unit("Hz"),
    u8(top::UPSTREAM_CHANNEL_ID, "UpstreamChannelId", 0, 255, "channel to use"),
    u8(
        top::NETWORK_ACCESS_CONTROL,
        "NetworkAccessControl",
        0,
        1,
        "1 lets the devices behind the modem use the network",
    )
    .main("NetworkAccess"),
    nested(top::CLASS_OF_SERVICE, "ClassOfService", CLASS_OF_SERVICE, "DOCSIS 1.0 service class")
        .repeats(),
    nested(
        5,
        "ModemCapabilities",
        capabilities::MODEM_CAPABILITIES,
        "what the modem can do; modems send it, not for a file",
    ),
    hex(top::CM_MIC, "CmMic", 16, 16, "MD5 over the settings, checked by the modem"),
    hex(
        top::CMTS_MIC,
        "CmtsMic",
        1,
        255,
        "keyed digest over the protected settings, checked by the CMTS",
    ),
    text(9, "SoftwareUpgradeFilename", 1, 255, "firmware file").main("SwUpgradeFilename"),
    Field::new(
        10,
        "SnmpWriteAccessControl",
        Kind::WriteControl,
        "subtree, then 1 denies and 0 \
        allows writing below it",
    )
    .main("SnmpWriteControl")
    .repeats(),
    mib_object(),
    Field::new(12, "ModemIpAddress", Kind::Ipv4, "assigned by the network; not for a file")
        .main("ModemIPAddress"),
    Field::new(14, "CpeEthernetMacAddress", Kind::Mac, "device that may connect")
        .main("CpeMacAddress")
        .repeats(),
    nested(top::BASELINE_PRIVACY, "BaselinePrivacy", PRIVACY, "timers of baseline privacy"),
    u8(top::MAXIMUM_CPES, "MaximumNumberOfCpes", 1, 254, "devices behind the modem").main("MaxCPE"),
    u32(top::TFTP_TIMESTAMP, "TftpServerTimestamp", 0, MAX32, "when the file was sent, since 1900")
        .main("TftpTimestamp")
        .unit("s"),
    Field::new(
        top::TFTP_MODEM_IPV4,
        "TftpServerProvisionedModemIpv4Address",
        Kind::Ipv4,
        "modem meant",
    )
    .main("TftpModemAddress"),
    Field::new(21, "SoftwareUpgradeIpv4TftpServer", Kind::Ipv4, "where firmware comes from")
        .main("SwUpgradeServer"),
    nested(
        top::UPSTREAM_CLASSIFIER,
        "UpstreamPacketClassification",
        classifiers::CLASSIFIER,
        "which packets enter \
        which upstream flow",
    )
    .main("UsPacketClass")
    .repeats(),
    nested(
        top::DOWNSTREAM_CLASSIFIER,
        "DownstreamPacketClassification",
        classifiers::CLASSIFIER,
        "which packets enter \
        which downstream flow",
    )
    .main("DsPacketClass")
    .repeats(),
    nested(
        top::UPSTREAM_FLOW,
        "UpstreamServiceFlow",
        flows::UPSTREAM,
        "an upstream flow and its queue",
    )
    .main("UsServiceFlow")
    .repeats(),
    nested(
        top::DOWNSTREAM_FLOW,
        "DownstreamServiceFlow",
        flows::DOWNSTREAM,
        "a downstream flow and its queue",
    )
    .main("DsServiceFlow")
    .repeats(),
    nested(top::HEADER_SUPPRESSION, "PHS", services::SUPPRESSION, "payload header suppression")
        .repeats(),
    u16(top::MAXIMUM_CLASSIFIERS, "MaximumNumberOfClassifiers", 0, MAX16, "classifiers accepted")
        .main("MaxClassifiers"),
    u8(top::PRIVACY_ENABLE, "PrivacyEnable", 0, 1, "1 turns baseline privacy on")
        .main("GlobalPrivacyEnable"),
    hex(32, "ManufacturerCvc", 0, 255, "part of the manufacturer's certificate")
        .main("MfgCVCData")
        .repeats(),
    hex(33, "CoSignerCvc", 0, 255, "part of the co-signer's certificate")
        .main("CoSignerCVCData")
        .repeats(),
    nested(34, "Snmpv3KickstartValue", KICKSTART, "SNMPv3 user and key")
        .main("SnmpV3Kickstart")
        .repeats(),
    hex(top::SUBSCRIBER_CONTROL, "SubscriberManagementControl", 3, 3, "devices, then flags")
        .main("SubMgmtControl"),
    Field::new(
        top::SUBSCRIBER_IPV4_LIST,
        "SubscriberManagementCpeIpv4List",
        Kind::Ipv4List,
        "devices' addresses",
    )
    .main("SubscriberManagementCPEIPTable"),
    Field::new(
        top::SUBSCRIBER_FILTER_GROUPS,
        "SubscriberManagementFilterGroups",
        Kind::List { width: 2, low: 4, high: 10 },
        "filter groups",
    )
    .main("SubMgmtFilters"),
    nested(38, "Snmpv3NotificationReceiver", NOTIFICATION, "who gets notifications")
        .main("SnmpV3TrapReceiver")
        .repeats(),
    u8(39, "Docsis20ModeEnable", 0, 1, "1 turns DOCSIS 2.0 mode on").main("DocsisTwoEnable"),
    u8(top::TEST_MODES, "EnableTestModes", 0, 1, "for certification; not for service"),
    nested(41, "DownstreamChannelList", CHANNEL_LIST, "channels to try").main("DsChannelList"),
    Field::new(42, "StaticMulticastMacAddress", Kind::Mac, "multicast address to forward")
        .main("MulticastMACAddress")
        .repeats(),
    extension::top(),
    nested(45, "DUTFiltering", services::UNENCRYPTED_FILTER, "downstream unencrypted traffic"),
    coexistence(),
    access_view(),
    u8(55, "SnmpCpeAccessControl", 0, 1, "1 lets devices behind the modem use its SNMP")
        .main("SNMPCPEAccessControl"),
    nested(56, "ChannelAssignment", CHANNEL_ASSIGNMENT, "channels to use")
        .main("ChannelAssignmentConfig"),
    Field::new(58, "SoftwareUpgradeIpv6TftpServer", Kind::Ipv6, "where firmware comes from")
        .main("SwUpgradeServer6"),
    Field::new(
        top::TFTP_MODEM_IPV6,
        "TftpServerProvisionedModemIpv6Address",
        Kind::Ipv6,
        "modem meant",
    )
    .main("TFTPProvisionedModemIPv6Address"),
    nested(
        top::DROP_CLASSIFIER,
        "UpstreamDropPacketClassification",
        classifiers::DROP,
        "packets that the modem \
        drops",
    )
    .repeats(),
    Field::new(
        top::SUBSCRIBER_IPV6_PREFIXES,
        "SubMgmtCPEIPv6PrefixList",
        Kind::Ipv6PrefixList,
        "prefixes of the devices",
    )
    .repeats(),
    Field::new(
        top::DROP_CLASSIFIER_GROUPS,
        "UpstreamDropClassifierGroupId",
        Kind::List { width: 1, low: 1, high: 255 },
        "groups of drop classifiers at the CMTS",
    )
    .main("UpstreamDropClassifierGroupID"),
    u16(
        top::SUBSCRIBER_MAXIMUM_IPV6,
        "SubscriberManagementControlMaxCpeIpv6",
        0,
        MAX16,
        "devices with IPv6",
    )
    .main("SubMgmtControl6"),
    nested(
        top::STATIC_MULTICAST,
        "CMTSStaticMulticastSessionEncodings",
        services::STATIC_MULTICAST,
        "multicast that the CMTS forwards unasked",
    )
    .repeats(),
    nested(
        65,
        "L2VPNMACAgingEncoding",
        services::ADDRESS_AGING,
        "aging of addresses in a layer 2 VPN",
    ),
    u32(66, "ManagementEventControl", 0, MAX32, "event to report").repeats(),
    Field::new(
        top::SUBSCRIBER_IPV6_LIST,
        "SubscriberManagementCpeIpv6List",
        Kind::Ipv6List,
        "devices' addresses",
    )
    .main("SubscriberManagementCPEIPv6Table"),
    u16(
        top::DEFAULT_TARGET_BUFFER,
        "DefaultUpstreamTargetBuffer",
        0,
        MAX16,
        "target of upstream buffers without their \
        own, as time at the flow's rate; 100 ms when absent",
    )
    .unit("ms"),
    nested(
        69,
        "MACAddressLearningControlEncoding",
        services::ADDRESS_LEARNING,
        "which devices may take the places of others",
    ),
    nested(
        top::UPSTREAM_AGGREGATE,
        "UpstreamAggregateServiceFlow",
        flows::UPSTREAM_AGGREGATE,
        "upstream flows that \
        share a rate",
    )
    .repeats(),
    nested(
        top::DOWNSTREAM_AGGREGATE,
        "DownstreamAggregateServiceFlow",
        flows::DOWNSTREAM_AGGREGATE,
        "downstream flows \
        that share a rate",
    )
    .repeats(),
    nested(
        top::METRO_ETHERNET,
        "MetroEthernetServiceProfile",
        services::METRO_ETHERNET,
        "bandwidth and color of a Metro Ethernet service",
    )
    .repeats(),
    nested(73, "NetworkTimingProfile", services::TIMING, "how the modem passes network time on")
        .repeats(),
    nested(74, "EnergyManagementParameter", device::ENERGY, "when the modem saves energy"),
    u8(75, "EnergyManagement1x1ModeIndicator", 0, 2, "state of the mode; not for a file"),
    u8(top::AQM_DISABLE, "CmUpstreamAqmDisable", 0, 1, "1 turns AQM off for all upstream flows")
        .main("CMUpstreamAQMDisable"),
    nested(
        79,
        "UNIControlEncodings",
        services::SUBSCRIBER_INTERFACE,
        "Ethernet interface towards the subscriber",
    )
    .repeats(),
    hex(81, "ManufacturerCvcChain", 0, 255, "part of the manufacturer's certificates")
        .main("ManufacturerCVCChain")
        .repeats(),
    hex(82, "CoSignerCvcChain", 0, 255, "part of the co-signer's certificates")
        .main("CoSignerCVCChain")
        .repeats(),
    u8(83, "DTPModeConfiguration", 0, 2, "DOCSIS time protocol"),
    nested(84, "DiplexerBandEdge", device::DIPLEXER, "split between upstream and downstream"),
    nested(88, "QoSFrameworkforDOCSISEncodings", &[], "framework for quality of service"),
    u8(
        top::LOW_LATENCY_DISABLE,
        "LowLatencyDisable",
        0,
        2,
        "anything but 0 turns low latency support off",
    ),
    u8(top::DISTRIBUTED_HQOS, "DistributedHqosEnable", 0, 2, "hierarchical QoS in the modem")
        .main("DistributedHQoSEnable"),
    nested(
        top::UPSTREAM_ENHANCED_AGGREGATE,
        "UpstreamEnhancedHqosAsf",
        flows::ENHANCED_HQOS,
        "upstream flows scheduled together",
    )
    .main("UpstreamEHQoSASF")
    .repeats(),
    nested(
        top::DOWNSTREAM_ENHANCED_AGGREGATE,
        "DownstreamEnhancedHqosAsf",
        flows::ENHANCED_HQOS,
        "downstream flows scheduled \
        together",
    )
    .main("")
    .repeats(),
    nested(
        96,
        "AdvancedDiplexerBandEdge",
        device::ADVANCED_DIPLEXER,
        "split between upstream and downstream, DOCSIS 4.0",
    ),
    u8(97, "AdvancedBandPlanSupport", 0, 1, "band plans of DOCSIS 4.0"),
    nested(
        101,
        "DOCSISSyncConfigurations",
        device::SYNCHRONIZATION,
        "time and frequency that the modem passes on",
    ),
    nested(102, "PTPAddressConfigurations", device::PTP_ADDRESSES, "addresses of PTP"),
    nested(202, "eRouter", embedded::ROUTER, "embedded router"),
    nested(217, "EstbSettings", embedded::SET_TOP_BOX, "embedded set-top box"),
    u8(254, "MtaConfigDelimiter", 1, 255, "1 begins and 255 ends a telephone adapter's file"),
];
