//! The endpoints: what sends and receives packets.

mod port;
mod probe;
mod udp;

use underload_aqm::packet::{Dscp, Ecn, Packet};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};
use underload_record::schema::{Direction, Distribution, FlowDirection, Metric, Quantile};

pub(crate) use port::{Address, Port};
pub(crate) use probe::Probe;
pub use probe::{ProbeConfig, ProbeSchedule};
pub(crate) use udp::Udp;
pub use udp::{UdpConfig, UdpPattern};

use crate::application::{Application, ApplicationConfig};
use crate::net::{ExtraDelay, Segment};
use crate::sprout::Sprout;
use crate::tcp::{Tcp, TcpConfig};

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

/// The state of a flow, both ends; in boxes, so that many flows are found in little memory.
pub(crate) enum Agent {
    Tcp(Box<Tcp>),
    Sprout(Box<Sprout>),
    Udp(Box<Udp>),
    Probe(Box<Probe>),
    Application(Box<dyn Application>),
}

impl Agent {
    pub(crate) fn new(config: &FlowConfig, stop: Time, rng: &Rng) -> Self {
        let rng = rng.child(&config.name);
        match &config.kind {
            FlowKind::Tcp(tcp) => Self::Tcp(Box::new(Tcp::new(tcp, config.direction, rng))),
            FlowKind::Sprout => Self::Sprout(Box::new(Sprout::new(config.direction, stop))),
            FlowKind::Udp(udp) => Self::Udp(Box::new(Udp::new(udp, config.direction, stop, rng))),
            FlowKind::Probe(probe) => Self::Probe(Box::new(Probe::new(probe, stop))),
            FlowKind::Application(config) => Self::Application(config.build(stop, rng)),
        }
    }

    pub(crate) fn start(&mut self, port: &mut Port<'_>) {
        match self {
            Self::Tcp(tcp) => tcp.start(port),
            Self::Sprout(sprout) => sprout.start(port),
            Self::Udp(udp) => udp.start(port),
            Self::Probe(probe) => probe.start(port),
            Self::Application(application) => application.start(port),
        }
    }

    /// Nothing new is sent from now on.
    pub(crate) fn stop(&mut self) {
        if let Self::Tcp(tcp) = self {
            tcp.stop();
        }
    }

    #[inline]
    pub(crate) fn receive(
        &mut self,
        port: &mut Port<'_>,
        direction: Direction,
        packet: &Packet<Segment>,
    ) {
        let ecn = packet.meta.ecn;
        match self {
            Self::Tcp(tcp) => tcp.receive(port, &packet.payload, ecn),
            Self::Sprout(sprout) => sprout.receive(port, &packet.payload),
            Self::Udp(udp) => udp.receive(port.now, &packet.payload),
            Self::Probe(probe) => probe.receive(port, direction, &packet.payload, ecn),
            Self::Application(application) => application.receive(port, direction, packet),
        }
    }

    pub(crate) fn on_timer(&mut self, port: &mut Port<'_>) {
        match self {
            Self::Tcp(tcp) => tcp.on_timer(port),
            Self::Sprout(sprout) => sprout.on_timer(port),
            Self::Udp(udp) => udp.on_timer(port),
            Self::Probe(probe) => probe.on_timer(port),
            Self::Application(application) => application.on_timer(port),
        }
    }

    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Self::Tcp(tcp) => tcp.deadline(),
            Self::Sprout(sprout) => sprout.deadline(),
            Self::Udp(udp) => udp.deadline(),
            Self::Probe(probe) => probe.deadline(),
            Self::Application(application) => application.deadline(),
        }
    }

    /// Has the memory fetched that receiving `packet` will need.
    #[inline]
    pub(crate) fn prefetch(&self, packet: &Packet<Segment>) {
        if let Self::Tcp(tcp) = self {
            tcp.prefetch(&packet.payload);
        }
    }

    /// Has the rest fetched, which is only found through what [`Agent::prefetch`] fetched before.
    #[inline]
    pub(crate) fn prefetch_rest(&self, packet: &Packet<Segment>) {
        if let Self::Tcp(tcp) = self {
            tcp.prefetch_rest(&packet.payload);
        }
    }

    /// Payload bytes that reached the far end, each counted once.
    pub(crate) fn received_bytes(&self) -> u64 {
        match self {
            Self::Tcp(tcp) => tcp.received_bytes(),
            Self::Sprout(sprout) => sprout.received_bytes(),
            Self::Udp(udp) => udp.received_bytes(),
            Self::Probe(_) | Self::Application(_) => 0,
        }
    }

    /// Numbers of its own for the record.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        match self {
            Self::Tcp(tcp) => tcp.delivery_metrics(),
            Self::Udp(udp) => udp.metrics(),
            Self::Application(application) => application.metrics(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn bytes_reserved(&self) -> usize {
        match self {
            Self::Tcp(tcp) => size_of::<Tcp>() + tcp.bytes_reserved(),
            Self::Sprout(sprout) => sprout.bytes_reserved(),
            Self::Udp(_) => size_of::<Udp>(),
            Self::Probe(probe) => size_of::<Probe>() + probe.bytes_reserved(),
            Self::Application(application) => application.bytes_reserved(),
        }
    }
}

/// IP and UDP headers, bytes.
pub const UDP_HEADER_BYTES: u32 = 28;

/// The ECN field in the terms of the record.
pub(crate) fn recorded_ecn(ecn: Ecn) -> underload_record::schema::Ecn {
    underload_record::schema::Ecn::from_bits(ecn.bits())
}

/// Quantiles of delays as metrics in milliseconds.
pub(crate) fn delay_metrics(name: &str, delays: Option<Distribution>) -> Vec<Metric> {
    [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::Max]
        .map(|quantile| Metric {
            name: format!("{name}_{}", quantile.name()),
            unit: "ms".to_owned(),
            value: delays.map(|delays| quantile.of(&delays) as f64 / 1e6),
        })
        .to_vec()
}

/// `count` periods of `period` after `start`.
pub(crate) fn nth(start: Time, period: Span, count: u64) -> Time {
    start + period * count
}
