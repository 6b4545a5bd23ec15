//! `[phases]`: idle, ramp, load, drain.

use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::time::Span;

use crate::keys::{Combined, Fault, Faults, Refusal, Value, keys, read_table};

keys! {
    /// Lengths of the phases of a trial.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Phases {
        /// Length of the phase without load, in which only probes are sent.
        pub idle: Span = Span::from_secs(2) => Span::ZERO..=MAX_PHASE,
        /// The load starts, and is not measured yet.
        pub ramp: Ramp [flat],
        /// Length of the phase in which working latency is measured.
        pub load: Span = DEFAULT_LOAD => Span::ZERO..=MAX_PHASE,
        /// Length of the phase after the load, in which queues drain and only probes are sent.
        pub drain: Span = Span::from_secs(1) => Span::ZERO..=MAX_PHASE,
    }
}

/// The condition on which the load counts as established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ramp {
    /// After a fixed time.
    Fixed(Span),
    /// Once throughput is steady, and after `limit` at the latest.
    Steady { limit: Span },
}

impl Ramp {
    pub fn longest(self) -> Span {
        match self {
            Self::Fixed(length) | Self::Steady { limit: length } => length,
        }
    }
}

impl Phases {
    pub(super) fn read(table: &Table, faults: &mut Faults) -> Option<Self> {
        faults.under("phases", |faults| {
            let phases: Self = read_table(table, faults)?;
            if phases.load == Span::ZERO && phases.idle == Span::ZERO {
                let problem = "0s here and in `idle` leaves nothing to measure";
                faults.add(Fault::new("load", problem));
            }
            Some(phases)
        })
    }

    /// Returns the longest duration of a trial.
    pub fn longest(&self) -> Span {
        self.idle + self.longest_load() + self.drain
    }

    /// Returns the longest time from the start of the ramp to the end of the load.
    pub(super) fn longest_load(&self) -> Span {
        self.ramp.longest() + self.load
    }

    /// Estimates the duration of a trial; a ramp that waits for a steady load usually ends early.
    pub fn estimate(&self) -> Span {
        const USUAL_STEADY: Span = Span::from_secs(4);
        let ramp = match self.ramp {
            Ramp::Fixed(length) => length,
            Ramp::Steady { limit } => limit.min(USUAL_STEADY),
        };
        self.idle + ramp + self.load + self.drain
    }
}

/// A phase of more than a day has the wrong unit.
const MAX_PHASE: Span = Span::from_secs(24 * 3600);
pub(super) const DEFAULT_LOAD: Span = Span::from_secs(15);
const DEFAULT_RAMP_LIMIT: Span = Span::from_secs(15);

keys! {
    pub(super) struct RampKeys {
        /// Length of the phase in which the load builds up, or "steady" to wait until the
        /// throughput is level.
        ramp: RampText = RampText(None),
        /// The longest steady ramp.
        ramp_limit: Option<Span> where default = "15s" => Span::ZERO..=MAX_PHASE,
    }
}

impl Combined for Ramp {
    type Keys = RampKeys;

    fn combine(keys: RampKeys, faults: &mut Faults) -> Option<Self> {
        let fault = match (keys.ramp.0, keys.ramp_limit) {
            (Some(length), None) if length > MAX_PHASE => {
                let problem = format!("{length} is out of range; expected 0s to {MAX_PHASE}");
                Fault::new("ramp", problem)
            }
            (Some(length), None) => return Some(Self::Fixed(length)),
            (Some(_), Some(_)) => {
                let problem = "needs ramp = \"steady\"; a fixed ramp has no limit";
                Fault::new("ramp_limit", problem)
            }
            (None, limit) => {
                return Some(Self::Steady { limit: limit.unwrap_or(DEFAULT_RAMP_LIMIT) });
            }
        };
        faults.add(fault);
        None
    }
}

/// A length of time, or `None` for `"steady"`.
pub(super) struct RampText(Option<Span>);

impl Value for RampText {
    fn expected(_: &str) -> String {
        "\"steady\" or a time such as \"3s\"".to_owned()
    }

    fn read(value: &Toml, faults: &mut Faults) -> Result<Self, Refusal> {
        match value {
            Toml::String(text) if text == "steady" => Ok(Self(None)),
            value => Span::read(value, faults).map(|length| Self(Some(length))).map_err(|_| {
                let text = value.as_str().map_or(value.to_string(), str::to_owned);
                Refusal::Problem(format!("`{text}`: expected {}", Self::expected("")))
            }),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "description": Self::expected("") })
    }

    fn json(&self) -> Json {
        json!(self.0.map_or_else(|| "steady".to_owned(), |length| length.to_string()))
    }
}
