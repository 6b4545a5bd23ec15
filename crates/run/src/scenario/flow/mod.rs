//! `[[flow]]`: what sends packets over the path.

mod application;
mod exec;
mod probe;
mod tcp;
mod udp;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};
use underload_aqm::packet::{Dscp, Ecn};
use underload_aqm::rng::Rng;
use underload_aqm::time::Span;
use underload_sim::congestion::Algorithm;
use underload_sim::sprout;

use super::error::{Fault, alternatives, did_you_mean};
use super::identity;
use super::quantity::SpanText;
use super::section::read_section;
use super::trace;

pub use application::ApplicationFlow;
pub use exec::ExecFlow;
pub use probe::ProbeFlow;
pub use tcp::TcpFlow;
pub use udp::UdpFlow;

use application::{CloudGameKeys, GameKeys, InteractiveVideoKeys, VideoKeys, VoipKeys, WebKeys};
use exec::ExecKeys;
use probe::ProbeKeys;
use tcp::TcpKeys;
use udp::UdpKeys;

/// A flow, or a group of equal ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// Unique in the scenario.
    pub name: String,
    /// Kind of the flow, with the keys of that kind.
    pub kind: FlowKind,
    /// How much longer its base round trip is than the path's, as if its other end were further
    /// away; half of it each way. Only in the sim world.
    #[serde(serialize_with = "identity::span")]
    pub extra_rtt: Span,
}

/// The kinds of flows, each with its keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// When a flow is active, from the start of the ramp on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// Since the start of the ramp.
    #[serde(serialize_with = "identity::span")]
    pub start: Span,
    /// Since the start of the ramp; `None`: until the load phase ends.
    #[serde(serialize_with = "identity::optional_span")]
    pub stop: Option<Span>,
    /// Each flow starts up to this much later; see [`Activity::start_of`].
    #[serde(serialize_with = "identity::span")]
    pub start_jitter: Span,
}

impl Activity {
    /// When the flow `name` starts in a trial with this seed, since the start of the ramp. Its
    /// jitter is drawn from the seed and the name alone: the arms of a repeat have the same starts.
    pub fn start_of(&self, name: &str, seed: u64) -> Span {
        let most_micros = (self.start_jitter.as_nanos() / 1_000) as u32;
        let mut jitter = Rng::new(seed).child("start jitter").child(name);
        self.start + Span::from_micros(u64::from(jitter.below(most_micros)))
    }
}

/// The keys of an [`Activity`].
#[derive(Deserialize, Clone, Copy, Default)]
struct ActivityKeys {
    start: Option<SpanText>,
    start_jitter: Option<SpanText>,
    stop: Option<SpanText>,
}

/// The traffic class of a packet: what its sender writes into the former type-of-service byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

    /// The ECN codepoint of the class.
    pub fn ecn(self) -> Ecn {
        Ecn::from_bits(self.ecn_bits)
    }

    /// The class as printed: `dscp 45 ect1`.
    pub fn label(self) -> String {
        match self.ecn() {
            Ecn::NotEct => format!("dscp {}", self.dscp),
            ecn => format!("dscp {} {}", self.dscp, ecn.name()),
        }
    }
}

/// Reads the keys of one kind of flow.
type Read = fn(Table) -> Result<FlowKind, Fault>;
/// Its keys with their forms.
type Known = fn() -> Map<String, Json>;

/// Every kind of flow by its name, how its keys are read, and which they are.
const KINDS: [(&str, Read, Known); 10] = [
    (
        "tcp",
        |table| read_section(table).and_then(TcpKeys::check).map(FlowKind::Tcp),
        trace::keys::<TcpKeys>,
    ),
    (
        "probe",
        |table| read_section(table).and_then(ProbeKeys::check).map(FlowKind::Probe),
        trace::keys::<ProbeKeys>,
    ),
    (
        "udp",
        |table| read_section(table).and_then(UdpKeys::check).map(FlowKind::Udp),
        trace::keys::<UdpKeys>,
    ),
    (
        "exec",
        |table| read_section(table).and_then(ExecKeys::check).map(FlowKind::Exec),
        trace::keys::<ExecKeys>,
    ),
    ("voip", read_application::<VoipKeys>, application::known::<VoipKeys>),
    ("web", read_application::<WebKeys>, application::known::<WebKeys>),
    ("video", read_application::<VideoKeys>, application::known::<VideoKeys>),
    (
        "interactive-video",
        read_application::<InteractiveVideoKeys>,
        application::known::<InteractiveVideoKeys>,
    ),
    ("game", read_application::<GameKeys>, application::known::<GameKeys>),
    ("cloud-game", read_application::<CloudGameKeys>, application::known::<CloudGameKeys>),
];

/// The schema of each kind of flow.
pub(super) fn schemas() -> Vec<Json> {
    let schema = |(kind, _, known): &(&str, Read, Known)| {
        let mut keys = known();
        keys.insert("kind".to_owned(), json!({ "const": kind }));
        keys.insert("name".to_owned(), json!({ "type": "string" }));
        if *kind != "exec" {
            keys.append(&mut trace::keys::<ExtraKeys>());
        }
        let mut schema = trace::closed(keys);
        schema["required"] = json!(["kind"]);
        schema
    };
    KINDS.iter().map(schema).collect()
}

fn read_application<K: application::Keys>(table: Table) -> Result<FlowKind, Fault> {
    application::read::<K>(table).map(FlowKind::Application)
}

/// The kinds of flows by their names.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, ..)| *name)
}

/// Names of the congestion controls that the simulator knows.
pub fn simulated_controls() -> Vec<String> {
    let names = Algorithm::names();
    names.split(", ").chain([sprout::NAME]).map(str::to_owned).collect()
}

/// Flows of one entry, at most.
const MAX_COUNT: u32 = 10_000;
/// Longest extra round trip of a flow: as long as a path's own delays may be.
const MAX_EXTRA_RTT: Span = Span::from_secs(10);
/// Longest jitter of a start: longer ramps are rare.
const MAX_START_JITTER: Span = Span::from_secs(60);

impl Flow {
    pub(super) fn read(name: &str, mut table: Table) -> Result<Self, Fault> {
        let at_flow = |fault: Fault| fault.under(&format!("flow.{name}"));
        let Some(Value::String(kind)) = table.remove("kind") else {
            return Err(at_flow(Fault::new("kind", "expected a text in quotes")));
        };
        let extra_rtt = take_extra_rtt(&mut table, &kind).map_err(at_flow)?;
        let Some((_, read, _)) = KINDS.iter().find(|(known, ..)| *known == kind) else {
            let (known, meant) = (alternatives(kinds()), did_you_mean(&kind, kinds()));
            let problem = format!("`{kind}` is no kind of flow; expected {known}{meant}");
            return Err(at_flow(Fault::new("kind", problem)));
        };
        let kind = read(table);
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
            FlowKind::Tcp(flow) if flow.rtt_target.is_some() => Some("rtt_target"),
            FlowKind::Tcp(flow) if flow.rtt_transition.is_some() => Some("rtt_transition"),
            _ => (self.extra_rtt > Span::ZERO).then_some("extra_rtt"),
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

fn checked_activity(keys: ActivityKeys) -> Result<Activity, Fault> {
    let span = |text: Option<SpanText>| text.map_or(Span::ZERO, |text| text.0);
    let (start, start_jitter) = (span(keys.start), span(keys.start_jitter));
    if start_jitter > MAX_START_JITTER {
        let problem = format!("{start_jitter} is out of range; expected 0s to 60s");
        return Err(Fault::new("start_jitter", problem));
    }
    let stop = keys.stop.map(|stop| stop.0);
    match stop {
        Some(stop) if stop <= start => {
            let problem = format!("{stop} is not after the start at {start}");
            Err(Fault::new("stop", problem))
        }
        Some(stop) if stop <= start + start_jitter => {
            let problem = format!("{stop} is not after the latest start, {}", start + start_jitter);
            Err(Fault::new("stop", problem))
        }
        _ => Ok(Activity { start, stop, start_jitter }),
    }
}

fn one() -> u32 {
    1
}
