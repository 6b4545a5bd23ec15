//! The endpoints: what sends and receives packets.

mod endpoint;
mod port;
mod probe;
mod udp;

use underload_aqm::packet::{Dscp, Ecn};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Distribution, FlowDirection, Metric, Quantile};

pub(crate) use endpoint::{Agent, Endpoint};
pub(crate) use port::{Address, Port};
pub use probe::{ProbeConfig, ProbeSchedule};
pub use udp::{UdpConfig, UdpPattern};

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

/// IP and UDP headers, bytes.
pub const UDP_HEADER_BYTES: u32 = 28;

/// The ECN field in the terms of the record.
pub(crate) fn recorded_ecn(ecn: Ecn) -> underload_record::schema::Ecn {
    underload_record::schema::Ecn::from_bits(ecn.bits())
}

/// The quantiles of a bulk flow's delays.
pub(crate) const BULK_QUANTILES: [Quantile; 4] =
    [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::Max];

/// Quantiles of delays as metrics in milliseconds. One with too few delays has no value.
pub(crate) fn delay_metrics<const N: usize>(
    name: &str,
    quantiles: [Quantile; N],
    delays: Option<Distribution>,
) -> [Metric; N] {
    quantiles.map(|quantile| Metric {
        name: format!("{name}_{}", quantile.name()),
        unit: "ms".to_owned(),
        value: delays.and_then(|delays| delays.told_ns(quantile)).map(|ns| ns as f64 / 1e6),
    })
}

/// `count` periods of `period` after `start`.
pub(crate) fn nth(start: Time, period: Span, count: u64) -> Time {
    start + period * count
}
