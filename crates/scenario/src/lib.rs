//! Scenario files: path, flows, variants, repeats and seed, for every world.
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
//! congestion_control = "cubic"  # the default
//!
//! [[flow]]
//! kind = "probe"
//! interval = "10ms"
//!
//! [[variant]]
//! name = "fifo"
//! path.up_queue = "fifo:limit=1093750B"
//!
//! [[variant]]
//! name = "docsis-pie"
//! path.up_queue = "docsis-pie"
//! ```
//!
//! The whole format, key by key, is in `docs/scenario-format.md`.
//!
//! - [`Scenario::parse`] reads a file; [`Scenario::parse_with`] applies options of a command line.
//! - [`Scenario::build`] builds one in code.
//! - [`Cohort`] draws conditions for every trial; [`Scenario::trial_variant`] applies them.
//! - [`Variant`] is one resolved variant, which a world runs.
//! - [`builtin`] lists the scenarios that come with the program.
//!
//! | module | content |
//! |---|---|
//! | [`mod@keys`] | declares the keys of a table: types, defaults, ranges and meanings |
//! | [`source`] | finds scenarios and the files that they name |
//! | [`simulation`] | what a variant means in virtual time |
//! | [`own`] | algorithms that the caller of a run provides |
//! | [`flows`] | the names of the flows of an entry of a scenario |
//! | [`study`] | distributions that a cohort's conditions are drawn from |
//! | [`modem_file`] | SPECs with parameters from a modem's configuration file |
//! | [`question`] | builds the scenario of a question that needs no file |
//! | [`tier`] | what to set for a cable upstream: its candidates as a scenario |
//!
//! [`metrics`], [`tables`], [`vary`], [`document`] and [`explain`] are what a sweep reads a
//! scenario with.

mod builder;
pub mod builtin;
pub mod call_stats;
mod cohort;
#[cfg(test)]
mod default_tests;
pub mod document;
mod error;
pub mod explain;
pub mod film_report;
mod flow;
pub mod flows;
mod headline;
pub mod keys;
mod levels;
mod lines;
pub mod metrics;
pub mod modem_file;
pub mod own;
pub mod page_loads;
mod path;
mod phases;
mod place;
mod plots;
mod published;
pub mod question;
mod resolve;
mod rule;
pub mod simulation;
pub mod source;
mod statement;
pub mod study;
pub mod tables;
pub mod tier;
mod variant;
mod variants;
pub mod vary;
mod worlds;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::Table;
use underload_aqm::registry::LoadFile;
use underload_record::schema::{Expectation, Headline, PlotRecord};

pub use builder::{Builder, Keys};
pub use cohort::Cohort;
pub use error::{Excerpt, ScenarioError, ScenarioErrors, no_variant};
pub use explain::{Setting, SettingValue};
pub use flow::{
    Activity, ApplicationFlow, BrowserFlow, DashPlayer, Flow, FlowKind, PageProtocol, ProbeFlow,
    Properties, Site, TcpFlow, UdpFlow, simulated_controls,
};
pub use path::{Lane, LaneQueue, Path};
pub use phases::{Phases, Ramp};
pub use resolve::json_schema;
pub use rule::LinkRule;
pub use tables::Conditions;
pub use variant::Variant;

use document::Document;
use keys::alternatives;
use tables::Base;

/// A resolved scenario: the variants to run, how often, and published numbers about them.
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
    /// The text of the file, for the record.
    pub text: String,
    /// Seed of the run, from which every trial's seed derives.
    pub seed: u64,
    /// Number of trials of each variant, at least one.
    pub repeats: u32,
    /// The variants, in the order of the file; at least one. With a cohort they have typical
    /// conditions, and [`Scenario::trial_variant`] returns those of a trial.
    pub variants: Vec<Variant>,
    /// Draws the conditions of every trial; `None` if they are fixed.
    pub cohort: Option<Cohort>,
    /// The comparison that the scenario is about; `None` if it declares none, or if its variants were
    /// not chosen.
    pub headline: Option<Headline>,
    pub plots: Vec<PlotRecord>,
    /// Published numbers about these variants.
    pub published: Vec<Expectation>,
    /// The tables of each variant of a cohort, by the variant's name, with `{name}` for a drawn value; also
    /// of other variants if [`Options::keeps_tables`].
    templates: BTreeMap<String, Base>,
    document: Arc<Document>,
    /// The source of the scenario, so that another process can read it again.
    pub origin: Arc<Origin>,
}

/// The text of a scenario and what the command line changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Origin {
    pub text: String,
    pub options: Options,
}

/// Overrides and choices from the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Applies the overrides of `[short]`.
    pub short: bool,
    /// `KEY=VALUE` overrides, for example `path.up=20mbit`.
    pub set: Vec<String>,
    /// Names and SPECs of links that replace those of the file's sweep over `path.up` or
    /// `path.down`; empty to use the file's.
    pub links: Vec<(String, String)>,
    /// Names of the variants to run; empty for all.
    pub variants: Vec<String>,
    /// Overrides the file's repeats.
    pub repeats: Option<u32>,
    /// Repeats of the sweep that runs the scenario: they decide whether flows start at random.
    pub repeats_of_sweep: Option<u64>,
    /// Overrides the file's seed.
    pub seed: Option<u64>,
    /// Keeps the tables of every variant, so that a sweep can override their keys again.
    pub keeps_tables: bool,
}

impl Options {
    /// Returns the text of the file after a comment with these options, so that the record alone
    /// repeats the run. `traces` are the files of [`Options::links`].
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
        changes.extend(self.variants.iter().map(|variant| format!("--variant {variant:?}")));
        changes.extend(self.repeats.map(|repeats| format!("--repeat {repeats}")));
        changes.extend(self.seed.map(|seed| format!("--seed {seed}")));
        if changes.is_empty() {
            return text.to_owned();
        }
        format!("# underload run with {}\n{text}", changes.join(" "))
    }
}

impl Scenario {
    /// Reads a scenario file with the options of a command line, as [`Scenario::check`] does.
    /// Returns all faults of the file and of the options.
    pub fn read(
        text: &str,
        name: &str,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Result<Self, ScenarioErrors> {
        let document = Arc::new(Document::parse(text, name)?);
        Self::resolve(&document, text.to_owned(), options, load)
    }

    /// Reads a scenario file as [`Scenario::read`] does. Returns the first fault.
    pub fn parse_with(
        text: &str,
        name: &str,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Result<Self, ScenarioError> {
        Self::read(text, name, options, load).map_err(|errors| errors.first(name))
    }

    /// Reads the path alone: of the variant named (which may be omitted if there is only one) of a
    /// complete scenario, or of a file that has nothing but `[path]`.
    ///
    /// # Errors
    /// Returns a fault if the file is wrong, has several variants and none is named, or draws its path
    /// for every trial.
    pub fn read_path(
        text: &str,
        name: &str,
        variant: Option<&str>,
        load: &mut LoadFile<'_>,
    ) -> Result<Path, ScenarioError> {
        let mut document = Document::parse(text, name).map_err(|errors| errors.first(name))?;
        let is_bare = !document.root.contains_key("flow");
        if is_bare && !document.root.contains_key("phases") {
            // A scenario needs a flow that measures, although no flow runs in this example.
            let rest = "[phases]\nload = \"1s\"\n[[flow]]\nkind = \"probe\"\ninterval = \"10ms\"";
            document.root.extend(rest.parse::<Table>().unwrap_or_default());
        }
        let variants = variant.map(str::to_owned).into_iter().collect();
        let options = Options { variants, ..Options::default() };
        let scenario = Self::resolve(&Arc::new(document), text.to_owned(), &options, load);
        let mut scenario = scenario.map_err(|errors| errors.first(name))?;
        let fault = |key: &str, problem: String| Err(ScenarioError::new(name, key, problem));
        if scenario.cohort.is_some() {
            return fault("cohort", "draws a path for every trial; expected one path".to_owned());
        }
        match scenario.variants.pop() {
            Some(variant) if scenario.variants.is_empty() => Ok(variant.path),
            last => {
                let all =
                    scenario.variants.iter().chain(&last).map(|variant| variant.name.as_str());
                fault("variant", format!("expected the name of one: {}", alternatives(all)))
            }
        }
    }

    /// Returns the variant of one trial and the conditions drawn for it: without a cohort, the variant
    /// itself and no conditions.
    ///
    /// # Errors
    /// Returns a fault if the drawn values make no valid variant together, although each of them does
    /// with the typical values of the others.
    pub fn trial_variant(
        &self,
        variant: &Variant,
        repeat: u32,
        load: &mut LoadFile<'_>,
    ) -> Result<(Variant, Conditions), ScenarioError> {
        match (&self.cohort, self.templates.get(&variant.name)) {
            (Some(cohort), Some(template)) => cohort
                .variant((self.seed, repeat), (&variant.name, template), load)
                .map_err(|fault| self.document.locate(fault)),
            _ => Ok((variant.clone(), Conditions::new())),
        }
    }

    /// Returns the SPEC of the first algorithm that the caller has to provide; see [`own`].
    pub fn own(&self) -> Option<String> {
        self.variants.iter().find_map(Variant::own)
    }

    /// Returns the number of trials of the whole run.
    pub fn trials(&self) -> usize {
        self.variants.len() * self.repeats as usize
    }

    /// Estimates the duration of the run in real time, one trial after the other.
    pub fn estimate_seconds(&self) -> f64 {
        let one_round: f64 = self.variants.iter().map(Variant::estimate_seconds).sum();
        one_round * f64::from(self.repeats)
    }
}
