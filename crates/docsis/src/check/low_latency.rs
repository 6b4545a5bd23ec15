//! Rules about references between flows, aggregates and classifiers, and about low latency flows.

use std::collections::BTreeMap;

use super::{Checker, FlowNode, Rule};
use crate::code::{aggregate, aqm, classifier, flow, header, low_latency, top};
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
    for direction in Direction::BOTH {
        let members: Vec<_> =
            flows.iter().filter(|flow| flow.flow.direction == direction).cloned().collect();
        let aggregates = checker.at(&[direction.aggregate_code()]);
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
            let message = format!("reference {reference} is also the flow's at byte {first}");
            let fix = "number all flows of both directions differently";
            checker.report(Rule::D401, &flow.node, message, fix);
        }
    }
}

fn classifiers(checker: &mut Checker<'_>, flows: &[FlowNode<'_>]) {
    for direction in Direction::BOTH {
        for classifier in checker.at(&[direction.classifier_code()]) {
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
    let message = format!("there is no {what} {number} of this direction");
    checker.report(
        Rule::D402,
        &node,
        message,
        &format!("refer to a {what} of this file, or add it"),
    );
}

/// The traffic class matches inside a classifier: places of low, high and mask.
fn tos_matches<'a>(checker: &Checker<'a>, classifier: &Node<'_>) -> Vec<(Node<'a>, [u8; 3])> {
    let places =
        [[classifier::IPV4, header::IPV4_TOS], [classifier::IPV6, header::IPV6_TRAFFIC_CLASS]];
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
    let switches = checker.at(&[top::LOW_LATENCY_DISABLE]);
    if let Some(switch) = switches.iter().find(|switch| switch.tlv.as_number() != Some(0)) {
        let message = "low latency support is off beside low latency flows".into();
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
                    let message = "is low latency in an aggregate that it does not name".into();
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
        let message = "the aggregate has no classic flow".into();
        let fix = "give one AggregateServiceFlowReference, or set ClassicServiceFlowScn";
        checker.report(Rule::D409, aggregate, message, fix);
    }
}

/// The specification was not at hand: CableLabs' simulator (docsis-ns3, 2024) reads tenths, 20 by
/// default and 255 for unset; one public list of types calls the setting an exponent.
fn coupling(checker: &mut Checker<'_>, encodings: &Node<'_>) {
    const UNSET: u64 = 255;
    let Some(node) = checker.inside(encodings, &[low_latency::COUPLING_FACTOR]) else { return };
    let Some(factor) = node.tlv.as_number().filter(|n| ![DEFAULT_TENTHS, UNSET].contains(n)) else {
        return;
    };
    let (whole, tenth) = (factor / 10, factor % 10);
    let message = format!("{factor} is {whole}.{tenth} in tenths, or 2^{factor} as an exponent");
    let fix = "leave AqmCouplingFactor out (2.0), or ask the vendors of modem and CMTS";
    checker.report(Rule::D410, &node, message, fix);
}

/// A factor of 2.0, which holds where the setting is left out.
const DEFAULT_TENTHS: u64 = 20;

fn fast_flow(checker: &mut Checker<'_>, fast: &FlowNode<'_>) {
    algorithm(checker, fast, true);
    let reference = Some(u64::from(fast.flow.reference));
    let mut feeding = checker.at(&[fast.flow.direction.classifier_code()]);
    feeding.retain(|node| node.tlv.number(classifier::FLOW_REFERENCE) == reference);
    if feeding.is_empty() {
        let message = "no classifier leads packets into this low latency flow".into();
        let fix = "add classifiers for NQB (IpTos = \"0xb4b4fc\") and ECT(1) (\"0x010101\")";
        return checker.report(Rule::D403, &fast.node, message, fix);
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
        let fix = format!("set AqmAlgorithm = {}", right.code());
        checker.report(Rule::D408, &node, message, &fix);
    }
}
