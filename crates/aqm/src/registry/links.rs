//! The links by name.

use alloc::boxed::Box;

use crate::config::{ConfigError, Definition, Fallback, Item, Kind, Param, Spec, Values};
use crate::link::{Constant, Link, LinkParts, Loss, RateProcess};
use crate::qdisc::Qdisc;
use crate::rate::Rate;
use crate::registry::{LinkFacts, unknown};
use crate::rng::Rng;
use crate::time::Span;

/// Parameters that every link has.
const SHARED: &[Param] = &[
    Param {
        key: "delay",
        kind: Kind::Span,
        fallback: Fallback::Value("0s"),
        range: Some(("0s", "60s")),
        doc: "from the end of a transmission to arrival at the far end",
    },
    Param {
        key: "loss",
        kind: Kind::Probability,
        fallback: Fallback::Value("0%"),
        range: None,
        doc: "independent loss of each transmitted packet",
    },
    Param {
        key: "overhead",
        kind: Kind::Bytes,
        fallback: Fallback::Value("0B"),
        range: Some(("0B", "256B")),
        doc: "link-layer bytes charged on top of each packet's length",
    },
];

const RATE: Definition = Definition {
    name: "rate",
    summary: "constant rate; written as the bare rate, such as 20mbit",
    source: "serialisation at a fixed rate, remainders of rounding carried",
    profiles: &[],
    params: &[Param {
        key: "rate",
        kind: Kind::Rate,
        fallback: Fallback::Required,
        range: Some(("1bit", "400gbit")),
        doc: "bits per second, link-layer overhead included",
    }],
    shared: SHARED,
    positional: Some("rate"),
    free_key: None,
};

/// Every link, in the order in which `underload queues` lists them.
pub const LINKS: &[&Definition] = &[&RATE];

/// The rate process of any link.
#[derive(Clone, Debug)]
pub enum RateConfig {
    /// The same rate for ever.
    Constant(Rate),
}

/// A link ready to be built, with the SPEC to print.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// The SPEC in full. Parsing it gives the same link.
    pub label: Spec,
    /// When packets may leave.
    pub rate: RateConfig,
    /// From the end of a transmission to arrival.
    pub delay: Span,
    /// Loss probability as a fraction of 2^32.
    pub loss_q32: u64,
    /// Bytes charged on top of each packet's length.
    pub overhead_bytes: u32,
}

impl LinkSetup {
    /// Understands a SPEC string such as `20mbit` or `20mbit:delay=10ms,loss=1%`.
    ///
    /// # Errors
    /// Whatever is wrong with the name, a key or a value, and what would be accepted.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::from_spec(&Spec::parse(text)?)
    }

    /// Understands a SPEC, for example one made from a TOML table.
    ///
    /// # Errors
    /// As [`LinkSetup::parse`].
    pub fn from_spec(spec: &Spec) -> Result<Self, ConfigError> {
        if Kind::Rate.read(&spec.name).is_some() {
            return Self::bare_rate(spec);
        }
        let definition = LINKS.iter().find(|link| link.name == spec.name);
        let names = LINKS.iter().map(|link| link.name);
        let definition = definition.ok_or_else(|| unknown("link", spec, names))?;
        let values = definition.resolve(spec)?;
        let rate = match definition.name {
            "rate" => RateConfig::Constant(values.rate("rate").unwrap_or_default()),
            _ => return Err(unknown("link", spec, LINKS.iter().map(|link| link.name))),
        };
        Ok(Self::assemble(values.label(), rate, &values))
    }

    /// `20mbit:loss=1%` stands for `rate:20mbit,loss=1%`, and prints as it was written.
    fn bare_rate(spec: &Spec) -> Result<Self, ConfigError> {
        let mut full = Spec::new("rate");
        full.items.push(Item { key: None, value: spec.name.clone() });
        full.items.extend(spec.items.iter().cloned());
        Ok(Self { label: spec.clone(), ..Self::from_spec(&full)? })
    }

    fn assemble(label: Spec, rate: RateConfig, values: &Values) -> Self {
        Self {
            label,
            rate,
            delay: values.span("delay").unwrap_or_default(),
            loss_q32: values.number("loss").unwrap_or_default(),
            overhead_bytes: values.bytes("overhead").unwrap_or_default() as u32,
        }
    }

    /// What a queue in front of this link may know of it.
    pub fn facts(&self) -> LinkFacts {
        match self.rate {
            RateConfig::Constant(rate) => LinkFacts { rate: Some(rate), ..LinkFacts::default() },
        }
    }

    /// Builds an idle link behind `queue`; its losses come from a child stream of `rng`.
    pub fn build<P>(&self, queue: Box<dyn Qdisc<P>>, rng: &Rng) -> Link<P> {
        let rate = match self.rate {
            RateConfig::Constant(rate) => RateProcess::Constant(Constant::new(rate)),
        };
        Link::new(LinkParts {
            queue,
            rate,
            overhead_bytes: self.overhead_bytes,
            delay: self.delay,
            loss: Loss { probability_q32: self.loss_q32, rng: rng.child("loss") },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_bare_rate_is_a_link() {
        let link = LinkSetup::parse("20mbit:delay=10ms,overhead=14B").expect("a link");
        assert_eq!(link.facts().rate, Some(Rate::from_megabits_per_second(20)));
        assert_eq!((link.delay, link.overhead_bytes), (Span::from_millis(10), 14));
        assert_eq!(link.label.to_string(), "20mbit:delay=10ms,overhead=14B");
    }

    #[test]
    fn errors_name_the_place_and_what_would_be_accepted() {
        for (text, expected) in [
            ("0mbit", "`rate`: `rate=0mbit`: expected 1bit to 400gbit"),
            ("20mbit:dellay=1ms", "did you mean `delay`?"),
            ("20mbit:delay=1", "expected a time with a unit (ns, us, ms, s), such as 5ms"),
            ("20mbit:delay=1ms,delay=2ms", "`delay` is given twice"),
            ("20mbits", "there is no link `20mbits`"),
            ("rate", "`rate` needs `rate=`: a rate with a unit"),
        ] {
            let error = LinkSetup::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
