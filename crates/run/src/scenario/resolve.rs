//! Resolves a file's tables to a scenario, or reports every fault in them.
//!
//! A part that is wrong is left out, and what depends on it is not checked: every fault that is
//! reported is one of the file, and none follows from another.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::{Table, Value};
use underload_aqm::registry::LoadFile;
use underload_record::schema::{Expectation, Headline, PlotRecord};

use super::arm::Arm;
use super::arms::{Arms, read_arms};
use super::cohort::{Cohort, CohortKeys};
use super::document::{COMMAND_LINE, Document};
use super::error::{ScenarioErrors, no_arm};
use super::flow::AnyFlow;
use super::headline::{self, HeadlineKeys};
use super::metrics::Metrics;
use super::path::PathKeys;
use super::phases::Phases;
use super::plots::{self, PlotKeys};
use super::published::{self, PublishedKeys};
use super::tables::{Base, Override, Overrides};
use super::variants::{self, SweepKeys, Variant, VariantKeys};
use super::{Options, Origin, Scenario};
use crate::keys::{Fault, Faults, Maybe, Raw, Try, keys, read_table, schema};

/// Repeats of an arm, at most.
const MAX_REPEATS: u32 = 100_000;

keys! {
    /// The keys at the top of a file.
    struct Root {
        /// Heading of the scenario, one line.
        title: Try<String> = Try::new(String::new()),
        /// What the scenario shows and how it deviates from its source.
        description: Try<String> = Try::new(String::new()),
        /// The figure that it reproduces.
        figure: Try<String> = Try::new(String::new()),
        /// Every trial's seed derives from it.
        seed: Try<u64> = Try::new(1),
        /// Trials of each arm.
        repeats: Maybe<u32> => 1..=MAX_REPEATS,
        /// The links of both directions.
        path: Try<Raw<PathKeys>> = Try::new(Raw::default()),
        /// Lengths of the phases.
        phases: Try<Raw<Phases>> = Try::new(Raw::default()),
        /// What sends packets.
        flow: Try<Vec<Try<Raw<AnyFlow>>>> = Try::new(Vec::new()),
        /// Conditions that are drawn for every trial.
        cohort: Maybe<CohortKeys>,
        /// Variants that override keys.
        arm: Try<Vec<Try<VariantKeys>>> = Try::new(Vec::new()),
        /// Values that multiply the arms.
        sweep: Try<Vec<Try<SweepKeys>>> = Try::new(Vec::new()),
        /// What the run is about.
        headline: Maybe<HeadlineKeys>,
        /// Pictures of the arms.
        plot: Try<Vec<Try<PlotKeys>>> = Try::new(Vec::new()),
        /// Numbers to compare with.
        published: Try<Vec<Try<PublishedKeys>>> = Try::new(Vec::new()),
        /// What `--short` overrides.
        short: Maybe<Short>,
    }
}

keys! {
    /// Overrides that make the scenario quick.
    #[derive(Default)]
    struct Short {
        /// Trials of each arm.
        repeats: Option<u32> => 1..=MAX_REPEATS,
        /// Names of the arms that run.
        arms: Vec<String> = Vec::new(),
        overrides: Overrides [flat],
    }
}

/// The schema of scenario files. It knows every key; which of them need or exclude each other only
/// the reader knows.
pub fn json_schema() -> Json {
    let mut schema = schema::<Root>();
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("underload scenario");
    schema
}

impl Scenario {
    /// The scenario that a document's tables declare.
    pub(super) fn resolve(
        document: &Arc<Document>,
        text: String,
        options: &Options,
        load: &mut LoadFile<'_>,
    ) -> Result<Self, ScenarioErrors> {
        let mut faults = Faults::default();
        let made = Self::of_tables(document, text, options, load, &mut faults);
        match made.filter(|_| faults.is_empty()) {
            Some(scenario) => Ok(scenario),
            None => Err(document.errors(faults)),
        }
    }

    fn of_tables(
        document: &Arc<Document>,
        text: String,
        options: &Options,
        load: &mut LoadFile<'_>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut root: Root = read_table(&document.root, faults)?;
        let short = root.short.0.take().flatten().unwrap_or_default();
        let mut variants = Variants::new(&mut root, options, &short, faults)?;
        let base = base(&mut root, &short, options, &mut variants, faults);
        let (mut cohort, Arms { arms, templates }) =
            arms(&mut root, &base, &variants, options, load, faults);
        let is_whole =
            arms.len() == variants.names.len() && !variants.is_incomplete && !base.is_incomplete();
        let is_exact = options.set.is_empty() && !options.short && cohort.is_none();
        let metrics = Metrics::of(&arms, cohort.as_ref(), is_exact).accepting_flows(!is_whole);
        let headline = variants.headline(root.headline.0.flatten(), &metrics, faults);
        let plots = variants.plots(root.plot.0.unwrap_or_default(), &metrics, faults);
        let published = root.published.0.unwrap_or_default();
        let published = variants.published(published, options.short, &metrics, faults);
        let arms: Vec<Arm> = arms.into_iter().filter(|arm| variants.runs(&arm.name)).collect();
        let seed = options.seed.or(root.seed.0)?;
        let own = root.repeats.0?;
        let asked = options.repeats.or(short.repeats.filter(|_| options.short));
        let lines = cohort.as_mut().filter(|_| is_whole);
        let of_lines = faults.accept(runs_of_lines(lines, &arms, (seed, own.is_some()), asked))?;
        let repeats = of_lines.or(asked).or(own).unwrap_or(1);
        faults.accept(check_repeats(repeats))?;
        Some(Self {
            name: document.scenario.clone(),
            title: root.title.0?,
            description: root.description.0?,
            figure: root.figure.0?,
            origin: Arc::new(Origin { text: text.clone(), options: options.clone() }),
            text,
            seed,
            repeats,
            arms,
            cohort,
            headline,
            plots,
            published,
            templates,
            document: Arc::clone(document),
        })
    }
}

/// The tables with what the short form and the command line override.
fn base(
    root: &mut Root,
    short: &Short,
    options: &Options,
    variants: &mut Variants,
    faults: &mut Faults,
) -> Base {
    let path = root.path.0.as_mut().map(|raw| std::mem::take(&mut raw.table));
    let phases = root.phases.0.as_mut().map(|raw| std::mem::take(&mut raw.table));
    let (path, phases) = (path.unwrap_or_default(), phases.unwrap_or_default());
    let mut base = Base::new(path, phases, root.flow.0.take(), faults);
    if options.short {
        for change in &short.overrides.0 {
            faults.accept(base.set(change, "short"));
        }
    }
    if !options.arms.is_empty() {
        variants.give_way(&options.set);
    }
    for text in &options.set {
        let set = variants.set(text, &mut base);
        faults.accept(set.map_err(|fault| fault.of_origin(Some(COMMAND_LINE))));
    }
    base
}

/// The cohort and the arms. Arms are not read if a table that they need is wrong.
fn arms(
    root: &mut Root,
    base: &Base,
    variants: &Variants,
    options: &Options,
    load: &mut LoadFile<'_>,
    faults: &mut Faults,
) -> (Option<Cohort>, Arms) {
    if root.path.0.is_none() || root.phases.0.is_none() {
        return (None, Arms::default());
    }
    let cohort = match root.cohort.0.take() {
        None => return (None, Arms::default()),
        Some(None) => None,
        Some(Some(keys)) => match faults.under("cohort", |faults| Cohort::new(keys, faults)) {
            None => return (None, Arms::default()),
            cohort => cohort,
        },
    };
    let laid = (cohort.as_ref(), options.keeps_tables || cohort.is_some());
    let arms = read_arms(base, &variants.used, laid, load, faults);
    (cohort, arms)
}

/// The variants that a run uses: those of the file, except that links from the options replace the
/// links that the file sweeps.
struct Variants {
    used: Vec<Vec<Variant>>,
    /// Names of all arms by the file's own variants.
    own_names: Vec<String>,
    /// Names of all arms that are made.
    names: Vec<String>,
    /// Names of the arms that run; empty for all.
    only: Vec<String>,
    /// Whether a sweep is missing because it is wrong: the arms' names are not known.
    is_incomplete: bool,
}

impl Variants {
    fn new(root: &mut Root, options: &Options, short: &Short, faults: &mut Faults) -> Option<Self> {
        let (arms, sweeps) = (root.arm.0.take(), root.sweep.0.take());
        let is_incomplete = arms.is_none() || sweeps.is_none();
        let (arms, sweeps) = (arms.unwrap_or_default(), sweeps.unwrap_or_default());
        let (own, has_all_names) = variants::dimensions(arms, sweeps, faults);
        let is_incomplete = is_incomplete || !has_all_names;
        faults.accept(variants::check_size(&own))?;
        let own_names = variants::names(&own);
        let mut used = own.clone();
        if !options.links.is_empty() && !is_incomplete {
            used = faults.accept(variants::with_links(own, &options.links))?;
            faults.accept(variants::check_size(&used))?;
        }
        let (key, only) = match &*options.arms {
            [] if options.short && options.links.is_empty() => ("short.arms", &*short.arms),
            only => ("arm", only),
        };
        let names = variants::names(&used);
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let unknown = only.iter().filter(|name| !is_incomplete && !names.contains(name));
        unknown.for_each(|name| faults.add(Fault::new(key, no_arm(name, &known))));
        let only = only.to_vec();
        Some(Self { used, own_names, names, only, is_incomplete })
    }

    /// Whether an arm runs.
    fn runs(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// The names of the arms that run.
    fn chosen(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).filter(|name| self.runs(name)).collect()
    }

    fn own_names(&self) -> Vec<&str> {
        self.own_names.iter().map(String::as_str).collect()
    }

    /// The headline, unless its arms were not chosen.
    fn headline(
        &self,
        keys: Option<HeadlineKeys>,
        metrics: &Metrics,
        faults: &mut Faults,
    ) -> Option<Headline> {
        let keys = keys?;
        faults.under("headline", |faults| {
            let headline = faults.accept(headline::checked(keys))?;
            headline::check_metrics(&headline, metrics, faults);
            if !self.is_incomplete {
                faults.accept(headline::check_arms(&headline, &self.own_names()))?;
            }
            (!headline.pairs(&self.chosen()).is_empty()).then_some(headline)
        })
    }

    /// The pictures of arms that were chosen.
    fn plots(
        &self,
        tables: Vec<Try<PlotKeys>>,
        metrics: &Metrics,
        faults: &mut Faults,
    ) -> Vec<PlotRecord> {
        faults.under("plot", |faults| {
            let plots = plots::plots(tables, faults);
            let all = self.own_names();
            for (index, plot) in &plots {
                faults.under(&format!("[{index}]"), |faults| {
                    faults.accept(plots::check_metrics(plot, metrics));
                    if !self.is_incomplete {
                        faults.accept(plots::check_arms(plot, &all));
                    }
                });
            }
            let (plots, chosen) = (plots.into_iter().map(|(_, plot)| plot), self.chosen());
            plots.filter(|plot| !plot.points(&chosen).is_empty()).collect()
        })
    }

    /// The published numbers about arms that were chosen.
    fn published(
        &self,
        tables: Vec<Try<PublishedKeys>>,
        short_form: bool,
        metrics: &Metrics,
        faults: &mut Faults,
    ) -> Vec<Expectation> {
        faults.under("published", |faults| {
            let numbers = published::published(tables, faults);
            let all = self.own_names();
            for (index, number) in &numbers {
                faults.under(&format!("[{index}]"), |faults| {
                    faults.accept(published::check_metric(number, metrics));
                    if !self.is_incomplete {
                        faults.accept(published::check_arms(number, &all));
                    }
                });
            }
            let chosen = self.chosen();
            let numbers = numbers.into_iter().map(|(_, it)| Expectation { short_form, ..it });
            numbers.filter(|it| published::is_chosen(it, &self.names, &chosen)).collect()
        })
    }

    /// Whether each variant of each dimension is in one of the arms that run.
    fn are_used(&self) -> Vec<Vec<bool>> {
        let all = |dimension: &Vec<Variant>| vec![self.only.is_empty(); dimension.len()];
        let mut used: Vec<Vec<bool>> = self.used.iter().map(all).collect();
        if self.only.is_empty() {
            return used;
        }
        for (variants, name) in variants::combinations(&self.used).iter().zip(&self.names) {
            if !self.only.contains(name) {
                continue;
            }
            for ((dimension, used), chosen) in self.used.iter().zip(&mut used).zip(variants) {
                // Names within a dimension are distinct.
                let index = dimension.iter().position(|variant| variant.name == chosen.name);
                if let Some(used) = index.and_then(|index| used.get_mut(index)) {
                    *used = true;
                }
            }
        }
        used
    }

    /// Removes the keys in `set` from the variants of the arms that run. If the command line names
    /// both an arm and a key, its value for the key takes precedence over the arm's.
    fn give_way(&mut self, set: &[String]) {
        let is_set = |key: &str| {
            set.iter().filter_map(|text| text.split_once('=')).any(|(own, _)| own.trim() == key)
        };
        let used = self.are_used();
        for (variant, is_used) in self.used.iter_mut().flatten().zip(used.into_iter().flatten()) {
            if is_used {
                variant.changes.retain(|change| !is_set(&change.key));
            }
        }
    }

    /// Lays an override of the command line over the base. One that an arm that runs overrides
    /// again would do nothing, and so is refused.
    fn set(&self, text: &str, base: &mut Base) -> Result<(), Fault> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Fault::new(text, "expected KEY=VALUE, such as path.up=20mbit"));
        };
        let change = Override { key: key.trim().to_owned(), value: command_line_value(value) };
        let used = self.are_used();
        let owner =
            self.used.iter().flatten().zip(used.iter().flatten()).find(|(variant, used)| {
                **used && variant.changes.iter().any(|own| own.key == change.key)
            });
        match owner {
            None => base.set(&change, COMMAND_LINE),
            Some((variant, _)) => {
                let problem = format!(
                    "`{}` overrides this key itself; to set it there, too, name the arms with \
                     --arm",
                    variant.name
                );
                Err(Fault::new(change.key, problem))
            }
        }
    }
}

fn check_repeats(repeats: u32) -> Result<(), Fault> {
    if (1..=MAX_REPEATS).contains(&repeats) {
        return Ok(());
    }
    Err(Fault::new("repeats", format!("{repeats} is out of range; expected 1 to {MAX_REPEATS}")))
}

/// How often the lines of a cohort make each arm run, at most as often as `asked`; `None` if it has
/// no lines.
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

/// A number, `true`, a list or a quoted text as in TOML; anything else is the text itself.
fn command_line_value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::builtin;

    /// Whether a value fits, as far as our schemas go.
    fn fits(schema: &Json, value: &Json) -> Result<(), String> {
        if let Some(choices) = schema.get("anyOf").and_then(Json::as_array) {
            let kind = |choice: &Json| choice["properties"]["kind"]["const"].clone();
            let chosen = choices.iter().find(|choice| kind(choice) == value["kind"]);
            return fits(chosen.ok_or_else(|| format!("no kind of {value}"))?, value);
        }
        if let Some(words) = schema.get("enum").and_then(Json::as_array) {
            return words
                .contains(value)
                .then_some(())
                .ok_or_else(|| format!("{value}: {words:?}"));
        }
        let is_fit = match schema.get("type").and_then(Json::as_str) {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            _ => true,
        };
        // A placeholder for a cohort's draw is valid for every type: `count = "{flows}"`.
        let is_drawn = value.as_str().is_some_and(|text| text.contains('{'));
        if !is_fit && !is_drawn {
            return Err(format!("{value} is not of {}", schema["type"]));
        }
        for item in value.as_array().into_iter().flatten() {
            fits(schema.get("items").unwrap_or(&Json::Null), item)?;
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let own = schema.get("properties").and_then(|known| known.get(key));
            match (own, schema.get("additionalProperties")) {
                (Some(own), _) => fits(own, value).map_err(|error| format!("{key}: {error}"))?,
                (None, Some(Json::Bool(false))) => return Err(format!("{key} is unknown")),
                (None, _) => {}
            }
        }
        Ok(())
    }

    #[test]
    fn every_built_in_scenario_fits_and_a_misspelt_key_does_not() {
        let schema = json_schema();
        for builtin in builtin::scenarios() {
            let table: Table = builtin.text.parse().expect("TOML");
            let value = serde_json::to_value(&table).expect("JSON has words for it");
            assert_eq!(fits(&schema, &value), Ok(()), "{}", builtin.name);
        }
        let wrong = json!({ "phases": { "laod": "7s" } });
        assert_eq!(fits(&schema, &wrong), Err("phases: laod is unknown".to_owned()));
        let wrong = json!({ "flow": [{ "kind": "tcp", "count": "many" }] });
        assert!(fits(&schema, &wrong).is_err());
    }
}
