//! `[[flow]]`: what sends packets over the path.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::{Table, Value};
use underload_aqm::packet::{Dscp, Ecn};
use underload_aqm::rate::Rate;
use underload_aqm::time::Span;

use crate::application::ApplicationConfig;

use super::error::{Fault, alternatives};
use super::quantity::{BytesText, RateText, SpanText};
use super::section::read_section;

/// A flow, or a group of equal ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Unique in the scenario.
    pub name: String,
    /// What it is.
    pub kind: FlowKind,
    /// How much longer its base round trip is than the path's, as if its other end were further
    /// away; half of it each way. Only in the sim world.
    pub extra_rtt: Span,
}

/// What a flow is.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowKind {
    /// Bulk transfer over TCP.
    Tcp(TcpFlow),
    /// Measures latency and does nothing else.
    Probe(ProbeFlow),
    /// UDP at a constant rate.
    Udp(UdpFlow),
    /// A command inside the lab; not in the sim world.
    Exec(ExecFlow),
    /// An application; only in the sim world.
    Application(ApplicationFlow),
}

/// Where a flow's payload goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowDirection {
    /// From the client.
    #[default]
    Up,
    /// To the client.
    Down,
    /// As many flows each way.
    Both,
}

impl FlowDirection {
    /// Whether payload goes up.
    pub fn goes_up(self) -> bool {
        matches!(self, Self::Up | Self::Both)
    }

    /// Whether payload goes down.
    pub fn goes_down(self) -> bool {
        matches!(self, Self::Down | Self::Both)
    }
}

/// When a flow is active, from the start of the ramp on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Since the start of the ramp.
    pub start: Span,
    /// Since the start of the ramp; `None`: until the load phase ends.
    pub stop: Option<Span>,
}

/// The traffic class of a packet: what its sender writes into the former type-of-service byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Differentiated Services codepoint.
    pub dscp: u8,
    /// ECN codepoint, by its bits.
    ecn_bits: u8,
}

impl Class {
    /// A class; `None` for a DSCP above 63.
    pub fn new(dscp: u8, ecn: Ecn) -> Option<Self> {
        Dscp::new(dscp).map(|dscp| Self { dscp: dscp.value(), ecn_bits: ecn.bits() })
    }

    /// Its ECN codepoint.
    pub fn ecn(self) -> Ecn {
        Ecn::from_bits(self.ecn_bits)
    }

    /// As printed: `dscp 45 ect1`.
    pub fn label(self) -> String {
        match self.ecn() {
            Ecn::NotEct => format!("dscp {}", self.dscp),
            ecn => format!("dscp {} {}", self.dscp, ecn.name()),
        }
    }
}

/// Bulk TCP. The sender always has data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpFlow {
    /// Where the payload goes.
    pub direction: FlowDirection,
    /// Flows per direction; 0 = the flow rests.
    pub count: u32,
    /// Congestion control, always named: the machine's default may be any.
    pub congestion_control: String,
    /// Whether both ends negotiate ECN.
    pub ecn: bool,
    /// Differentiated Services codepoint.
    pub dscp: u8,
    /// What the receiver takes before it has acknowledged it, bytes; `None`: no limit that
    /// matters. Only in the sim world.
    pub receive_window_bytes: Option<u32>,
    /// Whether to report how long each segment takes to arrive, retransmissions included. Only in
    /// the sim world.
    pub delivery: bool,
    /// When it sends.
    pub activity: Activity,
}

/// A latency probe. It runs through all phases, a packet per `interval` and class whatever comes
/// back (open loop).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFlow {
    /// Between two packets of one class.
    pub interval: Span,
    /// Traffic classes probed at once, at least one; the first is the headline.
    pub classes: Vec<Class>,
    /// After which a packet without an answer counts as lost in the live world.
    pub timeout: Span,
    /// Adds a request-response probe as a second view (netperf's `UDP_RR`), never the headline.
    pub closed_loop: bool,
}

/// UDP at a constant rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpFlow {
    /// Where it goes.
    pub direction: FlowDirection,
    /// Flows per direction; 0 = the flow rests.
    pub count: u32,
    /// Rate of each, counted as IP packets.
    pub rate: Rate,
    /// Length of each IP packet, bytes.
    pub packet_bytes: u32,
    /// Traffic class.
    pub class: Class,
    /// When it sends.
    pub activity: Activity,
}

/// A command at the client, and another at the server, started before it, where it needs one.
///
/// In the words of both, `{client}` and `{server}` stand for the addresses of the two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecFlow {
    /// Program and arguments at the client; no shell.
    pub client: Vec<String>,
    /// Program and arguments at the server, or nothing.
    pub server: Vec<String>,
    /// When the client's command starts, and when it is stopped should it still run.
    pub activity: Activity,
}

/// An application that only the sim world can run.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationFlow {
    /// One of [`APPLICATIONS`].
    pub application: String,
    /// Its own keys.
    pub config: ApplicationConfig,
    /// Differentiated Services codepoint of all of its packets.
    pub dscp: u8,
    /// Since the start of the ramp; `None`: with the load phase.
    pub start: Option<Span>,
    /// Since the start of the ramp; `None`: at the end of the load phase.
    pub stop: Option<Span>,
}

/// Kinds of flow that stand for an application.
pub const APPLICATIONS: [&str; 6] =
    ["voip", "web", "video", "interactive-video", "game", "cloud-game"];

/// Kinds of flow that every world knows.
const KINDS: [&str; 4] = ["tcp", "probe", "udp", "exec"];

/// Flows of one entry, at most.
const MAX_COUNT: u32 = 10_000;
/// Traffic classes of one probe, at most.
const MAX_CLASSES: usize = 16;
/// Words of a command, at most.
const MAX_WORDS: usize = 256;
/// Fewer bytes cannot hold an IPv4 and a UDP header.
const MIN_PACKET_BYTES: u64 = 28;
const MAX_PACKET_BYTES: u64 = 9_000;
/// Faster probes would measure themselves.
const MIN_PROBE_INTERVAL: Span = Span::from_micros(100);
const MAX_PROBE_INTERVAL: Span = Span::from_secs(60);
/// Longer than most queues hold a packet: 256 KiB at 1 Mbit/s are 2.1 s.
const DEFAULT_PROBE_TIMEOUT: Span = Span::from_secs(5);
/// A smaller window holds no segment.
const MIN_RECEIVE_WINDOW_BYTES: u64 = 1_500;
const MAX_RECEIVE_WINDOW_BYTES: u64 = 1 << 30;
/// As for the path's own delays.
const MAX_EXTRA_RTT: Span = Span::from_secs(10);
const MIN_PROBE_TIMEOUT: Span = Span::from_millis(100);
const MAX_PROBE_TIMEOUT: Span = Span::from_secs(60);

impl Flow {
    pub(super) fn read(name: &str, mut table: Table) -> Result<Self, Fault> {
        let at_flow = |fault: Fault| fault.under(&format!("flow.{name}"));
        let Some(Value::String(kind)) = table.remove("kind") else {
            return Err(at_flow(Fault::new("kind", "expected a text in quotes")));
        };
        let extra_rtt = take_extra_rtt(&mut table, &kind).map_err(at_flow)?;
        let kind = match kind.as_str() {
            "tcp" => read_section(table).and_then(TcpKeys::check).map(FlowKind::Tcp),
            "probe" => read_section(table).and_then(ProbeKeys::check).map(FlowKind::Probe),
            "udp" => read_section(table).and_then(UdpKeys::check).map(FlowKind::Udp),
            "exec" => read_section(table).and_then(ExecKeys::check).map(FlowKind::Exec),
            application if APPLICATIONS.contains(&application) => {
                read_application(application, table).map(FlowKind::Application)
            }
            other => {
                let known = alternatives(KINDS.iter().chain(&APPLICATIONS).copied());
                Err(Fault::new("kind", format!("`{other}` is no kind of flow; expected {known}")))
            }
        };
        Ok(Self { name: name.to_owned(), kind: kind.map_err(at_flow)?, extra_rtt })
    }

    /// Whether only the simulator knows how to run it.
    pub fn is_sim_only(&self) -> bool {
        self.sim_only_key().is_some()
    }

    /// The key that only the simulator knows how to run, if any.
    pub fn sim_only_key(&self) -> Option<&'static str> {
        match &self.kind {
            FlowKind::Application(_) => Some("kind"),
            FlowKind::Tcp(flow) if flow.receive_window_bytes.is_some() => Some("receive_window"),
            FlowKind::Tcp(flow) if flow.delivery => Some("delivery"),
            _ => (self.extra_rtt > Span::ZERO).then_some("extra_rtt"),
        }
    }

    /// Whether it loads the path.
    pub fn is_load(&self) -> bool {
        match &self.kind {
            FlowKind::Tcp(flow) => flow.count > 0,
            FlowKind::Udp(flow) => flow.count > 0,
            FlowKind::Probe(_) => false,
            FlowKind::Exec(_) | FlowKind::Application(_) => true,
        }
    }
}

/// Takes the key that every simulated kind has.
fn take_extra_rtt(table: &mut Table, kind: &str) -> Result<Span, Fault> {
    let key = "extra_rtt";
    let Some(value) = table.remove(key) else { return Ok(Span::ZERO) };
    if kind == "exec" {
        return Err(Fault::new(key, "is for simulated flows; an exec flow has the path's delays"));
    }
    let keys: ExtraKeys = read_section(Table::from_iter([(key.to_owned(), value)]))?;
    let SpanText(extra) = keys.extra_rtt;
    if extra > MAX_EXTRA_RTT {
        return Err(Fault::new(key, format!("{extra} is out of range; expected 0s to 10s")));
    }
    Ok(extra)
}

#[derive(Deserialize)]
struct ExtraKeys {
    extra_rtt: SpanText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TcpKeys {
    #[serde(default)]
    direction: FlowDirection,
    #[serde(default = "one")]
    count: u32,
    congestion_control: String,
    #[serde(default)]
    ecn: bool,
    #[serde(default)]
    dscp: u8,
    receive_window: Option<BytesText>,
    #[serde(default)]
    delivery: bool,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

impl TcpKeys {
    fn check(self) -> Result<TcpFlow, Fault> {
        let name = &self.congestion_control;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-+:=".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let problem = "expected the name of a congestion control, such as \"cubic\"";
            return Err(Fault::new("congestion_control", problem));
        }
        let window = self.receive_window.map(|window| window.0);
        let range = MIN_RECEIVE_WINDOW_BYTES..=MAX_RECEIVE_WINDOW_BYTES;
        if let Some(bytes) = window.filter(|bytes| !range.contains(bytes)) {
            let problem = format!("{bytes}B is out of range; expected 1500B to 1024MiB");
            return Err(Fault::new("receive_window", problem));
        }
        Ok(TcpFlow {
            direction: self.direction,
            count: checked_count(self.count)?,
            congestion_control: self.congestion_control,
            ecn: self.ecn,
            dscp: checked_class(self.dscp, Ecn::NotEct)?.dscp,
            receive_window_bytes: window.map(|bytes| bytes as u32),
            delivery: self.delivery,
            activity: checked_activity(self.start, self.stop)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeKeys {
    interval: SpanText,
    #[serde(default)]
    classes: Vec<ClassKeys>,
    timeout: Option<SpanText>,
    #[serde(default)]
    closed_loop: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassKeys {
    #[serde(default)]
    dscp: u8,
    #[serde(default)]
    ecn: EcnName,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "kebab-case")]
enum EcnName {
    #[default]
    NotEct,
    Ect0,
    Ect1,
    Ce,
}

impl EcnName {
    fn codepoint(self) -> Ecn {
        match self {
            Self::NotEct => Ecn::NotEct,
            Self::Ect0 => Ecn::Ect0,
            Self::Ect1 => Ecn::Ect1,
            Self::Ce => Ecn::Ce,
        }
    }
}

impl ProbeKeys {
    fn check(self) -> Result<ProbeFlow, Fault> {
        let interval = self.interval.0;
        if !(MIN_PROBE_INTERVAL..=MAX_PROBE_INTERVAL).contains(&interval) {
            let problem = format!("{interval} is out of range; expected 100us to 60s");
            return Err(Fault::new("interval", problem));
        }
        let timeout = self.timeout.map_or(DEFAULT_PROBE_TIMEOUT, |timeout| timeout.0);
        if !(MIN_PROBE_TIMEOUT..=MAX_PROBE_TIMEOUT).contains(&timeout) {
            let problem = format!("{timeout} is out of range; expected 100ms to 60s");
            return Err(Fault::new("timeout", problem));
        }
        let mut classes = self
            .classes
            .iter()
            .map(|class| checked_class(class.dscp, class.ecn.codepoint()))
            .collect::<Result<Vec<_>, _>>()?;
        if classes.is_empty() {
            classes.push(checked_class(0, Ecn::NotEct)?);
        }
        if classes.len() > MAX_CLASSES {
            return Err(Fault::new("classes", format!("expected at most {MAX_CLASSES}")));
        }
        if classes.iter().collect::<BTreeSet<_>>().len() != classes.len() {
            return Err(Fault::new("classes", "the same class stands here twice"));
        }
        Ok(ProbeFlow { interval, classes, timeout, closed_loop: self.closed_loop })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UdpKeys {
    #[serde(default)]
    direction: FlowDirection,
    #[serde(default = "one")]
    count: u32,
    rate: RateText,
    packet: Option<BytesText>,
    #[serde(default)]
    dscp: u8,
    #[serde(default)]
    ecn: EcnName,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

impl UdpKeys {
    fn check(self) -> Result<UdpFlow, Fault> {
        if self.rate.0.is_zero() {
            return Err(Fault::new("rate", "0bit sends nothing; expected more"));
        }
        let bytes = self.packet.map_or(1_200, |packet| packet.0);
        if !(MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes) {
            let problem = format!(
                "{bytes}B is out of range; expected {MIN_PACKET_BYTES}B to {MAX_PACKET_BYTES}B"
            );
            return Err(Fault::new("packet", problem));
        }
        Ok(UdpFlow {
            direction: self.direction,
            count: checked_count(self.count)?,
            rate: self.rate.0,
            packet_bytes: bytes as u32,
            class: checked_class(self.dscp, self.ecn.codepoint())?,
            activity: checked_activity(self.start, self.stop)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecKeys {
    client: Vec<String>,
    #[serde(default)]
    server: Vec<String>,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

impl ExecKeys {
    fn check(self) -> Result<ExecFlow, Fault> {
        if self.client.is_empty() {
            let problem = "expected a program and its arguments, such as [\"ping\", \"{server}\"]";
            return Err(Fault::new("client", problem));
        }
        check_words("client", &self.client)?;
        check_words("server", &self.server)?;
        let activity = checked_activity(self.start, self.stop)?;
        Ok(ExecFlow { client: self.client, server: self.server, activity })
    }
}

/// The keys that all applications share.
#[derive(Deserialize)]
struct SharedKeys {
    #[serde(default)]
    dscp: u8,
    start: Option<SpanText>,
    stop: Option<SpanText>,
}

fn read_application(name: &str, mut table: Table) -> Result<ApplicationFlow, Fault> {
    let shared: Table = ["dscp", "start", "stop"]
        .into_iter()
        .filter_map(|key| table.remove(key).map(|value| (key.to_owned(), value)))
        .collect();
    let SharedKeys { dscp, start, stop } = read_section(shared)?;
    let has_start = start.is_some();
    let activity = checked_activity(start, stop)?;
    Ok(ApplicationFlow {
        application: name.to_owned(),
        config: ApplicationConfig::read(name, table)?,
        dscp: checked_class(dscp, Ecn::NotEct)?.dscp,
        start: has_start.then_some(activity.start),
        stop: activity.stop,
    })
}

fn check_words(key: &str, words: &[String]) -> Result<(), Fault> {
    if words.len() > MAX_WORDS {
        return Err(Fault::new(key, format!("expected at most {MAX_WORDS} words")));
    }
    if words.first().is_some_and(String::is_empty) || words.iter().any(|word| word.contains('\0')) {
        return Err(Fault::new(key, "expected the name of a program first, and no NUL"));
    }
    Ok(())
}

fn checked_count(count: u32) -> Result<u32, Fault> {
    if count > MAX_COUNT {
        return Err(Fault::new("count", format!("{count} is out of range; expected 0 to 10000")));
    }
    Ok(count)
}

fn checked_class(dscp: u8, ecn: Ecn) -> Result<Class, Fault> {
    let problem = || format!("{dscp} is out of range; expected 0 to 63");
    Class::new(dscp, ecn).ok_or_else(|| Fault::new("dscp", problem()))
}

fn checked_activity(start: Option<SpanText>, stop: Option<SpanText>) -> Result<Activity, Fault> {
    let start = start.map_or(Span::ZERO, |start| start.0);
    let stop = stop.map(|stop| stop.0);
    match stop {
        Some(stop) if stop <= start => {
            let problem = format!("{stop} is not after the start at {start}");
            Err(Fault::new("stop", problem))
        }
        _ => Ok(Activity { start, stop }),
    }
}

fn one() -> u32 {
    1
}
