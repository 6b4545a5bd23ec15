//! The parameters that all links have in common, and the constant and the unlimited link, which
//! have hardly any others.

use crate::config::{
    Bytes, Definition, Key, Kind, LinkFacts, Param, Probability, Quantity, Value, Values,
};
use crate::rate::Rate;
use crate::remark::Rules;
use crate::time::Span;

use super::flight::{FlightOptions, Jitter, JitterLaw, Reorder, RequestGrant};
use super::middlebox::MiddleboxOptions;
use super::rate_process::{Constant, RateProcess};

/// What a link's own parameters decide: when packets may leave, and what that means for others.
#[derive(Debug)]
pub(crate) struct LinkConfig {
    /// When packets may leave, from the beginning on.
    pub(crate) rate: RateProcess,
    /// Facts of the link that a queue in front of it may know.
    pub(crate) facts: LinkFacts,
    /// Delay of the medium access behind the queue.
    pub(crate) grant: Option<RequestGrant>,
}

impl LinkConfig {
    /// A link whose queue may know its rate in the long run, and nothing else.
    pub(super) const fn of_rate(rate: RateProcess, nominal: Rate) -> Self {
        Self { rate, facts: LinkFacts::of_rate(nominal), grant: None }
    }
}

pub(crate) const DELAY: Key<Span> =
    Key::new("delay", "0s", "from the end of a transmission to arrival at the far end")
        .within("0s", "60s");

pub(crate) const LOSS: Key<Probability> =
    Key::new("loss", "0%", "independent loss of each transmitted packet");

pub(crate) const OVERHEAD: Key<Bytes> =
    Key::new("overhead", "0B", "link-layer bytes charged on top of each packet's length")
        .within("0B", "256B");

const JITTER: Key<Span> =
    Key::new("jitter", "0s", "largest random delay of a packet on top of `delay`")
        .within("0s", "10s");

const JITTER_LAW: Key<JitterLaw> = Key::new(
    "jitter-law",
    "uniform",
    "over 0 to `jitter`: even; mean 1/2, deviation 1/6; or mean 1/8 with a tail",
);

const JITTER_ORDER: Key<JitterOrder> = Key::new(
    "jitter-order",
    "kept",
    "kept: a packet waits for those before it; free: it may overtake them",
);

const REORDER: Key<Probability> = Key::new(
    "reorder",
    "0%",
    "probability that a packet falls behind, so that later ones overtake it",
);

const REORDER_BY: Key<Span> =
    Key::new("reorder-by", "10ms", "how far such a packet falls behind").within("1us", "10s");

const MARK: Key<Probability> = Key::new(
    "mark",
    "0%",
    "probability that a transmitted ECT packet that is not lost becomes CE, each by itself",
);

const REMARK: Key<Option<Rules>> = Key::optional(
    "remark",
    "every field stays as it is",
    "rules that change DSCP and ECN of packets that are not lost, in order, after `mark`",
);

/// Parameters that every link has.
pub(super) const SHARED: &[Param] = &[
    DELAY.param(),
    LOSS.param(),
    JITTER.param(),
    JITTER_LAW.param(),
    JITTER_ORDER.param(),
    REORDER.param(),
    REORDER_BY.param(),
    MARK.param(),
    REMARK.param(),
    OVERHEAD.param(),
];

/// The same for links with an `overhead` of their own.
pub(super) const SHARED_WITHOUT_OVERHEAD: &[Param] = SHARED.split_at(SHARED.len() - 1).0;

impl Quantity for JitterLaw {
    type Value = Self;

    const KIND: Kind = Kind::Choice(&["uniform", "normal", "exponential"]);

    fn of(value: Option<Value>) -> Option<Self> {
        match value? {
            Value::Choice("uniform") => Some(Self::Uniform),
            Value::Choice("normal") => Some(Self::Normal),
            Value::Choice("exponential") => Some(Self::Exponential),
            _ => None,
        }
    }
}

/// Whether jitter keeps the order of packets.
enum JitterOrder {}

impl Quantity for JitterOrder {
    type Value = bool;

    const KIND: Kind = Kind::Choice(&["kept", "free"]);

    fn of(value: Option<Value>) -> Option<bool> {
        match value? {
            Value::Choice("kept") => Some(true),
            Value::Choice("free") => Some(false),
            _ => None,
        }
    }
}

/// The delays on top of [`DELAY`] that the values describe.
pub(crate) fn flight(values: &Values, grant: Option<RequestGrant>) -> FlightOptions {
    let most = values.get(JITTER);
    let (law, keep_order) = (values.get(JITTER_LAW), values.get(JITTER_ORDER));
    let (probability_q32, by) = (values.get(REORDER), values.get(REORDER_BY));
    FlightOptions {
        jitter: (most > Span::ZERO).then_some(Jitter { most, law, keep_order }),
        reorder: (probability_q32 > 0).then_some(Reorder { probability_q32, by }),
        grant,
    }
}

/// What the values say of the path behind the link.
pub(crate) fn middlebox(values: &Values) -> MiddleboxOptions {
    let rules = values.get(REMARK).unwrap_or_default();
    MiddleboxOptions { mark_q32: values.get(MARK), rules }
}

const RATE: Key<Rate> = Key::required("rate", "bits per second, link-layer overhead included")
    .within("1bit", "400gbit");

pub(crate) const CONSTANT: Definition = Definition {
    name: "rate",
    summary: "constant rate; written as the bare rate, such as 20mbit",
    source: "serialisation at a fixed rate, remainders of rounding carried",
    params: &[RATE.param()],
    shared: SHARED,
    positional: Some(RATE.name()),
    ..Definition::BARE
};

pub(crate) fn constant(values: &Values) -> LinkConfig {
    let rate = values.get(RATE);
    LinkConfig::of_rate(RateProcess::Constant(Constant::new(rate)), rate)
}

pub(crate) const UNLIMITED: Definition = Definition {
    name: "unlimited",
    summary: "no rate limit: only delay and loss",
    source: "none needed",
    shared: SHARED,
    ..Definition::BARE
};

pub(crate) const fn unlimited() -> LinkConfig {
    LinkConfig { rate: RateProcess::Unlimited, facts: LinkFacts::UNKNOWN, grant: None }
}
