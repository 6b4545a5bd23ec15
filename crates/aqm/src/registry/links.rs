//! The links by name.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::{
    ConfigError, Definition, Fallback, Item, Kind, Param, Profile, Spec, Value, Values,
};
use crate::link::{
    Constant, DocsisUpstream, Flight, FlightOptions, Jitter, JitterLaw, Link, LinkParts, Loss,
    Opportunities, RateProcess, Reorder, RequestGrant, Schedule, ScheduleError, Step, Trace,
};
use crate::qdisc::Qdisc;
use crate::rate::Rate;
use crate::registry::cellular::{self, CELLULAR};
use crate::registry::{LinkFacts, unknown};
use crate::rng::Rng;
use crate::time::Span;

const DELAY: Param = Param {
    key: "delay",
    kind: Kind::Span,
    fallback: Fallback::Value("0s"),
    range: Some(("0s", "60s")),
    doc: "from the end of a transmission to arrival at the far end",
};

const LOSS: Param = Param {
    key: "loss",
    kind: Kind::Probability,
    fallback: Fallback::Value("0%"),
    range: None,
    doc: "independent loss of each transmitted packet",
};

const OVERHEAD: Param = Param {
    key: "overhead",
    kind: Kind::Bytes,
    fallback: Fallback::Value("0B"),
    range: Some(("0B", "256B")),
    doc: "link-layer bytes charged on top of each packet's length",
};

const JITTER: Param = Param {
    key: "jitter",
    kind: Kind::Span,
    fallback: Fallback::Value("0s"),
    range: Some(("0s", "10s")),
    doc: "largest random delay of a packet on top of `delay`",
};

const JITTER_LAW: Param = Param {
    key: "jitter-law",
    kind: Kind::Choice(&["uniform", "normal", "exponential"]),
    fallback: Fallback::Value("uniform"),
    range: None,
    doc: "over 0 to `jitter`: even; mean 1/2, deviation 1/6; or mean 1/8 with a tail",
};

const JITTER_ORDER: Param = Param {
    key: "jitter-order",
    kind: Kind::Choice(&["kept", "free"]),
    fallback: Fallback::Value("kept"),
    range: None,
    doc: "kept: a packet waits for those before it; free: it may overtake them",
};

const REORDER: Param = Param {
    key: "reorder",
    kind: Kind::Probability,
    fallback: Fallback::Value("0%"),
    range: None,
    doc: "probability that a packet falls behind, so that later ones overtake it",
};

const REORDER_BY: Param = Param {
    key: "reorder-by",
    kind: Kind::Span,
    fallback: Fallback::Value("10ms"),
    range: Some(("1us", "10s")),
    doc: "how far such a packet falls behind",
};

/// Parameters that every link has.
pub(super) const SHARED: &[Param] =
    &[DELAY, LOSS, JITTER, JITTER_LAW, JITTER_ORDER, REORDER, REORDER_BY, OVERHEAD];

/// The same for links with an `overhead` of their own.
const SHARED_WITHOUT_OVERHEAD: &[Param] =
    &[DELAY, LOSS, JITTER, JITTER_LAW, JITTER_ORDER, REORDER, REORDER_BY];

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

const STEPS: Definition = Definition {
    name: "steps",
    summary: "rate that changes at given times: steps:0s=6mbit,10s=600kbit",
    source: "piecewise constant, exact in mid-packet; rate 0bit is an outage",
    profiles: &[],
    params: &[Param {
        key: "repeat",
        kind: Kind::Span,
        fallback: Fallback::Absent("the last rate holds for ever"),
        range: Some(("1us", "31536000s")),
        doc: "start over after this time",
    }],
    shared: SHARED,
    positional: None,
    free_key: Some(|key| Kind::Span.read(key).is_some()),
};

const TRACE: Definition = Definition {
    name: "trace",
    summary: "recorded delivery opportunities: trace:FILE",
    source: "Mahimahi's trace format: a time in ms per opportunity",
    profiles: &[
        Profile { name: "mahimahi", doc: "opportunities at instants, lost when idle (mm-link)" },
        Profile { name: "exact", doc: "constant rate within each millisecond, nothing lost" },
    ],
    params: &[
        Param {
            key: "file",
            kind: Kind::Text,
            fallback: Fallback::Required,
            range: None,
            doc: "the recording",
        },
        Param {
            key: "opportunity",
            kind: Kind::Bytes,
            fallback: Fallback::Value("1504B"),
            range: Some(("64B", "64KiB")),
            doc: "bytes that an opportunity carries, overhead included",
        },
        Param { fallback: Fallback::Value("4B"), ..OVERHEAD },
    ],
    shared: SHARED_WITHOUT_OVERHEAD,
    positional: Some("file"),
    free_key: None,
};

const DOCSIS: Definition = Definition {
    name: "docsis",
    summary: "cable modem upstream: token bucket with a peak rate",
    source: "DOCSIS MULPIv3.1 annex C.2.2.7; request-grant delay: RFC 8034 section 4.2",
    profiles: &[],
    params: &[
        Param {
            key: "rate",
            kind: Kind::Rate,
            fallback: Fallback::Required,
            range: Some(("1kbit", "400gbit")),
            doc: "maximum sustained traffic rate",
        },
        Param {
            key: "burst",
            kind: Kind::Bytes,
            fallback: Fallback::Value("3044B"),
            range: Some(("1522B", "1024MiB")),
            doc: "maximum traffic burst",
        },
        Param {
            key: "peak",
            kind: Kind::Rate,
            fallback: Fallback::Required,
            range: Some(("1kbit", "400gbit")),
            doc: "peak traffic rate, not below the sustained rate",
        },
        Param {
            key: "map",
            kind: Kind::Span,
            fallback: Fallback::Value("0s"),
            range: Some(("0s", "100ms")),
            doc: "MAP interval; packets wait for requests and grants behind the queue; 0s: no wait",
        },
        Param {
            key: "grant",
            kind: Kind::Span,
            fallback: Fallback::Value("4ms"),
            range: Some(("0s", "1s")),
            doc: "with `map`: from the MAP boundary that carries a request to its grant",
        },
    ],
    shared: SHARED,
    positional: None,
    free_key: None,
};

const UNLIMITED: Definition = Definition {
    name: "unlimited",
    summary: "no rate limit: only delay and loss",
    source: "none needed",
    profiles: &[],
    params: &[],
    shared: SHARED,
    positional: None,
    free_key: None,
};

/// Every link, in the order in which `underload queues` lists them.
pub const LINKS: &[&Definition] = &[&RATE, &STEPS, &TRACE, &CELLULAR, &DOCSIS, &UNLIMITED];

/// Reads the file that a link names, such as a trace; the error is said to the user.
pub type LoadFile<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// A link ready to be built, with the SPEC to print.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// The SPEC in full. Parsing it gives the same link.
    pub label: Spec,
    /// When packets may leave, from the beginning on.
    pub rate: RateProcess,
    /// What a queue in front of this link may know of it.
    facts: LinkFacts,
    /// From the end of a transmission to arrival.
    pub delay: Span,
    /// Delays on top of that.
    pub flight: FlightOptions,
    /// Loss probability as a fraction of 2^32.
    pub loss_q32: u64,
    /// Bytes charged on top of each packet's length.
    pub overhead_bytes: u32,
}

impl LinkSetup {
    /// Understands a SPEC string such as `20mbit` or `20mbit:delay=10ms,loss=1%`. A link that
    /// names a file is refused: [`LinkSetup::parse_with`] takes those.
    ///
    /// # Errors
    /// Whatever is wrong with the name, a key or a value, and what would be accepted.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::from_spec(&Spec::parse(text)?)
    }

    /// Understands a SPEC string, and takes the contents of a file that it names from `load`.
    ///
    /// # Errors
    /// As [`LinkSetup::parse`], or what is wrong with the file.
    pub fn parse_with(text: &str, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        Self::from_spec_with(&Spec::parse(text)?, load)
    }

    /// Understands a SPEC, for example one made from a TOML table.
    ///
    /// # Errors
    /// As [`LinkSetup::parse`].
    pub fn from_spec(spec: &Spec) -> Result<Self, ConfigError> {
        Self::from_spec_with(spec, &mut |_| Err("no file can be read here".to_string()))
    }

    /// Understands a SPEC, and takes the contents of a file that it names from `load`.
    ///
    /// # Errors
    /// As [`LinkSetup::parse_with`].
    pub fn from_spec_with(spec: &Spec, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        if Kind::Rate.read(&spec.name).is_some() {
            return Self::bare_rate(spec);
        }
        if spec.name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(ConfigError::BadValue {
                name: "rate".to_string(),
                key: "rate".to_string(),
                value: spec.name.clone(),
                expected: Kind::Rate.expectation().to_string(),
            });
        }
        let definition = LINKS.iter().find(|link| link.name == spec.name);
        let names = LINKS.iter().map(|link| link.name);
        let definition = definition.ok_or_else(|| unknown("link", spec, names))?;
        let values = definition.resolve(&with_profile(definition, spec))?;
        let (rate, facts) = match definition.name {
            "steps" => steps(&values)?,
            "trace" => trace(&values, load)?,
            "docsis" => docsis(&values)?,
            "cellular" => {
                let process = cellular::configure(&values)?;
                let facts = facts_of(process.nominal_rate());
                (RateProcess::Cellular(Box::new(process)), facts)
            }
            "unlimited" => (RateProcess::Unlimited, LinkFacts::default()),
            _ => {
                let rate = values.rate("rate").unwrap_or_default();
                (RateProcess::Constant(Constant::new(rate)), facts_of(rate))
            }
        };
        Ok(Self {
            label: values.label(),
            rate,
            facts,
            delay: values.span("delay").unwrap_or_default(),
            flight: flight(&values),
            loss_q32: values.number("loss").unwrap_or_default(),
            overhead_bytes: values.bytes("overhead").unwrap_or_default() as u32,
        })
    }

    /// `20mbit:loss=1%` stands for `rate:20mbit,loss=1%`, and prints as it was written.
    fn bare_rate(spec: &Spec) -> Result<Self, ConfigError> {
        let mut full = Spec::new("rate");
        full.items.push(Item { key: None, value: spec.name.clone() });
        full.items.extend(spec.items.iter().cloned());
        Ok(Self { label: spec.clone(), ..Self::from_spec(&full)? })
    }

    /// What a queue in front of this link may know of it.
    pub const fn facts(&self) -> LinkFacts {
        self.facts
    }

    /// Builds an idle link behind `queue`; whatever it draws comes from child streams of `rng`.
    pub fn build<P>(&self, queue: Box<dyn Qdisc<P>>, rng: &Rng) -> Link<P> {
        let extra = !self.flight.is_empty();
        Link::new(LinkParts {
            queue,
            rate: self.rate.started(rng),
            overhead_bytes: self.overhead_bytes,
            delay: self.delay,
            flight: extra.then(|| Box::new(Flight::new(self.flight, rng))),
            loss: Loss { probability_q32: self.loss_q32, rng: rng.child("loss") },
        })
    }
}

/// `preset=` is another word for `profile=` where the profiles are presets.
fn with_profile(definition: &Definition, spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    if definition.name == CELLULAR.name {
        let keys = spec.items.iter_mut().filter_map(|item| item.key.as_mut());
        keys.filter(|key| *key == "preset").for_each(|key| *key = "profile".to_string());
    }
    spec
}

fn flight(values: &Values) -> FlightOptions {
    let span = |key: &str| values.span(key).filter(|span| *span > Span::ZERO);
    let word = |key: &str| match values.find(key) {
        Some(Value::Choice(word)) => word,
        _ => "",
    };
    let law = match word("jitter-law") {
        "normal" => JitterLaw::Normal,
        "exponential" => JitterLaw::Exponential,
        _ => JitterLaw::Uniform,
    };
    let keep_order = word("jitter-order") != "free";
    let by = values.span("reorder-by").unwrap_or_default();
    let probability_q32 = values.number("reorder").unwrap_or_default();
    FlightOptions {
        jitter: span("jitter").map(|most| Jitter { most, law, keep_order }),
        reorder: (probability_q32 > 0).then_some(Reorder { probability_q32, by }),
        grant: span("map").map(|map_interval| RequestGrant {
            map_interval,
            to_grant: values.span("grant").unwrap_or_default(),
            peak: values.rate("peak").unwrap_or_default(),
        }),
    }
}

fn facts_of(rate: Rate) -> LinkFacts {
    LinkFacts { rate: Some(rate), ..LinkFacts::default() }
}

fn steps(values: &Values) -> Result<(RateProcess, LinkFacts), ConfigError> {
    let name = "steps".to_string();
    let mut steps = Vec::new();
    for (key, value) in values.free() {
        let (Some(Value::Span(start)), Some(Value::Rate(rate))) =
            (Kind::Span.read(key), Kind::Rate.read(value))
        else {
            let expected = Kind::Rate.expectation().to_string();
            let (key, value) = (key.clone(), value.clone());
            return Err(ConfigError::BadValue { name, key, value, expected });
        };
        steps.push(Step { start, rate });
    }
    let schedule = Schedule::new(steps, values.span("repeat")).map_err(|error| {
        let key = if error == ScheduleError::ShortRepeat { "repeat" } else { "TIME=RATE" };
        ConfigError::Inside { name, key: key.to_string(), problem: error.to_string() }
    })?;
    let facts = facts_of(schedule.nominal_rate());
    Ok((RateProcess::Schedule(schedule), facts))
}

fn trace(
    values: &Values,
    load: &mut LoadFile<'_>,
) -> Result<(RateProcess, LinkFacts), ConfigError> {
    let file = values.find("file").map(|value| value.to_string()).unwrap_or_default();
    let inside = |problem: String| ConfigError::Inside {
        name: "trace".to_string(),
        key: file.clone(),
        problem,
    };
    let bytes = load(&file).map_err(inside)?;
    let trace = Trace::parse(&bytes).map_err(|error| inside(error.to_string()))?;
    let opportunity_bytes = values.bytes("opportunity").unwrap_or_default() as u32;
    let facts = facts_of(trace.mean_rate(opportunity_bytes));
    let process = if values.profile() == "exact" {
        RateProcess::Schedule(trace.to_schedule(opportunity_bytes))
    } else {
        RateProcess::Opportunities(Opportunities::new(trace, opportunity_bytes))
    };
    Ok((process, facts))
}

fn docsis(values: &Values) -> Result<(RateProcess, LinkFacts), ConfigError> {
    let rate = values.rate("rate").unwrap_or_default();
    let peak = values.rate("peak").unwrap_or_default();
    let burst_bytes = values.bytes("burst").unwrap_or_default();
    if peak < rate {
        return Err(values.refuse("peak", "at least the sustained rate"));
    }
    let facts = LinkFacts { rate: Some(rate), peak: Some(peak), burst_bytes: Some(burst_bytes) };
    Ok((RateProcess::Docsis(DocsisUpstream::new(rate, burst_bytes, peak)), facts))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("20mbits", "expected a rate with a unit (bit, kbit, mbit, gbit), such as 20mbit"),
            ("mbit", "there is no link `mbit`"),
            ("rate", "`rate` needs `rate=`: a rate with a unit"),
        ] {
            let error = LinkSetup::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn every_link_is_built_from_its_spec_and_knows_its_rate() {
        let mbit = |n| Some(Rate::from_megabits_per_second(n));
        for (text, rate) in [
            ("steps:0s=6mbit,10s=600kbit", mbit(6)),
            ("steps:0s=6mbit,10s=2mbit,repeat=20s,delay=5ms", mbit(4)),
            ("docsis:rate=10mbit,burst=40KiB,peak=12mbit", mbit(10)),
            ("docsis:rate=10mbit,peak=12mbit,map=2ms,grant=3ms", mbit(10)),
            ("unlimited:delay=10ms,jitter=5ms,jitter-law=normal,jitter-order=free", None),
            ("unlimited:reorder=1%,reorder-by=3ms", None),
            // Nothing moves and nothing interrupts: exactly the centre.
            ("cellular:preset=3g,centre=2mbit,volatility=0bit,outage-gap=0s", mbit(2)),
            ("trace:up.trace", Some(Rate::from_bits_per_second(1_504 * 8 * 1_000 / 4))),
            ("trace:up.trace,profile=exact,delay=1ms", Some(Rate::from_bits_per_second(3_008_000))),
        ] {
            let link = LinkSetup::parse_with(text, &mut |_| Ok(b"4\n".to_vec())).expect(text);
            assert_eq!(link.facts().rate, rate, "{text}");
            let again = LinkSetup::from_spec_with(&link.label, &mut |_| Ok(b"4\n".to_vec()));
            assert_eq!(again.expect(text).label, link.label);
        }
    }

    #[test]
    fn every_preset_builds_and_its_rate_is_known() {
        for preset in CELLULAR.profiles {
            let text = "cellular:preset=".to_string() + preset.name;
            let link = LinkSetup::parse(&text).expect(preset.name);
            let rate = link.facts().rate.unwrap_or_default().bits_per_second();
            assert!((200_000..2_000_000_000).contains(&rate), "{text}: {rate} bit/s");
        }
    }

    #[test]
    fn a_schedule_or_trace_that_cannot_work_is_refused_by_name() {
        for (text, expected) in [
            ("steps", "`steps`: in `TIME=RATE`: a schedule needs at least one step"),
            ("steps:0s=6mbit,10s=0bit", "a rate of zero must not last for ever"),
            ("steps:0s=6mbit,10=1mbit", "`steps` has no parameter `10`"),
            ("steps:0s=6mbit,10s=1", "`10s=1`: expected a rate with a unit"),
            ("steps:0s=6mbit,5s=1mbit,repeat=5s", "in `repeat`: `repeat` must be later"),
            ("docsis:rate=10mbit,peak=9mbit", "`peak=9mbit`: expected at least the sustained rate"),
            ("cellular:preset=lte", "expected lte-driving, lte-stationary"),
            ("cellular:centre=12mbit", "`centre=12mbit`: expected a rate between `min` and"),
            ("cellular:min=9mbit,max=9mbit", "`max=9mbit`: expected 1kbit or more"),
            ("cellular:reversion=0s,volatility=0bit", "`volatility=0bit`: expected 1kbit or more"),
            ("cellular:outage-gap=1ns", "`outage-gap=1ns`: expected 0s, or one tick or more"),
            ("cellular:centre=0bit,volatility=0bit", "`opportunity=1504B`: expected a size that"),
            (
                "cellular:max=6mbit,outage-gap=20ms,outage-length=600s,opportunity=1MiB",
                "a size that",
            ),
            ("20mbit:jitter-law=gamma,jitter=1ms", "expected uniform, normal, exponential"),
            ("trace:up.trace", "`trace`: in `up.trace`: line 2: its time is before"),
        ] {
            let mut load = |_: &str| Ok(b"4\n3\n".to_vec());
            let error = LinkSetup::parse_with(text, &mut load).expect_err(text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        let error = LinkSetup::parse("trace:up.trace").expect_err("no file");
        assert!(error.to_string().contains("no file can be read here"), "{error}");
    }
}
