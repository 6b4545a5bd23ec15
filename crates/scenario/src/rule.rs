//! `up_rule` and `down_rule` of a hop: a rule that changes the rate of its link.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::Value as Toml;
use underload_aqm::config::{Kind, Spec, Value as Quantity};
use underload_aqm::rate::Rate;
use underload_record::schema::Direction;
use underload_shape::auto::{Answer, Bounds, Follower, Reading};
use underload_sim::net::{MakeRule, RateRule, Seen};

use crate::keys::{Refusal, Value};

/// A rule, and the rates between which it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRule {
    kind: RuleKind,
    min: Rate,
    max: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    /// The rule of `underload shape auto`.
    Follow,
    /// Knows what the line will carry, and takes a little less.
    Oracle,
}

impl LinkRule {
    fn parse(text: &str) -> Option<Self> {
        let spec = Spec::parse(text).ok()?;
        let kind = match spec.name.as_str() {
            "follow" => RuleKind::Follow,
            "oracle" => RuleKind::Oracle,
            _ => return None,
        };
        let rate = |key: &str| {
            let item = spec.items.iter().find(|item| item.key.as_deref() == Some(key))?;
            match Kind::Rate.read(&item.value)? {
                Quantity::Rate(rate) => Some(rate),
                _ => None,
            }
        };
        let (min, max) = (rate("min")?, rate("max")?);
        Bounds::new(min, max).filter(|_| spec.items.len() == 2).map(|_| Self { kind, min, max })
    }

    /// Returns the rule as the simulator runs it.
    pub(crate) fn make(self, direction: Direction) -> MakeRule {
        MakeRule(Arc::new(move || match (self.kind, Bounds::new(self.min, self.max)) {
            (RuleKind::Follow, Some(bounds)) => follow(Follower::new(direction, bounds)),
            _ => Box::new(move |seen| self.oracle(seen.offered_bytes)),
        }))
    }

    fn oracle(self, offered_bytes: Option<u64>) -> Rate {
        let Some(bytes) = offered_bytes else { return self.max };
        oracle_rate(bytes).clamp(self.min, self.max)
    }
}

/// Returns the rate of an oracle that knows how many bytes the line carries in the next 100 ms.
pub(crate) const fn oracle_rate(bytes: u64) -> Rate {
    Rate::from_bits_per_second(bytes.saturating_mul(80) / 100 * ORACLE_PERCENT)
}

/// Percent of the line's bytes. The rest empties the line's queue, to which packets of another size and
/// rounding add.
const ORACLE_PERCENT: u64 = 97;

/// Gives a follower what a program at the shaper sees.
fn follow(mut follower: Follower) -> Box<RateRule> {
    Box::new(move |seen: &Seen<'_>| {
        let answer =
            |(sent, round_trip): &(underload_aqm::time::Time, underload_aqm::time::Span)| Answer {
                sent_us: sent.as_nanos() / 1_000,
                round_trip_us: (round_trip.as_nanos() / 1_000) as i64,
            };
        let answers: Vec<Answer> = seen.answers.iter().map(answer).collect();
        let (time_ms, sent_bytes) = (seen.now.as_millis(), seen.sent_bytes);
        follower.decide(&Reading { time_ms, answers: &answers, sent_bytes }).rate
    })
}

impl fmt::Display for LinkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, min, max } = self;
        let name = match kind {
            RuleKind::Follow => "follow",
            RuleKind::Oracle => "oracle",
        };
        write!(f, "{name}:min={min},max={max}")
    }
}

impl Value for LinkRule {
    fn expected(_: &str) -> String {
        "follow:min=RATE,max=RATE or oracle:min=RATE,max=RATE, in quotes".to_owned()
    }

    fn read(value: &Toml, _: &mut crate::keys::Faults) -> Result<Self, Refusal> {
        let text = value.as_str().ok_or(Refusal::Form)?;
        let problem = || Refusal::Problem(format!("`{text}`: expected {}", Self::expected("")));
        Self::parse(text).ok_or_else(problem)
    }

    fn json(&self) -> Json {
        json!(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        for text in ["follow:min=3mbit,max=60mbit", "oracle:min=500kbit,max=500kbit"] {
            assert_eq!(LinkRule::parse(text).map(|rule| rule.to_string()), Some(text.to_owned()));
        }
        for wrong in [
            "follow",
            "follow:min=3mbit",
            "follow:min=6mbit,max=3mbit",
            "follow:min=0bit,max=3mbit",
            "follow:min=3mbit,max=6mbit,more=1",
            "follow:min=3,max=6",
            "guess:min=3mbit,max=6mbit",
            "",
        ] {
            assert_eq!(LinkRule::parse(wrong), None, "{wrong}");
        }
    }
}
