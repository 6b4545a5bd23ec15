//! SNMP objects and access rights, which modems and the devices inside them have alike.

use super::{Field, Kind, Scope, hex, nested, text, u8};

const TRANSPORT: Scope = &[
    Field::new(1, "TransportAddress", Kind::Transport, "address and port")
        .main("SNMPv1v2cTransportAddress"),
    Field::new(2, "TransportAddressMask", Kind::Transport, "mask of address and port")
        .main("SNMPv1v2cTransportAddressMask"),
];
const COEXISTENCE: Scope = &[
    text(1, "CommunityName", 1, 32, "SNMP community").main("SNMPv1v2cCommunityName"),
    nested(2, "TransportAddressAccess", TRANSPORT, "who may use it")
        .main("SNMPv1v2cTransportAddressAccess")
        .repeats(),
    u8(3, "AccessViewType", 1, 2, "1 read only, 2 read and write").main("SNMPv1v2cAccessViewType"),
    text(4, "AccessViewName", 1, 32, "view").main("SNMPv1v2cAccessViewName"),
];
const ACCESS_VIEW: Scope = &[
    text(1, "AccessViewName", 1, 32, "view").main("SNMPv3AccessViewName"),
    Field::new(2, "AccessViewSubtree", Kind::Oid, "subtree").main("SNMPv3AccessViewSubtree"),
    hex(3, "AccessViewMask", 0, 16, "mask of the subtree")
        .main("SNMPv3AccessViewMask")
        .main_range(1, 2),
    u8(4, "AccessViewType", 1, 2, "1 included, 2 excluded").main("SNMPv3AccessViewType"),
];

pub(super) const fn mib_object() -> Field {
    Field::new(11, "SnmpMibObject", Kind::VarBind, "object that the device sets").repeats()
}
pub(super) const fn coexistence() -> Field {
    nested(53, "Snmpv1v2cCoexistence", COEXISTENCE, "SNMP community and its rights")
        .main("SNMPv1v2cCoexistenceConfig")
        .repeats()
}
pub(super) const fn access_view() -> Field {
    nested(54, "Snmpv3AccessView", ACCESS_VIEW, "SNMP view")
        .main("SNMPv3AccessViewConfiguration")
        .repeats()
}
