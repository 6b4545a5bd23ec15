//! Rules about references between flows, aggregates and classifiers, and about low latency flows.

use std::collections::BTreeMap;

use super::{Checker, FlowNode};
use crate::encode::Node;
use crate::qos::{AqmAlgorithm, Direction};

const ECN_BITS: u8 = 0b11;
const ECT1: u8 = 0b01;
const DSCP_BITS: u8 = 0xfc;
const NQB: u8 = 45 << 2;

pub(super) fn check(checker: &mut Checker<'_>) {
    let flows = checker.flows();
    unique(checker, &flows);
    classifiers(checker, &flows);
    for (code, direction) in [(70, Direction::Upstream), (71, Direction::Downstream)] {
        let members: Vec<_> =
            flows.iter().filter(|flow| flow.flow.direction == direction).cloned().collect();
        membership(checker, code, &members);
        for aggregate in checker.at(&[code]) {
            low_latency(checker, &aggregate, &members);
        }
    }
}

fn unique(checker: &mut Checker<'_>, flows: &[FlowNode<'_>]) {
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    for flow in flows {
        if let Some(first) = seen.insert(flow.flow.reference, flow.node.offset) {
            let reference = flow.flow.reference;
            let message = format!("reference {reference} is also the flow's at byte {first}");
            let fix = "number all flows of both directions differently";
            checker.report("D401", &flow.node, message, fix);
        }
    }
}

fn classifiers(checker: &mut Checker<'_>, flows: &[FlowNode<'_>]) {
    for (code, direction) in [(22, Direction::Upstream), (23, Direction::Downstream)] {
        for classifier in checker.at(&[code]) {
            let reference = classifier.tlv.number(3);
            let known = |flow: &FlowNode<'_>| {
                flow.flow.direction == direction
                    && Some(u64::from(flow.flow.reference)) == reference
            };
            if reference.is_some() && !flows.iter().any(known) {
                missing(checker, &classifier, &[3], "service flow");
            }
            ecn_range(checker, &classifier);
        }
    }
}

fn missing(checker: &mut Checker<'_>, outer: &Node<'_>, path: &[u8], what: &str) {
    let Some(node) = checker.inside(outer, path) else { return };
    let number = node.tlv.as_number().unwrap_or_default();
    let message = format!("there is no {what} {number} of this direction");
    checker.report("D402", &node, message, &format!("refer to a {what} of this file, or add it"));
}

/// The traffic class matches inside a classifier: places of low, high and mask.
fn tos_matches<'a>(checker: &Checker<'a>, classifier: &Node<'_>) -> Vec<(Node<'a>, [u8; 3])> {
    let places = [[9, 1], [12, 1]];
    let nodes = places.iter().filter_map(|path| checker.inside(classifier, path));
    nodes
        .filter_map(|node| {
            let range = node.tlv.as_bytes()?.try_into().ok()?;
            Some((node, range))
        })
        .collect()
}

fn ecn_range(checker: &mut Checker<'_>, classifier: &Node<'_>) {
    for (node, [low, high, mask]) in tos_matches(checker, classifier) {
        if mask & ECN_BITS == ECN_BITS && (low & ECN_BITS, high & ECN_BITS) == (ECT1, ECT1) {
            let message = "takes ECT(1) but not CE: marked packets leave the flow".into();
            checker.report("D406", &node, message, "use 0x010101, which is ECT(1) or CE");
        }
    }
}

fn membership(checker: &mut Checker<'_>, code: u8, members: &[FlowNode<'_>]) {
    let aggregates = checker.at(&[code]);
    for member in members {
        let reference = member.flow.aggregate.map(u64::from);
        let known = aggregates.iter().any(|aggregate| aggregate.tlv.number(1) == reference);
        if reference.is_some() && !known {
            missing(checker, &member.node, &[36], "aggregate service flow");
        }
    }
}

fn low_latency(checker: &mut Checker<'_>, aggregate: &Node<'_>, members: &[FlowNode<'_>]) {
    let Some(encodings) = checker.inside(aggregate, &[42]) else { return };
    if let Some(switch) = checker.at(&[91]).into_iter().find(|n| n.tlv.as_number() != Some(0)) {
        let message = "low latency support is off beside low latency flows".into();
        checker.report("D405", &switch, message, "set LowLatencyDisable = 0, or delete it");
    }
    let own = aggregate.tlv.number(1);
    let belongs = |flow: &&FlowNode<'_>| own.is_some() && flow.flow.aggregate.map(u64::from) == own;
    let reference = encodings.tlv.number(1);
    let is_fast = |flow: &&FlowNode<'_>| Some(u64::from(flow.flow.reference)) == reference;
    if reference.is_some() {
        match members.iter().find(is_fast) {
            None => missing(checker, &encodings, &[1], "service flow"),
            Some(fast) => {
                if !belongs(&fast) {
                    let message = "is low latency in an aggregate that it does not name".into();
                    let own = own.unwrap_or_default();
                    let fix = format!("set AggregateServiceFlowReference = {own} in this flow");
                    checker.report("D404", &fast.node, message, &fix);
                }
                fast_flow(checker, fast);
            }
        }
    }
    let classic: Vec<_> = members.iter().filter(belongs).filter(|f| !is_fast(f)).collect();
    for flow in &classic {
        algorithm(checker, flow, false);
    }
    let by_name = encodings.tlv.child(3).is_some() || aggregate.tlv.child(4).is_some();
    if classic.is_empty() && !by_name && aggregate.tlv.child(38).is_none() {
        let message = "the aggregate has no classic flow".into();
        let fix = "give one AggregateServiceFlowReference, or set ClassicServiceFlowScn";
        checker.report("D409", aggregate, message, fix);
    }
}

fn fast_flow(checker: &mut Checker<'_>, fast: &FlowNode<'_>) {
    algorithm(checker, fast, true);
    let code = fast.node.tlv.code - 2; // classifiers 22 and 23 stand two types below 24 and 25
    let reference = Some(u64::from(fast.flow.reference));
    let feeding: Vec<_> = checker
        .at(&[code])
        .into_iter()
        .filter(|classifier| classifier.tlv.number(3) == reference)
        .collect();
    if feeding.is_empty() {
        let message = "no classifier leads packets into this low latency flow".into();
        let fix = "add classifiers for NQB (IpTos = \"0xb4b4fc\") and ECT(1) (\"0x010101\")";
        return checker.report("D403", &fast.node, message, fix);
    }
    let ranges: Vec<_> =
        feeding.iter().flat_map(|classifier| tos_matches(checker, classifier)).collect();
    let takes = |tos: u8, bits: u8| {
        ranges.iter().any(|(_, [low, high, mask])| {
            mask & bits != 0 && (*low..=*high).contains(&(tos & mask))
        })
    };
    for (name, tos, bits, fix) in [
        ("NQB (DSCP 45)", NQB, DSCP_BITS, "add a classifier with IpTos = \"0xb4b4fc\""),
        ("ECT(1)", ECT1, ECN_BITS, "add a classifier with IpTos = \"0x010101\""),
    ] {
        if !takes(tos, bits) {
            let message = format!("no classifier leads {name} into this low latency flow");
            checker.report("D407", &fast.node, message, fix);
        }
    }
}

fn algorithm(checker: &mut Checker<'_>, flow: &FlowNode<'_>, fast: bool) {
    let Some(algorithm) = flow.flow.aqm.as_ref().and_then(|aqm| aqm.algorithm) else { return };
    let immediate = algorithm == AqmAlgorithm::Immediate;
    let wrong = if fast { algorithm == AqmAlgorithm::DocsisPie } else { immediate };
    if wrong {
        let node = checker.inside(&flow.node, &[40, 3]).unwrap_or_else(|| flow.node.clone());
        let (kind, value) = if fast { ("low latency", 2) } else { ("classic", 1) };
        let message = format!("a {kind} flow with the other kind's algorithm");
        checker.report("D408", &node, message, &format!("set AqmAlgorithm = {value}"));
    }
}
