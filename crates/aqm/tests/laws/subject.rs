//! The subjects of the laws: every discipline and profile of the registry, with variants.

use underload_aqm::config::{Definition, Kind, LinkFacts, Spec};
use underload_aqm::qdisc::Backlog;
use underload_aqm::rate::Rate;
use underload_aqm::registry::{QUEUES, QueueSetup};
use underload_aqm::rng::Rng;
use underload_laws::{Order, Subject};

pub fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for entry in QUEUES {
        let definition = entry.definition;
        let profiles = definition.profiles.iter().map(|profile| Some(profile.name));
        let profiles: Vec<_> = match definition.profiles {
            [] => vec![None],
            _ => profiles.collect(),
        };
        for profile in profiles {
            let mut plain = Spec::new(definition.name);
            if let Some(profile) = profile {
                plain = plain.with("profile", profile);
            }
            let before = subjects.len();
            for variant in variants(definition) {
                let spec =
                    variant.iter().fold(plain.clone(), |spec, (key, value)| spec.with(key, value));
                // A profile may refuse a variant (ECN where it has none), but not its defaults.
                match subject(definition, &spec) {
                    Ok(subject) => subjects.push(subject),
                    Err(error) => assert!(!variant.is_empty(), "{spec}: {error}"),
                }
            }
            assert!(subjects.len() > before);
        }
    }
    assert!(subjects.len() > QUEUES.len(), "there are variants");
    subjects
}

/// Variants: no parameters, then each of these if the discipline has the key.
fn variants(definition: &Definition) -> Vec<Vec<(&'static str, &'static str)>> {
    let kind_of =
        |key: &str| definition.all_params().find(|param| param.key == key).map(|param| param.kind);
    let mut variants = vec![vec![]];
    if matches!(kind_of("limit"), Some(Kind::Packets | Kind::Limit)) {
        variants.push(vec![("limit", "20p")]);
        variants.push(vec![("limit", "1p")]);
    }
    if matches!(kind_of("limit"), Some(Kind::Bytes | Kind::Limit | Kind::BytesOrSpan)) {
        variants.push(vec![("limit", "20000B")]);
    }
    if kind_of("ecn") == Some(Kind::Switch) {
        variants.push(vec![("ecn", "on")]);
        variants.push(vec![("ecn", "off")]);
    }
    if kind_of("protection").is_some() {
        variants.push(vec![("protection", "off")]);
    }
    if kind_of("classic-rate").is_some() {
        variants.push(vec![("classic-rate", "9mbit"), ("low-latency-rate", "8mbit")]);
    }
    if kind_of("coupled-while").is_some() {
        variants.push(vec![("coupled-while", "awake"), ("delay", "virtual")]);
        variants.push(vec![("delay", "virtual"), ("request-loop", "6ms"), ("grant-rate", "1mbit")]);
    }
    // Not `sanctioned-dscp`, whose purpose is to break the law that only ECN fields change.
    if kind_of("classic-histogram").is_some() {
        variants.push(vec![("low-latency-histogram", "0.5ms+1ms"), ("classic-histogram", "1ms")]);
    }
    if kind_of("rehash").is_some() {
        variants.push(vec![("rehash", "0s")]);
    }
    if kind_of("mtu").is_some() {
        variants.push(vec![("mtu", "0B")]);
    }
    if kind_of("ce-threshold").is_some() {
        variants.push(vec![("ce-threshold", "1ms"), ("ecn", "on")]);
    }
    if kind_of("memory").is_some() {
        variants.push(vec![("memory", "20000B")]);
    }
    if kind_of("min-queue").is_some() {
        let early = [("drop", "enqueue"), ("overload", "overflow"), ("min-queue", "2p")];
        variants.push(early.to_vec());
        variants.push(vec![("step-packets", "3p"), ("min-queue", "2p"), ("limit", "20p")]);
        variants.push(vec![("ecn", "any"), ("typical-rtt", "15ms")]);
    }
    if kind_of("tins").is_some() {
        let small = ("memory", "20000B");
        variants.push(vec![small, ("rate", "9mbit"), ("tins", "diffserv8"), ("ingress", "on")]);
        variants.push(vec![small, ("tins", "precedence"), ("isolation", "srchost")]);
        variants.push(vec![("rate", "20mbit"), ("framing", "atm"), small, ("isolation", "hosts")]);
    }
    variants
}

fn subject(definition: &Definition, spec: &Spec) -> Result<Subject, String> {
    let rate = Some(Rate::from_megabits_per_second(10));
    let facts = LinkFacts { rate, ..LinkFacts::default() };
    let setup = QueueSetup::from_spec(spec, &facts).map_err(|error| error.to_string())?;
    let given = |key: &str| {
        let item = spec.items.iter().find(|item| item.key.as_deref() == Some(key));
        item.map(|item| item.value.as_str())
    };
    let limit = given("limit").or(given("memory")).map(|text| match text.split_once('p') {
        Some((packets, _)) => Backlog { packets: packets.parse().expect(text), bytes: u64::MAX },
        None => {
            let bytes = text.strip_suffix('B').and_then(|bytes| bytes.parse().ok()).expect(text);
            Backlog { packets: u32::MAX, bytes }
        }
    });
    let is_switch = |kind| kind == Kind::Switch;
    let has_ecn = definition.all_params().any(|param| param.key == "ecn" && is_switch(param.kind));
    let ecn_is_on = match given("ecn") {
        Some(text) => text == "on",
        None => definition.name == "fq-codel",
    };
    let order = match definition.name {
        "docsis-lld" if given("protection") != Some("off") => Order::None,
        // ECT(0) packets and packets without ECN wait in different queues.
        "dualpi2" if given("ecn") == Some("any") => Order::None,
        "docsis-lld" | "dualpi2" => Order::FlowAndScalability,
        _ => Order::Flow,
    };
    let build = move |seed| setup.build(&Rng::new(seed));
    let mut subject = Subject::new(&spec.to_string(), build).ordered_by(order);
    if let Some(limit) = limit {
        subject = subject.limited_to(limit);
    }
    Ok(if has_ecn && !ecn_is_on { subject.without_marks() } else { subject })
}
