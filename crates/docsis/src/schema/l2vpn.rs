//! Layer 2 VPNs (type 43.5, L2VPN specification, annex B).

use super::{Field, Kind, MAX16, MAX32, Scope, VENDOR, hex, nested, text, u8, u16, u32};

const SERVICE_MULTIPLEXING_VALUE_MPLSPW: Scope = &[
    u32(1, "MPLSPseudowireID", 0, MAX32, "identifier of the pseudowire"),
    Field::new(2, "MPLSPeerIpAddress", Kind::TaggedIp, "address of the other end"),
    u8(3, "MPLSPseudowireType", 0, 255, "4 Ethernet tagged, 5 Ethernet raw"),
    u32(4, "MPLSBackupPseudowireID", 0, MAX32, "identifier of the backup pseudowire"),
    Field::new(5, "MPLSBackupPeerIpAddress", Kind::TaggedIp, "address of the backup's other end"),
];

const IEEE8021AH_ENCAPSULATION: Scope = &[
    hex(1, "ITCIEncapsulation", 4, 4, "control information of the service tag"),
    hex(2, "BDAEncapsulation", 6, 6, "backbone destination address"),
    hex(3, "BTCIEncapsulation", 2, 2, "control information of the backbone tag"),
    hex(4, "ITPIDEncapsulation", 2, 2, "tag protocol identifier of the service tag"),
    hex(5, "IPCPEncapsulation", 1, 1, "priority code point of the service tag"),
    hex(6, "IDEIEncapsulation", 1, 1, "drop eligibility of the service tag"),
    hex(7, "IUCAEncapsulation", 1, 1, "use of customer addresses"),
    hex(8, "ISIDEncapsulation", 3, 3, "service identifier"),
    hex(9, "BTPIDEncapsulation", 2, 2, "tag protocol identifier of the backbone tag"),
    hex(10, "BPCPEncapsulation", 1, 1, "priority code point of the backbone tag"),
    hex(11, "BDEIEncapsulation", 1, 1, "drop eligibility of the backbone tag"),
    hex(12, "BVIDEncapsulation", 2, 2, "VLAN identifier of the backbone tag"),
];

const NSI_ENCAPSULATION: Scope = &[
    Field::new(1, "ServiceMultiplexingValueOther", Kind::Empty, "another way; the CMTS decides"),
    u16(2, "NSIEncapsulationSingleQTag", 0, 4096, "VLAN identifier of a single tag"),
    Field::new(
        3,
        "NSIEncapsulationDualQTag",
        Kind::List { width: 2, low: 2, high: 2 },
        "VLAN identifiers of the outer and the inner tag",
    ),
    nested(
        4,
        "ServiceMultiplexingValueMPLSPW",
        SERVICE_MULTIPLEXING_VALUE_MPLSPW,
        "an MPLS pseudowire",
    ),
    Field::new(
        5,
        "ServiceMultiplexingValueL2TPv3Peer",
        Kind::TaggedIp,
        "address of the other end of an L2TPv3 tunnel",
    ),
    nested(
        6,
        "IEEE8021ahEncapsulation",
        IEEE8021AH_ENCAPSULATION,
        "provider backbone bridging (802.1ah)",
    ),
    hex(
        8,
        "ServiceMultiplexingValueIEEE8021adSTPID",
        2,
        2,
        "tag protocol identifier of the outer tag (802.1ad)",
    ),
];

const TPID_TRANSLATION: Scope = &[
    hex(1, "UpstreamTPIDTranslation", 2, 2, "upstream, single tag"),
    hex(2, "DownstreamTPIDTranslation", 2, 2, "downstream, single tag"),
    hex(3, "UpstreamSTPIDTranslation", 2, 2, "upstream, outer tag"),
    hex(4, "DownstreamSTPIDTranslation", 2, 2, "downstream, outer tag"),
    hex(5, "UpstreamBTPIDTranslation", 2, 2, "upstream, backbone tag"),
    hex(6, "DownstreamBTPIDTranslation", 2, 2, "downstream, backbone tag"),
    hex(7, "UpstreamITPIDTranslation", 2, 2, "upstream, service tag"),
    hex(8, "DownstreamITPIDTranslation", 2, 2, "downstream, service tag"),
];

const L2CP_PROCESSING: Scope = &[
    u8(1, "L2CPTunnelMode", 0, 1, "how their frames are tunnelled"),
    Field::new(2, "L2CPDMACAddress", Kind::Mac, "destination of the frames meant"),
    Field::new(3, "L2CPOverwrotingDMACAddress", Kind::Mac, "destination that they get instead"),
];

const SERVICE_DELIMITER: Scope = &[
    hex(1, "CVIDDelimiter", 2, 2, "customer VLAN identifier"),
    hex(2, "SVIDDelimiter", 2, 2, "service VLAN identifier"),
    hex(3, "ISIDDelimiter", 3, 3, "service identifier"),
    hex(4, "BVIDDelimiter", 2, 2, "backbone VLAN identifier"),
];

const VIRTUAL_SWITCH_INSTANCE_ENCODING: Scope = &[
    hex(1, "VPLSClass", 0, 255, "class of the switch"),
    u8(2, "ETreeRole", 0, 1, "0 leaf, 1 root"),
    hex(3, "ETreeRootVID", 2, 2, "VLAN identifier of the root"),
    hex(4, "ETreeLeafVID", 2, 2, "VLAN identifier of the leaves"),
];

const BGP_ATTRIBUTE: Scope = &[
    u32(1, "BGPVPNID", 0, MAX32, "identifier of the VPN"),
    hex(2, "RouteDistinguisher", 8, 8, "distinguishes its routes from others'"),
    hex(3, "RouteTargetImport", 0, 255, "routes that are taken").repeats(),
    hex(4, "RouteTargetExport", 0, 255, "mark of the routes that are announced").repeats(),
    u16(5, "CEIDVEID", 0, MAX16, "identifier of this end"),
];

const MEP_CONFIGURATION: Scope = &[
    u8(1, "MDLevel", 0, 7, "level of the maintenance domain"),
    text(2, "MDName", 2, 16, "name of the maintenance domain"),
    text(3, "MAName", 2, 28, "name of the maintenance association"),
    u16(4, "MEPID", 1, 8191, "identifier of this end"),
];

const REMOTE_MEP_CONFIGURATION: Scope = &[
    u8(1, "RemoteMDLevel", 0, 7, "level of the maintenance domain"),
    text(2, "RemoteMDName", 2, 16, "name of the maintenance domain"),
    text(3, "RemoteMAName", 2, 28, "name of the maintenance association"),
    u16(4, "RemoteMEPID", 1, 8191, "identifier of the other end"),
];

const FAULT_MANAGEMENT_CONFIGURATION: Scope = &[
    u8(1, "ContinuityCheckMessages", 0, 2, "continuity checks"),
    u8(2, "LoopbackFunction", 0, 1, "1 turns loopback on"),
    u8(3, "LinktraceFunction", 0, 1, "1 turns link trace on"),
];

const FRAME_DELAY_MEASUREMENT: Scope = &[
    u8(1, "FrameDelayMeasurementEnable", 0, 1, "1 measures it"),
    u8(2, "FrameDelayMeasurementOneWayTwoWay", 0, 1, "0 one way, 1 both ways"),
    u16(3, "FrameDelayMeasurementTransmissionPeriodicity", 0, MAX16, "time between measurements"),
];

const FRAME_LOSS_MEASUREMENT: Scope = &[
    u8(1, "FrameLossMeasurementEnable", 0, 1, "1 measures it"),
    u8(2, "FrameLossMeasurementTransmissionPeriodicity", 0, 255, "time between measurements"),
];

const PERFORMANCE_MANAGEMENT_CONFIGURATION: Scope = &[
    nested(1, "FrameDelayMeasurement", FRAME_DELAY_MEASUREMENT, "frame delay"),
    nested(2, "FrameLossMeasurement", FRAME_LOSS_MEASUREMENT, "frame loss"),
];

const SOAM_SUBTYPE: Scope = &[
    nested(1, "MEPConfiguration", MEP_CONFIGURATION, "this end of the supervised connection"),
    nested(
        2,
        "RemoteMEPConfiguration",
        REMOTE_MEP_CONFIGURATION,
        "the other end of the supervised connection",
    )
    .repeats(),
    nested(
        3,
        "FaultManagementConfiguration",
        FAULT_MANAGEMENT_CONFIGURATION,
        "which faults are looked for",
    ),
    nested(
        4,
        "PerformanceManagementConfiguration",
        PERFORMANCE_MANAGEMENT_CONFIGURATION,
        "what is measured",
    ),
];

pub(super) const L2VPN: Scope = &[
    hex(1, "VPNIdentifier", 4, 255, "name of the VPN"),
    nested(
        2,
        "NSIEncapsulation",
        NSI_ENCAPSULATION,
        "how frames travel on the network side of the CMTS",
    ),
    hex(3, "eSAFEDHCPSnooping", 0, 255, "embedded devices whose DHCP the CMTS watches"),
    hex(4, "CMInterfaceMaskCMIMSubtype", 0, 255, "modem interfaces that belong to the VPN"),
    hex(5, "AttachmentGroupID", 0, 255, "attachment group of a pseudowire"),
    hex(6, "SourceAttachmentIndividualID", 0, 255, "this end's attachment"),
    hex(7, "TargetAttachmentIndividualID", 0, 255, "the other end's attachment"),
    u8(8, "IngressUserPriority", 0, 7, "priority that untagged frames get"),
    Field::new(
        9,
        "UserPriorityRange",
        Kind::List { width: 1, low: 2, high: 2 },
        "lowest and highest priority code point",
    ),
    hex(10, "L2VPNSADescriptorSubtype", 14, 14, "security association; assigned by the CMTS"),
    u8(12, "PseudowireType", 4, 5, "4 Ethernet tagged, 5 Ethernet raw"),
    u8(13, "L2VPNMode", 0, 1, "0 encapsulation, 1 transport"),
    nested(14, "TPIDTranslation", TPID_TRANSLATION, "tag protocol identifiers that are replaced"),
    nested(15, "L2CPProcessing", L2CP_PROCESSING, "what happens to layer 2 control protocols")
        .repeats(),
    u8(16, "DACDisableEnableConfiguration", 0, 1, "1 configures the demarcation device by itself"),
    hex(18, "PseudowireClass", 0, 255, "class of the pseudowire at the CMTS"),
    nested(19, "ServiceDelimiter", SERVICE_DELIMITER, "tags that tell the service"),
    nested(
        20,
        "VirtualSwitchInstanceEncoding",
        VIRTUAL_SWITCH_INSTANCE_ENCODING,
        "the virtual switch at the CMTS",
    ),
    nested(21, "BGPAttribute", BGP_ATTRIBUTE, "how BGP announces the VPN"),
    u8(23, "PseudowireSignaling", 0, 2, "0 none, 1 LDP, 2 BGP"),
    nested(24, "SOAMSubtype", SOAM_SUBTYPE, "Ethernet operation, administration and maintenance"),
    Field::new(
        26,
        "L2VPNDSID",
        Kind::Number { width: 3, low: 1, high: 1_048_575 },
        "downstream service identifier; assigned by the CMTS",
    ),
    Field::new(43, "VendorSpecificL2VPNSubtype", Kind::Extension(VENDOR), "vendor settings")
        .repeats(),
];
