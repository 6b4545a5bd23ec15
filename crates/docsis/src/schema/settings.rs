//! The top level of a file and the settings that are not about flows.

use super::snmp_access::{ACCESS_VIEW, COEXISTENCE, MIB_OBJECT};
use super::{
    Kind, Scope, U8, U16, U32, capabilities, classifiers, device, embedded, extension, flows, hex,
    list, nested, services, text, u8, u16, u32,
};
use crate::code::top;

const CLASS_OF_SERVICE: Scope = &fields! {
    1, "ClassId", u8(1, 16), "number of the class", main("ClassID");
    2, "MaximumDownstreamRate", U32, "downstream rate", main("MaxRateDown"),
        main_range(0, 1_334_880_000), unit("bit/s");
    3, "MaximumUpstreamRate", U32, "upstream rate", main("MaxRateUp"), main_range(0, 183_900_000),
        unit("bit/s");
    4, "UpstreamChannelPriority", u8(0, 7), "upstream priority", main("PriorityUp");
    5, "GuaranteedMinimumUpstreamRate", U32, "reserved upstream rate", main("GuaranteedUp"),
        main_range(0, 183_900_000), unit("bit/s");
    6, "MaximumUpstreamBurst", U16, "largest upstream burst", main("MaxBurstUp"), unit("bytes");
    7, "ClassOfServicePrivacyEnable", u8(0, 1), "1 turns baseline privacy on",
        main("PrivacyEnable");
};

const PRIVACY: Scope = &fields! {
    1, "AuthorizeWaitTimeout", u32(1, 30), "wait for an authorization reply", main("AuthTimeout"),
        unit("s");
    2, "ReauthorizeWaitTimeout", u32(1, 30), "wait for a reauthorization reply",
        main("ReAuthTimeout"), unit("s");
    3, "AuthorizationGraceTime", u32(1, 6_047_999), "how long before expiry to reauthorize",
        main("AuthGraceTime"), unit("s");
    4, "OperationalWaitTimeout", u32(1, 10), "wait for a key reply", main("OperTimeout"), unit("s");
    5, "RekeyWaitTimeout", u32(1, 10), "wait for a rekey reply", main("ReKeyTimeout"), unit("s");
    6, "TekGraceTime", u32(1, 302_399), "how long before expiry to rekey", main("TEKGraceTime"),
        unit("s");
    7, "AuthorizeRejectWaitTimeout", u32(1, 600), "wait after a rejection",
        main("AuthRejectTimeout"), unit("s");
    8, "SaMapWaitTimeout", u32(1, 10), "wait for a map reply", main("SAMapWaitTimeout"), unit("s");
    9, "SaMapMaximumRetries", u32(0, 10), "attempts at a map request", main("SAMapMaxRetries");
};

const KICKSTART: Scope = &fields! {
    1, "SecurityName", text(1, 16), "SNMPv3 user", main("SnmpV3SecurityName");
    2, "ManagerPublicNumber", hex(1, 514), "Diffie-Hellman number", main("SnmpV3MgrPublicNumber");
};

const NOTIFICATION: Scope = &fields! {
    1, "Ipv4Address", Kind::Ipv4, "receiver's address", main("SnmpV3TrapRxIP");
    2, "UdpPort", U16, "receiver's port", main("SnmpV3TrapRxPort");
    3, "NotificationType", u16(1, 5), "1 SNMPv1 trap ... 5 SNMPv3 inform", main("SnmpV3TrapRxType");
    4, "Timeout", U16, "wait for an answer to an inform", main("SnmpV3TrapRxTimeout"), unit("ms");
    5, "Retries", U16, "attempts at an inform", main("SnmpV3TrapRxRetries");
    6, "FilterOid", Kind::Oid, "subtree whose notifications are sent",
        main("SnmpV3TrapRxFilterOID");
    7, "SecurityName", text(1, 16), "SNMPv3 user", main("SnmpV3TrapRxSecurityName");
    8, "Ipv6Address", Kind::Ipv6, "receiver's address", main("SnmpV3TrapRxIP6");
};

const SINGLE_CHANNEL: Scope = &fields! {
    1, "Timeout", U16, "time spent on the channel", main("SingleDsTimeout"), unit("s");
    2, "Frequency", U32, "center frequency", main("SingleDsFrequency"), unit("Hz");
};
const FREQUENCY_RANGE: Scope = &fields! {
    1, "Timeout", U16, "time spent on each step", main("DsFreqRangeTimeout"), unit("s");
    2, "Start", U32, "first frequency", main("DsFreqRangeStart"), unit("Hz");
    3, "End", U32, "last frequency", main("DsFreqRangeEnd"), unit("Hz");
    4, "StepSize", U32, "step", main("DsFreqRangeStepSize"), unit("Hz");
};
const CHANNEL_LIST: Scope = &fields! {
    1, "SingleDownstreamChannel", nested(SINGLE_CHANNEL), "one channel to try",
        main("SingleDsChannel"), repeats();
    2, "DownstreamFrequencyRange", nested(FREQUENCY_RANGE), "channels to try", main("DsFreqRange"),
        repeats();
    3, "DefaultScanning", U16, "time before the modem's own scan", main("DefaultScanTimeout"),
        unit("s");
};

const CHANNEL_ASSIGNMENT: Scope = &fields! {
    1, "TransmitChannelAssignment", U8, "upstream channel", main("CaTransmit"), repeats();
    2, "ReceiveChannelAssignment", U32, "downstream frequency", main("CaReceive"),
        main_range(88_000_000, 860_000_000), unit("Hz"), repeats();
};

/// The top level of a file.
pub const TOP: Scope = &fields! {
    top::DOWNSTREAM_FREQUENCY, "DownstreamFrequency", u32(88_000_000, 1_218_000_000),
        "channel to use", main_range(88_000_000, 1_008_000_000), unit("Hz");
    top::UPSTREAM_CHANNEL_ID, "UpstreamChannelId", U8, "channel to use";
    top::NETWORK_ACCESS_CONTROL, "NetworkAccessControl", u8(0, 1),
        "1 lets the devices behind the modem use the network", main("NetworkAccess");
    top::CLASS_OF_SERVICE, "ClassOfService", nested(CLASS_OF_SERVICE), "DOCSIS 1.0 service class",
        repeats();
    5, "ModemCapabilities", nested(capabilities::MODEM_CAPABILITIES),
        "capabilities of the modem; sent by modems, not for a file";
    top::CM_MIC, "CmMic", hex(16, 16), "MD5 over the settings, checked by the modem";
    top::CMTS_MIC, "CmtsMic", hex(1, 255),
        "keyed digest over the protected settings, checked by the CMTS";
    9, "SoftwareUpgradeFilename", text(1, 255), "firmware file", main("SwUpgradeFilename");
    10, "SnmpWriteAccessControl", Kind::WriteControl,
        "subtree, then 1 denies and 0 allows writing below it", main("SnmpWriteControl"), repeats();
    MIB_OBJECT;
    12, "ModemIpAddress", Kind::Ipv4, "assigned by the network; not for a file",
        main("ModemIPAddress");
    14, "CpeEthernetMacAddress", Kind::Mac, "MAC address of a device that may connect",
        main("CpeMacAddress"), repeats();
    top::BASELINE_PRIVACY, "BaselinePrivacy", nested(PRIVACY), "timers of baseline privacy";
    top::MAXIMUM_CPES, "MaximumNumberOfCpes", u8(1, 254),
        "maximum number of devices behind the modem", main("MaxCPE");
    top::TFTP_TIMESTAMP, "TftpServerTimestamp", U32, "time at which the file was sent, since 1900",
        main("TftpTimestamp"), unit("s");
    top::TFTP_MODEM_IPV4, "TftpServerProvisionedModemIpv4Address", Kind::Ipv4,
        "address of the modem that the file is for", main("TftpModemAddress");
    21, "SoftwareUpgradeIpv4TftpServer", Kind::Ipv4, "address of the firmware server",
        main("SwUpgradeServer");
    top::UPSTREAM_CLASSIFIER, "UpstreamPacketClassification", nested(classifiers::CLASSIFIER),
        "which packets enter which upstream flow", main("UsPacketClass"), repeats();
    top::DOWNSTREAM_CLASSIFIER, "DownstreamPacketClassification", nested(classifiers::CLASSIFIER),
        "which packets enter which downstream flow", main("DsPacketClass"), repeats();
    top::UPSTREAM_FLOW, "UpstreamServiceFlow", nested(flows::UPSTREAM),
        "an upstream flow and its queue", main("UsServiceFlow"), repeats();
    top::DOWNSTREAM_FLOW, "DownstreamServiceFlow", nested(flows::DOWNSTREAM),
        "a downstream flow and its queue", main("DsServiceFlow"), repeats();
    top::HEADER_SUPPRESSION, "PHS", nested(services::SUPPRESSION), "payload header suppression",
        repeats();
    top::MAXIMUM_CLASSIFIERS, "MaximumNumberOfClassifiers", U16, "maximum number of classifiers",
        main("MaxClassifiers");
    top::PRIVACY_ENABLE, "PrivacyEnable", u8(0, 1), "1 turns baseline privacy on",
        main("GlobalPrivacyEnable");
    32, "ManufacturerCvc", hex(0, 255), "part of the manufacturer's certificate",
        main("MfgCVCData"), repeats();
    33, "CoSignerCvc", hex(0, 255), "part of the co-signer's certificate", main("CoSignerCVCData"),
        repeats();
    34, "Snmpv3KickstartValue", nested(KICKSTART), "SNMPv3 user and key", main("SnmpV3Kickstart"),
        repeats();
    top::SUBSCRIBER_CONTROL, "SubscriberManagementControl", hex(3, 3),
        "maximum number of devices, then flags", main("SubMgmtControl");
    top::SUBSCRIBER_IPV4_LIST, "SubscriberManagementCpeIpv4List", Kind::Ipv4List,
        "addresses of the devices", main("SubscriberManagementCPEIPTable");
    top::SUBSCRIBER_FILTER_GROUPS, "SubscriberManagementFilterGroups", list(2, 4, 10),
        "filter groups", main("SubMgmtFilters");
    38, "Snmpv3NotificationReceiver", nested(NOTIFICATION), "receiver of SNMP notifications",
        main("SnmpV3TrapReceiver"), repeats();
    39, "Docsis20ModeEnable", u8(0, 1), "1 turns DOCSIS 2.0 mode on", main("DocsisTwoEnable");
    top::TEST_MODES, "EnableTestModes", u8(0, 1), "for certification; not for service";
    41, "DownstreamChannelList", nested(CHANNEL_LIST), "channels to try", main("DsChannelList");
    42, "StaticMulticastMacAddress", Kind::Mac, "multicast address to forward",
        main("MulticastMACAddress"), repeats();
    extension::TOP;
    45, "DUTFiltering", nested(services::UNENCRYPTED_FILTER),
        "filter of downstream unencrypted traffic";
    COEXISTENCE; ACCESS_VIEW;
    55, "SnmpCpeAccessControl", u8(0, 1), "1 lets devices behind the modem use its SNMP agent",
        main("SNMPCPEAccessControl");
    56, "ChannelAssignment", nested(CHANNEL_ASSIGNMENT), "channels to use",
        main("ChannelAssignmentConfig");
    58, "SoftwareUpgradeIpv6TftpServer", Kind::Ipv6, "address of the firmware server",
        main("SwUpgradeServer6");
    top::TFTP_MODEM_IPV6, "TftpServerProvisionedModemIpv6Address", Kind::Ipv6,
        "address of the modem that the file is for", main("TFTPProvisionedModemIPv6Address");
    top::DROP_CLASSIFIER, "UpstreamDropPacketClassification", nested(classifiers::DROP),
        "packets that the modem drops", repeats();
    top::SUBSCRIBER_IPV6_PREFIXES, "SubMgmtCPEIPv6PrefixList", Kind::Ipv6PrefixList,
        "prefixes of the devices", repeats();
    top::DROP_CLASSIFIER_GROUPS, "UpstreamDropClassifierGroupId", list(1, 1, 255),
        "groups of drop classifiers at the CMTS", main("UpstreamDropClassifierGroupID");
    top::SUBSCRIBER_MAXIMUM_IPV6, "SubscriberManagementControlMaxCpeIpv6", U16,
        "maximum number of devices with IPv6", main("SubMgmtControl6");
    top::STATIC_MULTICAST, "CMTSStaticMulticastSessionEncodings",
        nested(services::STATIC_MULTICAST), "multicast that the CMTS forwards without a join",
        repeats();
    65, "L2VPNMACAgingEncoding", nested(services::ADDRESS_AGING),
        "aging of addresses in a layer 2 VPN";
    66, "ManagementEventControl", U32, "event to report", repeats();
    top::SUBSCRIBER_IPV6_LIST, "SubscriberManagementCpeIpv6List", Kind::Ipv6List,
        "addresses of the devices", main("SubscriberManagementCPEIPv6Table");
    top::DEFAULT_TARGET_BUFFER, "DefaultUpstreamTargetBuffer", U16,
        "target of upstream buffers without their own, as time at the flow's rate; 100 ms when \
         absent", unit("ms");
    69, "MACAddressLearningControlEncoding", nested(services::ADDRESS_LEARNING),
        "how the modem learns the devices' MAC addresses";
    top::UPSTREAM_AGGREGATE, "UpstreamAggregateServiceFlow", nested(flows::UPSTREAM_AGGREGATE),
        "upstream flows that share a rate", repeats();
    top::DOWNSTREAM_AGGREGATE, "DownstreamAggregateServiceFlow",
        nested(flows::DOWNSTREAM_AGGREGATE), "downstream flows that share a rate", repeats();
    top::METRO_ETHERNET, "MetroEthernetServiceProfile", nested(services::METRO_ETHERNET),
        "bandwidth and color of a Metro Ethernet service", repeats();
    73, "NetworkTimingProfile", nested(services::TIMING), "how the modem passes network time on",
        repeats();
    74, "EnergyManagementParameter", nested(device::ENERGY), "when the modem saves energy";
    75, "EnergyManagement1x1ModeIndicator", u8(0, 2), "state of the mode; not for a file";
    top::AQM_DISABLE, "CmUpstreamAqmDisable", u8(0, 1), "1 turns AQM off for all upstream flows",
        main("CMUpstreamAQMDisable");
    79, "UNIControlEncodings", nested(services::SUBSCRIBER_INTERFACE),
        "Ethernet interface towards the subscriber", repeats();
    81, "ManufacturerCvcChain", hex(0, 255), "part of the manufacturer's certificates",
        main("ManufacturerCVCChain"), repeats();
    82, "CoSignerCvcChain", hex(0, 255), "part of the co-signer's certificates",
        main("CoSignerCVCChain"), repeats();
    83, "DTPModeConfiguration", u8(0, 2), "DOCSIS time protocol";
    84, "DiplexerBandEdge", nested(device::DIPLEXER), "split between upstream and downstream";
    88, "QoSFrameworkforDOCSISEncodings", nested(&[]), "framework for quality of service";
    top::LOW_LATENCY_DISABLE, "LowLatencyDisable", u8(0, 2),
        "anything but 0 turns low latency support off";
    top::DISTRIBUTED_HQOS, "DistributedHqosEnable", u8(0, 2), "hierarchical QoS in the modem",
        main("DistributedHQoSEnable");
    top::UPSTREAM_ENHANCED_AGGREGATE, "UpstreamEnhancedHqosAsf", nested(flows::ENHANCED_HQOS),
        "upstream flows scheduled together", main("UpstreamEHQoSASF"), repeats();
    top::DOWNSTREAM_ENHANCED_AGGREGATE, "DownstreamEnhancedHqosAsf", nested(flows::ENHANCED_HQOS),
        "downstream flows scheduled together", main(""), repeats();
    96, "AdvancedDiplexerBandEdge", nested(device::ADVANCED_DIPLEXER),
        "split between upstream and downstream, DOCSIS 4.0";
    97, "AdvancedBandPlanSupport", u8(0, 1), "band plans of DOCSIS 4.0";
    101, "DOCSISSyncConfigurations", nested(device::SYNCHRONIZATION),
        "time and frequency that the modem passes on";
    102, "PTPAddressConfigurations", nested(device::PTP_ADDRESSES), "addresses for PTP";
    202, "eRouter", nested(embedded::ROUTER), "embedded router";
    217, "EstbSettings", nested(embedded::SET_TOP_BOX), "embedded set-top box";
    254, "MtaConfigDelimiter", u8(1, 255), "1 begins and 255 ends a telephone adapter's file";
};
