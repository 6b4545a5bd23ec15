//! Rules about the three MICs.

use super::{Checker, Rule};
use crate::code::extended_mic::EXPLICIT_DIGEST;
use crate::code::extension::EXTENDED_MIC;
use crate::code::top::{self, CM_MIC, CMTS_MIC, EXTENSION};
use crate::mic::{CMTS_MIC_ORDER, Extended, Mic, MicError, Secret, bitmap};
use crate::schema::VENDOR_ID;
use crate::tlv::Tlv;
use crate::value::hex;

/// Types that a CMTS acts on and that the CMTS MIC does not cover.
const UNCOVERED: [u8; 15] = [
    top::DROP_CLASSIFIER,
    top::SUBSCRIBER_IPV6_PREFIXES,
    top::DROP_CLASSIFIER_GROUPS,
    top::SUBSCRIBER_MAXIMUM_IPV6,
    top::STATIC_MULTICAST,
    top::SUBSCRIBER_IPV6_LIST,
    top::DEFAULT_TARGET_BUFFER,
    top::UPSTREAM_AGGREGATE,
    top::DOWNSTREAM_AGGREGATE,
    top::METRO_ETHERNET,
    top::AQM_DISABLE,
    top::LOW_LATENCY_DISABLE,
    top::DISTRIBUTED_HQOS,
    top::UPSTREAM_ENHANCED_AGGREGATE,
    top::DOWNSTREAM_ENHANCED_AGGREGATE,
];
/// Of these, the ones whose loss leaves a flow without its aggregate.
const AGGREGATES: [u8; 4] = [
    top::UPSTREAM_AGGREGATE,
    top::DOWNSTREAM_AGGREGATE,
    top::UPSTREAM_ENHANCED_AGGREGATE,
    top::DOWNSTREAM_ENHANCED_AGGREGATE,
];

pub(super) fn check(checker: &mut Checker<'_>, secret: Option<&Secret>) {
    cm_mic(checker);
    let extended = match Extended::of(checker.config) {
        Ok(extended) => extended,
        Err(error) => return unusable(checker, &error),
    };
    coverage(checker, extended.as_ref());
    shared_field(checker);
    match secret {
        Some(secret) => cmts_mic(checker, extended.as_ref(), secret),
        None if checker.config.has(CMTS_MIC) => {
            let node = checker.at(&[CMTS_MIC])[0].clone();
            let message = "the CMTS MIC was not checked: no secret was given".into();
            checker.report(Rule::D203, &node, message, "give the secret by file or environment");
        }
        None => {}
    }
}

fn cm_mic(checker: &mut Checker<'_>) {
    let Some(node) = checker.at(&[CM_MIC]).first().cloned() else { return };
    match checker.config.cm_mic() {
        Ok(mic) => differs(checker, Rule::D201, CM_MIC, &mic, "encode the file anew"),
        Err(error) => checker.report(Rule::D201, &node, error.to_string(), "repair the setting"),
    }
}

fn differs(checker: &mut Checker<'_>, rule: Rule, code: u8, mic: &Mic, fix: &str) {
    let Some(node) = checker.at(&[code]).first().cloned() else { return };
    let found = node.tlv.as_bytes().unwrap_or_default();
    if found != mic {
        let message = format!("is {}, the settings give {}", hex(found), hex(mic));
        checker.report(rule, &node, message, fix);
    }
}

fn cmts_mic(checker: &mut Checker<'_>, extended: Option<&Extended>, secret: &Secret) {
    let fix = "encode the file anew with the CMTS's secret, or give the right secret";
    match checker.config.cmts_mic(secret) {
        Ok(mic) => differs(checker, Rule::D202, CMTS_MIC, &mic, fix),
        Err(error) => return unusable(checker, &error),
    }
    let Some(extended) = extended.filter(|extended| extended.explicit.is_some()) else { return };
    match checker.config.extended_mic(extended, secret) {
        Ok(mic) if extended.explicit.as_deref() != Some(mic.as_slice()) => {
            let found = extended.explicit.as_deref().unwrap_or_default();
            let message = format!("is {}, the settings give {}", hex(found), hex(&mic));
            if let Some(node) =
                checker.at(&[EXTENSION, EXTENDED_MIC, EXPLICIT_DIGEST]).first().cloned()
            {
                checker.report(Rule::D208, &node, message, fix);
            }
        }
        Ok(_) => {}
        Err(error) => unusable(checker, &error),
    }
}

fn unusable(checker: &mut Checker<'_>, error: &MicError) {
    let message = error.to_string();
    let fix = "use 43.6.1 = 1 (HMAC-MD5) and a bitmap 43.6.2";
    match checker.at(&[EXTENSION, EXTENDED_MIC]).first().cloned() {
        Some(node) => checker.report(Rule::D207, &node, message, fix),
        None => checker.report_file(Rule::D207, message, fix),
    }
}

fn coverage(checker: &mut Checker<'_>, extended: Option<&Extended>) {
    let classic = extended.is_none_or(|extended| extended.explicit.is_some());
    let covered = |code: u8| {
        extended.is_some_and(|extended| extended.covers(code))
            || (classic && CMTS_MIC_ORDER.contains(&code))
    };
    let present = |code: &u8| checker.config.has(*code);
    let for_cmts = CMTS_MIC_ORDER.iter().filter(|code| !matches!(**code, CM_MIC | EXTENSION));
    let wanted: Vec<u8> = for_cmts.chain(&UNCOVERED).copied().filter(present).collect();
    let missing: Vec<u8> = wanted.iter().copied().filter(|code| !covered(*code)).collect();
    let mut all: Vec<u8> = wanted.iter().copied().chain([CM_MIC, EXTENSION]).collect();
    all.sort_unstable();
    let fix = format!(
        "in a VendorSpecific with VendorIdentifier = \"0xffffff\", set \
         ExtendedCmtsMicConfiguration = {{ ExtendedCmtsMicHmacType = 1, ExtendedCmtsMicBitmap = \
         \"{}\" }}, which covers all that is here, and encode anew",
        hex(&bitmap(all))
    );
    for code in missing {
        let node = checker.at(&[code])[0].clone();
        if AGGREGATES.contains(&code) {
            let message = format!("no MIC covers type {code}: the CMTS ignores it");
            checker.report(Rule::D204, &node, message, &fix);
        } else {
            let message = format!("no MIC covers type {code}: a CMTS may ignore it");
            checker.report(Rule::D205, &node, message, &fix);
        }
    }
}

fn shared_field(checker: &mut Checker<'_>) {
    for node in checker.at(&[EXTENSION]) {
        let is_other = |child: &Tlv| !matches!(child.code, EXTENDED_MIC | VENDOR_ID);
        let others = node.tlv.children().iter().any(is_other);
        if node.tlv.child(EXTENDED_MIC).is_some() && others {
            let message = "the extended MIC shares its field with other settings".into();
            checker.report(
                Rule::D206,
                &node,
                message,
                "move them to a VendorSpecific of their own",
            );
        }
    }
}
