//! Extension fields (type 43): the specification's own, and vendors'.
//!
//! Functions with the argument `inside` make the table for one place, because the `Main` form names
//! the extended MIC differently: 0 at the top level of a file, 1 inside another setting.

use super::{
    CLASS_NAME, Field, Kind, Scope, U8, U16, U32, VENDOR_IDENTIFIER, hex, l2vpn, nested, text, u8,
};
use crate::code::{self, extended_mic, top};

const fn extended_mic(inside: usize) -> [Field; 3] {
    fields! {
        extended_mic::DIGEST_TYPE, "ExtendedCmtsMicHmacType", u8(1, 2), "1 HMAC-MD5, 2 MMH16",
            main(["ExtendedCMTSMICHMACDigestType", "ExtendedCMTSMICHMACtype"][inside]);
        extended_mic::BITMAP, "ExtendedCmtsMicBitmap", hex(1, 255),
            "bit n, counted from the left, protects type n",
            main(["ExtendedCMTSMICHMACBitmap", "ExtendedCMTSMICBitmap"][inside]);
        extended_mic::EXPLICIT_DIGEST, "ExplicitExtendedCmtsMicDigest", hex(1, 255),
            "the digest; without it TLV 7 is the digest",
            main(["ExtendedCMTSMICHMACDigest", "ExplicitExtendedCMTSMICDigest"][inside]);
    }
}

const EXTENDED_MIC: [Scope; 2] = [&extended_mic(0), &extended_mic(1)];

const ATTRIBUTE_MASKS: Scope = &fields! {
    1, "DownstreamRequired", hex(4, 4), "attributes that channels must have",
        main("CMDownstreamRequiredAttributeMask");
    2, "DownstreamForbidden", hex(4, 4), "attributes that channels must not have",
        main("CMDownstreamForbiddenAttributeMask");
    3, "UpstreamRequired", hex(4, 4), "attributes that channels must have",
        main("CMUpstreamRequiredAttributeMask");
    4, "UpstreamForbidden", hex(4, 4), "attributes that channels must not have",
        main("CMUpstreamForbiddenAttributeMask");
};

const SAV_STATIC_PREFIX_RULE: Scope = &fields! {
    1, "SAVStaticPrefixAddress", Kind::Ip, "address of the prefix";
    2, "SAVStaticPrefixLength", u8(0, 128), "prefix length", unit("bits");
};

const SOURCE_ADDRESS_VERIFICATION: Scope = &fields! {
    1, "SAVGroupName", text(1, 15), "group of address prefixes at the CMTS";
    2, "SAVStaticPrefixRule", nested(SAV_STATIC_PREFIX_RULE), "a prefix that is allowed", repeats();
};

const IP_MULTICAST_JOIN_AUTH_STATIC_SESSION_RULE: Scope = &fields! {
    1, "MulticastRulePriority", U8, "order of evaluation, highest first";
    2, "AuthorizationAction", u8(0, 1), "0 permits, 1 denies";
    3, "SourcePrefixAddress", Kind::Ip, "source of the session";
    4, "SourcePrefixLength", u8(0, 128), "prefix length of the source", unit("bits");
    5, "GroupPrefixAddress", Kind::Ip, "group of the session";
    6, "GroupPrefixLength", u8(0, 128), "prefix length of the group", unit("bits");
};

const MULTICAST_JOIN: Scope = &fields! {
    1, "IPMulticastProfileName", text(1, 15), "profile at the CMTS", repeats();
    2, "IPMulticastJoinAuthStaticSessionRule", nested(IP_MULTICAST_JOIN_AUTH_STATIC_SESSION_RULE),
        "sessions that are permitted or denied", repeats();
    3, "MaximumMulticastSessions", U16, "sessions at once";
};

const DEMARCATION: Scope = &fields! {
    1, "DACDisableEnableConfig", u8(0, 1), "1 turns automatic configuration on";
    2, "CMIMEncoding", hex(0, 255), "modem interfaces that this applies to";
    3, "UpstreamServiceClassName", CLASS_NAME, "service class of its upstream flow";
    4, "DownstreamServiceClassName", CLASS_NAME, "service class of its downstream flow";
};

const fn extension(inside: usize) -> [Field; 12] {
    fields! {
        1, "CmLoadBalancingPolicyId", U32, "load balancing policy", main("CMLoadBalancingPolicyID");
        2, "CmLoadBalancingPriority", U32, "load balancing priority",
            main("CMLoadBalancingPriority");
        3, "CmLoadBalancingGroupId", U32, "load balancing group", main("CMLoadBalancingGroupID");
        4, "CmRangingClassIdExtension", U16, "ranging class", main("CMRangingClassIDExtension");
        5, "L2VPNEncoding", nested(l2vpn::L2VPN), "a layer 2 VPN and its encapsulation", repeats();
        code::extension::EXTENDED_MIC, "ExtendedCmtsMicConfiguration", nested(EXTENDED_MIC[inside]),
            "which types the extended CMTS MIC protects; a CMTS ignores aggregate service flows \
             that no MIC protects",
            main(["ExtendedCMTSMICConfiguration", "ExtendedCMTSMICConfigurationSetting"][inside]);
        7, "SAVAuthorizationEncoding", nested(SOURCE_ADDRESS_VERIFICATION),
            "source addresses that the devices may use";
        VENDOR_IDENTIFIER;
        9, "CmAttributeMasks", nested(ATTRIBUTE_MASKS), "channel attributes",
            main("CMAttributeMasks");
        10, "IPMulticastJoinAuthorization", nested(MULTICAST_JOIN),
            "multicast sessions that the devices may join";
        11, "ServiceTypeIdentifier", text(1, 16), "service type";
        12, "DEMARCAutoConfiguration", nested(DEMARCATION),
            "automatic configuration of a demarcation device";
    }
}

/// The extension field at the top level of a file.
pub(super) const TOP: Field = field(&extension(0));
/// The extension field inside another setting.
pub(super) const INSIDE: Field = field(&extension(1));

const fn field(scope: Scope) -> Field {
    field! {
        top::EXTENSION, "VendorSpecific", Kind::Extension(scope), "extension or vendor settings",
            repeats()
    }
}
