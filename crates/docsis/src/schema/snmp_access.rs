//! SNMP objects and access rights, which modems and the devices inside them have alike.

use super::{Field, Kind, Scope, hex, nested, text, u8};

const TRANSPORT: Scope = &fields! {
    1, "TransportAddress", Kind::Transport, "address and port", main("SNMPv1v2cTransportAddress");
    2, "TransportAddressMask", Kind::Transport, "mask of address and port",
        main("SNMPv1v2cTransportAddressMask");
};
const COMMUNITY: Scope = &fields! {
    1, "CommunityName", text(1, 32), "SNMP community", main("SNMPv1v2cCommunityName");
    2, "TransportAddressAccess", nested(TRANSPORT), "addresses that may use the community",
        main("SNMPv1v2cTransportAddressAccess"), repeats();
    3, "AccessViewType", u8(1, 2), "1 read only, 2 read and write", main("SNMPv1v2cAccessViewType");
    4, "AccessViewName", text(1, 32), "view", main("SNMPv1v2cAccessViewName");
};
const VIEW: Scope = &fields! {
    1, "AccessViewName", text(1, 32), "view", main("SNMPv3AccessViewName");
    2, "AccessViewSubtree", Kind::Oid, "subtree", main("SNMPv3AccessViewSubtree");
    3, "AccessViewMask", hex(0, 16), "mask of the subtree", main("SNMPv3AccessViewMask"),
        main_range(1, 2);
    4, "AccessViewType", u8(1, 2), "1 included, 2 excluded", main("SNMPv3AccessViewType");
};

pub(super) const MIB_OBJECT: Field = field! {
    11, "SnmpMibObject", Kind::VarBind, "SNMP object that the device sets", repeats()
};
pub(super) const COEXISTENCE: Field = field! {
    53, "Snmpv1v2cCoexistence", nested(COMMUNITY), "SNMP community and its rights",
        main("SNMPv1v2cCoexistenceConfig"), repeats()
};
pub(super) const ACCESS_VIEW: Field = field! {
    54, "Snmpv3AccessView", nested(VIEW), "SNMP view", main("SNMPv3AccessViewConfiguration"),
        repeats()
};
