//! Rules about references between flows, aggregates and classifiers, and about low latency flows.

use std::collections::BTreeMap;

use super::{Checker, FlowNode, Rule};
use crate::aggregate::{ECN_BITS, ECT1, TOS_PATHS, TosRange, matches_tos};
use crate::code::{aggregate, aqm, classifier, flow, low_latency, top};
use crate::encode::Node;
use crate::qos::{AqmAlgorithm, Direction};

/// DSCP 45 in the byte that it shares with ECN.
const NQB: u8 = 45 << 2;

pub(super) fn check(checker: &mut Checker<'_>) {
    let flows = checker.flows();
    unique(checker, &flows);
    classifiers(checker, &flows);
    for direction in Direction::BOTH {
        let members: Vec<_> =
            flows.iter().filter(|flow| flow.flow.direction == direction).cloned().collect();
        let aggregates = checker.all(&[direction.aggregate_code()]);
        membership(checker, &aggregates, &members);
        for aggregate in aggregates {
            low_latency(checker, &aggregate, &members);
        }
    }
}

fn unique(checker: &mut Checker<'_>, flows: &[FlowNode<'_>]) {
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    for flow in flows {
        if let Some(first) = seen.insert(flow.flow.reference, flow.node.offset) {
            let reference = flow.flow.reference;
            let message = format!("the flow at byte {first} has the same reference {reference}");
            let fix = "give each flow of both directions another reference";
            checker.report(Rule::D401, &flow.node, message, fix);
        }
    }
}

fn classifiers(checker: &mut Checker<'_>, flows: &[FlowNode<'_>]) {
    for direction in Direction::BOTH {
        for classifier in checker.all(&[direction.classifier_code()]) {
            let reference = classifier.tlv.number(classifier::FLOW_REFERENCE);
            let known = |flow: &FlowNode<'_>| {
                flow.flow.direction == direction
                    && Some(u64::from(flow.flow.reference)) == reference
            };
            if reference.is_some() && !flows.iter().any(known) {
                missing(checker, &classifier, classifier::FLOW_REFERENCE, "service flow");
            }
            ecn_range(checker, &classifier);
        }
    }
}

fn missing(checker: &mut Checker<'_>, outer: &Node<'_>, code: u8, what: &str) {
    let Some(node) = checker.inside(outer, &[code]) else { return };
    let number = node.tlv.as_number().unwrap_or_default();
    let message = format!("this direction has no {what} {number}");
    let fix = format!("refer to an existing {what}, or add {number}");
    checker.report(Rule::D402, &node, message, &fix);
}

/// The matches of a classifier on DSCP and ECN.
fn tos_ranges<'a>(checker: &Checker<'a>, classifier: &Node<'_>) -> Vec<(Node<'a>, TosRange)> {
    let nodes = TOS_PATHS.iter().filter_map(|path| checker.inside(classifier, path));
    let with_range = |node: Node<'a>| Some((node.clone(), node.tlv.as_bytes()?.try_into().ok()?));
    nodes.filter_map(with_range).collect()
}

fn ecn_range(checker: &mut Checker<'_>, classifier: &Node<'_>) {
    for (node, [low, high, mask]) in tos_ranges(checker, classifier) {
        if mask & ECN_BITS == ECN_BITS && (low & ECN_BITS, high & ECN_BITS) == (ECT1, ECT1) {
            let message = "matches ECT(1) but not CE: marked packets leave the flow";
            checker.report(Rule::D406, &node, message, "use 0x010101, which is ECT(1) or CE");
        }
    }
}

fn membership(checker: &mut Checker<'_>, aggregates: &[Node<'_>], members: &[FlowNode<'_>]) {
    for member in members {
        let reference = member.flow.aggregate.map(u64::from);
        let number = |aggregate: &Node<'_>| aggregate.tlv.number(aggregate::REFERENCE);
        let known = aggregates.iter().any(|aggregate| number(aggregate) == reference);
        if reference.is_some() && !known {
            let code = flow::AGGREGATE_REFERENCE;
            missing(checker, &member.node, code, "aggregate service flow");
        }
    }
}

fn low_latency(checker: &mut Checker<'_>, aggregate: &Node<'_>, members: &[FlowNode<'_>]) {
    let Some(encodings) = checker.inside(aggregate, &[aggregate::LOW_LATENCY]) else { return };
    let switches = checker.all(&[top::LOW_LATENCY_DISABLE]);
    if let Some(switch) = switches.iter().find(|switch| switch.tlv.as_number() != Some(0)) {
        let message = "low latency support is off, but low latency flows are configured";
        checker.report(Rule::D405, switch, message, "set LowLatencyDisable = 0, or delete it");
    }
    coupling(checker, &encodings);
    let own = aggregate.tlv.number(aggregate::REFERENCE);
    let belongs = |flow: &&FlowNode<'_>| own.is_some() && flow.flow.aggregate.map(u64::from) == own;
    let reference = encodings.tlv.number(low_latency::FLOW_REFERENCE);
    let is_fast = |flow: &&FlowNode<'_>| Some(u64::from(flow.flow.reference)) == reference;
    if reference.is_some() {
        match members.iter().find(is_fast) {
            None => missing(checker, &encodings, low_latency::FLOW_REFERENCE, "service flow"),
            Some(fast) => {
                if !belongs(&fast) {
                    let message = "an aggregate refers to this flow, but the flow not to it";
                    let own = own.unwrap_or_default();
                    let fix = format!("set AggregateServiceFlowReference = {own} in this flow");
                    checker.report(Rule::D404, &fast.node, message, &fix);
                }
                fast_flow(checker, fast);
            }
        }
    }
    let classic: Vec<_> = members.iter().filter(belongs).filter(|f| !is_fast(f)).collect();
    for flow in &classic {
        algorithm(checker, flow, false);
    }
    let by_name = encodings.tlv.child(low_latency::CLASSIC_CLASS_NAME).is_some()
        || aggregate.tlv.child(aggregate::PROFILE_NAME).is_some();
    let by_criteria = aggregate.tlv.child(aggregate::MATCHING).is_some();
    if classic.is_empty() && !by_name && !by_criteria {
        let message = "the aggregate has no classic flow";
        let fix = "set AggregateServiceFlowReference in one, or set ClassicServiceFlowScn";
        checker.report(Rule::D409, aggregate, message, fix);
    }
}

/// The unit is in doubt, because the specification is not public: CableLabs' simulator (docsis-ns3,
/// 2024) reads tenths, 20 by default and 255 for unset; a public list of types says exponent.
fn coupling(checker: &mut Checker<'_>, encodings: &Node<'_>) {
    const UNSET: u64 = 255;
    let Some(node) = checker.inside(encodings, &[low_latency::COUPLING_FACTOR]) else { return };
    let Some(factor) = node.tlv.as_number().filter(|n| ![DEFAULT_TENTHS, UNSET].contains(n)) else {
        return;
    };
    let (whole, tenth) = (factor / 10, factor % 10);
    let message = format!("{factor} is {whole}.{tenth} in tenths, or 2^{factor} as an exponent");
    let fix = "delete AqmCouplingFactor (2.0), or ask the vendors of modem and CMTS";
    checker.report(Rule::D410, &node, message, fix);
}

/// The factor if the setting is absent: 2.0.
const DEFAULT_TENTHS: u64 = 20;

fn fast_flow(checker: &mut Checker<'_>, fast: &FlowNode<'_>) {
    algorithm(checker, fast, true);
    let reference = Some(u64::from(fast.flow.reference));
    let mut feeding = checker.all(&[fast.flow.direction.classifier_code()]);
    feeding.retain(|node| node.tlv.number(classifier::FLOW_REFERENCE) == reference);
    if feeding.is_empty() {
        let message = "no classifier leads packets into this low latency flow";
        let fix = "add classifiers for NQB (IpTos = \"0xb4b4fc\") and ECT(1) (\"0x010101\")";
        return checker.report(Rule::D403, &fast.node, message, fix);
    }
    let ranges = feeding.iter().flat_map(|classifier| tos_ranges(checker, classifier));
    let ranges: Vec<TosRange> = ranges.map(|(_, range)| range).collect();
    for (name, tos, bits, fix) in [
        ("NQB (DSCP 45)", NQB, !ECN_BITS, "add a classifier with IpTos = \"0xb4b4fc\""),
        ("ECT(1)", ECT1, ECN_BITS, "add a classifier with IpTos = \"0x010101\""),
    ] {
        if !matches_tos(&ranges, tos, bits) {
            let message = format!("no classifier leads {name} into this low latency flow");
            checker.report(Rule::D407, &fast.node, message, fix);
        }
    }
}

fn algorithm(checker: &mut Checker<'_>, flow: &FlowNode<'_>, fast: bool) {
    let Some(algorithm) = flow.flow.aqm.as_ref().and_then(|aqm| aqm.algorithm) else { return };
    let immediate = algorithm == AqmAlgorithm::Immediate;
    let wrong = if fast { algorithm == AqmAlgorithm::DocsisPie } else { immediate };
    if wrong {
        let place = checker.inside(&flow.node, &[flow::AQM, aqm::ALGORITHM]);
        let node = place.unwrap_or_else(|| flow.node.clone());
        let (kind, right) = if fast {
            ("low latency", AqmAlgorithm::Immediate)
        } else {
            ("classic", AqmAlgorithm::DocsisPie)
        };
        let message = format!("a {kind} flow with the other kind's algorithm");
        let fix = format!("set AqmAlgorithm = {}", right as u8);
        checker.report(Rule::D408, &node, message, &fix);
    }
}
