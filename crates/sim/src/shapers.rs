//! The shapers of a trial whose rates follow rules, which decide ten times a second.

use underload_aqm::link::RateProcess;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Sample, Series, SeriesPoint};

use crate::flow::{FlowConfig, FlowKind};
use crate::net::{Hop, RateRule, Seen};
use crate::simulation::Simulation;

/// The links of a trial whose rates follow rules.
pub(crate) struct Shapers {
    links: Vec<Shaper>,
    reflector: Reflector,
    next: Time,
}

struct Shaper {
    hop: usize,
    rule: Box<RateRule>,
    /// The capacity of the line.
    line: Option<RateProcess>,
    rates: Vec<SeriesPoint>,
}

impl Shapers {
    pub(crate) fn new(hops: &[Hop], flows: &[FlowConfig]) -> Self {
        let shaper = |(hop, it): (usize, &Hop)| {
            let line = match it.direction {
                Direction::Up => hops.get(hop + 1),
                Direction::Down => hop.checked_sub(1).and_then(|line| hops.get(line)),
            };
            let line = line.filter(|line| line.direction == it.direction);
            let rule = (it.config.rule.as_ref()?.0)();
            Some(Shaper { hop, rule, line: line.map(|it| it.offer.clone()), rates: Vec::new() })
        };
        let links: Vec<_> = hops.iter().enumerate().filter_map(shaper).collect();
        let next = if links.is_empty() { Time::MAX } else { Time::ZERO };
        Self { links, reflector: Reflector::new(flows), next }
    }

    /// Returns when the rules decide next.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Lets the rules decide, if it is time.
    pub(crate) fn decide(&mut self, simulation: &mut Simulation, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + STEP;
        let answers = self.reflector.answers(simulation, now);
        for Shaper { hop, rule, line, rates } in &mut self.links {
            let sent_bytes = simulation.network.hops[*hop].recorder.tally.total().sent.bytes;
            let offered_bytes = line.as_mut().and_then(|line| line.offered_bytes(now, self.next));
            let rate = rule(&Seen { now, answers: &answers, sent_bytes, offered_bytes });
            simulation.network.set_rate(now, *hop, rate);
            let value = rate.bits_per_second() as f64;
            rates.push(SeriesPoint { time_ns: now.as_nanos(), value });
        }
    }

    /// Returns the rates over time.
    pub(crate) fn into_series(self, hops: &[Hop], trial: u32) -> Vec<Series> {
        let series = |Shaper { hop, rates: points, .. }| {
            let name = format!("{}.shaped_rate", hops[hop].direction);
            Series { trial, name, unit: "bit/s".to_owned(), points }
        };
        self.links.into_iter().map(series).collect()
    }
}

/// The first probe of a trial, whose answers a program on a router sees as they arrive.
#[derive(Debug)]
pub(crate) struct Reflector {
    flow: Option<usize>,
    /// All probes before this one are answered or too old.
    first_open: usize,
    /// The end of the previous step.
    read: Time,
}

impl Reflector {
    pub(crate) fn new(flows: &[FlowConfig]) -> Self {
        let flow = flows.iter().position(|flow| matches!(flow.kind, FlowKind::Probe(_)));
        Self { flow, first_open: 0, read: Time::ZERO }
    }

    /// Returns when the probes were sent whose answers arrived since the previous call, and their
    /// round trips.
    pub(crate) fn answers(&mut self, simulation: &Simulation, now: Time) -> Vec<(Time, Span)> {
        let start = std::mem::replace(&mut self.read, now);
        let flow = self.flow.and_then(|position| simulation.agent(position));
        let samples = flow.map_or(&[][..], |agent| agent.endpoint().samples());
        let open = &samples[self.first_open..];
        let answered = open.iter().filter_map(|sample| {
            let sent = Time::from_nanos(sample.sent_ns);
            let round_trip = Span::from_nanos(sample.rtt_ns?);
            let arrived = sent + round_trip;
            (start <= arrived && arrived < now).then_some((sent, round_trip))
        });
        let answered = answered.collect();
        let is_closed = |sample: &&Sample| {
            let sent = Time::from_nanos(sample.sent_ns);
            sample.rtt_ns.is_some() || now.since(sent) > LOST_AFTER
        };
        self.first_open += open.iter().take_while(is_closed).count();
        answered
    }
}

/// Time between two decisions, as of a live follower.
const STEP: Span = Span::from_millis(100);
/// Probes without an answer for this time are given up.
const LOST_AFTER: Span = Span::from_secs(10);
