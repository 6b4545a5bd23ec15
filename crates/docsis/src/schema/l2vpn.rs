//! Layer 2 VPNs (type 43.5, L2VPN specification, annex B).

use super::{Kind, Scope, U8, U16, U32, VENDOR, hex, list, nested, text, u8, u16};

const SERVICE_MULTIPLEXING_VALUE_MPLSPW: Scope = &fields! {
    1, "MPLSPseudowireID", U32, "identifier of the pseudowire";
    2, "MPLSPeerIpAddress", Kind::TaggedIp, "address of the other end";
    3, "MPLSPseudowireType", U8, "4 Ethernet tagged, 5 Ethernet raw";
    4, "MPLSBackupPseudowireID", U32, "identifier of the backup pseudowire";
    5, "MPLSBackupPeerIpAddress", Kind::TaggedIp, "address of the backup's other end";
};

const IEEE8021AH_ENCAPSULATION: Scope = &fields! {
    1, "ITCIEncapsulation", hex(4, 4), "control information of the service tag";
    2, "BDAEncapsulation", hex(6, 6), "backbone destination address";
    3, "BTCIEncapsulation", hex(2, 2), "control information of the backbone tag";
    4, "ITPIDEncapsulation", hex(2, 2), "tag protocol identifier of the service tag";
    5, "IPCPEncapsulation", hex(1, 1), "priority code point of the service tag";
    6, "IDEIEncapsulation", hex(1, 1), "drop eligibility of the service tag";
    7, "IUCAEncapsulation", hex(1, 1), "use of customer addresses";
    8, "ISIDEncapsulation", hex(3, 3), "service identifier";
    9, "BTPIDEncapsulation", hex(2, 2), "tag protocol identifier of the backbone tag";
    10, "BPCPEncapsulation", hex(1, 1), "priority code point of the backbone tag";
    11, "BDEIEncapsulation", hex(1, 1), "drop eligibility of the backbone tag";
    12, "BVIDEncapsulation", hex(2, 2), "VLAN identifier of the backbone tag";
};

const NSI_ENCAPSULATION: Scope = &fields! {
    1, "ServiceMultiplexingValueOther", Kind::Empty, "other encapsulation; the CMTS decides";
    2, "NSIEncapsulationSingleQTag", u16(0, 4096), "VLAN identifier of a single tag";
    3, "NSIEncapsulationDualQTag", list(2, 2, 2), "VLAN identifiers of the outer and the inner tag";
    4, "ServiceMultiplexingValueMPLSPW", nested(SERVICE_MULTIPLEXING_VALUE_MPLSPW),
        "an MPLS pseudowire";
    5, "ServiceMultiplexingValueL2TPv3Peer", Kind::TaggedIp,
        "address of the other end of an L2TPv3 tunnel";
    6, "IEEE8021ahEncapsulation", nested(IEEE8021AH_ENCAPSULATION),
        "provider backbone bridging (802.1ah)";
    8, "ServiceMultiplexingValueIEEE8021adSTPID", hex(2, 2),
        "tag protocol identifier of the outer tag (802.1ad)";
};

const TPID_TRANSLATION: Scope = &fields! {
    1, "UpstreamTPIDTranslation", hex(2, 2), "upstream, single tag";
    2, "DownstreamTPIDTranslation", hex(2, 2), "downstream, single tag";
    3, "UpstreamSTPIDTranslation", hex(2, 2), "upstream, outer tag";
    4, "DownstreamSTPIDTranslation", hex(2, 2), "downstream, outer tag";
    5, "UpstreamBTPIDTranslation", hex(2, 2), "upstream, backbone tag";
    6, "DownstreamBTPIDTranslation", hex(2, 2), "downstream, backbone tag";
    7, "UpstreamITPIDTranslation", hex(2, 2), "upstream, service tag";
    8, "DownstreamITPIDTranslation", hex(2, 2), "downstream, service tag";
};

const L2CP_PROCESSING: Scope = &fields! {
    1, "L2CPTunnelMode", u8(0, 1), "how control frames are tunnelled";
    2, "L2CPDMACAddress", Kind::Mac, "destination address of the control frames";
    3, "L2CPOverwrotingDMACAddress", Kind::Mac, "destination address that replaces it";
};

const SERVICE_DELIMITER: Scope = &fields! {
    1, "CVIDDelimiter", hex(2, 2), "customer VLAN identifier";
    2, "SVIDDelimiter", hex(2, 2), "service VLAN identifier";
    3, "ISIDDelimiter", hex(3, 3), "service identifier";
    4, "BVIDDelimiter", hex(2, 2), "backbone VLAN identifier";
};

const VIRTUAL_SWITCH_INSTANCE_ENCODING: Scope = &fields! {
    1, "VPLSClass", hex(0, 255), "class of the switch";
    2, "ETreeRole", u8(0, 1), "0 leaf, 1 root";
    3, "ETreeRootVID", hex(2, 2), "VLAN identifier of the root";
    4, "ETreeLeafVID", hex(2, 2), "VLAN identifier of the leaves";
};

const BGP_ATTRIBUTE: Scope = &fields! {
    1, "BGPVPNID", U32, "identifier of the VPN";
    2, "RouteDistinguisher", hex(8, 8), "identifier that makes the VPN's routes unique";
    3, "RouteTargetImport", hex(0, 255), "targets of imported routes", repeats();
    4, "RouteTargetExport", hex(0, 255), "targets of exported routes", repeats();
    5, "CEIDVEID", U16, "identifier of this end";
};

const MEP_CONFIGURATION: Scope = &fields! {
    1, "MDLevel", u8(0, 7), "level of the maintenance domain";
    2, "MDName", text(2, 16), "name of the maintenance domain";
    3, "MAName", text(2, 28), "name of the maintenance association";
    4, "MEPID", u16(1, 8191), "identifier of this end";
};

const REMOTE_MEP_CONFIGURATION: Scope = &fields! {
    1, "RemoteMDLevel", u8(0, 7), "level of the maintenance domain";
    2, "RemoteMDName", text(2, 16), "name of the maintenance domain";
    3, "RemoteMAName", text(2, 28), "name of the maintenance association";
    4, "RemoteMEPID", u16(1, 8191), "identifier of the other end";
};

const FAULT_MANAGEMENT_CONFIGURATION: Scope = &fields! {
    1, "ContinuityCheckMessages", u8(0, 2), "continuity checks";
    2, "LoopbackFunction", u8(0, 1), "1 turns loopback on";
    3, "LinktraceFunction", u8(0, 1), "1 turns link trace on";
};

const FRAME_DELAY_MEASUREMENT: Scope = &fields! {
    1, "FrameDelayMeasurementEnable", u8(0, 1), "1 measures frame delay";
    2, "FrameDelayMeasurementOneWayTwoWay", u8(0, 1), "0 one way, 1 both ways";
    3, "FrameDelayMeasurementTransmissionPeriodicity", U16, "time between measurements";
};

const FRAME_LOSS_MEASUREMENT: Scope = &fields! {
    1, "FrameLossMeasurementEnable", u8(0, 1), "1 measures frame loss";
    2, "FrameLossMeasurementTransmissionPeriodicity", U8, "time between measurements";
};

const PERFORMANCE_MANAGEMENT_CONFIGURATION: Scope = &fields! {
    1, "FrameDelayMeasurement", nested(FRAME_DELAY_MEASUREMENT), "frame delay";
    2, "FrameLossMeasurement", nested(FRAME_LOSS_MEASUREMENT), "frame loss";
};

const SOAM_SUBTYPE: Scope = &fields! {
    1, "MEPConfiguration", nested(MEP_CONFIGURATION), "this end of the supervised connection";
    2, "RemoteMEPConfiguration", nested(REMOTE_MEP_CONFIGURATION),
        "the other end of the supervised connection", repeats();
    3, "FaultManagementConfiguration", nested(FAULT_MANAGEMENT_CONFIGURATION), "fault detection";
    4, "PerformanceManagementConfiguration", nested(PERFORMANCE_MANAGEMENT_CONFIGURATION),
        "performance measurement";
};

pub(super) const L2VPN: Scope = &fields! {
    1, "VPNIdentifier", hex(4, 255), "name of the VPN";
    2, "NSIEncapsulation", nested(NSI_ENCAPSULATION),
        "encapsulation on the network side of the CMTS";
    3, "eSAFEDHCPSnooping", hex(0, 255), "embedded devices whose DHCP the CMTS watches";
    4, "CMInterfaceMaskCMIMSubtype", hex(0, 255), "modem interfaces that belong to the VPN";
    5, "AttachmentGroupID", hex(0, 255), "attachment group of a pseudowire";
    6, "SourceAttachmentIndividualID", hex(0, 255), "this end's attachment";
    7, "TargetAttachmentIndividualID", hex(0, 255), "the other end's attachment";
    8, "IngressUserPriority", u8(0, 7), "priority that untagged frames get";
    9, "UserPriorityRange", list(1, 2, 2), "lowest and highest priority code point";
    10, "L2VPNSADescriptorSubtype", hex(14, 14), "security association; assigned by the CMTS";
    12, "PseudowireType", u8(4, 5), "4 Ethernet tagged, 5 Ethernet raw";
    13, "L2VPNMode", u8(0, 1), "0 encapsulation, 1 transport";
    14, "TPIDTranslation", nested(TPID_TRANSLATION), "tag protocol identifiers that are replaced";
    15, "L2CPProcessing", nested(L2CP_PROCESSING), "handling of layer 2 control protocols",
        repeats();
    16, "DACDisableEnableConfiguration", u8(0, 1),
        "1 configures the demarcation device automatically";
    18, "PseudowireClass", hex(0, 255), "class of the pseudowire at the CMTS";
    19, "ServiceDelimiter", nested(SERVICE_DELIMITER), "tags that identify the service";
    20, "VirtualSwitchInstanceEncoding", nested(VIRTUAL_SWITCH_INSTANCE_ENCODING),
        "the virtual switch at the CMTS";
    21, "BGPAttribute", nested(BGP_ATTRIBUTE), "how BGP announces the VPN";
    23, "PseudowireSignaling", u8(0, 2), "0 none, 1 LDP, 2 BGP";
    24, "SOAMSubtype", nested(SOAM_SUBTYPE), "Ethernet operation, administration and maintenance";
    26, "L2VPNDSID", Kind::Number { width: 3, low: 1, high: 1_048_575 },
        "downstream service identifier; assigned by the CMTS";
    43, "VendorSpecificL2VPNSubtype", Kind::Extension(VENDOR), "vendor settings", repeats();
};
