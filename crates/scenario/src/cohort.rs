//! `[cohort]`: conditions that are drawn for every trial.
//!
//! A draw has a name; `{name}` in the texts of path, phases and flows, or of a variant, is replaced by
//! the drawn value. A value depends on the run's seed, the repeat and the draw's name (with
//! `per = "trial"` also on the variant's name), so that one more draw never changes another's values.
//! With `[cohort.lines]` a value belongs to a line, or to one of its runs, instead of a repeat.

use std::collections::BTreeSet;

use serde::Serialize;
use toml::{Table, Value};
use underload_aqm::registry::LoadFile;
use underload_aqm::rng::Rng;
use underload_record::schema::StudyRecord;

use super::flow::FlowKind;
use super::lines::{Lines, OWN};
use super::tables::{Base, Conditions, check_name};
use super::variant::{Variant, read_variant};
use crate::flows;
use crate::keys::{Fault, Faults, Listed, Tables, join, keys, listed, word, words};
use crate::study::{Distribution, DistributionError, Quantity};

/// The distributions of the conditions that are drawn for every trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    draws: Vec<(String, Distribution)>,
    per: Per,
    /// Names of the draws whose values belong to a run and not to its line.
    of_run: BTreeSet<String>,
    /// Lines that are measured several times, and the numbers of those that are eligible.
    lines: Option<(Lines, Vec<u32>)>,
}

/// The owner of a drawn value in a cohort with lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum DrawnFor {
    /// The value is the same in all runs of the line.
    Line,
    Run,
}

/// The trials that share their drawn conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Per {
    /// All variants of a repeat have the same conditions, so that pairs can be compared.
    Repeat,
    /// Every variant has separate conditions, like two fleets of devices.
    Trial,
}

words! {
    DrawnFor, word: Line Run;
    Per, word: Repeat Trial;
}

keys! {
    pub(super) struct CohortKeys [lenient] {
        /// The trials that share their drawn conditions: all variants of a repeat, so that pairs
        /// can be compared, or none.
        per: Per = Per::Repeat,
        /// The conditions, each with a name and one distribution.
        draw: Tables<DrawKeys>,
        /// A study that measures each line several times a day.
        pub lines: Option<Lines>,
    }
}

keys! {
    struct DrawKeys {
        /// The name; `{name}` is replaced by the drawn value.
        name: String,
        /// With `[cohort.lines]`: whether a line or each of its runs draws a value.
        of: Option<DrawnFor> where default = "line",
        /// A log-normal distribution; values outside of its bounds are drawn again.
        log_normal: Option<LogNormalKeys>,
        /// A uniform distribution between two values.
        uniform: Option<UniformKeys>,
        /// A distribution by its quantiles, with straight lines between them.
        quantiles: Option<QuantilesKeys>,
        /// One of several texts or numbers.
        choice: Option<ChoiceKeys>,
    }
}

keys! {
    struct LogNormalKeys {
        median: Quantity,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        low: Quantity,
        high: Quantity,
    }
}

keys! {
    struct UniformKeys {
        low: Quantity,
        high: Quantity,
    }
}

keys! {
    struct QuantilesKeys {
        /// Probabilities from 0 to 1, ascending.
        at: Vec<f64>,
        /// The value at each probability.
        values: Vec<Quantity>,
    }
}

keys! {
    struct ChoiceKeys {
        values: Vec<String>,
        /// The relative frequency of each value.
        weights: Option<Vec<f64>> where default = "1 for each",
    }
}

/// Returns the keys of `[cohort]`: those of its lines, and each draw with its distribution, as the
/// file names it and as a reader does.
pub(super) fn settings(cohort: &Table) -> Vec<(String, String, Listed)> {
    let mut own = listed::<CohortKeys>(cohort);
    own.retain(|it| it.key == "per");
    let own = own.into_iter().map(|it| (join("cohort", it.key), join("cohort", it.key), it));
    let draws = cohort.get("draw").and_then(Value::as_array);
    let draws = draws.into_iter().flatten().filter_map(Value::as_table).enumerate();
    let draws = draws.filter_map(|(index, draw)| {
        let name = draw.get("name")?.as_str()?;
        let keys = listed::<DrawKeys>(draw);
        let mut distributions = keys.into_iter().filter(|it| !matches!(it.key, "name" | "of"));
        let mut listed = distributions.find(|it| it.value.is_some())?;
        listed.value = Some(format!("{} {}", listed.key.replace('_', "-"), listed.value?));
        Some((format!("cohort.draw[{index}]"), format!("cohort.draw.{name}"), listed))
    });
    let lines = cohort.get("lines").and_then(Value::as_table).map(listed::<Lines>);
    let lines = lines.into_iter().flatten().map(|it| {
        let key = join("cohort.lines", it.key);
        (key.clone(), key, it)
    });
    own.chain(draws).chain(lines).collect()
}

impl Cohort {
    /// `has_lines`: whether the file has `[cohort.lines]`, valid or not.
    pub(super) fn new(keys: CohortKeys, has_lines: bool, faults: &mut Faults) -> Option<Self> {
        let CohortKeys { per, draw, lines } = keys;
        if draw.len == 0 {
            let problem = "is empty; expected [[cohort.draw]] tables";
            faults.add(Fault::new("draw", problem));
        }
        let checked = lines.as_ref().map_or(Ok(()), Lines::check);
        faults.accept(checked.map_err(|fault| fault.under("lines")));
        let mut draws: Vec<(String, Distribution)> = Vec::new();
        let mut of_run = BTreeSet::new();
        let mut is_whole = draw.items.len() == draw.len;
        for (place, keys) in draw.read("draw", faults) {
            let drawn = keys.map(|keys| keys.check(has_lines).map_err(|it| it.under(&place)));
            let Some((name, of, distribution)) = drawn.and_then(|drawn| faults.accept(drawn))
            else {
                is_whole = false;
                continue;
            };
            if of == Some(DrawnFor::Run) {
                of_run.insert(name.clone());
            }
            if draws.iter().any(|(known, _)| *known == name) {
                let problem = format!("a second one is named `{name}`; names must differ");
                faults.add(Fault::new(place, problem));
                continue;
            }
            draws.push((name, distribution));
        }
        if !is_whole || draws.is_empty() {
            return None;
        }
        if let Some(lines) = &lines {
            let names: Vec<_> =
                draws.iter().map(|(name, _)| (name.as_str(), of_run.contains(name))).collect();
            faults.accept(lines.check_names(&names).map_err(|fault| fault.under("lines")));
        }
        Some(Self { draws, per, of_run, lines: lines.map(|lines| (lines, Vec::new())) })
    }

    /// Chooses the lines that are eligible with this seed, and returns how many runs of a variant
    /// they make; `None` if the cohort has no lines.
    pub(super) fn choose_lines(&mut self, seed: u64) -> Result<Option<u64>, Fault> {
        let Some((lines, eligible)) = &mut self.lines else { return Ok(None) };
        *eligible = lines.eligible(&self.draws, seed);
        if eligible.is_empty() {
            let problem = "no line is eligible; expected more lines, or other conditions";
            return Err(Fault::new("cohort.lines.eligible", problem));
        }
        Ok(Some(lines.repeats(eligible.len())))
    }

    /// Rejects lines whose classes no probe has.
    pub(super) fn check_probes(&self, variants: &[Variant]) -> Result<(), Fault> {
        let Some((lines, _)) = &self.lines else { return Ok(()) };
        let mut probes = Vec::new();
        for flow in variants.iter().flat_map(|variant| &variant.flows) {
            if let FlowKind::Probe(probe) = &flow.kind {
                probes.extend(flows::probes(&flow.name, &probe.classes).map(|(name, _)| name));
            }
        }
        lines.check_probes(&probes).map_err(|fault| fault.under("cohort.lines"))
    }

    /// Returns the record of the study before its lines are measured; `None` without lines.
    pub fn study(&self) -> Option<StudyRecord> {
        self.lines.as_ref().map(|(lines, eligible)| lines.study(eligible.len()))
    }

    pub fn draw(&self, seed: u64, repeat: u32, variant: &str) -> Conditions {
        if let Some((lines, eligible)) = &self.lines {
            let place = lines.place(eligible, repeat);
            let (line, run, mut conditions) = lines.streams(seed, place);
            for (name, distribution) in &self.draws {
                let of = if self.of_run.contains(name) { &run } else { &line };
                conditions.insert(name.clone(), distribution.draw(&mut of.child(name)));
            }
            return conditions;
        }
        let repeat = Rng::new(seed).child("cohort").child(&repeat.to_string());
        let trial = match self.per {
            Per::Repeat => repeat,
            Per::Trial => repeat.child(variant),
        };
        let drawn = |(name, distribution): &(String, Distribution)| {
            (name.clone(), distribution.draw(&mut trial.child(name)))
        };
        self.draws.iter().map(drawn).collect()
    }

    fn typical(&self) -> Conditions {
        let drawn = self.draws.iter().map(|(name, how)| (name.clone(), how.typical()));
        let own = OWN.map(|name| (name.to_owned(), "0".to_owned()));
        drawn.chain(own.into_iter().filter(|_| self.lines.is_some())).collect()
    }

    /// Returns the variant with typical conditions, after a check with the extremes of every draw.
    pub(super) fn typical_variant(
        &self,
        name: &str,
        template: &Base,
        load: &mut LoadFile<'_>,
        faults: &mut Faults,
    ) -> Option<Variant> {
        let typical = self.typical();
        let mut own = Faults::default();
        let variant = read_variant(name, &template.filled(&typical), load, &mut own);
        if !own.is_empty() {
            for fault in own {
                // Only the draws whose values are in the message.
                let drawn = self.draws.iter().map(|(name, how)| (name.clone(), how.typical()));
                let named = drawn.filter(|(_, value)| fault.problem.contains(value)).collect();
                faults.add(with(&named, fault));
            }
            return None;
        }
        for (draw, distribution) in &self.draws {
            for value in distribution.extremes() {
                let mut conditions = typical.clone();
                conditions.insert(draw.clone(), value.clone());
                let mut own = Faults::default();
                read_variant(name, &template.filled(&conditions), load, &mut own);
                let changed = Conditions::from([(draw.clone(), value)]);
                own.into_iter().for_each(|fault| faults.add(with(&changed, fault)));
            }
        }
        variant
    }

    /// Rejects a draw that no variant uses.
    pub(super) fn check_used(&self, templates: &[Base]) -> Result<(), Fault> {
        for (index, (name, _)) in self.draws.iter().enumerate() {
            if self.lines.as_ref().is_some_and(|(lines, _)| lines.uses(name)) {
                continue;
            }
            let without: Conditions = [(name.clone(), String::new())].into();
            if templates.iter().all(|template| template.filled(&without) == *template) {
                let problem =
                    format!("nothing uses {{{name}}}; expected it in a path, phase or flow");
                return Err(Fault::new(format!("cohort.draw[{index}].name"), problem));
            }
        }
        Ok(())
    }

    /// Returns the variant of one trial and the conditions drawn for it.
    pub(super) fn variant(
        &self,
        (seed, repeat): (u64, u32),
        (name, template): (&str, &Base),
        load: &mut LoadFile<'_>,
    ) -> Result<(Variant, Conditions), Fault> {
        let conditions = self.draw(seed, repeat, name);
        let mut faults = Faults::default();
        let variant = read_variant(name, &template.filled(&conditions), load, &mut faults);
        let variant = faults.result(variant).map_err(|fault| with(&conditions, fault))?;
        Ok((variant, conditions))
    }
}

fn with(conditions: &Conditions, mut fault: Fault) -> Fault {
    let drawn = conditions.iter().map(|(name, value)| format!("{{{name}}} = {value}"));
    let drawn: Vec<String> = drawn.collect();
    if !drawn.is_empty() {
        fault.problem = format!("with {}: {}", drawn.join(", "), fault.problem);
    }
    fault
}

impl DrawKeys {
    fn check(self, has_lines: bool) -> Result<(String, Option<DrawnFor>, Distribution), Fault> {
        check_name(&self.name).map_err(|problem| Fault::new("name", problem))?;
        if has_lines && OWN.contains(&self.name.as_str()) {
            let problem = format!("`{}` is set by [cohort.lines]; expected another", self.name);
            return Err(Fault::new("name", problem));
        }
        if self.of.is_some() && !has_lines {
            return Err(Fault::new("of", "needs [cohort.lines]"));
        }
        let invalid =
            |key: &'static str| move |error: DistributionError| Fault::new(key, error.to_string());
        let distribution = match (self.log_normal, self.uniform, self.quantiles, self.choice) {
            (Some(LogNormalKeys { median, sigma, low, high }), None, None, None) => {
                Distribution::log_normal(median, sigma, low, high).map_err(invalid("log_normal"))
            }
            (None, Some(UniformKeys { low, high }), None, None) => {
                Distribution::uniform(low, high).map_err(invalid("uniform"))
            }
            (None, None, Some(QuantilesKeys { at, values }), None) => {
                Distribution::quantiles(&at, &values).map_err(invalid("quantiles"))
            }
            (None, None, None, Some(keys)) => {
                Distribution::choice(keys.values, keys.weights).map_err(invalid("choice"))
            }
            _ => Err(Fault::new("", "expected one of log_normal, uniform, quantiles or choice")),
        };
        Ok((self.name, self.of, distribution?))
    }
}
