//! Rules about the three MICs.

use super::{Checker, Rule};
use crate::code::extended_mic::EXPLICIT_DIGEST;
use crate::code::extension::EXTENDED_MIC;
use crate::code::top::{self, CM_MIC, CMTS_MIC, EXTENSION};
use crate::mic::{CMTS_MIC_ORDER, Extended, Mic, MicError, Secret, bitmap};
use crate::schema::VENDOR_ID;
use crate::tlv::Tlv;
use crate::value::hex;

/// Types that are for the CMTS and that the CMTS MIC does not cover.
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
/// The aggregates among these types: if the CMTS ignores one, its flows have no aggregate.
const AGGREGATES: [u8; 4] = [
    top::UPSTREAM_AGGREGATE,
    top::DOWNSTREAM_AGGREGATE,
    top::UPSTREAM_ENHANCED_AGGREGATE,
    top::DOWNSTREAM_ENHANCED_AGGREGATE,
];

pub(super) fn check(checker: &mut Checker<'_>, secret: Option<&Secret>) {
    cm_mic(checker);
    let extended = match Extended::from_config(checker.config) {
        Ok(extended) => extended,
        Err(error) => return unusable(checker, &error),
    };
    coverage(checker, extended.as_ref());
    shared_field(checker);
    match (secret, checker.first(&[CMTS_MIC])) {
        (Some(secret), _) => cmts_mic(checker, extended.as_ref(), secret),
        (None, Some(node)) => {
            let message = "the CMTS MIC was not checked: no secret was given";
            checker.report(Rule::D203, &node, message, "give the secret by file or environment");
        }
        (None, None) => {}
    }
}

fn cm_mic(checker: &mut Checker<'_>) {
    let Some(node) = checker.first(&[CM_MIC]) else { return };
    match checker.config.cm_mic() {
        Ok(mic) => compare(checker, Rule::D201, &[CM_MIC], &mic, "encode the file again"),
        Err(error) => checker.report(Rule::D201, &node, error.to_string(), "repair the setting"),
    }
}

/// Reports the setting at `codes`, if it exists and is not `mic`.
fn compare(checker: &mut Checker<'_>, rule: Rule, codes: &[u8], mic: &Mic, fix: &str) {
    let Some(node) = checker.first(codes) else { return };
    let found = node.tlv.as_bytes().unwrap_or_default();
    if found != mic {
        let message = format!("is {}; computed from the settings: {}", hex(found), hex(mic));
        checker.report(rule, &node, message, fix);
    }
}

fn cmts_mic(checker: &mut Checker<'_>, extended: Option<&Extended>, secret: &Secret) {
    let fix = "encode the file again with the CMTS's secret, or give the right secret";
    match checker.config.cmts_mic(secret) {
        Ok(mic) => compare(checker, Rule::D202, &[CMTS_MIC], &mic, fix),
        Err(error) => return unusable(checker, &error),
    }
    let Some(extended) = extended.filter(|extended| extended.explicit.is_some()) else { return };
    match checker.config.extended_mic(extended, secret) {
        Ok(mic) => compare(checker, Rule::D208, &EXPLICIT, &mic, fix),
        Err(error) => unusable(checker, &error),
    }
}

const EXPLICIT: [u8; 3] = [EXTENSION, EXTENDED_MIC, EXPLICIT_DIGEST];

fn unusable(checker: &mut Checker<'_>, error: &MicError) {
    let fix = "use 43.6.1 = 1 (HMAC-MD5) and a bitmap 43.6.2";
    match checker.first(&[EXTENSION, EXTENDED_MIC]) {
        Some(node) => checker.report(Rule::D207, &node, error.to_string(), fix),
        None => checker.report_file(Rule::D207, error.to_string(), fix),
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
    let fix = format!(
        "in a VendorSpecific with VendorIdentifier = \"0xffffff\", set \
         ExtendedCmtsMicConfiguration = {{ ExtendedCmtsMicHmacType = 1, ExtendedCmtsMicBitmap = \
         \"{}\" }}, which covers all settings of this file, and encode again",
        hex(&bitmap(wanted.iter().copied().chain([CM_MIC, EXTENSION])))
    );
    let missing: Vec<u8> = wanted.into_iter().filter(|code| !covered(*code)).collect();
    for code in missing {
        let Some(node) = checker.first(&[code]) else { continue };
        let (rule, effect) = if AGGREGATES.contains(&code) {
            (Rule::D204, "the CMTS ignores it")
        } else {
            (Rule::D205, "a CMTS may ignore it")
        };
        checker.report(rule, &node, format!("no MIC covers type {code}: {effect}"), &fix);
    }
}

fn shared_field(checker: &mut Checker<'_>) {
    for node in checker.all(&[EXTENSION]) {
        let is_other = |child: &Tlv| !matches!(child.code, EXTENDED_MIC | VENDOR_ID);
        let has_others = node.tlv.children().iter().any(is_other);
        if checker.inside(&node, &[EXTENDED_MIC]).is_some() && has_others {
            let message = "the extended MIC shares its field with other settings";
            let fix = "move the other settings to a separate VendorSpecific";
            checker.report(Rule::D206, &node, message, fix);
        }
    }
}
