//! One resolved variant of a scenario.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA256, digest};
use toml::Table;
use underload_aqm::registry::LoadFile;
use underload_record::schema::Direction;

use super::cohort::Cohort;
use super::document::{Base, Document, Override};
use super::error::{Fault, ScenarioError};
use super::flow::{Flow, FlowKind};
use super::identity::identity;
use super::path::{Lane, LaneQueue, Path};
use super::phases::Phases;
use super::variants::{Variant, combinations};

/// One variant, everything resolved: what a world runs once per repeat.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Unique in the scenario; the names of its variants joined by `/`, `default` without any.
    pub name: String,
    /// The links of both directions with their queues.
    pub path: Path,
    /// Lengths of the phases.
    pub phases: Phases,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Keys whose values differ between the scenario's arms, with this arm's, as the file has them.
    pub factors: BTreeMap<String, String>,
    identity: String,
    wording: String,
}

/// Starting the namespaces and stopping them, about, seconds.
const SET_UP_SECONDS: f64 = 0.5;

impl Arm {
    /// What a reader sees: the links of each direction that has any, disciplines with their
    /// profiles, for example `docsis-pie before 35mbit up`.
    pub fn label(&self) -> String {
        let lane = |lane: &Lane, direction: Direction| {
            let queue = lane.queue.label();
            let at = if lane.name.is_empty() { "" } else { " at " };
            format!("{queue} before {} {direction}{at}{}", lane.link_label(), lane.name)
        };
        let lanes = self.path.lanes().filter(|(_, lane)| !lane.is_wide);
        let labels: Vec<String> = lanes.map(|(direction, it)| lane(it, direction)).collect();
        labels.join("; ")
    }

    /// Everything that a trial depends on besides its seed, as JSON: what is meant by path, phases
    /// and flows, and a digest of each file that they name. Two arms with the same identity are the
    /// same experiment, whatever their names and however they are written.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The same as the scenario writes it. Arms with the same wording leave the same records, which
    /// repeat SPECs and names as they were written.
    pub fn wording(&self) -> &str {
        &self.wording
    }

    /// The first algorithm of it that whoever runs it brings along, by its SPEC.
    pub fn own(&self) -> Option<String> {
        let queue = |lane: &Lane| match &lane.queue {
            LaneQueue::Own(own) => Some(own.label.to_string()),
            LaneQueue::Known(_) => None,
        };
        let control = |flow: &Flow| match &flow.kind {
            FlowKind::Tcp(tcp) if tcp.is_own() => Some(tcp.congestion_control.clone()),
            _ => None,
        };
        let in_path = self.path.lanes().find_map(|(_, lane)| queue(lane));
        in_path.or_else(|| self.flows.iter().find_map(control))
    }

    /// Whether its TCP flows use ECN; `None` if some do and some do not.
    pub fn ecn(&self) -> Option<bool> {
        let mut uses = self.flows.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Tcp(tcp) => Some(tcp.ecn),
            _ => None,
        });
        let first = uses.next().unwrap_or_default();
        uses.all(|other| other == first).then_some(first)
    }

    pub(super) fn estimate_seconds(&self) -> f64 {
        self.phases.estimate().as_nanos() as f64 / 1e9 + SET_UP_SECONDS
    }
}

/// The name of the arm that a combination makes.
pub(super) fn name(variants: &[&Variant]) -> String {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    if names.is_empty() { "default".to_owned() } else { names.join("/") }
}

/// Arms of earlier readings of a file that is read again with changes.
#[derive(Default)]
pub(super) struct KnownArms {
    base: Base,
    /// By name.
    arms: BTreeMap<String, KnownArm>,
    /// How often an arm was read from its tables.
    read: usize,
    /// How often an arm was taken from here instead.
    reused: usize,
}

/// Reading an arm takes as long as reusing this many.
const REUSED_PER_READ: usize = 10;

struct KnownArm {
    changes: Vec<Override>,
    arm: Arm,
    settings: BTreeMap<String, String>,
}

impl KnownArms {
    /// Forgets all arms if they were laid over another base.
    fn retain_over(&mut self, base: &Base) {
        if self.base != *base {
            self.arms.clear();
            self.base.clone_from(base);
        }
    }

    /// The work so far, as a number of arms that were read.
    pub(super) fn work(&self) -> usize {
        self.read + self.reused / REUSED_PER_READ
    }

    fn reuse(
        &mut self,
        name: &str,
        variants: &[&Variant],
    ) -> Option<(Arm, BTreeMap<String, String>)> {
        let changes = variants.iter().flat_map(|variant| &variant.changes);
        let known = self.arms.get(name).filter(|known| known.changes.iter().eq(changes))?;
        self.reused += 1;
        Some((known.arm.clone(), known.settings.clone()))
    }

    fn insert(&mut self, variants: &[&Variant], arm: &Arm, settings: &BTreeMap<String, String>) {
        let changes = variants.iter().flat_map(|variant| variant.changes.clone()).collect();
        let known = KnownArm { changes, arm: arm.clone(), settings: settings.clone() };
        self.arms.insert(arm.name.clone(), known);
    }
}

/// Every combination of the dimensions laid over the base: the arms, those of a cohort with typical
/// conditions; and where they are to be kept the tables that each was read from. Arms of `known`
/// are not read again.
pub(super) fn resolve(
    base: &Base,
    dimensions: &[Vec<Variant>],
    (cohort, keeps_tables): (Option<&Cohort>, bool),
    document: &Document,
    load: &mut LoadFile<'_>,
    known: Option<&mut KnownArms>,
) -> Result<(Vec<Arm>, Vec<Base>), ScenarioError> {
    let (mut arms, mut templates, mut settings) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    let mut known = known.filter(|_| cohort.is_none() && !keeps_tables);
    if let Some(known) = &mut known {
        known.retain_over(base);
    }
    for variants in combinations(dimensions) {
        let name = name(&variants);
        places.push(variants.first().map_or("arm", |variant| variant.place.as_str()));
        let reused = known.as_mut().and_then(|known| known.reuse(&name, &variants));
        if let Some((arm, own)) = reused {
            arms.push(arm);
            settings.push(own);
            continue;
        }
        let mut tables = base.clone();
        let arm = lay(&mut tables, &variants).and_then(|()| match cohort {
            Some(cohort) => cohort.typical_arm(&name, &tables, load),
            None => read_arm(&name, &tables, load),
        });
        if let Some(known) = &mut known {
            known.read += 1;
        }
        let arm = arm.map_err(|fault| {
            let origin = tables.origin(&fault.key);
            document.locate(fault, origin)
        })?;
        let own = tables.settings();
        if let Some(known) = &mut known {
            known.insert(&variants, &arm, &own);
        }
        arms.push(arm);
        settings.push(own);
        if keeps_tables {
            templates.push(tables);
        }
    }
    for (arm, factors) in arms.iter_mut().zip(factors(settings)) {
        arm.factors = factors;
    }
    let used = cohort.map_or(Ok(()), |cohort| cohort.check_used(&templates));
    used.and_then(|()| check_different(&arms, &places))
        .map_err(|fault| document.locate(fault, None))?;
    Ok((arms, templates))
}

/// Of each arm's settings those that are not the same in every arm.
fn factors(mut settings: Vec<BTreeMap<String, String>>) -> Vec<BTreeMap<String, String>> {
    let keys: BTreeSet<String> = settings.iter().flat_map(BTreeMap::keys).cloned().collect();
    for key in keys {
        let first = settings.first().and_then(|own| own.get(&key));
        if settings.iter().all(|own| own.get(&key) == first) {
            for own in &mut settings {
                own.remove(&key);
            }
        }
    }
    settings
}

/// Lays the variants over the tables.
fn lay(tables: &mut Base, variants: &[&Variant]) -> Result<(), Fault> {
    for (index, variant) in variants.iter().enumerate() {
        for change in &variant.changes {
            let earlier = variants[..index]
                .iter()
                .find(|earlier| earlier.changes.iter().any(|other| other.key == change.key));
            if let Some(earlier) = earlier {
                let problem = format!("`{}` and `{}` both override it", earlier.name, variant.name);
                return Err(Fault::new(&change.key, problem));
            }
            tables.set(change, &variant.place)?;
        }
    }
    Ok(())
}

/// Reads an arm out of its tables.
pub(super) fn read_arm(name: &str, tables: &Base, load: &mut LoadFile<'_>) -> Result<Arm, Fault> {
    let read = |(name, table): &(String, Table)| Flow::read(name, table.clone());
    let flows = tables.flows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    check_flows(&flows)?;
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let load = &mut |file: &str| {
        let bytes = load(file)?;
        files.insert(file.to_owned(), digest(&SHA256, &bytes).as_ref().to_vec());
        Ok(bytes)
    };
    let path = Path::read(tables.path.clone(), &tables.hops, load)?;
    let phases = Phases::read(tables.phases.clone())?;
    let said = (&tables.path, &tables.hops, &tables.phases, &tables.flows, &files);
    let unspeakable =
        |error| Fault::new("", format!("a value that JSON has no words for: {error}"));
    let wording = serde_json::to_string(&said).map_err(unspeakable)?;
    let identity = identity(&path, &phases, &flows, &files).map_err(unspeakable)?;
    let (name, factors) = (name.to_owned(), BTreeMap::new());
    Ok(Arm { name, path, phases, flows, factors, identity, wording })
}

fn check_flows(flows: &[Flow]) -> Result<(), Fault> {
    if flows.is_empty() {
        let problem = "a scenario without a flow measures nothing; expected [[flow]] tables";
        return Err(Fault::new("flow", problem));
    }
    let measures = |flow: &Flow| !matches!(flow.kind, FlowKind::Tcp(_) | FlowKind::Udp(_));
    if !flows.iter().any(measures) {
        let problem = "nothing measures latency; add a flow with kind = \"probe\"";
        return Err(Fault::new("flow", problem));
    }
    Ok(())
}

/// Two arms that are the same compare nothing.
fn check_different(arms: &[Arm], places: &[&str]) -> Result<(), Fault> {
    let mut seen: BTreeMap<&str, &Arm> = BTreeMap::new();
    for (arm, place) in arms.iter().zip(places) {
        if let Some(twin) = seen.insert(arm.identity(), arm) {
            let problem = format!("`{}` and `{}` are the same", twin.name, arm.name);
            return Err(Fault::new(*place, problem));
        }
    }
    Ok(())
}
