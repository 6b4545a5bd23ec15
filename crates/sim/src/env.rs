//! A trial that a caller controls step by step, for learning congestion controls and queues.
//!
//! The environment is a trial without phases: TCP flows end only if they have an end. Before every
//! step the caller chooses either the window of the first TCP flow that sends up, or the probability
//! with which the first queue of the way up signals. The results depend only on the configuration and
//! the choices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use underload_aqm::aqm::{Aqm, Verdict};
use underload_aqm::link::{RateProcess, hop_stream};
use underload_aqm::packet::Meta;
use underload_aqm::qdisc::Backlog;
use underload_aqm::queue::store::{Limit, Overflow, Single};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::Direction;

use crate::flow::{Agent, FlowConfig, FlowKind};
use crate::simulation::Simulation;
use crate::tcp::Tcp;
use crate::trial::{SimConfig, SimError, lifetime};

/// The quantity that the caller controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steered {
    /// The congestion window of the first TCP flow that sends up.
    Window,
    /// The probability with which an arriving packet is marked, or dropped if it cannot be marked.
    Signals {
        /// Capacity of the queue.
        limit_packets: u32,
    },
}

#[derive(Clone, Debug)]
pub struct EnvironmentConfig {
    /// The trial. [`Steered::Signals`] replaces the first queue of the way up.
    pub trial: SimConfig,
    pub steered: Steered,
    /// Virtual time of a step.
    pub step: Span,
}

/// Why an environment cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("no TCP flow sends up; expected one, whose window is set")]
    NoWindow,
    #[error("no link up; expected one, whose queue is observed")]
    NoLink,
    #[error("up_rule and down_rule are for whole trials; expected links of constant rates")]
    Rule,
    #[error("a step of {0}; expected 100us to 10s")]
    Step(Span),
    #[error("limit_packets: expected at least 1")]
    Limit,
    #[error(transparent)]
    Trial(#[from] SimError),
}

/// Measurements of a step, and the state at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    pub time_ns: u64,
    /// Payload of the observed flow that arrived in the step; with [`Steered::Signals`], of all flows.
    pub delivered_bytes: u64,
    /// Bytes that the link could have carried in the step; 0 if unknown.
    pub capacity_bytes: u64,
    /// Smoothed round trip of the observed flow, the first TCP flow that sends up; 0 before its first
    /// sample.
    pub rtt_ns: u64,
    /// Congestion window of the observed flow, segments.
    pub window: u32,
    /// Segments in flight of the observed flow.
    pub in_flight: u32,
    /// Segments that the observed flow retransmitted in the step.
    pub retransmits: u64,
    pub marked: u64,
    pub dropped: u64,
    pub backlog_bytes: u64,
    pub backlog_packets: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    delivered_bytes: u64,
    retransmits: u64,
    marked: u64,
    dropped: u64,
}

/// A running trial that is controlled step by step.
pub struct Environment {
    simulation: Simulation,
    now: Time,
    step: Span,
    steered: Steered,
    /// The first TCP flow that sends up.
    observed: Option<usize>,
    base_rtt: Span,
    /// When each flow stops; `None` for never.
    stops: Vec<Option<Time>>,
    offer: RateProcess,
    signals: Arc<AtomicU64>,
    before: Counters,
}

impl Environment {
    /// Sets up the trial at time 0.
    pub fn new(config: EnvironmentConfig) -> Result<Self, EnvironmentError> {
        let EnvironmentConfig { trial, steered, step } = config;
        trial.check()?;
        if step < Span::from_micros(100) || step > Span::from_secs(10) {
            return Err(EnvironmentError::Step(step));
        }
        let SimConfig { up, down, flows, phases, seed, .. } = trial;
        if up.iter().chain(&down).any(|hop| hop.rule.is_some()) {
            return Err(EnvironmentError::Rule);
        }
        let is_observed = |flow: &FlowConfig| {
            matches!(flow.kind, FlowKind::Tcp(_)) && flow.direction == Direction::Up
        };
        let observed = flows.iter().position(is_observed);
        if steered == Steered::Window && observed.is_none() {
            return Err(EnvironmentError::NoWindow);
        }
        let link = up.first().ok_or(EnvironmentError::NoLink)?.link.clone();
        let delays = up.iter().chain(&down).map(|hop| hop.link.delay);
        let extra = flows.get(observed.unwrap_or_default()).map(|flow| flow.extra);
        let extra = extra.unwrap_or_default();
        let base_rtt = delays.fold(extra.up + extra.down, |sum, delay| sum + delay);
        let lifetimes: Vec<_> = flows.iter().map(|flow| lifetime(flow, &phases)).collect();
        let rng = Rng::new(seed);
        let mut simulation = Simulation::new(up, down, &flows, &lifetimes, &rng);
        let signals = Arc::new(AtomicU64::new(0));
        let hop = &mut simulation.network.hops[0];
        let offer = hop.offer.clone();
        if let Steered::Signals { limit_packets } = steered {
            if limit_packets == 0 {
                return Err(EnvironmentError::Limit);
            }
            let stream = hop_stream(&rng, Direction::Up.name(), 0);
            let aqm = SteeredAqm { signals: Arc::clone(&signals), rng: stream.child("signals") };
            let queue = Single::new(aqm, Limit::packets(limit_packets), Overflow::Tail);
            hop.link = link.build(Box::new(queue), &stream);
        }
        Ok(Self {
            simulation,
            now: Time::ZERO,
            step,
            steered,
            observed,
            base_rtt,
            stops: flows.iter().map(|flow| flow.stop).collect(),
            offer,
            signals,
            before: Counters::default(),
        })
    }

    /// Sets the window of the observed flow, segments, at least 1. The flow uses it from its next
    /// acknowledgement on. Has no effect with [`Steered::Signals`].
    pub fn set_window(&mut self, segments: u32) {
        if self.steered == Steered::Window
            && let Some(index) = self.observed
            && let Some(tcp) = self.simulation.agents_mut().nth(index).and_then(Agent::tcp_mut)
        {
            tcp.steer(segments.max(1));
        }
    }

    /// Sets the probability of a signal, in units of 2^-32. Has no effect with [`Steered::Window`].
    pub fn set_signals(&mut self, probability_q32: u64) {
        self.signals.store(probability_q32.min(1 << 32), Ordering::Relaxed);
    }

    /// Advances virtual time by one step.
    pub fn advance(&mut self) -> Observation {
        let start = self.now;
        self.now = start + self.step;
        self.simulation.run_until(self.now);
        for (agent, stop) in self.simulation.agents_mut().zip(&mut self.stops) {
            if stop.take_if(|stop| *stop <= self.now).is_some() {
                agent.stop();
            }
        }
        let after = self.counters();
        let before = std::mem::replace(&mut self.before, after);
        let hop = &self.simulation.network.hops[0];
        let backlog = hop.link.queue().backlog();
        let stats = self.observed_tcp().map(Tcp::stats).unwrap_or_default();
        Observation {
            time_ns: self.now.as_nanos(),
            delivered_bytes: after.delivered_bytes - before.delivered_bytes,
            capacity_bytes: self.offer.offered_bytes(start, self.now).unwrap_or(0),
            rtt_ns: stats.smoothed_rtt_ns,
            window: stats.window,
            in_flight: stats.in_flight,
            retransmits: after.retransmits - before.retransmits,
            marked: after.marked - before.marked,
            dropped: after.dropped - before.dropped,
            backlog_bytes: backlog.bytes,
            backlog_packets: backlog.packets,
        }
    }

    /// Returns the round trip without queuing: the delays of all links in both directions and that of
    /// the observed flow.
    pub fn base_rtt(&self) -> Span {
        self.base_rtt
    }

    /// Returns the bytes that the link can carry between two instants; `None` if unknown.
    pub fn offered_bytes(&self, from: Time, to: Time) -> Option<u64> {
        self.offer.clone().offered_bytes(from, to)
    }

    fn observed_tcp(&self) -> Option<&Tcp> {
        self.simulation.agent(self.observed?).and_then(Agent::tcp)
    }

    fn counters(&self) -> Counters {
        let agents = self.simulation.agents().enumerate();
        let is_counted = |index: usize| match self.steered {
            Steered::Window => Some(index) == self.observed,
            Steered::Signals { .. } => true,
        };
        let counted = agents.filter(|(index, _)| is_counted(*index)).map(|(_, agent)| agent);
        let total = self.simulation.network.hops[0].recorder.tally.total();
        Counters {
            delivered_bytes: counted.map(|agent| agent.endpoint().received_bytes()).sum(),
            retransmits: self.observed_tcp().map_or(0, |tcp| tcp.stats().retransmits),
            marked: total.marked_packets(),
            dropped: total.dropped_packets(),
        }
    }
}

/// Signals each arrival with the probability that the caller set.
struct SteeredAqm {
    signals: Arc<AtomicU64>,
    rng: Rng,
}

impl Aqm for SteeredAqm {
    fn on_enqueue(&mut self, _now: Time, _meta: &Meta, _backlog: Backlog) -> Verdict {
        // Drawn for every packet, so that earlier choices do not shift the random stream.
        let drawn = u64::from(self.rng.next_u32());
        if drawn < self.signals.load(Ordering::Relaxed) { Verdict::Signal } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Algorithm;
    use crate::net::{ExtraDelay, HopConfig};
    use crate::tcp::{EcnUse, TcpConfig};
    use crate::trial::{Phases, TrialLabel};

    fn flow(name: &str, algorithm: Algorithm, ecn: bool) -> FlowConfig {
        let ecn = if ecn { EcnUse::Classic } else { EcnUse::Off };
        let tcp = TcpConfig { ecn, ..TcpConfig::of(algorithm) };
        let half = Span::from_millis(20);
        FlowConfig {
            extra: ExtraDelay { up: half, down: half },
            ..FlowConfig::new(name.to_owned(), FlowKind::Tcp(tcp))
        }
    }

    fn trial(flows: Vec<FlowConfig>, seed: u64) -> SimConfig {
        SimConfig {
            up: vec![HopConfig::parse("fifo:limit=200p", "12mbit").expect("a hop")],
            down: Vec::new(),
            flows,
            phases: Phases { load: Span::from_secs(3_600), ..Phases::default() },
            seed,
            sample_interval: None,
            label: TrialLabel::default(),
        }
    }

    fn config(steered: Steered) -> EnvironmentConfig {
        let flows = vec![flow("flow", Algorithm::Cubic, false)];
        EnvironmentConfig { trial: trial(flows, 1), steered, step: Span::from_millis(10) }
    }

    fn window_of(segments: u32) -> Vec<Observation> {
        let mut environment = Environment::new(config(Steered::Window)).expect("an environment");
        let step = |_| {
            environment.set_window(segments);
            environment.advance()
        };
        (0..500).map(step).collect()
    }

    #[test]
    fn a_window_of_the_bandwidth_delay_product_fills_the_link_without_a_queue() {
        // 12 Mbit/s are 1000 packets of 1500 bytes a second: 40 in a round trip of 40 ms.
        for (segments, rate, queue) in [(20, 500, 0), (40, 1_000, 0), (80, 1_000, 40)] {
            let steps = window_of(segments);
            let later = &steps[400..];
            let delivered: u64 = later.iter().map(|step| step.delivered_bytes).sum();
            let packets = delivered / 1_448;
            // Transmission time and delayed acknowledgements lengthen the round trip.
            assert!(packets.abs_diff(rate) <= rate / 20, "{segments}: {packets} of {rate}");
            let backlog = later.iter().map(|step| step.backlog_packets).max().unwrap_or(0);
            assert!(backlog.abs_diff(queue) <= 4, "{segments}: {backlog} packets wait");
            assert!(later.iter().all(|step| step.window == segments && step.dropped == 0));
            assert!(later.iter().all(|step| step.capacity_bytes == 15_000));
        }
        let rtt_ms = window_of(80)[499].rtt_ns / 1_000_000;
        assert!((79..=84).contains(&rtt_ms), "{rtt_ms} ms");
    }

    #[test]
    fn a_steered_window_ignores_losses() {
        // The path and the queue hold 40 and 200 packets, fewer than the window.
        let steps = window_of(400);
        assert!(steps.iter().map(|step| step.dropped).sum::<u64>() > 0);
        assert!(steps.iter().skip(1).all(|step| step.window == 400));
        let late: u64 = steps[400..].iter().map(|step| step.delivered_bytes).sum();
        assert!(late > 800_000, "{late} bytes in a second");
    }

    #[test]
    fn more_signals_make_a_shorter_queue() {
        let steered = Steered::Signals { limit_packets: 500 };
        let backlog = |probability_q32: u64, ecn: bool| {
            let flows = ["a", "b", "c"].map(|name| flow(name, Algorithm::Reno, ecn)).to_vec();
            let config = EnvironmentConfig { trial: trial(flows, 1), ..config(steered) };
            let mut environment = Environment::new(config).expect("an environment");
            environment.set_signals(probability_q32);
            let steps: Vec<Observation> = (0..3_000).map(|_| environment.advance()).collect();
            let late = &steps[1_000..];
            let signals: u64 = late.iter().map(|it| if ecn { it.marked } else { it.dropped }).sum();
            let waiting: u64 = late.iter().map(|it| it.backlog_bytes).sum();
            (waiting / late.len() as u64, signals)
        };
        let percent = (1_u64 << 32) / 100;
        for ecn in [false, true] {
            let [none, some, many] = [0, percent / 10, 3 * percent].map(|p| backlog(p, ecn));
            assert!(none.0 > some.0 && some.0 > many.0, "{none:?} {some:?} {many:?}");
            assert!(some.1 > 0 && (!ecn || none.1 == 0), "{none:?} {some:?}");
        }
    }

    #[test]
    fn the_same_seed_and_steps_give_the_same_course() {
        let steered = Steered::Signals { limit_packets: 100 };
        let course = |seed: u64| {
            let mut config = config(steered);
            config.trial.seed = seed;
            let mut environment = Environment::new(config).expect("an environment");
            let step = |number: u64| {
                environment.set_signals((number % 7) << 26);
                environment.advance()
            };
            (0..300).map(step).collect::<Vec<_>>()
        };
        assert_eq!(course(1), course(1));
        assert_ne!(course(1), course(2));
    }

    #[test]
    fn a_flow_stops_at_its_end_and_a_flow_down_is_not_steered() {
        let ends =
            FlowConfig { stop: Some(Time::from_secs(1)), ..flow("a", Algorithm::Reno, false) };
        let down = FlowConfig { direction: Direction::Down, ..flow("b", Algorithm::Reno, false) };
        let trial = trial(vec![down, ends], 1);
        let config = EnvironmentConfig { trial, ..config(Steered::Window) };
        let mut environment = Environment::new(config).expect("an environment");
        assert_eq!(environment.base_rtt(), Span::from_millis(40));
        environment.set_window(20);
        let steps: Vec<Observation> = (0..300).map(|_| environment.advance()).collect();
        assert_eq!(steps[90].window, 20);
        assert!(steps[90].in_flight > 0 && steps[299].in_flight == 0);
    }

    #[test]
    fn invalid_environments_are_rejected() {
        let plain = config(Steered::Window);
        let error = |config: EnvironmentConfig| {
            Environment::new(config).err().expect("a fault").to_string()
        };
        let none = EnvironmentConfig { trial: trial(Vec::new(), 1), ..plain.clone() };
        assert!(error(none).contains("no flow"));
        let down = FlowConfig { direction: Direction::Down, ..flow("a", Algorithm::Reno, false) };
        let down = EnvironmentConfig { trial: trial(vec![down], 1), ..plain.clone() };
        assert!(error(down).contains("no TCP flow sends up"));
        let mut unlinked = plain.clone();
        unlinked.trial.up.clear();
        assert!(error(unlinked).contains("no link up"));
        let short = EnvironmentConfig { step: Span::from_nanos(1), ..plain.clone() };
        assert!(error(short).contains("expected 100us to 10s"));
        let steered = Steered::Signals { limit_packets: 0 };
        assert!(error(EnvironmentConfig { steered, ..plain }).contains("at least 1"));
    }
}
