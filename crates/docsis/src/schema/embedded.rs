//! Devices inside the modem: a router (202) and a set-top box (217).

use super::snmp_access::{access_view, coexistence, mib_object};
use super::{Field, Kind, Scope, VENDOR, nested, text, u8, u16};

const TR69_MANAGEMENT_SERVER: Scope = &[
    u8(1, "EnableCWMP", 0, 1, "1 lets it manage the router"),
    text(2, "URL", 0, 255, "address of the server"),
    text(3, "Username", 0, 255, "name that the router gives"),
    text(4, "Password", 0, 255, "password that the router gives"),
    text(5, "ConnectionRequestUsername", 0, 255, "name that the server gives"),
    text(6, "ConnectionRequestPassword", 0, 255, "password that the server gives"),
    u8(7, "ACSOverride", 0, 1, "1 puts this in place of what the router was told before"),
];

pub(super) const ROUTER: Scope = &[
    u8(1, "InitializationMode", 0, 3, "0 off, 1 IPv4, 2 IPv6, 3 both"),
    nested(
        2,
        "TR69ManagementServer",
        TR69_MANAGEMENT_SERVER,
        "server that manages the router (TR-069)",
    ),
    u8(3, "InitializationModeOverride", 0, 1, "1 puts the mode above what was set elsewhere"),
    u16(10, "RATransmissionInterval", 3, 1800, "time between IPv6 router advertisements").unit("s"),
    mib_object(),
    u8(42, "TopologyModeEncoding", 1, 2, "how prefixes are split: 1 favors depth, 2 favors width"),
    Field::new(43, "VendorSpecific", Kind::Extension(VENDOR), "vendor settings").repeats(),
    coexistence(),
    access_view(),
];

const SNMPV1V2_SETTINGS: Scope = &[text(1, "Snmpv1v2CommunityName", 1, 32, "community")];

pub(super) const SET_TOP_BOX: Scope = &[
    u8(1, "IpModeControl", 0, 2, "which versions of IP it uses"),
    nested(53, "Snmpv1v2Settings", SNMPV1V2_SETTINGS, "SNMP community"),
];
