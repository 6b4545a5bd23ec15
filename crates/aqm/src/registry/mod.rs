//! Every discipline and link by name: what exists, with which parameters, and how to build it.
//!
//! To add a discipline: give it a [`Definition`](crate::config::Definition) and a `configure`
//! function beside its code, then
//! name it in `queues::ALL` and in [`QueueConfig`]. The law suite, `underload queues` and the
//! benchmarks find it there.

mod cellular;
mod links;
mod queues;

pub use links::{LINKS, LinkSetup, LoadFile};
pub use queues::{QUEUES, QueueConfig, QueueEntry, QueueSetup};

use crate::config::{ConfigError, Spec};
use crate::config::{closest, join};
use crate::rate::Rate;

/// What a queue may know of the link that it stands in front of, for defaults that depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// Rate in the long run.
    pub rate: Option<Rate>,
    /// Rate while a burst lasts, where it differs.
    pub peak: Option<Rate>,
    /// Bytes that may pass at the peak rate.
    pub burst_bytes: Option<u64>,
}

fn unknown<'a>(
    what: &'static str,
    spec: &Spec,
    known: impl Iterator<Item = &'a str> + Clone,
) -> ConfigError {
    ConfigError::UnknownName {
        what,
        name: spec.name.clone(),
        suggestion: closest(&spec.name, known.clone()),
        known: join(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Definition, Fallback, Kind};
    use alloc::string::ToString;

    fn definitions() -> impl Iterator<Item = &'static Definition> {
        QUEUES.iter().map(|entry| entry.definition).chain(LINKS.iter().copied())
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
                    spec = spec.with("profile", profile);
                }
                let setup = QueueSetup::from_spec(&spec, &facts).expect(entry.definition.name);
                let again = QueueSetup::from_spec(&setup.label, &facts).expect("its own label");
                assert_eq!(setup.label, again.label);
            }
        }
    }
}
