//! Extension fields (type 43): the specification's own, and vendors'.

use super::{
    Field, Kind, MAX16, MAX32, Scope, class_name, hex, l2vpn, nested, text, u8, u16, u32,
    vendor_identifier,
};
use crate::code::{self, extended_mic, top};

const fn mic_fields(names: [&'static str; 3]) -> [Field; 3] {
    [
        u8(extended_mic::DIGEST_TYPE, "ExtendedCmtsMicHmacType", 1, 2, "1 HMAC-MD5, 2 MMH16")
            .main(names[0]),
        hex(
            extended_mic::BITMAP,
            "ExtendedCmtsMicBitmap",
            1,
            255,
            "bit n, counted from the left, protects type n",
        )
        .main(names[1]),
        hex(
            extended_mic::EXPLICIT_DIGEST,
            "ExplicitExtendedCmtsMicDigest",
            1,
            255,
            "the digest; without it TLV 7 is the digest",
        )
        .main(names[2]),
    ]
}

const EXTENDED_MIC: Scope = &mic_fields([
    "ExtendedCMTSMICHMACDigestType",
    "ExtendedCMTSMICHMACBitmap",
    "ExtendedCMTSMICHMACDigest",
]);

const EXTENDED_MIC_INSIDE: Scope = &mic_fields([
    "ExtendedCMTSMICHMACtype",
    "ExtendedCMTSMICBitmap",
    "ExplicitExtendedCMTSMICDigest",
]);

const ATTRIBUTE_MASKS: Scope = &[
    hex(1, "DownstreamRequired", 4, 4, "attributes that channels must have")
        .main("CMDownstreamRequiredAttributeMask"),
    hex(2, "DownstreamForbidden", 4, 4, "attributes that channels must not have")
        .main("CMDownstreamForbiddenAttributeMask"),
    hex(3, "UpstreamRequired", 4, 4, "attributes that channels must have")
        .main("CMUpstreamRequiredAttributeMask"),
    hex(4, "UpstreamForbidden", 4, 4, "attributes that channels must not have")
        .main("CMUpstreamForbiddenAttributeMask"),
];

const SAV_STATIC_PREFIX_RULE: Scope = &[
    Field::new(1, "SAVStaticPrefixAddress", Kind::Ip, "address of the prefix"),
    u8(2, "SAVStaticPrefixLength", 0, 128, "bits that count").unit("bits"),
];

const SOURCE_ADDRESS_VERIFICATION: Scope = &[
    text(1, "SAVGroupName", 1, 15, "group of address prefixes at the CMTS"),
    nested(2, "SAVStaticPrefixRule", SAV_STATIC_PREFIX_RULE, "a prefix that is allowed").repeats(),
];

const IP_MULTICAST_JOIN_AUTH_STATIC_SESSION_RULE: Scope = &[
    u8(1, "MulticastRulePriority", 0, 255, "order of evaluation, highest first"),
    u8(2, "AuthorizationAction", 0, 1, "0 permits, 1 denies"),
    Field::new(3, "SourcePrefixAddress", Kind::Ip, "source of the session"),
    u8(4, "SourcePrefixLength", 0, 128, "bits of the source that count").unit("bits"),
    Field::new(5, "GroupPrefixAddress", Kind::Ip, "group of the session"),
    u8(6, "GroupPrefixLength", 0, 128, "bits of the group that count").unit("bits"),
];

const MULTICAST_JOIN: Scope = &[
    text(1, "IPMulticastProfileName", 1, 15, "profile at the CMTS").repeats(),
    nested(
        2,
        "IPMulticastJoinAuthStaticSessionRule",
        IP_MULTICAST_JOIN_AUTH_STATIC_SESSION_RULE,
        "sessions that are permitted or denied",
    )
    .repeats(),
    u16(3, "MaximumMulticastSessions", 0, MAX16, "sessions at once"),
];

const DEMARCATION: Scope = &[
    u8(1, "DACDisableEnableConfig", 0, 1, "1 turns it on"),
    hex(2, "CMIMEncoding", 0, 255, "modem interfaces that it is about"),
    class_name(3, "UpstreamServiceClassName", "service class of its upstream flow"),
    class_name(4, "DownstreamServiceClassName", "service class of its downstream flow"),
];

const fn fields(mic: Scope, mic_main_name: &'static str) -> [Field; 12] {
    [
        u32(1, "CmLoadBalancingPolicyId", 0, MAX32, "load balancing policy")
            .main("CMLoadBalancingPolicyID"),
        u32(2, "CmLoadBalancingPriority", 0, MAX32, "load balancing priority")
            .main("CMLoadBalancingPriority"),
        u32(3, "CmLoadBalancingGroupId", 0, MAX32, "load balancing group")
            .main("CMLoadBalancingGroupID"),
        u16(4, "CmRangingClassIdExtension", 0, MAX16, "ranging class")
            .main("CMRangingClassIDExtension"),
        nested(5, "L2VPNEncoding", l2vpn::L2VPN, "a layer 2 VPN and how its frames travel")
            .repeats(),
        nested(
            code::extension::EXTENDED_MIC,
            "ExtendedCmtsMicConfiguration",
            mic,
            "which types the extended CMTS MIC protects; a CMTS ignores aggregate service flows \
             that no MIC protects",
        )
        .main(mic_main_name),
        nested(
            7,
            "SAVAuthorizationEncoding",
            SOURCE_ADDRESS_VERIFICATION,
            "source addresses that the devices may use",
        ),
        vendor_identifier(),
        nested(9, "CmAttributeMasks", ATTRIBUTE_MASKS, "channel attributes")
            .main("CMAttributeMasks"),
        nested(
            10,
            "IPMulticastJoinAuthorization",
            MULTICAST_JOIN,
            "multicast sessions that the devices may join",
        ),
        text(11, "ServiceTypeIdentifier", 1, 16, "service type"),
        nested(
            12,
            "DEMARCAutoConfiguration",
            DEMARCATION,
            "automatic configuration of a demarcation device",
        ),
    ]
}

const TOP: Scope = &fields(EXTENDED_MIC, "ExtendedCMTSMICConfiguration");
const INSIDE: Scope = &fields(EXTENDED_MIC_INSIDE, "ExtendedCMTSMICConfigurationSetting");

/// The extension field at the top level of a file.
pub(super) const fn top() -> Field {
    field(TOP)
}

/// The extension field inside another setting, where the `Main` form has other names for the
/// extended MIC.
pub(super) const fn extension() -> Field {
    field(INSIDE)
}

const fn field(scope: Scope) -> Field {
    Field::new(
        top::EXTENSION,
        "VendorSpecific",
        Kind::Extension(scope),
        "extension or vendor settings",
    )
    .repeats()
}
