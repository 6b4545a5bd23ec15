//! A line behind a shaper whose rates a caller changes as time passes.
//!
//! The shaper is before the line in direction up and behind it in direction down, as on a router
//! between a home and its modem. The caller sees what a program on that router sees: the answers of
//! a reflector, the counters of the shaper. The results depend only on the configuration and on the
//! rates.

use underload_aqm::rate::Rate;
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

use crate::flow::{FlowConfig, Lifetime};
use crate::net::HopConfig;
use crate::shapers::Reflector;
use crate::simulation::Simulation;

/// A line, its shaper, and what loads it. Pairs are up, then down.
#[derive(Clone, Debug)]
pub struct ShapedConfig {
    /// The access line with its buffers.
    pub line: [HopConfig; 2],
    /// The shaper: queues, and links with a constant rate.
    pub shaper: [HopConfig; 2],
    /// Flows with their starts; TCP flows never end. The first probe is the reflector.
    pub flows: Vec<FlowConfig>,
    /// When probes and other datagrams end.
    pub end: Time,
    pub seed: u64,
}

/// Counts and delays of a step. Pairs are up, then down.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub end: Time,
    /// When the reflector's probes were sent that were answered in the step, and their round trips.
    pub answers: Vec<(Time, Span)>,
    /// Bytes that the shaper has sent since the beginning.
    pub sent_bytes: [u64; 2],
    /// Payload bytes that reached the ends of all flows since the beginning.
    pub received_bytes: u64,
    /// Bytes that the line could have carried in the step; `None` if unknown.
    pub offered_bytes: [Option<u64>; 2],
}

/// A line and its shaper at an instant of virtual time.
pub struct ShapedLine {
    simulation: Simulation,
    now: Time,
    reflector: Reflector,
}

/// Positions of shapers and line among the hops: up is shaper, line; down is line, shaper.
const SHAPERS: [usize; 2] = [0, 3];
const LINE: [usize; 2] = [1, 2];

impl ShapedLine {
    /// Sets up the line at time 0.
    pub fn new(config: ShapedConfig) -> Self {
        let ShapedConfig { line: [up, down], shaper, flows, end, seed } = config;
        let [shaper_up, shaper_down] = shaper;
        let lifetime =
            |flow: &FlowConfig| Lifetime { start: flow.start.unwrap_or(Time::ZERO), stop: end };
        let lifetimes: Vec<_> = flows.iter().map(lifetime).collect();
        let (up, down) = (vec![shaper_up, up], vec![down, shaper_down]);
        Self {
            simulation: Simulation::new(up, down, &flows, &lifetimes, &Rng::new(seed)),
            now: Time::ZERO,
            reflector: Reflector::new(&flows),
        }
    }

    /// Changes the rates of the shaper, up and down, from the next packets on.
    pub fn set_rates(&mut self, rates: [Rate; 2]) {
        for (hop, rate) in SHAPERS.into_iter().zip(rates) {
            self.simulation.network.set_rate(self.now, hop, rate);
        }
    }

    /// Advances virtual time, and returns what a router could see of the step.
    pub fn advance(&mut self, step: Span) -> Step {
        let start = self.now;
        self.now = start + step;
        self.simulation.run_until(self.now);
        let answers = self.reflector.answers(&self.simulation, self.now);
        let hops = &mut self.simulation.network.hops;
        let sent = |hop: usize| hops[hop].recorder.tally.total().sent.bytes;
        let sent_bytes = SHAPERS.map(sent);
        let end = self.now;
        let offered = |hop: usize| hops[hop].offer.offered_bytes(start, end);
        let offered_bytes = LINE.map(offered);
        let received = self.simulation.agents().map(|agent| agent.endpoint().received_bytes());
        Step { end, answers, sent_bytes, received_bytes: received.sum(), offered_bytes }
    }
}
