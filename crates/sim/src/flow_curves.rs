//! Time series of TCP flows, with the names and units of the measured world: `NAME.goodput`,
//! `NAME.rtt`, `NAME.congestion_window`, `NAME.retransmits`, `NAME.pacing_rate`.

use underload_record::schema::{Series, SeriesPoint};

use crate::endpoint::Endpoint;
use crate::flow::{Agent, FlowConfig};
use crate::simulation::Simulation;

/// The series of all TCP flows of a trial; empty if the trial has more than [`FLOWS_MAX`] of them.
#[derive(Debug, Default)]
pub(crate) struct FlowCurves {
    flows: Vec<FlowCurve>,
}

#[derive(Debug)]
struct FlowCurve {
    /// Position among the trial's agents.
    agent: usize,
    received_bytes: u64,
    series: [Series; 5],
}

/// With more flows than this the record would consist mostly of series.
const FLOWS_MAX: usize = 64;
const KINDS: [(&str, &str); 5] = [
    ("goodput", "bit/s"),
    ("rtt", "ns"),
    ("congestion_window", "segments"),
    ("retransmits", "segments"),
    ("pacing_rate", "bit/s"),
];

impl FlowCurves {
    /// Creates empty series for the TCP flows among `flows`.
    pub(crate) fn new(flows: &[FlowConfig], simulation: &Simulation, trial: u32) -> Self {
        let is_tcp = |agent: &Agent| agent.tcp().is_some();
        if simulation.agents().filter(|agent| is_tcp(agent)).count() > FLOWS_MAX {
            return Self::default();
        }
        let curve = |(agent, flow): (usize, &FlowConfig)| FlowCurve {
            agent,
            received_bytes: 0,
            series: KINDS.map(|(kind, unit)| Series {
                trial,
                name: format!("{}.{kind}", flow.name),
                unit: unit.to_owned(),
                points: Vec::new(),
            }),
        };
        let with_position = flows.iter().enumerate().zip(simulation.agents());
        let tcp = with_position.filter(|(_, agent)| is_tcp(agent)).map(|(flow, _)| curve(flow));
        Self { flows: tcp.collect() }
    }

    /// Appends a point to every series; the previous point was `interval_ns` ago.
    pub(crate) fn sample(&mut self, simulation: &Simulation, time_ns: u64, interval_ns: u64) {
        for flow in &mut self.flows {
            let Some(tcp) = simulation.agent(flow.agent).and_then(Agent::tcp) else { continue };
            let (stats, received_bytes) = (tcp.stats(), tcp.received_bytes());
            let bits = (received_bytes - flow.received_bytes) as f64 * 8e9;
            flow.received_bytes = received_bytes;
            let values = [
                Some(bits / interval_ns.max(1) as f64),
                Some(stats.smoothed_rtt_ns as f64),
                Some(f64::from(stats.window)),
                Some(stats.retransmits as f64),
                stats.pacing.map(|rate| rate.bytes_per_s() as f64 * 8.0),
            ];
            for (series, value) in flow.series.iter_mut().zip(values) {
                series.points.extend(value.map(|value| SeriesPoint { time_ns, value }));
            }
        }
    }

    /// Returns all series with points, ordered by flow: a flow without pacing has no pacing rate.
    pub(crate) fn into_series(self) -> impl Iterator<Item = Series> {
        let series = self.flows.into_iter().flat_map(|flow| flow.series);
        series.filter(|series| !series.points.is_empty())
    }
}
