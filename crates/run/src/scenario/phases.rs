//! `[phases]`: idle, ramp, load, drain.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use toml::Table;
use underload_aqm::config::{Kind, Value};
use underload_aqm::time::Span;

use super::error::Fault;
use super::identity;
use super::quantity::SpanText;
use super::section::read_section;

/// Lengths of the phases of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Phases {
    /// Length of the phase without load, in which only probes are sent.
    #[serde(serialize_with = "identity::span")]
    pub idle: Span,
    /// The load starts; nothing counts yet.
    pub ramp: Ramp,
    /// The load is steady: working latency.
    #[serde(serialize_with = "identity::span")]
    pub load: Span,
    /// The load has ended, queues empty.
    #[serde(serialize_with = "identity::span")]
    pub drain: Span,
}

/// The condition on which the load counts as established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Ramp {
    /// After a given time.
    Fixed(#[serde(serialize_with = "identity::span")] Span),
    /// Once throughput is steady, and at the latest after `limit`.
    Steady {
        /// Then the load phase begins whether the load is steady or not.
        #[serde(serialize_with = "identity::span")]
        limit: Span,
    },
}

impl Ramp {
    /// The longest that it may last.
    pub fn longest(self) -> Span {
        match self {
            Self::Fixed(length) | Self::Steady { limit: length } => length,
        }
    }
}

impl Phases {
    pub(super) fn read(table: Table) -> Result<Self, Fault> {
        read_section(table).and_then(Keys::check).map_err(|fault| fault.under("phases"))
    }

    /// The longest that a trial may last.
    pub fn longest(&self) -> Span {
        self.idle + self.ramp.longest() + self.load + self.drain
    }

    /// How long a trial will about last; a ramp that waits for a steady load usually ends early.
    pub fn estimate(&self) -> Span {
        const USUAL_STEADY: Span = Span::from_secs(4);
        let ramp = match self.ramp {
            Ramp::Fixed(length) => length,
            Ramp::Steady { limit } => limit.min(USUAL_STEADY),
        };
        self.idle + ramp + self.load + self.drain
    }
}

/// A phase of more than a day is a slip of the unit.
const MAX_PHASE: Span = Span::from_secs(24 * 3600);
const DEFAULT_RAMP_LIMIT: Span = Span::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default = "seconds::<2>")]
    idle: SpanText,
    #[serde(default)]
    ramp: RampText,
    ramp_limit: Option<SpanText>,
    load: SpanText,
    #[serde(default = "seconds::<1>")]
    drain: SpanText,
}

/// Its keys with their forms.
pub(super) fn keys() -> serde_json::Map<String, serde_json::Value> {
    super::trace::keys::<Keys>()
}

/// `"steady"` or a length of time.
#[derive(Clone, Copy, Default)]
enum RampText {
    #[default]
    Steady,
    Fixed(Span),
}

impl<'de> Deserialize<'de> for RampText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match (text.as_str(), Kind::Span.read(&text)) {
            ("steady", _) => Ok(Self::Steady),
            (_, Some(Value::Span(length))) => Ok(Self::Fixed(length)),
            _ => {
                let problem = format!("`{text}`: expected \"steady\" or a time such as \"3s\"");
                Err(D::Error::custom(problem))
            }
        }
    }
}

impl Keys {
    fn check(self) -> Result<Phases, Fault> {
        let ramp = match (self.ramp, self.ramp_limit) {
            (RampText::Fixed(length), None) => Ramp::Fixed(length),
            (RampText::Fixed(_), Some(_)) => {
                let problem = "only a ramp = \"steady\" has a limit";
                return Err(Fault::new("ramp_limit", problem));
            }
            (RampText::Steady, limit) => {
                Ramp::Steady { limit: limit.map_or(DEFAULT_RAMP_LIMIT, |limit| limit.0) }
            }
        };
        let phases = Phases { idle: self.idle.0, ramp, load: self.load.0, drain: self.drain.0 };
        for (key, length) in [
            ("idle", phases.idle),
            ("ramp", ramp.longest()),
            ("load", phases.load),
            ("drain", phases.drain),
        ] {
            if length > MAX_PHASE {
                return Err(Fault::new(key, format!("{length} is out of range; at most 24 hours")));
            }
        }
        if phases.load == Span::ZERO && phases.idle == Span::ZERO {
            return Err(Fault::new("load", "0s here and in `idle` leaves nothing to measure"));
        }
        Ok(phases)
    }
}

fn seconds<const SECONDS: u64>() -> SpanText {
    SpanText(Span::from_secs(SECONDS))
}
