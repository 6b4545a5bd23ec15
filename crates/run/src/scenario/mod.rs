//! Scenario files: path, flows, arms, repeats and seed, for every world.
//!
//! A scenario is TOML, version-controlled and commented, one file per figure of a paper:
//!
//! ```toml
//! title = "Two queues before a busy cable upstream"
//! repeats = 3
//! seed = 1
//!
//! [path]
//! up = "35mbit"                 # a link SPEC
//! rtt = "17ms"                  # or up_delay and down_delay
//!
//! [phases]
//! idle = "2s"
//! ramp = "steady"               # or a time
//! load = "7s"
//!
//! [[flow]]
//! kind = "tcp"
//! direction = "up"
//! congestion_control = "cubic"  # always named
//!
//! [[flow]]
//! kind = "probe"
//! interval = "10ms"
//!
//! [[arm]]
//! name = "fifo"
//! path.up_queue = "fifo:limit=1093750B"
//!
//! [[arm]]
//! name = "docsis-pie"
//! path.up_queue = "docsis-pie"
//! ```
//!
//! The whole format, key by key, is in `docs/scenario-format.md`.
//!
//! - [`Scenario::parse`] reads a file; [`Scenario::parse_with`] applies what a command line says.
//! - [`Scenario::build`] puts one together in code.
//! - [`Cohort`] draws conditions for every trial; [`Scenario::trial_arm`] applies them.
//! - [`Arm`] is one resolved variant: what a world runs.
//! - [`builtin`] lists the scenarios that come with the program.

mod arm;
mod builder;
pub mod builtin;
mod cohort;
pub(crate) mod document;
mod edit;
pub(crate) mod error;
mod faults;
mod flow;
mod headline;
mod identity;
mod lines;
pub(crate) mod metrics;
mod path;
mod phases;
mod place;
mod plots;
mod published;
pub(crate) mod quantity;
mod schema;
pub(crate) mod section;
pub(crate) mod trace;
mod variants;
pub(crate) mod vary;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use toml::{Table, Value};
use underload_aqm::registry::LoadFile;
use underload_record::schema::{Expectation, Headline, PlotRecord, World, names_arm};

pub use arm::Arm;
pub use builder::{Builder, Keys};
pub use cohort::{Cohort, Conditions};
pub use error::{Excerpt, ScenarioError, ScenarioErrors};
pub use flow::simulated_controls;
pub use flow::{
    Activity, ApplicationFlow, Class, ExecFlow, Flow, FlowKind, ProbeFlow, TcpFlow, UdpFlow,
};
pub use path::{Lane, LaneQueue, Path, check_path_key};
pub use phases::{Phases, Ramp};
pub use schema::json_schema;

use arm::KnownArms;
use document::{Base, COMMAND_LINE, Document, Override, overrides, take_text};
use error::{Fault, alternatives, did_you_mean, no_arm};
use metrics::Metrics;
use variants::{Variant, take_dimensions};

/// A scenario, resolved: what is to be run, how often, and what somebody published about it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// File name or built-in name, for example `comcast/upstream`.
    pub name: String,
    /// Heading of the scenario, one line; may be empty.
    pub title: String,
    /// What the scenario shows and how it deviates from its source; may be empty.
    pub description: String,
    /// The figure that it reproduces, for example `Comcast 2021, Figures 3 to 6`; may be empty.
    pub figure: String,
    /// The file that it was read from, for the record.
    pub text: String,
    /// Seed of the run, from which every trial's seed derives.
    pub seed: u64,
    /// Number of trials of each arm, at least one.
    pub repeats: u32,
    /// The variants, in the order of the file; at least one. Those of a cohort have typical
    /// conditions: [`Scenario::trial_arm`] gives each trial's own.
    pub arms: Vec<Arm>,
    /// What is drawn anew for every trial; `None`: nothing.
    pub cohort: Option<Cohort>,
    /// The comparison that it is about, of these arms; `None` where it declares none, or where its
    /// arms were not chosen.
    pub headline: Option<Headline>,
    /// The pictures that it asks for, of these arms.
    pub plots: Vec<PlotRecord>,
    /// Published numbers about these arms.
    pub published: Vec<Expectation>,
    /// The tables of each arm of a cohort, by its name, with `{name}` where a value is drawn; also
    /// of other arms where they are kept.
    templates: BTreeMap<String, Base>,
    document: Document,
}

/// Overrides and choices from the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Takes the short form: what `[short]` overrides.
    pub short: bool,
    /// `KEY=VALUE` overrides, for example `path.up=20mbit`.
    pub set: Vec<String>,
    /// Names and SPECs of the links to sweep over, instead of those of the file's own sweep over
    /// `path.up` or `path.down`; empty = the file's own.
    pub links: Vec<(String, String)>,
    /// Names of the arms to run; empty for all.
    pub arms: Vec<String>,
    /// Instead of the file's own.
    pub repeats: Option<u32>,
    /// Instead of the file's own.
    pub seed: Option<u64>,
    /// Keeps the tables of every arm, so that a sweep can override their keys again.
    pub keeps_tables: bool,
}

impl Options {
    /// The file, headed by what was changed, so that the record alone repeats the run. `traces`:
    /// the files that [`Options::links`] stand for.
    pub fn effective_text(&self, text: &str, traces: &[String]) -> String {
        let mut changes = Vec::new();
        if self.short {
            changes.push("--short".to_owned());
        }
        changes.extend(self.set.iter().map(|set| format!("--set {set:?}")));
        if !traces.is_empty() {
            changes.push("--traces".to_owned());
            changes.extend(traces.iter().map(|file| format!("{file:?}")));
        }
        changes.extend(self.arms.iter().map(|arm| format!("--arm {arm:?}")));
        changes.extend(self.repeats.map(|repeats| format!("--repeat {repeats}")));
        changes.extend(self.seed.map(|seed| format!("--seed {seed}")));
        if changes.is_empty() {
            return text.to_owned();
        }
        format!("# underload run with {}\n{text}", changes.join(" "))
    }
}

/// Repeats of an arm, at most.
const MAX_REPEATS: u32 = 100_000;

impl Scenario {
    /// Reads a scenario file as it stands, and checks its short form too.
    ///
    /// # Errors
    /// The first fault, with its line and key and what would be accepted.
    pub fn parse(text: &str, name: &str) -> Result<Self, ScenarioError> {
        let load = &mut builtin::load_file;
        Self::parse_with(text, name, &Options { short: true, ..Options::default() }, load)?;
        Self::parse_with(text, name, &Options::default(), load)
    }

    /// Reads a scenario file with what the command line says. Files that links name, such as
    /// traces, are taken from `load`; [`builtin::load_file`] knows those built in.
    ///
    /// # Errors
    /// As [`Scenario::parse`]; also an override, arm or number on the command line that does not
    /// fit the file, and a file that cannot be loaded.
    pub fn parse_with(
        text: &str,
        name: &str,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Result<Self, ScenarioError> {
        Self::resolve(Document::parse(text, name)?, text.to_owned(), options, load, None)
    }

    /// The scenario that a document's tables say. Arms of earlier readings are taken from `known`.
    fn resolve(
        mut document: Document,
        text: String,
        options: &Options,
        load: &mut LoadFile<'_>,
        known: Option<&mut KnownArms>,
    ) -> Result<Self, ScenarioError> {
        let mut root = std::mem::take(&mut document.root);
        let plain = |fault: Fault| document.locate(fault, None);
        let has_repeats = root.contains_key("repeats");
        let mut head = Head::take(&mut root).map_err(plain)?;
        let mut base = Base::take(&mut root).map_err(plain)?;
        let own = take_dimensions(&mut root).map_err(plain)?;
        let mut dimensions = variants::with_links(own.clone(), &options.links).map_err(plain)?;
        let mut published = published::take_published(&mut root).map_err(plain)?;
        let headline = headline::take_headline(&mut root).map_err(plain)?;
        let plots = plots::take_plots(&mut root).map_err(plain)?;
        let short = Short::take(&mut root).map_err(plain)?;
        let mut cohort = Cohort::take(&mut root).map_err(plain)?;
        refuse_rest(&root).map_err(plain)?;
        let mut only = options.arms.as_slice();
        if options.short {
            for change in &short.changes {
                base.set(change, "short").map_err(|fault| document.locate(fault, Some("short")))?;
            }
            head.repeats = short.repeats.unwrap_or(head.repeats);
            if only.is_empty() && options.links.is_empty() {
                only = &short.arms;
            }
        }
        if !options.arms.is_empty() {
            give_way(&options.set, &mut dimensions, only);
        }
        apply_set(&options.set, &mut base, &dimensions, only)
            .map_err(|fault| document.locate(fault, Some(COMMAND_LINE)))?;
        let keeps_tables = options.keeps_tables || cohort.is_some();
        let laid = (cohort.as_ref(), keeps_tables);
        let (arms, templates) = arm::resolve(&base, &dimensions, laid, &document, load, known)?;
        let names = arms.iter().map(|arm| arm.name.clone());
        let templates = names.zip(templates).collect();
        let is_exact = options.set.is_empty() && !options.short && cohort.is_none();
        let metrics = Metrics::of(&arms, cohort.as_ref(), is_exact);
        let key = if options.arms.is_empty() { "short.arms" } else { "arm" };
        let arms = select(arms, only, key).map_err(plain)?;
        published::check_metrics(&published, &metrics).map_err(plain)?;
        headline::check_metrics(headline.as_ref(), &metrics).map_err(plain)?;
        plots::check_metrics(&plots, &metrics).map_err(plain)?;
        check_published(&mut published, &arms, [&own, &dimensions]).map_err(plain)?;
        let short_form = options.short;
        let published = published.into_iter().map(|(_, it)| Expectation { short_form, ..it });
        let published = published.collect();
        let headline = headline::chosen(headline, &arms, &own).map_err(plain)?;
        let plots = plots::chosen(plots, &arms, &own).map_err(plain)?;
        let seed = options.seed.unwrap_or(head.seed);
        let asked = options.repeats.or(short.repeats.filter(|_| options.short));
        let from_lines = runs_of_lines(cohort.as_mut(), &arms, (seed, has_repeats), asked);
        let repeats = from_lines.map_err(plain)?.or(options.repeats).unwrap_or(head.repeats);
        check_repeats(repeats).map_err(plain)?;
        Ok(Self {
            name: document.scenario.clone(),
            title: head.title,
            description: head.description,
            figure: head.figure,
            text,
            seed,
            repeats,
            arms,
            cohort,
            headline,
            plots,
            published,
            templates,
            document,
        })
    }

    /// The path of a scenario file alone, for whoever runs something else behind it: of a complete
    /// scenario that of the arm named, which a scenario of one arm needs not; or of a file that has
    /// nothing but `[path]`.
    ///
    /// # Errors
    /// As [`Scenario::parse_with`]; several arms and none named; a path that is drawn anew for
    /// every trial.
    pub fn path_of(
        text: &str,
        name: &str,
        arm: Option<&str>,
        load: &mut LoadFile<'_>,
    ) -> Result<Path, ScenarioError> {
        let mut document = Document::parse(text, name)?;
        let is_bare = !document.root.contains_key("flow");
        if is_bare && !document.root.contains_key("phases") {
            // A scenario needs something that measures; here nothing runs it.
            let rest = "[phases]\nload = \"1s\"\n[[flow]]\nkind = \"probe\"\ninterval = \"10ms\"";
            document.root.extend(rest.parse::<Table>().unwrap_or_default());
        }
        let arms = arm.map(str::to_owned).into_iter().collect();
        let options = Options { arms, ..Options::default() };
        let mut scenario = Self::resolve(document, text.to_owned(), &options, load, None)?;
        let fault = |key: &str, problem: String| Err(ScenarioError::new(name, key, problem));
        if scenario.cohort.is_some() {
            return fault("cohort", "draws a path anew for every trial".to_owned());
        }
        match scenario.arms.pop() {
            Some(arm) if scenario.arms.is_empty() => Ok(arm.path),
            last => {
                let all = scenario.arms.iter().chain(&last).map(|arm| arm.name.as_str());
                fault("arm", format!("expected the name of one: {}", alternatives(all)))
            }
        }
    }

    /// An arm as the trial of a repeat meets it, and what was drawn for it. Without a cohort that
    /// is the arm itself, and nothing.
    ///
    /// # Errors
    /// Drawn values that together make no arm, although each of them fits the typical ones.
    pub fn trial_arm(
        &self,
        arm: &Arm,
        repeat: u32,
        load: &mut LoadFile<'_>,
    ) -> Result<(Arm, Conditions), ScenarioError> {
        match (&self.cohort, self.templates.get(&arm.name)) {
            (Some(cohort), Some(template)) => {
                cohort.arm((self.seed, repeat), (&arm.name, template), &self.document, load)
            }
            _ => Ok((arm.clone(), Conditions::new())),
        }
    }

    /// The first algorithm of it that whoever runs it brings along, by its SPEC; see
    /// [`crate::own`].
    pub fn own(&self) -> Option<String> {
        self.arms.iter().find_map(Arm::own)
    }

    /// The worlds that can run its path and every flow of it.
    pub fn worlds(&self) -> Vec<World> {
        let flows = || self.arms.iter().flat_map(|arm| &arm.flows);
        let mut worlds = Vec::new();
        if !flows().any(|flow| matches!(flow.kind, FlowKind::Exec(_))) {
            worlds.push(World::Sim);
        }
        let is_live = |arm: &Arm| arm.path.first_hop().is_none() && arm.ecn().is_some();
        let is_live = self.arms.iter().all(is_live);
        if is_live && !flows().any(Flow::is_sim_only) && self.own().is_none() {
            worlds.push(World::Live);
        }
        worlds
    }

    /// Trials of the whole run: every arm as often as it repeats.
    pub fn trials(&self) -> usize {
        self.arms.len() * self.repeats as usize
    }

    /// How long it will about take in real time, one trial after the other.
    pub fn estimate_seconds(&self) -> f64 {
        let one_round: f64 = self.arms.iter().map(Arm::estimate_seconds).sum();
        one_round * f64::from(self.repeats)
    }
}

/// The keys at the top of the file.
struct Head {
    title: String,
    description: String,
    figure: String,
    seed: u64,
    repeats: u32,
}

impl Head {
    fn take(root: &mut Table) -> Result<Self, Fault> {
        let mut text = |key| take_text(root, key).map(Option::unwrap_or_default);
        let (title, description, figure) = (text("title")?, text("description")?, text("figure")?);
        let seed = take_number(root, "seed", u64::MAX)?.unwrap_or(1);
        let repeats = take_repeats(root)?.unwrap_or(1);
        Ok(Self { title, description, figure, seed, repeats })
    }
}

/// `[short]`: overrides that make the scenario quick.
#[derive(Default)]
struct Short {
    repeats: Option<u32>,
    arms: Vec<String>,
    changes: Vec<Override>,
}

impl Short {
    fn take(root: &mut Table) -> Result<Self, Fault> {
        let Some(value) = root.remove("short") else { return Ok(Self::default()) };
        let Value::Table(mut table) = value else {
            return Err(Fault::new("short", "expected a table: [short]"));
        };
        let at = |fault: Fault| fault.under("short");
        let repeats = take_repeats(&mut table).map_err(at)?;
        let arms = match table.remove("arms") {
            None => Vec::new(),
            Some(arms) => arms.try_into().map_err(|_| {
                Fault::new("short.arms", "expected a list of arms' names in quotes")
            })?,
        };
        let changes = overrides(&table).map_err(at)?;
        Ok(Self { repeats, arms, changes })
    }
}

fn take_repeats(table: &mut Table) -> Result<Option<u32>, Fault> {
    let repeats = take_number(table, "repeats", u64::from(MAX_REPEATS))?;
    let repeats = repeats.map(|repeats| repeats as u32);
    repeats.map_or(Ok(()), check_repeats)?;
    Ok(repeats)
}

fn check_repeats(repeats: u32) -> Result<(), Fault> {
    if (1..=MAX_REPEATS).contains(&repeats) {
        return Ok(());
    }
    Err(Fault::new("repeats", format!("{repeats} is out of range; expected 1 to {MAX_REPEATS}")))
}

/// How often the lines of a cohort make each arm run; `None` where it has no lines. `asked`: the
/// first so many runs, fewer than all.
fn runs_of_lines(
    cohort: Option<&mut Cohort>,
    arms: &[Arm],
    (seed, has_repeats): (u64, bool),
    asked: Option<u32>,
) -> Result<Option<u32>, Fault> {
    let Some(cohort) = cohort else { return Ok(None) };
    let Some(all) = cohort.choose_lines(seed)? else { return Ok(None) };
    if has_repeats {
        let problem = "stands beside [cohort.lines], which says how often; expected one";
        return Err(Fault::new("repeats", problem));
    }
    cohort.check_probes(arms)?;
    let most = u64::from(asked.unwrap_or(u32::MAX));
    match u32::try_from(all.min(most)) {
        Ok(runs) if runs <= MAX_REPEATS => Ok(Some(runs)),
        _ => {
            let problem = format!("{all} runs; expected at most {MAX_REPEATS}");
            Err(Fault::new("cohort.lines", problem))
        }
    }
}

fn take_number(table: &mut Table, key: &str, most: u64) -> Result<Option<u64>, Fault> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::Integer(number)) if u64::try_from(number).is_ok_and(|n| n <= most) => {
            Ok(Some(number as u64))
        }
        Some(other) => {
            let problem = format!("{other}: expected a whole number from 0 to {most}");
            Err(Fault::new(key, problem))
        }
    }
}

/// The keys at the top of a file.
const KNOWN: [&str; 15] = [
    "title",
    "description",
    "figure",
    "seed",
    "repeats",
    "path",
    "phases",
    "flow",
    "cohort",
    "arm",
    "sweep",
    "headline",
    "plot",
    "published",
    "short",
];

fn refuse_rest(root: &Table) -> Result<(), Fault> {
    match root.keys().next() {
        None => Ok(()),
        Some(key) => {
            let (listed, meant) = (alternatives(KNOWN), did_you_mean(key, KNOWN));
            Err(Fault::new(key, format!("unknown key; expected {listed}{meant}")))
        }
    }
}

/// Whether each variant of each dimension is in one of the arms that run: `only`, or all of them.
fn used_variants(dimensions: &[Vec<Variant>], only: &[String]) -> Vec<Vec<bool>> {
    let mut used: Vec<Vec<bool>> =
        dimensions.iter().map(|dimension| vec![only.is_empty(); dimension.len()]).collect();
    if only.is_empty() {
        return used;
    }
    let combinations = variants::combinations(dimensions);
    for combination in combinations.iter().filter(|variants| only.contains(&arm::name(variants))) {
        for ((dimension, used), chosen) in dimensions.iter().zip(&mut used).zip(combination) {
            // Names within a dimension are distinct.
            let index = dimension.iter().position(|variant| variant.name == chosen.name);
            if let Some(used) = index.and_then(|index| used.get_mut(index)) {
                *used = true;
            }
        }
    }
    used
}

/// Who names both an arm and a key on the command line means the key: the arms named so do not
/// override it.
fn give_way(set: &[String], dimensions: &mut [Vec<Variant>], only: &[String]) {
    let is_set = |key: &str| {
        set.iter().filter_map(|text| text.split_once('=')).any(|(own, _)| own.trim() == key)
    };
    let used = used_variants(dimensions, only);
    for (variant, is_used) in dimensions.iter_mut().flatten().zip(used.into_iter().flatten()) {
        if is_used {
            variant.changes.retain(|change| !is_set(&change.key));
        }
    }
}

/// Lays the command line's overrides over the base. One that an arm that runs overrides again would
/// do nothing, and so is refused.
fn apply_set(
    set: &[String],
    base: &mut Base,
    arms: &[Vec<Variant>],
    only: &[String],
) -> Result<(), Fault> {
    let used: Vec<bool> = used_variants(arms, only).into_iter().flatten().collect();
    for text in set {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Fault::new(text, "expected KEY=VALUE, such as path.up=20mbit"));
        };
        let change = Override { key: key.trim().to_owned(), value: command_line_value(value) };
        let owner = arms.iter().flatten().zip(&used).find(|(variant, used)| {
            **used && variant.changes.iter().any(|own| own.key == change.key)
        });
        if let Some((variant, _)) = owner {
            let problem = format!(
                "`{}` overrides this key itself; to set it there, too, name the arms with --arm",
                variant.name
            );
            return Err(Fault::new(change.key, problem));
        }
        base.set(&change, COMMAND_LINE)?;
    }
    Ok(())
}

/// A number, `true`, a list or a quoted text as in TOML; anything else is the text itself.
fn command_line_value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn select(arms: Vec<Arm>, only: &[String], key: &str) -> Result<Vec<Arm>, Fault> {
    for name in only {
        if !arms.iter().any(|arm| arm.name == *name) {
            let known: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
            return Err(Fault::new(key, no_arm(name, &known)));
        }
    }
    let wanted = |arm: &Arm| only.is_empty() || only.contains(&arm.name);
    Ok(arms.into_iter().filter(wanted).collect())
}

/// Refuses numbers about arms that the file does not have by its own sweeps, and leaves out those
/// about arms that those used do not make, or that were not chosen.
fn check_published(
    published: &mut Vec<(usize, Expectation)>,
    arms: &[Arm],
    [own, used]: [&[Vec<Variant>]; 2],
) -> Result<(), Fault> {
    let names = |dimensions| -> Vec<String> {
        variants::combinations(dimensions).iter().map(|variants| arm::name(variants)).collect()
    };
    let all = names(own);
    for (index, expectation) in published.iter() {
        let patterns = expectation.arm_patterns();
        let unknown = |pattern: &&String| !all.iter().any(|arm| names_arm(pattern, arm));
        if let Some(unknown) = patterns.iter().find(unknown) {
            let known: Vec<&str> = all.iter().map(String::as_str).collect();
            return Err(Fault::new(format!("published[{index}].arm"), no_arm(unknown, &known)));
        }
    }
    let used = names(used);
    let chosen = |name: &str| arms.iter().any(|arm| arm.name == name);
    published.retain(|(_, expectation)| {
        let patterns = expectation.arm_patterns();
        patterns.iter().all(|pattern| {
            let mut named = used.iter().filter(|arm| names_arm(pattern, arm)).peekable();
            named.peek().is_some() && named.all(|arm| chosen(arm))
        })
    });
    Ok(())
}
