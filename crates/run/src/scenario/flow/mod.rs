//! `[[flow]]`: the senders of packets.

mod application;
mod browser;
mod common;
mod dash;
mod exec;
mod probe;
mod tcp;
mod udp;
mod webrtc;

use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::closest;
use underload_aqm::time::Span;
use underload_sim::congestion::Algorithm;
use underload_sim::sprout;

use super::phases::Phases;
use crate::keys::{
    Fault, Faults, Listed, Reader, Refusal, Section, Value, alternatives, did_you_mean, listed,
    read_table, schema,
};

pub use application::ApplicationFlow;
pub use browser::{BrowserFlow, PageProtocol};
pub use common::Activity;
pub use dash::{DashFlow, DashPlayer};
pub use exec::ExecFlow;
pub use probe::ProbeFlow;
pub(super) use tcp::DEFAULT_CONTROL;
pub use tcp::TcpFlow;
pub use udp::UdpFlow;
pub use webrtc::WebRtcFlow;

use application::{
    ApplicationKeys, CloudGameKeys, GameKeys, InteractiveVideoKeys, VideoKeys, VoipKeys, WebKeys,
};
use browser::BrowserKeys;
use common::Kind;
use dash::DashKeys;
use exec::ExecKeys;
use webrtc::WebRtcKeys;

/// A flow, or a group of equal ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Unique in the scenario.
    pub name: String,
    pub kind: FlowKind,
    /// Added to the path's base round trip, half of it in each direction. Only in the sim world.
    pub extra_rtt: Span,
}

/// The kinds of flows, each with its keys.
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
    /// A page in a real browser; only in the live world.
    Browser(BrowserFlow),
    /// A film in a real browser; only in the live world.
    Dash(DashFlow),
    /// A video call between two real browsers; only in the live world.
    WebRtc(WebRtcFlow),
    /// An application; only in the sim world.
    Application(ApplicationFlow),
}

macro_rules! kinds {
    ($($kind:ident($flow:ty);)*) => {$(
        impl From<$flow> for FlowKind {
            fn from(flow: $flow) -> Self {
                Self::$kind(flow)
            }
        }
    )*};
}

kinds! {
    Tcp(TcpFlow);
    Probe(ProbeFlow);
    Udp(UdpFlow);
    Exec(ExecFlow);
    Browser(BrowserFlow);
    Dash(DashFlow);
    WebRtc(WebRtcFlow);
    Application(ApplicationFlow);
}

impl FlowKind {
    /// Returns start and stop since the start of the ramp, as far as they are given.
    fn times(&self) -> (Option<Span>, Option<Span>) {
        let of = |activity: &Activity| (Some(activity.start), activity.stop);
        match self {
            Self::Tcp(flow) => of(&flow.activity),
            Self::Udp(flow) => of(&flow.activity),
            Self::Exec(flow) => of(&flow.activity),
            Self::Browser(flow) => (flow.start, flow.stop),
            Self::Dash(flow) => (flow.start, flow.stop),
            Self::WebRtc(flow) => (flow.start, flow.stop),
            Self::Application(flow) => (flow.start, flow.stop),
            Self::Probe(_) => (None, None),
        }
    }

    /// Whether a real browser runs it, which needs real time.
    pub fn needs_browser(&self) -> bool {
        matches!(self, Self::Browser(_) | Self::Dash(_) | Self::WebRtc(_))
    }
}

struct Entry {
    name: &'static str,
    read: fn(&Table, &mut Faults) -> Option<(FlowKind, Span)>,
    schema: fn() -> Json,
    listed: fn(&Table) -> Vec<Listed>,
}

const fn entry<K: Kind<Flow: Into<FlowKind>>>() -> Entry {
    Entry {
        name: K::NAME,
        read: read_kind::<K>,
        schema: schema::<Keys<K>>,
        listed: listed::<Keys<K>>,
    }
}

const KINDS: [Entry; 13] = [
    entry::<TcpFlow>(),
    entry::<ProbeFlow>(),
    entry::<UdpFlow>(),
    entry::<ExecKeys>(),
    entry::<BrowserKeys>(),
    entry::<DashKeys>(),
    entry::<WebRtcKeys>(),
    entry::<ApplicationKeys<VoipKeys>>(),
    entry::<ApplicationKeys<WebKeys>>(),
    entry::<ApplicationKeys<VideoKeys>>(),
    entry::<ApplicationKeys<InteractiveVideoKeys>>(),
    entry::<ApplicationKeys<GameKeys>>(),
    entry::<ApplicationKeys<CloudGameKeys>>(),
];

/// The keys of a flow: those of its kind, and those of every kind.
struct Keys<K> {
    kind: K,
    extra_rtt: Span,
}

impl<K: Kind> Section for Keys<K> {
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        reader.key::<String>("kind", &[], None);
        let help = "Unique in the scenario; by default the kind";
        reader.key::<Option<String>>("name", &[help], None);
        let kind = K::take(reader);
        let extra_rtt = if K::IS_SIMULATED {
            let help =
                "Added to the path's base round trip, half of it in each direction; sim only";
            let range = Span::ZERO..=MAX_EXTRA_RTT;
            reader.key_in("extra_rtt", &[help], Some(Span::ZERO), range)
        } else {
            Some(Span::ZERO)
        };
        Some(Self { kind: kind?, extra_rtt: extra_rtt? })
    }
}

fn read_kind<K: Kind<Flow: Into<FlowKind>>>(
    table: &Table,
    faults: &mut Faults,
) -> Option<(FlowKind, Span)> {
    let Keys { kind, extra_rtt } = read_table::<Keys<K>>(table, faults)?;
    Some((faults.accept(kind.check())?.into(), extra_rtt))
}

/// A flow of any kind, for the schema.
pub(super) struct AnyFlow;

impl Value for AnyFlow {
    fn expected(key: &str) -> String {
        Table::expected(key)
    }

    fn read(_: &Toml, _: &mut Faults) -> Result<Self, Refusal> {
        Ok(Self)
    }

    fn schema() -> Json {
        let schema = |entry: &Entry| {
            let mut schema = (entry.schema)();
            schema["properties"]["kind"] = json!({ "const": entry.name });
            // A variant may have the keys that the table lacks.
            schema["required"] = json!(["kind"]);
            schema
        };
        json!({ "anyOf": KINDS.iter().map(schema).collect::<Vec<_>>() })
    }
}

/// Returns the keys of a flow in the order of its kind's declaration.
pub(super) fn settings(table: &Table) -> Vec<Listed> {
    let kind = table.get("kind").and_then(Toml::as_str);
    let entry = KINDS.iter().find(|entry| Some(entry.name) == kind);
    entry.map_or_else(Vec::new, |entry| (entry.listed)(table))
}

/// Returns the names of the simulated congestion controls.
pub fn simulated_controls() -> Vec<String> {
    let names = Algorithm::names();
    names.split(", ").chain([sprout::NAME]).map(str::to_owned).collect()
}

/// As long as the delays of a path may be.
const MAX_EXTRA_RTT: Span = Span::from_secs(10);

impl Flow {
    pub(super) fn read(name: &str, table: &Table, faults: &mut Faults) -> Option<Self> {
        faults.under(&format!("flow.{name}"), |faults| {
            let kind = table.get("kind").and_then(Toml::as_str).unwrap_or_default();
            let known = || KINDS.iter().map(|entry| entry.name);
            let of_kind = |name: &str| KINDS.iter().find(|entry| entry.name == name);
            let Some(entry) = of_kind(kind) else {
                let (listed, question) = (alternatives(known()), did_you_mean(kind, known()));
                let problem = format!("`{kind}` is no kind of flow; expected {listed}{question}");
                faults.add(Fault::new("kind", problem));
                // Checks the flow's other keys as those of the kind with the closest name.
                let meant = of_kind(closest(kind, known())?)?;
                (meant.read)(table, faults);
                return None;
            };
            let (kind, extra_rtt) = (entry.read)(table, faults)?;
            Some(Self { name: name.to_owned(), kind, extra_rtt })
        })
    }

    /// Rejects a start after the flow's last moment: it would send nothing.
    pub(super) fn check_start(&self, phases: &Phases) -> Result<(), Fault> {
        let (start, stop) = self.kind.times();
        let (last, end) = match stop {
            None => ("ramp and load", phases.longest_load()),
            Some(_) => ("ramp, load and drain", phases.longest_load() + phases.drain),
        };
        match start {
            Some(start) if start >= end && start > Span::ZERO => {
                let problem = format!("{start} is too late, {last} last {end}; expected less");
                Err(Fault::new(format!("flow.{}.start", self.name), problem))
            }
            _ => Ok(()),
        }
    }

    /// Returns the key that only the simulator supports, if the flow has one.
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
