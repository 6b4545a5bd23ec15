//! The parameters that all links share, and the constant and the unlimited link, which have few
//! others. Links with more parameters have a file each.

pub(crate) mod docsis;
pub(crate) mod radio;
pub(crate) mod steps;
pub(crate) mod trace;

use crate::config::{
    Bytes, Definition, Key, LinkFacts, Param, Probability, Values, choices, params,
};
use crate::rate::Rate;
use crate::remark::Rules;
use crate::time::Span;

use crate::link::constant::Constant;
use crate::link::flight::{FlightOptions, Jitter, JitterLaw, Reorder};
use crate::link::grants::RequestGrant;
use crate::link::middlebox::MiddleboxOptions;
use crate::link::rate_process::RateProcess;
use crate::queue::store::Limit;

/// The parts of a link that follow from its own parameters.
pub(crate) struct LinkConfig {
    /// When packets may leave, from time zero.
    pub(crate) rate: RateProcess,
    /// The facts about the link that a queue in front of it may use.
    pub(crate) facts: LinkFacts,
    /// The requests and grants that packets wait for in the queue.
    pub(crate) requests: Option<RequestGrant>,
    /// The limit of a queue for TCP acknowledgements alone, which is served first.
    pub(crate) acks: Option<Limit>,
}

impl LinkConfig {
    /// Returns a link of which queues know only the long-term rate.
    pub(in crate::link) const fn of_rate(rate: RateProcess, nominal: Rate) -> Self {
        Self::new(rate, LinkFacts::of_rate(nominal))
    }

    const fn new(rate: RateProcess, facts: LinkFacts) -> Self {
        Self { rate, facts, requests: None, acks: None }
    }
}

params! {
    pub(crate) DELAY: Span = "delay", "0s" in "0s".."60s",
        "from the end of a transmission to arrival at the far end";
    pub(crate) LOSS: Probability = "loss", "0%", "independent loss of each transmitted packet";
    JITTER: Span = "jitter", "0s" in "0s".."10s",
        "largest random delay of a packet on top of `delay`";
    JITTER_LAW: JitterLaw = "jitter-law", "uniform",
        "`uniform`: evenly up to `jitter`; `normal`: mean 1/2 and deviation 1/6 of `jitter`; `exponential`: mean 1/8 of `jitter`";
    JITTER_ORDER: JitterOrder = "jitter-order", "kept",
        "kept: a packet waits for those before it; free: it may overtake them";
    REORDER: Probability = "reorder", "0%",
        "probability that a packet is delayed so that later ones overtake it";
    REORDER_BY: Span = "reorder-by", "10ms" in "1us".."10s",
        "how much later a reordered packet arrives";
    MARK: Probability = "mark", "0%",
        "probability that a transmitted ECT packet that is not lost becomes CE, each by itself";
    REMARK: Option<Rules> = "remark", ("no change"),
        "rules that change DSCP and ECN of packets that are not lost, in order, after `mark`";
    pub(crate) OVERHEAD: Bytes = "overhead", "0B" in "0B".."256B",
        "link-layer bytes charged on top of each packet's length";
}

pub(in crate::link) const SHARED: &[Param] = PARAMS;

choices!(JitterLaw { "uniform" => Uniform, "normal" => Normal, "exponential" => Exponential, });

/// Whether jitter keeps the order of packets.
enum JitterOrder {}

choices!(JitterOrder => bool { "kept" => true, "free" => false, });

/// Returns the delays on top of [`DELAY`].
pub(crate) fn flight(values: &Values) -> FlightOptions {
    let most = values.get(JITTER);
    let (law, keep_order) = (values.get(JITTER_LAW), values.get(JITTER_ORDER));
    let (probability_q32, by) = (values.get(REORDER), values.get(REORDER_BY));
    FlightOptions {
        jitter: (most > Span::ZERO).then_some(Jitter { most, law, keep_order }),
        reorder: (probability_q32 > 0).then_some(Reorder { probability_q32, by }),
    }
}

/// Returns the options for marking and remarking packets on the path behind the link.
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
    LinkConfig::new(RateProcess::Unlimited, LinkFacts::UNKNOWN)
}
