//! Rules about the bytes and about mandatory settings.

use super::{Checker, Finding, Rule, finding};
use crate::code::flow;
use crate::code::top::{self, CM_MIC, CMTS_MIC};
use crate::decode::{DecodeError, Problem};
use crate::encode::Node;
use crate::schema::{self, Kind};
use crate::tlv::{Ending, Item};
use crate::value;

/// Longest file that every modem accepts.
const SAFE_FILE_BYTES: usize = 8192;
/// Longest value that the specification allows.
const SAFE_VALUE_BYTES: usize = 254;

pub(super) fn unreadable(error: &DecodeError) -> Finding {
    let fix = match error.problem {
        Problem::Text => "encode it and check what comes out",
        _ => "repair the length at this place, or encode the file again from its text",
    };
    finding(Rule::D101, error.offset, error.path.clone(), error.problem.to_string(), fix)
}

pub(super) fn check(checker: &mut Checker<'_>, defects: &[DecodeError]) {
    for defect in defects {
        let (rule, fix) = match &defect.problem {
            Problem::Duplicate { .. } => (Rule::D104, "keep one of the two".to_owned()),
            Problem::WrongLength { accepted, .. } => {
                (Rule::D105, format!("write {accepted} bytes"))
            }
            _ => (Rule::D101, "repair the length at this place".to_owned()),
        };
        let message = defect.problem.to_string();
        checker.findings.push(finding(rule, defect.offset, defect.path.clone(), message, &fix));
    }
    ending(checker);
    for node in checker.nodes.clone() {
        value(checker, &node);
    }
    mandatory(checker);
    after_mic(checker);
}

fn ending(checker: &mut Checker<'_>) {
    match checker.config.ending {
        Ending::Missing => {
            let fix = "add a byte 255 after the last setting";
            checker.report_file(Rule::D102, "the file has no end marker", fix);
        }
        Ending::Marker { pads } if pads > 3 || !checker.bytes.is_multiple_of(4) => {
            let message = format!("{} bytes with {pads} pads at the end", checker.bytes);
            checker.report_file(Rule::D103, message, "pad with zero bytes to a multiple of four");
        }
        Ending::Marker { .. } => {}
    }
    if checker.bytes > SAFE_FILE_BYTES {
        let message = format!("{} bytes; modems must accept {SAFE_FILE_BYTES}", checker.bytes);
        checker.report_file(Rule::D109, message, "try the file on every model, or shorten it");
    }
}

fn value(checker: &mut Checker<'_>, node: &Node<'_>) {
    if node.length > SAFE_VALUE_BYTES && !crate::tlv::has_wide_length(node.tlv.code) {
        let message = format!("{} bytes; the specification allows 254", node.length);
        checker.report(Rule::D108, node, message, "split the value over several settings");
    }
    let Some(field) = node.field else {
        if node.path.is_within(top::EXTENSION) {
            return; // a vendor's own settings are unknown by design
        }
        let message = format!("type {} has no name here", node.path.codes());
        return checker.report(Rule::D107, node, message, "compare with the specification");
    };
    let Some(bytes) = node.tlv.as_bytes() else { return };
    if field.kind.length_problem(bytes).is_some() {
        return;
    }
    if is_of_vendor(&field.kind, bytes) {
        let message = "is not a list of settings; only modems of the vendor can tell what it says";
        return checker.report(Rule::D113, node, message, "compare with the vendor's description");
    }
    if let Some((found, fix)) = out_of_range(&field.kind, bytes) {
        checker.report(Rule::D106, node, found, &fix);
    }
}

/// Whether the bytes of an extension field begin with a vendor's identifier.
fn is_of_vendor(kind: &Kind, bytes: &[u8]) -> bool {
    let vendor = bytes.strip_prefix(&[schema::VENDOR_ID, 3]).and_then(|rest| rest.get(..3));
    vendor.is_some() && kind.is_foreign(vendor)
}

fn out_of_range(kind: &Kind, bytes: &[u8]) -> Option<(String, String)> {
    let has_range = matches!(
        kind,
        Kind::Number { .. }
            | Kind::Text { .. }
            | Kind::TextNul { .. }
            | Kind::Hex { .. }
            | Kind::List { .. }
    );
    let found = if has_range {
        kind.range_problem(bytes)
    } else {
        value::render(kind, bytes).is_none().then(|| "cannot be decoded".into())
    };
    found.map(|found| (found, format!("accepted: {}", value::accepted(kind))))
}

fn mandatory(checker: &mut Checker<'_>) {
    let has = |code| checker.config.has(code);
    let uses_classes = has(top::CLASS_OF_SERVICE);
    let has_flows = has(top::UPSTREAM_FLOW) || has(top::DOWNSTREAM_FLOW);
    let mut wanted = vec![top::NETWORK_ACCESS_CONTROL, CM_MIC, CMTS_MIC];
    if has_flows || !uses_classes {
        wanted.extend([top::UPSTREAM_FLOW, top::DOWNSTREAM_FLOW]);
    }
    wanted.retain(|code| !has(*code));
    for code in wanted {
        let fix = match code {
            CM_MIC | CMTS_MIC => "encode the file with the secret, which computes both MICs",
            top::NETWORK_ACCESS_CONTROL => "add NetworkAccessControl = 1",
            _ => "add one with ServiceFlowReference and QosParameterSetType = 7",
        };
        let name = schema::find(schema::top(), code).map_or("", |field| field.name);
        checker.report_file(Rule::D110, format!("{name} ({code}) is missing"), fix);
    }
    for node in [top::UPSTREAM_FLOW, top::DOWNSTREAM_FLOW].map(|code| checker.all(&[code])).concat()
    {
        if node.tlv.child(flow::REFERENCE).is_none() {
            let message = "ServiceFlowReference (1) is missing";
            checker.report(Rule::D110, &node, message, "add ServiceFlowReference = 1 to 65535");
        }
    }
    if let Some(class) = checker.first(&[top::CLASS_OF_SERVICE]).filter(|_| has_flows) {
        let message = "class of service beside service flows: the CMTS rejects both";
        checker.report(Rule::D111, &class, message, "delete ClassOfService (4)");
    }
}

fn after_mic(checker: &mut Checker<'_>) {
    let Some(mic) = checker.first(&[CM_MIC]) else { return };
    let has_code = |item: &Item, code| matches!(item, Item::Tlv(tlv) if tlv.code == code);
    let mut after = checker.config.items.iter().skip_while(|item| !has_code(item, CM_MIC)).skip(1);
    if !after.all(|item| has_code(item, CMTS_MIC)) {
        let message = "settings or pads follow the CM MIC";
        checker.report(Rule::D112, &mic, message, "move CmMic and CmtsMic to the end");
    }
}
