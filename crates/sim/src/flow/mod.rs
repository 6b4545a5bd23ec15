//! The endpoints: what sends and receives packets.

mod agent;
mod probe;
mod udp;

use underload_aqm::packet::Dscp;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_record::schema::{Direction, FlowDirection, Metric};

pub(crate) use agent::Agent;
pub use probe::{ProbeConfig, ProbeSchedule};
pub use udp::{UdpConfig, UdpPattern};

pub use crate::endpoint::UDP_HEADER_BYTES;

use crate::application::ApplicationConfig;
use crate::net::ExtraDelay;
use crate::sprout::Sprout;
use crate::tcp::{Tcp, TcpConfig};
use probe::Probe;
use udp::Udp;

/// A flow to simulate.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Unique in the trial.
    pub name: String,
    /// What it does.
    pub kind: FlowKind,
    /// Which way its data goes. Probes always go up first and come back.
    pub direction: Direction,
    /// DSCP of its packets.
    pub dscp: Dscp,
    /// Number of the client host that it belongs to.
    pub host: u32,
    /// Delay of this flow beyond that of the links.
    pub extra: ExtraDelay,
    /// When it starts; `None`: a probe at 0, a load with the ramp.
    pub start: Option<Time>,
    /// When it stops sending anything new; `None`: a probe at the end, a load with the load phase.
    pub stop: Option<Time>,
}

/// What a flow does.
#[derive(Clone, Debug)]
pub enum FlowKind {
    /// A TCP transfer.
    Tcp(TcpConfig),
    /// A Sprout flow that always has data.
    Sprout,
    /// Datagrams that nobody answers.
    Udp(UdpConfig),
    /// A latency probe.
    Probe(ProbeConfig),
    /// An application, both ends.
    Application(ApplicationConfig),
}

/// When a flow is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) start: Time,
    pub(crate) stop: Time,
}

impl FlowKind {
    /// The numbers of its own that it leaves in a record, with their units and no values.
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
    /// A best effort flow upstream that follows the trial's phases.
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

    /// As the record has it.
    pub(crate) fn recorded_direction(&self) -> FlowDirection {
        match (&self.kind, self.direction) {
            (FlowKind::Probe(_) | FlowKind::Application(_), _) => FlowDirection::Both,
            (_, Direction::Up) => FlowDirection::Up,
            (_, Direction::Down) => FlowDirection::Down,
        }
    }
}

impl Agent {
    /// A flow as configured, sending nothing new from `stop` on.
    pub(crate) fn new(config: &FlowConfig, stop: Time, rng: &Rng) -> Self {
        let direction = config.direction;
        let rng = rng.child(&config.name);
        match &config.kind {
            FlowKind::Tcp(tcp) => Self::Tcp(Box::new(Tcp::new(tcp, direction, rng))),
            FlowKind::Sprout => Self::Other(Box::new(Sprout::new(direction, stop))),
            FlowKind::Udp(udp) => Self::Other(Box::new(Udp::new(udp, direction, stop, rng))),
            FlowKind::Probe(probe) => Self::Other(Box::new(Probe::new(probe, stop))),
            FlowKind::Application(config) => Self::Other(config.build(stop, rng)),
        }
    }
}
