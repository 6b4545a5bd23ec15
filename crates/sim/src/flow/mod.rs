//! The configuration of flows, and the flows without a transport: UDP and probes.

mod agent;
mod probe;
mod udp;

use underload_aqm::packet::Dscp;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_record::schema::{Direction, FlowDirection, Metric};

pub(crate) use agent::Agent;
pub use probe::{ProbeConfig, ProbeSchedule};
pub use udp::UdpConfig;

pub use crate::endpoint::UDP_HEADER_BYTES;

use crate::application::ApplicationConfig;
use crate::net::ExtraDelay;
use crate::sprout::Sprout;
use crate::tcp::{Tcp, TcpConfig};
use probe::Probe;
use udp::Udp;

#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Unique in the trial.
    pub name: String,
    pub kind: FlowKind,
    /// Direction of its data. Probes always start at the client.
    pub direction: Direction,
    pub dscp: Dscp,
    pub host: u32,
    pub extra: ExtraDelay,
    /// When it starts. `None` means time 0 for a probe, the start of the load phase for an
    /// application, and the start of the ramp for other flows.
    pub start: Option<Time>,
    /// When it stops sending new data. `None` means the end of the trial for a probe, and the end
    /// of the load phase for other flows.
    pub stop: Option<Time>,
}

#[derive(Clone, Debug)]
pub enum FlowKind {
    Tcp(TcpConfig),
    /// A Sprout flow that always has data to send.
    Sprout,
    Udp(UdpConfig),
    Probe(ProbeConfig),
    Application(ApplicationConfig),
}

/// When a flow is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) start: Time,
    pub(crate) stop: Time,
}

impl FlowKind {
    /// Returns the names and units of the metrics that it records, without values.
    pub fn metrics(&self) -> Vec<Metric> {
        let config = FlowConfig::new("", self.clone());
        let mut metrics = Agent::new(&config, Time::ZERO, &Rng::new(0)).endpoint().metrics();
        for metric in &mut metrics {
            metric.value = None;
        }
        metrics
    }
}

impl FlowConfig {
    /// Creates a best effort flow upstream that follows the trial's phases.
    pub fn new(name: impl Into<String>, kind: FlowKind) -> Self {
        Self {
            name: name.into(),
            kind,
            direction: Direction::Up,
            dscp: Dscp::DEFAULT,
            host: 0,
            extra: ExtraDelay::default(),
            start: None,
            stop: None,
        }
    }

    pub(crate) fn recorded_direction(&self) -> FlowDirection {
        match (&self.kind, self.direction) {
            (FlowKind::Probe(_) | FlowKind::Application(_), _) => FlowDirection::Both,
            (_, Direction::Up) => FlowDirection::Up,
            (_, Direction::Down) => FlowDirection::Down,
        }
    }
}

impl Agent {
    /// Creates a flow that sends no new data from `stop` on.
    pub(crate) fn new(config: &FlowConfig, stop: Time, rng: &Rng) -> Self {
        let direction = config.direction;
        let rng = rng.child(&config.name);
        match &config.kind {
            FlowKind::Tcp(tcp) => Self::Tcp(Box::new(Tcp::new(tcp, direction, rng))),
            FlowKind::Sprout => Self::Other(Box::new(Sprout::new(direction, stop))),
            FlowKind::Udp(udp) => Self::Other(Box::new(Udp::new(udp, direction, stop))),
            FlowKind::Probe(probe) => Self::Other(Box::new(Probe::new(probe, stop))),
            FlowKind::Application(config) => Self::Other(config.build(stop, rng)),
        }
    }
}
