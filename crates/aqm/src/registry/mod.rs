//! The registry of disciplines and links: their names, their parameters, and how to build them from
//! text.
//!
//! To add a discipline or link: give it a [`Definition`](crate::config::Definition) and a
//! `configure` function beside its code, then list both in `queues!`, with the type of its
//! configuration, or in [`LINKS`]. The law suite, `underload queues` and the benchmarks find it
//! there.

mod links;
mod queues;

pub use links::{LINKS, LinkEntry, LinkSetup, LoadFile};
pub use queues::{QUEUES, QueueConfig, QueueEntry, QueueSetup};

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};

use crate::config::{ConfigError, LinkFacts, Spec, closest, join};
use crate::rate::Rate;

/// Returns a queue's SPEC with its name here and with keys: `fq-codel` for `fq_codel`,
/// `codel:target=15ms` for `codel target 15ms`. Returns a text that is not a queue unchanged.
pub fn our_form(text: &str) -> String {
    let text = text.trim();
    if let Ok(spec) = Spec::parse(text)
        && let Some(Ok(spec)) = QueueEntry::from_tc(&spec)
    {
        return spec.to_string();
    }
    let (name, rest) = text.find(':').map_or((text, ""), |colon| text.split_at(colon));
    let known = QueueEntry::find(name.trim()).map_or(name, |entry| entry.definition.name);
    [known, rest].concat()
}

/// The part of a line's rate to which a router shapes, so that packets wait in the router's queue,
/// percent.
pub const SHAPED_PERCENT: u64 = 95;

/// Returns `percent` of the rate of a line, such as [`SHAPED_PERCENT`].
pub fn shaped_rate(line: Rate, percent: u64) -> Rate {
    Rate::from_bits_per_second(line.bits_per_second() / 100 * percent)
}

/// Returns the SPEC of a queue as it is set up before a link. CAKE without `rate` shapes to
/// [`SHAPED_PERCENT`] of the link's rate, as on a router: so packets wait in CAKE, whose target follows
/// from its rate. Without the link's rate CAKE has none either.
pub fn deployed(text: &str, link: &LinkFacts) -> String {
    let shaped = || {
        let spec = Spec::parse(text).ok()?;
        let is_cake = QueueEntry::find(&spec.name)?.definition.name == "cake";
        let has_rate = spec.items.iter().any(|item| item.key.as_deref() == Some("rate"));
        let rate = link.rate.filter(|_| is_cake && !has_rate)?;
        Some(spec.with("rate", &shaped_rate(rate, SHAPED_PERCENT).to_string()).to_string())
    };
    shaped().unwrap_or_else(|| text.to_owned())
}

fn unknown<'a>(
    what: &'static str,
    spec: &Spec,
    known: impl Iterator<Item = &'a str> + Clone,
) -> ConfigError {
    let meant = match spec.name.to_lowercase().as_str() {
        // Common words for a queue that most routers have, and for routers without queue
        // management.
        "sqm" => Some("cake"),
        "none" | "off" | "no-queue" | "noqueue" => Some("fifo"),
        name => closest(name, known.clone()),
    };
    ConfigError::UnknownName {
        what,
        name: spec.name.clone(),
        suggestion: meant.filter(|name| known.clone().any(|it| it == *name)).map(Into::into),
        known: join(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Definition, Fallback, Kind, LinkFacts, Param};
    use crate::rate::Rate;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use core::mem::discriminant;

    fn definitions() -> impl Iterator<Item = &'static Definition> {
        QUEUES
            .iter()
            .map(|entry| entry.definition)
            .chain(LINKS.iter().map(|entry| entry.definition))
    }

    #[test]
    fn every_default_and_range_can_be_read() {
        for definition in definitions() {
            for param in definition.all_params() {
                let texts: &[&str] = match &param.fallback {
                    Fallback::Value(text) => &[text],
                    Fallback::PerProfile(texts) => {
                        for (profile, text) in *texts {
                            assert!(param.kind.read(text).is_some(), "{}: {profile}", param.key);
                        }
                        &[]
                    }
                    Fallback::Absent(_) | Fallback::Required => &[],
                };
                let bounds = param.range.map(|(low, high)| [low, high]);
                for text in texts.iter().chain(bounds.iter().flatten()) {
                    let ok = param.kind == Kind::Queue || param.kind.read(text).is_some();
                    assert!(ok, "{}: {}: {text}", definition.name, param.key);
                }
            }
        }
    }

    #[test]
    fn queues_are_found_by_the_names_of_other_programs() {
        let label = |text: &str| {
            let link = LinkFacts::of_rate(Rate::from_megabits_per_second(10));
            QueueSetup::parse(text, &link).map(|setup| setup.label.to_string())
        };
        for (name, canonical) in [
            // SPECs as `tc`, OpenWrt and flent write them.
            ("pfifo", "fifo"),
            ("bfifo", "fifo"),
            ("pfifo_head_drop", "head-drop"),
            ("fq_codel", "fq-codel"),
            ("fq_pie", "fq-pie"),
            ("dual_pi2", "dualpi2"),
            // Mahimahi.
            ("droptail", "fifo"),
            ("drophead", "head-drop"),
            // ns-3.
            ("FqCoDelQueueDisc", "fq-codel"),
            ("PieQueueDisc", "pie"),
            ("FqPieQueueDisc", "fq-pie"),
            ("FifoQueueDisc", "fifo"),
            // In prose.
            ("CAKE", "cake"),
            ("FQ-CoDel", "fq-codel"),
            ("docsis_pie", "docsis-pie"),
        ] {
            assert_eq!(label(name), label(canonical), "{name}");
            assert!(label(name).is_ok_and(|label| label.starts_with(canonical)), "{name}");
        }
        assert_eq!(label("fq_codel:flows=64"), label("fq-codel:flows=64"));
        assert_eq!(label("diffserv:low=[fq_codel]"), label("diffserv:low=[fq-codel]"));
        for (word, meant) in [("sqm", "`cake`"), ("SQM", "`cake`"), ("none", "`fifo`")] {
            let error = label(word).expect_err(word).to_string();
            assert!(error.contains(meant), "{error}");
        }
        // Names of queues that do not exist here.
        for other in ["pfifo_fast", "CobaltQueueDisc", "queuedisc", "fq", "sfq"] {
            assert!(label(other).is_err(), "{other}");
        }
        for (index, entry) in QUEUES.iter().enumerate() {
            let names = [entry.definition.name].into_iter();
            for name in names.chain(entry.definition.aliases.iter().copied()) {
                let called = QUEUES.iter().position(|other| other.definition.is_called(name));
                assert_eq!(called, Some(index), "{name}");
            }
        }
    }

    #[test]
    fn every_queue_is_refused_a_key_that_it_does_not_have() {
        for entry in QUEUES {
            let spec = Spec::new(entry.definition.name).with("no-such-key", "1");
            let error = QueueSetup::from_spec(&spec, &LinkFacts::default()).unwrap_err();
            assert!(error.to_string().contains("no parameter `no-such-key`"), "{error}");
        }
    }

    #[test]
    fn a_label_parses_to_itself() {
        let facts =
            LinkFacts { rate: Some(Rate::from_megabits_per_second(10)), ..LinkFacts::default() };
        for entry in QUEUES {
            for profile in entry.definition.profiles.iter().map(|p| Some(p.name)).chain([None]) {
                let mut spec = Spec::new(entry.definition.name);
                if let Some(profile) = profile {
                    spec = spec.with(entry.definition.profile_key, profile);
                }
                let setup = QueueSetup::from_spec(&spec, &facts).expect(entry.definition.name);
                let again = QueueSetup::from_spec(&setup.label, &facts).expect("its own label");
                assert_eq!(setup.label, again.label);
            }
        }
    }

    /// A SPEC with the required parameters, and with those that other parameters depend on. A link
    /// without such parameters needs only a name.
    fn minimal(definition: &Definition) -> Spec {
        let spec = Spec::new(definition.name);
        match definition.name {
            "rate" => spec.with("rate", "20mbit"),
            "steps" => spec.with("0s", "6mbit"),
            "trace" => spec.with("file", "up.trace"),
            "docsis" => spec.with("rate", "10mbit").with("peak", "12mbit"),
            "radio" => spec.with("1", "20mbit"),
            // A peak rate requires a rate, and a request loop requires a queue that accounts for
            // it.
            "docsis-lld" => ["low-latency-rate", "classic-rate"]
                .iter()
                .fold(spec.with("delay", "virtual"), |spec, key| spec.with(key, "10mbit")),
            _ => spec,
        }
    }

    fn with_profiles(definition: &Definition) -> impl Iterator<Item = Spec> {
        let profiles = definition.profiles.iter().map(|profile| Some(profile.name)).chain([None]);
        profiles.map(|profile| match profile {
            Some(profile) => minimal(definition).with(definition.profile_key, profile),
            None => minimal(definition),
        })
    }

    /// Values that a user might write, including the ends of the range and every word of a choice.
    fn attempts(param: &Param) -> Vec<&'static str> {
        let bounds = param.range.into_iter().flat_map(|(low, high)| [low, high]);
        let words: &[&'static str] = match param.kind {
            Kind::Span => &["0s", "3ms"],
            Kind::Rate => &["0bit", "11mbit"],
            Kind::Bytes => &["0B", "3000B"],
            Kind::Packets => &["0p", "7p"],
            Kind::Limit => &["0B", "64B", "7p"],
            Kind::BytesOrSpan => &["0B", "0s", "30ms", "3000B"],
            Kind::Count => &["0", "7"],
            Kind::Decimal => &["0", "0.125", "2.5"],
            Kind::Probability => &["0%", "50%", "100%"],
            Kind::Switch => &["on", "off"],
            Kind::Choice(words) => words,
            Kind::DscpSet => &["0", "45+46"],
            Kind::Edges => &["0.5ms", "1ms+2ms+30ms"],
            Kind::Text => &["up.trace"],
            Kind::Queue => &["[fifo]", "[diffserv]"],
            Kind::Rules => &["dscp:45>0@0%..50%+ecn:bleach", "wifi"],
        };
        bounds.chain(words.iter().copied()).collect()
    }

    fn link(spec: &Spec) -> Result<LinkSetup, ConfigError> {
        LinkSetup::from_spec_with(spec, &mut |_| Ok(b"4\n".to_vec()))
    }

    /// Reading a parameter panics if it is not listed or is of another kind. Each listed parameter
    /// is accepted by at least one profile, and so is every word of a choice.
    #[test]
    fn every_parameter_can_be_given_in_some_profile() {
        let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(10));
        let understand = |definition: &Definition, spec: &Spec| {
            if QUEUES.iter().any(|entry| entry.definition.name == definition.name) {
                for facts in [&facts, &LinkFacts::UNKNOWN] {
                    let _ = QueueSetup::from_spec(spec, facts);
                }
                return QueueSetup::from_spec(spec, &facts).map(|_| ());
            }
            link(spec).map(|_| ())
        };
        for definition in definitions() {
            for param in definition.all_params() {
                let attempts = attempts(param);
                let mut accepted: Vec<u32> = attempts.iter().map(|_| 0).collect();
                for plain in with_profiles(definition) {
                    for (value, accepted) in attempts.iter().zip(&mut accepted) {
                        let mut spec = plain.clone();
                        spec.items.retain(|item| item.key.as_deref() != Some(param.key));
                        let spec = spec.with(param.key, value);
                        // `acks-limit` needs `acks=apart`, which creates the queue that it limits.
                        let has_acks = param.key != "acks-limit";
                        let spec = if has_acks { spec } else { spec.with("acks", "apart") };
                        let result = understand(definition, &spec);
                        *accepted += u32::from(result.is_ok());
                    }
                }
                let is_choice = matches!(param.kind, Kind::Choice(_));
                let (some, all) = (accepted.iter().any(|n| *n > 0), !accepted.contains(&0));
                let is_usable = if is_choice { all } else { some };
                assert!(is_usable, "{}: {}: {accepted:?}", definition.name, param.key);
            }
        }
    }

    #[test]
    fn a_parameter_table_has_unique_keys_and_its_references_exist() {
        for definition in definitions() {
            let keys: Vec<&str> = definition.all_params().map(|param| param.key).collect();
            for (index, key) in keys.iter().enumerate() {
                assert!(!keys[..index].contains(key), "{}: {key}", definition.name);
            }
            assert!(definition.positional.is_none_or(|key| keys.contains(&key)));
            assert!(!keys.contains(&definition.profile_key));
        }
    }

    #[test]
    fn every_link_kind_builds_its_rate_process() {
        let mut seen: Vec<(String, LinkSetup)> = Vec::new();
        for entry in LINKS {
            let spec = minimal(entry.definition);
            let setup = link(&spec).expect(entry.definition.name);
            for (other, known) in &seen {
                let same = discriminant(&known.rate) == discriminant(&setup.rate);
                assert!(!same, "{spec} is of the kind of {other}");
            }
            seen.push((spec.to_string(), setup));
        }
    }

    #[test]
    fn options_of_tc_are_keys() {
        let link = LinkFacts::of_rate(Rate::from_megabits_per_second(20));
        for (words, ours) in [
            ("pfifo limit 100", "fifo:limit=100p"),
            ("bfifo limit 65536", "fifo:limit=65536B"),
            ("bfifo limit 64kb", "fifo:limit=64KiB"),
            ("codel target 15ms interval 150ms ecn", "codel:target=15ms,interval=150ms,ecn=on"),
            (
                "fq_codel limit 1000 flows 64 quantum 300 memory_limit 4mb noecn",
                "fq-codel:limit=1000p,flows=64,quantum=300B,memory=4MiB,ecn=off",
            ),
            ("FQ_CODEL ce_threshold 1ms", "fq-codel:ce-threshold=1ms"),
            (
                "cake bandwidth 18Mbit besteffort dual-srchost rtt 50ms atm overhead 44",
                "cake:rate=18Mbit,tins=besteffort,isolation=dual-srchost,rtt=50ms,framing=atm,\
                 overhead=44B",
            ),
            ("pie limit 500 target 20ms tupdate 30ms", "pie:limit=500p,target=20ms,tupdate=30ms"),
        ] {
            assert_eq!(our_form(words), ours);
            let read = QueueSetup::parse(words, &link).expect(words);
            let own = QueueSetup::parse(ours, &link).expect(ours);
            assert_eq!((&read.label, read.meaning()), (&own.label, own.meaning()), "{words}");
        }
        assert_eq!(our_form("fq_codel:target=9ms"), "fq-codel:target=9ms");
        assert_eq!(our_form("no such queue"), "no such queue");
    }

    #[test]
    fn unknown_options_of_tc_are_named() {
        let link = LinkFacts::of_rate(Rate::from_megabits_per_second(20));
        for (words, problem) in [
            ("codel targt 5ms", "`codel` has no parameter `targt`; did you mean `target`?"),
            ("codel target", "`codel`: `target=`: expected a value after it"),
            ("codel target 5", "expected a time"),
            ("cake nat", "`cake` has no parameter `nat`"),
            ("pie alpha 2", "expected pie:alpha=HZ; tc counts sixteenths"),
            ("codel ecn ecn", "given twice"),
            ("codle target 5ms", "there is no queue `codle target 5ms`"),
        ] {
            let error = QueueSetup::parse(words, &link).expect_err(words).to_string();
            assert!(error.contains(problem), "{words}: {error}");
        }
    }
}
