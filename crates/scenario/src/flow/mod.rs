//! `[[flow]]`: the senders of packets.

mod application;
mod browser;
mod common;
mod probe;
mod tcp;
mod udp;

use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};
use underload_aqm::config::closest;
use underload_aqm::time::Span;
use underload_sim::congestion::Algorithm;
use underload_sim::sprout;

use super::phases::Phases;
use crate::keys::{
    Fault, Faults, Key, Listed, Reader, Refusal, Section, Value, alternatives, did_you_mean, keys,
    listed, read_table, schema,
};

pub use application::ApplicationFlow;
pub use browser::{BrowserFlow, DashPlayer, PageProtocol, Site};
pub use common::Activity;
pub use common::Properties;
pub use probe::ProbeFlow;
pub(super) use tcp::DEFAULT_CONTROL;
pub use tcp::TcpFlow;
pub use udp::UdpFlow;

use application::{
    ApplicationKeys, CloudGameKeys, GameKeys, InteractiveVideoKeys, VideoKeys, VoipKeys, WebKeys,
};
use browser::{CallKeys, FilmKeys, PageKeys};
use common::Kind;

/// A flow, or a group of equal ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Unique in the scenario.
    pub name: String,
    /// The value of its key `kind`.
    pub kind_name: &'static str,
    pub kind: FlowKind,
    pub activity: Activity,
    /// Added to the path's base round trip, half of it in each direction. Only in the sim world.
    pub extra_rtt: Span,
    /// Number of its client, by which a radio finds the user. Only in the sim world.
    pub host: u32,
}

/// The traffic that a flow sends.
#[derive(Debug, Clone, PartialEq)]
pub enum FlowKind {
    /// Bulk transfer over TCP.
    Tcp(TcpFlow),
    /// Measures latency and does nothing else.
    Probe(ProbeFlow),
    /// UDP at a constant rate.
    Udp(UdpFlow),
    /// Pages, a film or a call of real browsers; only in the live world.
    Browser(BrowserFlow),
    /// An application; only in the sim world.
    Application(ApplicationFlow),
}

impl FlowKind {
    pub fn properties(&self) -> &dyn Properties {
        match self {
            Self::Tcp(flow) => flow,
            Self::Probe(flow) => flow,
            Self::Udp(flow) => flow,
            Self::Browser(flow) => flow,
            Self::Application(flow) => flow,
        }
    }
}

/// The keys of a kind of flow, as functions.
struct Entry {
    name: &'static str,
    read: fn(&str, &Table, &mut Faults) -> Option<Flow>,
    schema: fn() -> Json,
    listed: fn(&Table) -> Vec<Listed>,
}

const fn entry<K: Kind>() -> Entry {
    Entry {
        name: K::NAME,
        read: read_flow::<K>,
        schema: schema::<Keys<K>>,
        listed: listed::<Keys<K>>,
    }
}

const KINDS: [Entry; 12] = [
    entry::<(TcpFlow, Activity)>(),
    entry::<ProbeFlow>(),
    entry::<(UdpFlow, Activity)>(),
    entry::<PageKeys>(),
    entry::<FilmKeys>(),
    entry::<CallKeys>(),
    entry::<ApplicationKeys<VoipKeys>>(),
    entry::<ApplicationKeys<WebKeys>>(),
    entry::<ApplicationKeys<VideoKeys>>(),
    entry::<ApplicationKeys<InteractiveVideoKeys>>(),
    entry::<ApplicationKeys<GameKeys>>(),
    entry::<ApplicationKeys<CloudGameKeys>>(),
];

keys! {
    struct HeadKeys {
        _kind: String as "kind",
        /// Unique in the scenario; by default the kind.
        _name: Option<String> as "name",
    }
}

keys! {
    struct SimulatedKeys {
        /// Added to the path's base round trip, half of it in each direction; sim only.
        extra_rtt: Span = Span::ZERO => Span::ZERO..=MAX_EXTRA_RTT,
        /// Number of the flow's client: queues see one host per number, and a `radio` link one user;
        /// sim only.
        host: u32 = 0 => 0..=MAX_HOST,
    }
}

/// The keys of a flow: the keys of its kind, and the keys that every kind has.
struct Keys<K> {
    kind: K,
    simulated: SimulatedKeys,
}

impl<K: Kind> Section for Keys<K> {
    fn declare(keys: &mut Vec<Key>) {
        HeadKeys::declare(keys);
        K::declare(keys);
        if K::IS_SIMULATED {
            SimulatedKeys::declare(keys);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let head_and_kind = <(HeadKeys, K)>::take(reader);
        let none = SimulatedKeys { extra_rtt: Span::ZERO, host: 0 };
        let simulated = if K::IS_SIMULATED { SimulatedKeys::take(reader) } else { Some(none) };
        Some(Self { kind: head_and_kind?.1, simulated: simulated? })
    }
}

fn read_flow<K: Kind>(name: &str, table: &Table, faults: &mut Faults) -> Option<Flow> {
    let Keys { kind, simulated } = read_table::<Keys<K>>(table, faults)?;
    let (kind, activity) = faults.accept(kind.check())?;
    let SimulatedKeys { extra_rtt, host } = simulated;
    Some(Flow { name: name.to_owned(), kind_name: K::NAME, kind, activity, extra_rtt, host })
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
            // A variant may supply keys that the flow's table lacks, so only `kind` is required.
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
/// The simulator's server has a higher number.
const MAX_HOST: u32 = 1_000_000;

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
                // Checks the flow's other keys as if the flow had the kind with the closest name.
                let meant = of_kind(closest(kind, known())?)?;
                (meant.read)(name, table, faults);
                return None;
            };
            (entry.read)(name, table, faults)
        })
    }

    /// Rejects a start after the flow's last moment: it would send nothing.
    pub(super) fn check_start(&self, phases: &Phases) -> Result<(), Fault> {
        let Activity { start, stop, .. } = self.activity;
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
    pub(crate) fn sim_only_key(&self) -> Option<&'static str> {
        let own = self.kind.properties().sim_only_key();
        let given = [("extra_rtt", self.extra_rtt > Span::ZERO), ("host", self.host > 0)];
        own.or_else(|| given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key))
    }
}
