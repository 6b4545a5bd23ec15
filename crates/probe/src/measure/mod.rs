//! A whole measurement: probes through an idle phase, a ramp, a load and its end.
//!
//! ```text
//!          idle          ramp            load            drain
//!  |----------------|------------|------------------|------------|
//!  probes ======================================================= |
//!  load flows       ================================|             '-- until answers are in
//! ```
//!
//! As in simulated runs the load stops when its phase ends, and the probes go on while queues
//! empty: the drain shows how long a load is felt after its end. What was asked in the last round
//! trip of the load phase is answered meanwhile. Samples of the ramp are kept and count for
//! nothing. Nothing here is estimated in silence: how the ramp ended, whether a flow failed,
//! and how late the prober was are part of the result.

mod marks;
mod pressure;
mod record;
mod run;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use underload_record::schema::{
    CeAlarm, FlowRecord, Marking, Phase, PhaseWindow, Sample, Series, Timeliness,
};

pub use run::Measurement;

use crate::endpoint::{EndpointError, ProberConfig, RecentLatency};
use crate::load::{FlowLog, LoadError, LoadFlow, Token};
use crate::network::SocketSource;
use crate::session::{ClockOffset, ProbeCounts};

/// Load, phases and probes of one measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementConfig {
    /// Position of the trial in its run; every sample carries it.
    pub trial: u32,
    /// Length of the idle phase.
    pub idle: Duration,
    /// The condition that ends the ramp.
    pub ramp: Ramp,
    /// Length of the load phase: 7 s up and 11 s down in the Comcast study.
    pub load: Duration,
    /// How long the probes go on, once the load has ended, while queues empty.
    pub drain: Duration,
    /// A probe that is not answered within this counts as lost.
    pub loss_timeout: Duration,
    /// The open-loop probe; its `start_ns` is set by the measurement.
    pub probe: ProberConfig,
    /// The request-response probe beside it, a second view; `None` for none.
    pub request_response: Option<RequestResponse>,
    /// The flows of the load; empty for idle latency throughout.
    pub loads: Vec<LoadFlow>,
    /// What the load server wants to see; zeros where it asks for none.
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
            token: Token([0; 16]),
        }
    }
}

/// The condition that ends the ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// After this long, whatever the load does.
    Fixed(Duration),
    /// Once the load is steady in every direction that it has (see
    /// [`crate::load::SteadyDetector`]), or after `at_most`.
    Detected {
        /// The longest ramp.
        at_most: Duration,
    },
}

/// A request-response probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestResponse {
    /// Unique among the flows, for example `request-response`.
    pub name: String,
    /// DSCP and ECN of requests and answers.
    pub marking: Marking,
    /// UDP payload, bytes.
    pub payload_bytes: u16,
}

/// Where the far end is, and which network to reach it from.
#[derive(Clone)]
pub struct Endpoints {
    /// Gives the near end's sockets.
    pub network: Arc<dyn SocketSource>,
    /// Answers probes.
    pub reflector: SocketAddr,
    /// Carries the load.
    pub load_server: SocketAddr,
    /// Whether the two ends tell the same time.
    pub far_clock: FarClock,
}

/// Whether one-way delays can be read off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarClock {
    /// Both ends are one machine.
    Shared,
    /// The offset is estimated from the exchange with the shortest round trip.
    Separate,
}

/// How far a measurement is, ten times a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Since the phase began.
    pub in_phase: Duration,
    /// The longest that the phase may take.
    pub phase_max: Duration,
    /// Payload delivered up since the measurement began, bytes.
    pub bytes_up: u64,
    /// Payload that this end wrote to TCP connections since the measurement began, bytes; the far
    /// end decides how much of it `bytes_up` counts.
    pub bytes_sent: u64,
    /// Payload delivered down since the measurement began, bytes.
    pub bytes_down: u64,
    /// Probes sent, all classes.
    pub probes_sent: u64,
    /// Answers received, all classes.
    pub probes_answered: u64,
    /// Round trips of each open-loop class since the call before; `None` where nothing came back.
    pub recent: Vec<Option<RecentLatency>>,
    /// How late the latest probe since the call before was sent, ns.
    pub lateness_ns: u64,
    /// Share of the last second or so in which a thread of this process, the one that waited most,
    /// was runnable but waited for a processor, percent; `None` until known.
    pub cpu_pressure_percent: Option<f64>,
}

/// The reason why the ramp ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampEnd {
    /// There was nothing to wait for, or the time was given.
    Fixed,
    /// The load was steady.
    Steady,
    /// The load was not steady when the time was up.
    NotSteady,
}

/// Samples, curves and counts of one measurement.
#[derive(Clone, Debug)]
pub struct MeasurementResult {
    /// One per probe sent; open-loop classes first, then request-response, each by scheduled time.
    pub samples: Vec<Sample>,
    /// When each phase ran; a cancelled measurement has fewer.
    pub phases: Vec<PhaseWindow>,
    /// Probe classes, request-response, load flows: [`Sample::flow`] is a position in this list.
    pub flows: Vec<FlowRecord>,
    /// Curves per load flow: `NAME.goodput` in bit/s, and for TCP `NAME.rtt` in ns,
    /// `NAME.congestion_window` in segments, `NAME.retransmits` in segments.
    pub series: Vec<Series>,
    /// The prober's punctuality; the emulator's part is empty.
    pub timeliness: Timeliness,
    /// The reason why the ramp ended.
    pub ramp_end: RampEnd,
    /// Steps that did not go as asked, in plain words; empty when all did.
    pub incomplete: Vec<String>,
    /// True if it was cancelled; what there was until then is here.
    pub cancelled: bool,
    /// Flows with too many congestion marks.
    pub ce_alarms: Vec<CeAlarm>,
    /// What became of the packets of each probe, in the order of `flows`.
    pub probe_counts: Vec<ProbeCounts>,
    /// Raw records of the load flows, in the order of the configuration.
    pub loads: Vec<FlowLog>,
    /// The far clock's estimated lead; `None` if it is shared or could not be estimated.
    pub clock_offset: Option<ClockOffset>,
}

/// Why there is no measurement at all.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The probe could not start.
    #[error(transparent)]
    Probe(#[from] EndpointError),
    /// The load could not start.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No socket for a probe.
    #[error("cannot open the {probe} socket")]
    Socket {
        /// The probe that failed.
        probe: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A parameter is out of range.
    #[error("{name} is {value}, accepted is {accepted}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// The value that the user gave.
        value: String,
        /// The values that would be accepted.
        accepted: &'static str,
    },
}
