//! A whole measurement: probes through an idle phase, a ramp, a load and a drain.
//!
//! ```text
//! idle          ramp            load            drain
//! |----------------|------------|------------------|------------| probes
//! ======================================================= | load flows
//! ================================|             '-- until answers are in
//! ```
//!
//! As in simulated runs, the load stops with its phase and the probes continue while queues empty:
//! the drain shows how long a load affects the path after its end. Probes of the last round trip of
//! the load phase are answered meanwhile. Samples of the ramp are stored but not evaluated. The
//! result reports how the ramp ended, whether a flow failed, and how late the prober was.

mod full_size;
mod marks;
mod pressure;
mod record;
mod run;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Type};
use underload_record::schema::{
    CeAlarm, FlowRecord, InsideLatency, Marking, Phase, PhaseWindow, Sample, Series, Timeliness,
};

pub use run::Measurement;

use crate::endpoint::{EndpointError, ProberConfig};
use crate::load::{FlowLog, LoadError, LoadFlow, Token};
use crate::network::SocketSource;
use crate::session::{ClockOffset, ProbeCounts};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementConfig {
    /// Position of the trial in its run; every sample contains it.
    pub trial: u32,
    pub idle: Duration,
    pub ramp: Ramp,
    /// 7 s up and 11 s down in the Comcast study.
    pub load: Duration,
    /// How long the probes continue after the load, while queues empty.
    pub drain: Duration,
    /// A probe without an answer within this time counts as lost.
    pub loss_timeout: Duration,
    /// The open-loop probe; the measurement sets its `start_ns`.
    pub probe: ProberConfig,
    pub request_response: Option<RequestResponse>,
    /// The flows of the load; empty for a measurement of idle latency.
    pub loads: Vec<LoadFlow>,
    /// Payload of all flows after which the load ends before its time; `None` without a limit.
    pub load_bytes_max: Option<u64>,
    /// Token for the load server; zeros if it needs no token.
    pub token: Token,
}

impl Default for MeasurementConfig {
    /// 2 s idle, a detected ramp of at most 5 s, 7 s of load, no load flow yet.
    fn default() -> Self {
        Self {
            trial: 0,
            idle: Duration::from_secs(2),
            ramp: Ramp::Detected { at_most: Duration::from_secs(5) },
            load: Duration::from_secs(7),
            drain: Duration::from_millis(500),
            loss_timeout: Duration::from_secs(2),
            probe: ProberConfig::default(),
            request_response: None,
            loads: Vec::new(),
            load_bytes_max: None,
            token: Token([0; 16]),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// The ramp ends after this time.
    Fixed(Duration),
    /// The ramp ends once the load is steady in every loaded direction (see
    /// [`crate::load::SteadyDetector`]), at latest after `at_most`.
    Detected { at_most: Duration },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestResponse {
    /// Unique among the flows, for example `request-response`.
    pub name: String,
    /// DSCP and ECN of requests and answers.
    pub marking: Marking,
    /// Bytes of UDP payload.
    pub payload_bytes: u16,
}

/// The far end's addresses, and the network from which to reach it.
#[derive(Clone)]
pub struct Endpoints {
    /// Opens the near end's sockets.
    pub network: Arc<dyn SocketSource>,
    pub reflector: SocketAddr,
    pub load_server: SocketAddr,
    pub far_clock: FarClock,
}

impl Endpoints {
    /// Opens a socket for `probe` in the family of the reflector's address.
    fn udp_socket(&self, probe: &'static str) -> Result<UdpSocket, MeasureError> {
        let error = |source| MeasureError::Socket { probe, source };
        let domain = Domain::for_address(self.reflector);
        let any: IpAddr = match self.reflector {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = self.network.socket(domain, Type::DGRAM).map_err(error)?;
        socket.bind(&SocketAddr::new(any, 0).into()).map_err(error)?;
        Ok(socket.into())
    }
}

/// Whether one-way delays can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarClock {
    /// Both ends use one machine's clock.
    Shared,
    /// The offset is estimated from the exchange with the shortest round trip.
    Separate,
}

/// The state of a running measurement, reported ten times a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    pub in_phase: Duration,
    pub phase_max: Duration,
    /// Payload delivered up since the measurement began.
    pub bytes_up: u64,
    /// Payload that this end has sent since the measurement began; `bytes_up` counts the part that
    /// arrived.
    pub bytes_sent: u64,
    /// Payload delivered down since the measurement began.
    pub bytes_down: u64,
    /// Probes sent, all classes.
    pub probes_sent: u64,
    /// Answers received, all classes.
    pub probes_answered: u64,
    /// Median round trip of each open-loop class since the last report, within 6 %, ns; `None`
    /// without answers.
    pub recent_medians_ns: Vec<Option<u64>>,
    /// How late the latest probe since the last report was sent, ns.
    pub lateness_ns: u64,
    /// Share of the last second, in percent, in which a thread of this process was runnable but
    /// waited for a processor: the value of the thread that waited most. `None` until known.
    pub cpu_pressure_percent: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampEnd {
    /// No load, or a ramp of fixed length.
    Fixed,
    Steady,
    /// The load was not steady after the longest duration of the ramp.
    NotSteady,
}

#[derive(Clone, Debug)]
pub struct MeasurementResult {
    /// One per probe sent: open-loop classes first, then request-response, each by scheduled time.
    pub samples: Vec<Sample>,
    /// The phases that ran; a cancelled measurement has fewer.
    pub phases: Vec<PhaseWindow>,
    /// Probe classes, request-response, load flows. [`Sample::flow`] is an index into this list.
    pub flows: Vec<FlowRecord>,
    /// Time series per load flow: `NAME.goodput` in bit/s, and for TCP `NAME.rtt` in ns,
    /// `NAME.congestion_window` in segments, `NAME.retransmits` in segments and, with a control
    /// that paces, `NAME.pacing_rate` in bit/s.
    pub series: Vec<Series>,
    pub timeliness: Timeliness,
    pub ramp_end: RampEnd,
    /// Steps that failed, in words for the user.
    pub incomplete: Vec<String>,
    /// True if the measurement was cancelled; the result has what was recorded until then.
    pub cancelled: bool,
    /// Whether the load phase ended early, at [`MeasurementConfig::load_bytes_max`].
    pub load_spent: bool,
    /// Flows with too many congestion marks.
    pub ce_alarms: Vec<CeAlarm>,
    /// Counts of each probe's packets, in the order of `flows`.
    pub probe_counts: Vec<ProbeCounts>,
    /// Round trips of the loading TCP connections in the load phase, per direction.
    pub inside: Vec<InsideLatency>,
    /// Records of the load flows, in the order of the configuration.
    pub loads: Vec<FlowLog>,
    /// The estimated lead of the far clock; `None` if the clock is shared or no estimate is
    /// possible.
    pub clock_offset: Option<ClockOffset>,
}

#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Probe(#[from] EndpointError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("cannot open the {probe} socket")]
    Socket { probe: &'static str, source: std::io::Error },
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter { name: &'static str, value: String, accepted: &'static str },
}
