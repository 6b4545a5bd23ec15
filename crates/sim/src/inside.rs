//! Round trips of the TCP flows that are the load, read as `underload measure` reads them from a
//! kernel: the sender's smoothed round trip every 10 ms of the load phase.

use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, InsideLatency, Phase, PhaseWindow};
use underload_record::stats::distribution;

use crate::flow::{Agent, FlowConfig, FlowKind};
use crate::simulation::Simulation;

/// Reads the round trips of all bulk TCP flows of a trial.
#[derive(Debug, Default)]
pub(crate) struct InsideWatch {
    /// Positions of the flows among the trial's agents, with their directions.
    flows: Vec<(usize, Direction)>,
    /// Values of each flow, us.
    values_us: Vec<Vec<u32>>,
    window: Option<(Time, Time)>,
    interval: Span,
}

/// Interval of a trial whose load phase is not longer than [`VALUES_MAX`] intervals.
const INTERVAL: Span = Span::from_millis(10);
/// Maximum number of values per flow; longer load phases are read less often.
const VALUES_MAX: u64 = 1 << 14;
/// Maximum number of values of all flows, 4 MiB; many flows are read less often.
const TOTAL_MAX: u64 = 1 << 20;

impl InsideWatch {
    pub(crate) fn new(flows: &[FlowConfig], windows: &[PhaseWindow]) -> Self {
        let bulk =
            flows.iter().enumerate().filter(|(_, flow)| matches!(flow.kind, FlowKind::Tcp(_)));
        let flows: Vec<_> = bulk.map(|(position, flow)| (position, flow.direction)).collect();
        let load = windows.iter().find(|window| window.phase == Phase::Load);
        let window = load.map(|it| (Time::from_nanos(it.start_ns), Time::from_nanos(it.end_ns)));
        let length_ns = load.map_or(0, PhaseWindow::length_ns);
        let most = (TOTAL_MAX / flows.len().max(1) as u64).clamp(1, VALUES_MAX);
        let steps = length_ns.div_ceil(INTERVAL.as_nanos() * most).max(1);
        let interval = INTERVAL * steps;
        // All memory is allocated at once, so that a trial allocates nothing.
        let readings = (length_ns / interval.as_nanos()) as usize + 1;
        Self {
            values_us: flows.iter().map(|_| Vec::with_capacity(readings)).collect(),
            window: window.filter(|_| !flows.is_empty()),
            interval,
            flows,
        }
    }

    /// Returns the next instant at which to read, after `now`.
    pub(crate) fn next(&self, now: Time) -> Time {
        let Some((start, end)) = self.window else { return Time::MAX };
        let next = if now < start {
            start
        } else {
            let passed = now.since(start).as_nanos() / self.interval.as_nanos();
            start + self.interval * (passed + 1)
        };
        if next < end { next } else { Time::MAX }
    }

    /// Reads the round trips of flows that have one and have data to send.
    pub(crate) fn read(&mut self, simulation: &Simulation) {
        for ((position, _), values) in self.flows.iter().zip(&mut self.values_us) {
            let tcp = simulation.agent(*position).and_then(Agent::tcp);
            let rtt_us = tcp.map_or(0, |tcp| tcp.stats().smoothed_rtt_ns / 1_000);
            if rtt_us > 0 {
                values.push(u32::try_from(rtt_us).unwrap_or(u32::MAX));
            }
        }
    }

    /// Returns the round trips per direction. `smallest_ns` returns a flow's smallest round trip.
    pub(crate) fn conclude(self, smallest_ns: impl Fn(usize) -> Option<u64>) -> Vec<InsideLatency> {
        let of_direction = |direction| {
            let own = || self.flows.iter().zip(&self.values_us);
            let own = || own().filter(|((_, way), values)| *way == direction && !values.is_empty());
            let values = own().flat_map(|(_, values)| values);
            let mut values_ns: Vec<u64> = values.map(|us| u64::from(*us) * 1_000).collect();
            Some(InsideLatency {
                direction,
                connections: own().count() as u32,
                smallest_ns: own().filter_map(|((position, _), _)| smallest_ns(*position)).min(),
                distribution: distribution(&mut values_ns)?,
            })
        };
        [Direction::Down, Direction::Up].into_iter().filter_map(of_direction).collect()
    }
}
