//! Devices inside the modem: a router (202) and a set-top box (217).

use super::snmp_access::{ACCESS_VIEW, COEXISTENCE, MIB_OBJECT};
use super::{Kind, Scope, VENDOR, nested, text, u8, u16};

const TR69_MANAGEMENT_SERVER: Scope = &fields! {
    1, "EnableCWMP", u8(0, 1), "1 allows the server to manage the router";
    2, "URL", text(0, 255), "address of the server";
    3, "Username", text(0, 255), "username of the router at the server";
    4, "Password", text(0, 255), "password of the router at the server";
    5, "ConnectionRequestUsername", text(0, 255), "username of the server at the router";
    6, "ConnectionRequestPassword", text(0, 255), "password of the server at the router";
    7, "ACSOverride", u8(0, 1), "1 overrides the settings that the router stored before";
};

pub(super) const ROUTER: Scope = &fields! {
    1, "InitializationMode", u8(0, 3), "0 off, 1 IPv4, 2 IPv6, 3 both";
    2, "TR69ManagementServer", nested(TR69_MANAGEMENT_SERVER),
        "server that manages the router (TR-069)";
    3, "InitializationModeOverride", u8(0, 1), "1 overrides a mode that was set elsewhere";
    10, "RATransmissionInterval", u16(3, 1800), "time between IPv6 router advertisements",
        unit("s");
    MIB_OBJECT;
    42, "TopologyModeEncoding", u8(1, 2), "how prefixes are split: 1 favors depth, 2 favors width";
    43, "VendorSpecific", Kind::Extension(VENDOR), "vendor settings", repeats();
    COEXISTENCE; ACCESS_VIEW;
};

const SNMPV1V2_SETTINGS: Scope = &fields! {
    1, "Snmpv1v2CommunityName", text(1, 32), "community";
};

pub(super) const SET_TOP_BOX: Scope = &fields! {
    1, "IpModeControl", u8(0, 2), "IP versions that the set-top box uses";
    53, "Snmpv1v2Settings", nested(SNMPV1V2_SETTINGS), "SNMP community";
};
