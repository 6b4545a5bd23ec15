//! The links by name.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::config::{ConfigError, Definition, Item, Kind, LinkFacts, Spec, Values};
use crate::link::acks::AcksApart;
use crate::link::params::{self, DELAY, LOSS, LinkConfig, OVERHEAD};
use crate::link::radio::{Radio, user_stream};
use crate::link::{
    Constant, Flight, FlightOptions, Grants, Link, LinkParts, Loss, Middlebox, MiddleboxOptions,
    RateProcess, RequestGrant, cellular,
};
use crate::qdisc::BoxedQdisc;
use crate::queue::store::Limit;
use crate::registry::{QueueSetup, unknown};
use crate::rng::Rng;
use crate::service_flow::Contract;
use crate::time::Span;

/// Reads the file that a link names, such as a trace; the error is shown to the user.
pub type LoadFile<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// A kind of link of the registry.
#[derive(Clone, Copy, Debug)]
pub struct LinkEntry {
    /// Name, parameters and source of the link.
    pub definition: &'static Definition,
    configure: Configure,
}

type Configure = fn(&Values, &mut LoadFile<'_>) -> Result<LinkConfig, ConfigError>;

const fn entry(definition: &'static Definition, configure: Configure) -> LinkEntry {
    LinkEntry { definition, configure }
}

/// Every link, in the order in which `underload queues` lists them.
pub const LINKS: &[LinkEntry] = &[
    entry(&params::CONSTANT, |values, _| Ok(params::constant(values))),
    entry(&params::steps::DEFINITION, |values, _| params::steps::configure(values)),
    entry(&params::trace::DEFINITION, |values, load| params::trace::configure(values, load)),
    entry(&cellular::DEFINITION, |values, _| cellular::configure(values)),
    entry(&params::docsis::DEFINITION, |values, _| params::docsis::configure(values)),
    entry(&params::radio::DEFINITION, |values, load| {
        params::radio::configure(values, &mut |spec| {
            LinkSetup::from_spec_with(spec, load).map(|link| (link.rate, link.facts))
        })
    }),
    entry(&params::UNLIMITED, |_, _| Ok(params::unlimited())),
];

/// A link ready to be built, with the SPEC to print.
#[derive(Clone, Debug)]
pub struct LinkSetup {
    /// The complete SPEC, which parses to the same link.
    pub label: Spec,
    meaning: String,
    /// When packets may leave, from time zero.
    pub rate: RateProcess,
    /// The facts about the link that a queue in front of it may use.
    facts: LinkFacts,
    /// From the end of a transmission to arrival at the far end.
    pub delay: Span,
    /// Delays on top of `delay`.
    pub flight: FlightOptions,
    /// The requests and grants of a cable modem's upstream.
    requests: Option<RequestGrant>,
    /// The limit of the modem's queue for TCP acknowledgements alone.
    acks: Option<Limit>,
    /// The probability of a loss after transmission, as a fraction of 2^32.
    pub loss_q32: u64,
    /// Marks and remarks packets behind the link.
    pub middlebox: MiddleboxOptions,
    /// Bytes charged on top of each packet's length.
    pub overhead_bytes: u32,
}

impl LinkSetup {
    /// Parses a SPEC string such as `20mbit` or `20mbit:delay=10ms,loss=1%`. A link that names a
    /// file is refused; see [`LinkSetup::parse_with`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::from_spec(&Spec::parse(text)?)
    }

    /// Parses a SPEC string; `load` reads a file that it names.
    pub fn parse_with(text: &str, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        Self::from_spec_with(&Spec::parse(text)?, load)
    }

    /// Reads a parsed SPEC, for example one from a TOML table.
    pub fn from_spec(spec: &Spec) -> Result<Self, ConfigError> {
        Self::from_spec_with(spec, &mut |_| Err("no file can be read here".to_string()))
    }

    /// Reads a parsed SPEC; `load` reads a file that it names.
    pub fn from_spec_with(spec: &Spec, load: &mut LoadFile<'_>) -> Result<Self, ConfigError> {
        if Kind::Rate.read(&spec.name).is_some() {
            return Self::bare_rate(spec);
        }
        if spec.name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(ConfigError::Refused(Kind::Rate.refusal(&spec.name)));
        }
        let entry = LINKS.iter().find(|entry| entry.definition.name == spec.name);
        let names = LINKS.iter().map(|entry| entry.definition.name);
        let entry = entry.ok_or_else(|| unknown("link", spec, names))?;
        let values = entry.definition.resolve(spec)?;
        let LinkConfig { rate, facts, requests, acks } = (entry.configure)(&values, load)?;
        let plain = |inner: &Spec| Ok(inner.to_string());
        Ok(Self {
            label: values.label(&plain)?,
            meaning: values.meaning(&plain)?.to_string(),
            rate,
            facts,
            delay: values.get(DELAY),
            flight: params::flight(&values),
            requests,
            acks,
            loss_q32: values.get(LOSS),
            middlebox: params::middlebox(&values),
            overhead_bytes: values.get(OVERHEAD) as u32,
        })
    }

    /// Reads `20mbit:loss=1%`, which means `rate:20mbit,loss=1%` and is printed as it was written.
    fn bare_rate(spec: &Spec) -> Result<Self, ConfigError> {
        let mut full = Spec::new("rate");
        full.items.push(Item { key: None, value: spec.name.clone() });
        full.items.extend(spec.items.iter().cloned());
        Ok(Self { label: spec.clone(), ..Self::from_spec(&full)? })
    }

    /// Returns a text that is equal for equivalent links whose files have equal contents.
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// Returns the facts that a queue in front of the link may use.
    pub const fn facts(&self) -> LinkFacts {
        self.facts
    }

    /// Returns the names of the rules by which the link changes packets, in order.
    pub fn rule_names(&self) -> Vec<String> {
        self.middlebox.rules.as_slice().iter().map(ToString::to_string).collect()
    }

    /// Returns the hosts of the users that share the link; `None` if any host may use it. Only the
    /// simulator has several hosts.
    pub fn users(&self) -> Option<&[u32]> {
        match &self.rate {
            RateProcess::PerUser(radio) => Some(&radio.hosts),
            _ => None,
        }
    }

    /// Builds the empty queue in front of the link: `queue`, or one such queue for each user.
    pub fn queue<P: Send + 'static>(&self, queue: &QueueSetup, rng: &Rng) -> BoxedQdisc<P> {
        let RateProcess::PerUser(radio) = &self.rate else { return queue.build(rng) };
        let of_user = |number| queue.build(&user_stream(rng, number));
        Box::new(Radio::new(radio, (0..radio.queues()).map(of_user).collect(), rng))
    }

    /// Builds an idle link behind `queue`, or behind one such queue for each of its users. It draws
    /// random numbers from child streams of `rng`.
    pub fn build_behind<P: Send + 'static>(&self, queue: &QueueSetup, rng: &Rng) -> Link<P> {
        self.build(self.queue(queue, rng), rng)
    }

    /// Builds an idle link behind `queue`, which all users share if the link has any. It draws random
    /// numbers from child streams of `rng`.
    pub fn build<P: Send + 'static>(&self, mut queue: BoxedQdisc<P>, rng: &Rng) -> Link<P> {
        if let Some(limit) = self.acks {
            queue = Box::new(AcksApart::new(limit, self.requests, queue));
        }
        if let RateProcess::PerUser(radio) = &self.rate
            && queue.on_air().is_none()
        {
            queue = Box::new(Radio::new(radio, Vec::from([queue]), rng));
        }
        let mut rate = self.rate.started(rng);
        let grants = self.requests.map(|requests| {
            rate = RateProcess::Constant(Constant::new(requests.peak));
            let flows = queue.service_flows();
            let contract = flows.map_or(Contract::SINGLE_FLOW, |flows| flows.contract());
            Box::new(Grants::new(requests, &contract, rng))
        });
        let preparation = self.requests.map_or(Span::ZERO, |requests| requests.preparation);
        let extra = !self.flight.is_empty();
        let changes = !self.middlebox.is_empty();
        Link::new(LinkParts {
            queue,
            rate,
            overhead_bytes: self.overhead_bytes,
            delay: self.delay + preparation,
            flight: extra.then(|| Box::new(Flight::new(self.flight, rng))),
            grants,
            loss: Loss { probability_q32: self.loss_q32, rng: rng.child("loss") },
            middlebox: changes.then(|| Box::new(Middlebox::new(self.middlebox.clone(), rng))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    #[test]
    fn a_bare_rate_is_a_link() {
        let link = LinkSetup::parse("20mbit:delay=10ms,overhead=14B").expect("a link");
        assert_eq!(link.facts().rate, Some(Rate::from_megabits_per_second(20)));
        assert_eq!((link.delay, link.overhead_bytes), (Span::from_millis(10), 14));
        assert_eq!(link.label.to_string(), "20mbit:delay=10ms,overhead=14B");
    }

    #[test]
    fn equal_links_print_equal_specs() {
        let meaning = |text: &str| LinkSetup::parse(text).expect(text).meaning().to_string();
        for (one, other) in [
            ("10mbit", "10000kbit"),
            ("10mbit", "rate:rate=0.01gbit,delay=0s"),
            ("10mbit:delay=5ms,loss=1%", "10mbit:loss=0.01,delay=5000us"),
            ("steps:0s=6mbit,10s=600kbit", "steps:0ms=6000kbit,10000ms=0.6mbit"),
        ] {
            assert_eq!(meaning(one), meaning(other), "{one} and {other}");
        }
        for (one, other) in [
            ("10mbit", "10001kbit"),
            ("10mbit", "10mbit:delay=1ns"),
            ("steps:0s=6mbit,10s=600kbit", "steps:0s=6mbit,11s=600kbit"),
            // Both are printed as 0.
            ("10mbit:loss=0.0000001", "10mbit:loss=0.0000002"),
        ] {
            assert_ne!(meaning(one), meaning(other), "{one} and {other}");
        }
    }

    #[test]
    fn errors_name_the_place_and_what_would_be_accepted() {
        for (text, expected) in [
            ("0mbit", "`rate`: `rate=0mbit`: expected 1bit to 400gbit"),
            ("20mbit:dellay=1ms", "did you mean `delay`?"),
            ("20mbit:delay=1", "expected a time such as 5ms (ns, us, ms, s, min, h)"),
            ("20mbit:delay=1ms,delay=2ms", "`delay` is given twice"),
            ("20mbits", "`20mbits`: expected a rate such as 20mbit (bit, kbit, mbit, gbit)"),
            ("20", "`20` has no unit; expected a rate such as 20mbit"),
            ("mbit", "there is no link `mbit`"),
            ("rate", "`rate` needs `rate=`: a rate such as 20mbit"),
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
            // With no movement and no outage, the rate is exactly that of the centre.
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
        for preset in cellular::DEFINITION.profiles {
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
            ("steps:0s=6mbit,10s=1", "`10s=1`: expected a rate such as 20mbit"),
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
        let read =
            |text: &str| LinkSetup::parse_with("trace:f", &mut |_| Ok(text.as_bytes().to_vec()));
        // As adaptive video records lines, and as a spreadsheet writes it.
        for text in ["5.0\t4\n5.5\t2\n6.0\t6\n", "time,rate\r\n0,4\r\n0.5,2\r\n1,6\r\n"] {
            let link = read(text).expect(text);
            assert_eq!(link.facts().rate, Some(Rate::from_megabits_per_second(4)), "{text}");
        }
        for (text, expected) in [
            ("0 4\n1 x\n", "line 2: expected two columns"),
            ("0 4 9\n", "line 1 has 3 columns; expected seconds and Mbit/s alone: a link's delay"),
            ("s,Mbit/s,ms\n0,4,20\n", "line 1 has 3 columns"),
            ("4.5\n", "milliseconds, at most 2^32 - 1, or in each line seconds and Mbit/s"),
            ("1 4\n0 4\n", "step 2 must start after step 1"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = LinkSetup::parse("trace:up.trace").expect_err("no file");
        assert!(error.to_string().contains("no file can be read here"), "{error}");
    }
}
