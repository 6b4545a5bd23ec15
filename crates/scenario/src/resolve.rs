//! Resolves a file's tables to a scenario, or reports every fault in them.
//!
//! A part that is wrong is dropped, and what depends on it is not checked, so that no reported
//! fault follows from another.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::{Table, Value};
use underload_aqm::registry::LoadFile;
use underload_record::schema::{Expectation, Headline, PlotRecord};

use super::cohort::{Cohort, CohortKeys};
use super::document::{COMMAND_LINE, Document, SHORT_OPTION};
use super::error::{ScenarioErrors, no_variant};
use super::flow::AnyFlow;
use super::headline::HeadlineKeys;
use super::levels::{self, Level, SweepKeys, VariantKeys};
use super::metrics::Metrics;
use super::path::PathKeys;
use super::phases::Phases;
use super::plots::{MOST_PLOTS, PlotKeys};
use super::published::PublishedKeys;
use super::statement::VariantNames;
use super::tables::{Base, Override, Overrides};
use super::variant::Variant;
use super::variants::{Variants, read_variants};
use super::{Options, Origin, Scenario};
use crate::keys::{Fault, Faults, Raw, Tables, keys, read_table, schema};

/// Maximum number of trials of one variant.
const MAX_REPEATS: u32 = 100_000;

keys! {
    /// The top-level keys of a file.
    struct Root [lenient] {
        /// Heading of the scenario, one line.
        title: String = String::new(),
        /// What the scenario shows and how it deviates from its source.
        description: String = String::new(),
        /// The figure that the scenario reproduces.
        figure: String = String::new(),
        /// The seed from which the seed of every trial derives.
        seed: u64 = 1,
        /// Trials of each variant.
        repeats: Option<u32> where default = "1" => 1..=MAX_REPEATS,
        /// The links of both directions.
        path: Raw<PathKeys> = Raw::default(),
        /// Lengths of the phases of a trial.
        phases: Raw<Phases> = Raw::default(),
        /// The senders of packets.
        flow: Tables<AnyFlow> = Tables::default(),
        /// Conditions that are drawn for every trial.
        cohort: Option<CohortKeys>,
        /// Variants of the scenario, each with the keys that it overrides.
        variant: Tables<VariantKeys> = Tables::default(),
        /// Values of a key. Every variant is measured with each of them.
        sweep: Tables<SweepKeys> = Tables::default(),
        /// The main comparison of the run, which its first sentence states.
        headline: Option<HeadlineKeys>,
        /// Pictures of the variants.
        plot: Tables<PlotKeys> = Tables::default(),
        /// Published numbers to compare the run with.
        published: Tables<PublishedKeys> = Tables::default(),
        /// Overrides of the option `--short`.
        short: Option<Short>,
    }
}

keys! {
    /// Overrides that make the scenario quick.
    #[derive(Default)]
    struct Short {
        /// Trials of each variant.
        repeats: Option<u32> => 1..=MAX_REPEATS,
        /// Names of the variants that run; all by default.
        variants: Vec<String> = Vec::new(),
        overrides: Overrides [flat],
    }
}

/// Returns the JSON schema of scenario files. It has every key; which keys need or exclude each
/// other only the reader checks.
pub fn json_schema() -> Json {
    let mut schema = schema::<Root>();
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("underload scenario");
    schema
}

impl Scenario {
    pub(crate) fn resolve(
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
        // Up to here only the form of tables was checked, not their keys.
        let has_trial = !faults.concern("path") && !faults.concern("phases");
        let (has_seed, is_cohort_wrong) = (!faults.concern("seed"), faults.concern("cohort"));
        let has_lines = root.cohort.as_ref().is_some_and(|it| it.lines.is_some())
            || faults.concern("cohort.lines");
        let plots = root.plot.read("plot", faults);
        let published = root.published.read("published", faults);
        let short = short_form(&mut root, options, faults);
        let mut dimensions = Dimensions::new(&root, options, &short, faults)?;
        let mut base = base(&root, &short, options, &mut dimensions, faults);
        let asked = options.repeats.or(short.repeats.filter(|_| options.short));
        let is_cohort = root.cohort.is_some() || is_cohort_wrong;
        if !is_cohort && has_repeats(options, asked.or(root.repeats)) {
            base.spread_starts(&dimensions.changed_keys());
        }
        let cohort = root.cohort.take();
        let cohort =
            cohort.and_then(|it| faults.under("cohort", |own| Cohort::new(it, has_lines, own)));
        let mut cohort = cohort.filter(|_| !is_cohort_wrong);
        let Variants { variants, templates } = if has_trial && is_cohort == cohort.is_some() {
            let laid = (cohort.as_ref(), options.keeps_tables || is_cohort);
            read_variants(&base, &dimensions.used, laid, load, faults)
        } else {
            Variants::default()
        };
        let is_whole = variants.len() == dimensions.names.len()
            && !dimensions.is_incomplete
            && !base.is_incomplete();
        let is_exact = options.set.is_empty() && !options.short && cohort.is_none();
        let metrics = Metrics::of(&variants, cohort.as_ref(), is_exact).accepting_flows(!is_whole);
        let (headline, plots) = (root.headline.take(), (plots, root.plot.len));
        let names = (&dimensions.variant_names(), &metrics);
        let (headline, plots, published) =
            statements(headline, plots, published, names, options.short, faults);
        let variants: Vec<Variant> =
            variants.into_iter().filter(|variant| dimensions.runs(&variant.name)).collect();
        let seed = options.seed.or(has_seed.then_some(root.seed))?;
        let own = root.repeats;
        let lines = cohort.as_mut().filter(|_| is_whole);
        let of_lines =
            faults.accept(runs_of_lines(lines, &variants, (seed, own.is_some()), asked))?;
        let repeats = of_lines.or(asked).or(own).unwrap_or(1);
        faults.accept(check_repeats(repeats))?;
        Some(Self {
            name: document.scenario.clone(),
            title: root.title,
            description: root.description,
            figure: root.figure,
            origin: Arc::new(Origin { text: text.clone(), options: options.clone() }),
            text,
            seed,
            repeats,
            variants,
            cohort,
            headline,
            plots,
            published,
            templates,
            document: Arc::clone(document),
        })
    }
}

/// A table with its place in the file; `None` if it is wrong.
type Placed<K> = (String, Option<K>);

/// Reads the headline, the pictures (of which the file has `plot_count`) and the published numbers.
fn statements(
    headline: Option<HeadlineKeys>,
    (plots, plot_count): (Vec<Placed<PlotKeys>>, usize),
    published: Vec<Placed<PublishedKeys>>,
    (names, metrics): (&VariantNames<'_>, &Metrics),
    is_short: bool,
    faults: &mut Faults,
) -> (Option<Headline>, Vec<PlotRecord>, Vec<Expectation>) {
    let headline = headline.map(|keys| ("headline".to_owned(), Some(keys))).into_iter().collect();
    let headline = names.statements(headline, metrics, faults).pop();
    if plot_count > MOST_PLOTS {
        faults.add(Fault::new("plot", format!("more than {MOST_PLOTS} pictures")));
    }
    let plots = names.statements(plots, metrics, faults);
    let mut published: Vec<Expectation> = names.statements(published, metrics, faults);
    for number in &mut published {
        number.short_form = is_short;
    }
    (headline, plots, published)
}

/// Takes the overrides of the short form. Rejects the option `--short` if the file has none.
fn short_form(root: &mut Root, options: &Options, faults: &mut Faults) -> Short {
    let short = root.short.take();
    if options.short && short.is_none() && !faults.concern("short") {
        let problem = "the scenario has no table [short]; expected one, such as [short] with \
                       repeats = 1";
        faults.add(Fault::new(SHORT_OPTION, problem));
    }
    short.unwrap_or_default()
}

/// Whether a variant has several trials. `own` is the scenario's number, which applies unless a
/// sweep sets the number.
fn has_repeats(options: &Options, own: Option<u32>) -> bool {
    options.repeats_of_sweep.or(own.map(u64::from)).is_some_and(|repeats| repeats > 1)
}

/// Returns the tables of a trial with the overrides of the short form and the command line.
fn base(
    root: &Root,
    short: &Short,
    options: &Options,
    dimensions: &mut Dimensions,
    faults: &mut Faults,
) -> Base {
    let (path, phases) = (root.path.table.clone(), root.phases.table.clone());
    let mut base = Base::new(path, phases, &root.flow, faults);
    if options.short {
        for change in &short.overrides.0 {
            faults.accept(base.set(change, "short"));
        }
    }
    if !options.variants.is_empty() {
        dimensions.remove_overrides(&options.set);
    }
    for text in &options.set {
        let set = dimensions.set(text, &mut base);
        faults.accept(set.map_err(|fault| fault.of_origin(Some(COMMAND_LINE))));
    }
    base
}

/// The variants that a run uses: the file's, or the file's with links from the options.
struct Dimensions {
    used: Vec<Vec<Level>>,
    /// Names of all variants that the file declares.
    own_names: Vec<String>,
    /// Names of all variants by the variants in `used`.
    names: Vec<String>,
    /// Names of the variants that run; empty for all.
    only: Vec<String>,
    /// Whether a variant is missing because it is wrong, so that names of variants are unknown.
    is_incomplete: bool,
}

impl Dimensions {
    fn new(root: &Root, options: &Options, short: &Short, faults: &mut Faults) -> Option<Self> {
        let (own, has_all_names) = levels::dimensions(&root.variant, &root.sweep, faults);
        let is_incomplete = !has_all_names;
        faults.accept(levels::check_size(&own))?;
        let own_names = levels::names(&own);
        let mut used = own.clone();
        if !options.links.is_empty() && !is_incomplete {
            used = faults.accept(levels::with_links(own, &options.links))?;
            faults.accept(levels::check_size(&used))?;
        }
        let (key, only) = match &*options.variants {
            [] if options.short && options.links.is_empty() => ("short.variants", &*short.variants),
            only => ("variant", only),
        };
        let names = levels::names(&used);
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let unknown = only.iter().filter(|name| !is_incomplete && !names.contains(name));
        unknown.for_each(|name| faults.add(Fault::new(key, no_variant(name, &known))));
        let only = only.to_vec();
        Some(Self { used, own_names, names, only, is_incomplete })
    }

    fn runs(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn variant_names(&self) -> VariantNames<'_> {
        let declared = self.own_names.iter().map(String::as_str);
        let made = self.names.iter().map(String::as_str);
        VariantNames {
            declared: (!self.is_incomplete).then(|| declared.collect()),
            chosen: made.clone().filter(|name| self.runs(name)).collect(),
            made: made.collect(),
        }
    }

    /// Returns the keys that variants override.
    fn changed_keys(&self) -> Vec<&str> {
        let levels = self.used.iter().flatten();
        let changes = levels.flat_map(|level| &level.changes);
        changes.map(|change| change.key.as_str()).collect()
    }

    /// Whether each variant of each dimension is in one of the variants that run.
    fn are_used(&self) -> Vec<Vec<bool>> {
        let all = |dimension: &Vec<Level>| vec![self.only.is_empty(); dimension.len()];
        let mut used: Vec<Vec<bool>> = self.used.iter().map(all).collect();
        if self.only.is_empty() {
            return used;
        }
        for (levels, name) in levels::combinations(&self.used).iter().zip(&self.names) {
            if !self.only.contains(name) {
                continue;
            }
            for ((dimension, used), chosen) in self.used.iter().zip(&mut used).zip(levels) {
                // Names within a dimension are distinct.
                let index = dimension.iter().position(|variant| variant.name == chosen.name);
                if let Some(used) = index.and_then(|index| used.get_mut(index)) {
                    *used = true;
                }
            }
        }
        used
    }

    /// Removes the keys in `set` from the variants of the variants that run. If the command line names
    /// both a variant and a key, its value for the key takes precedence over the variant's.
    fn remove_overrides(&mut self, set: &[String]) {
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

    /// Applies an override of the command line to the base. Rejects a key that a variant that runs
    /// overrides again, as the command line's value would have no effect.
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
                    "`{}` overrides this key itself; to set it there, too, name the variants with \
                     --variant",
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

/// Returns the number of trials of each variant that a cohort's lines need, at most `asked`; `None`
/// without a cohort.
fn runs_of_lines(
    cohort: Option<&mut Cohort>,
    variants: &[Variant],
    (seed, has_repeats): (u64, bool),
    asked: Option<u32>,
) -> Result<Option<u32>, Fault> {
    let Some(cohort) = cohort else { return Ok(None) };
    let Some(all) = cohort.choose_lines(seed)? else { return Ok(None) };
    if has_repeats {
        let problem = "conflicts with [cohort.lines], which determines it; expected one of them";
        return Err(Fault::new("repeats", problem));
    }
    cohort.check_probes(variants)?;
    let most = u64::from(asked.unwrap_or(u32::MAX));
    match u32::try_from(all.min(most)) {
        Ok(runs) if runs <= MAX_REPEATS => Ok(Some(runs)),
        _ => {
            let problem = format!("{all} runs; expected at most {MAX_REPEATS}");
            Err(Fault::new("cohort.lines", problem))
        }
    }
}

/// Parses a TOML value; other text is taken as a string that lacks its quotes.
fn command_line_value(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

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
