//! `[cohort]`: conditions that are drawn anew for every trial.
//!
//! A draw has a name; `{name}` in the texts of path, phases and flows, or of an arm, stands for its
//! value. What a trial draws depends on the run's seed, the repeat and the draw's name, and where
//! each arm draws by itself on the arm's name: one more draw never shifts another's values. With
//! `[cohort.lines]` a draw is of a line or of one of its runs instead.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::json;
use toml::{Table, Value};
use underload_aqm::registry::LoadFile;
use underload_aqm::rng::Rng;
use underload_record::schema::StudyRecord;

use super::arm::{Arm, read_arm};
use super::document::{Base, Document, check_name};
use super::error::{Fault, ScenarioError};
use super::flow::FlowKind;
use super::lines::{Lines, OWN};
use super::section::read_section;
use super::{lines, trace};
use crate::flows;
use crate::study::{Distribution, DistributionError, Quantity};

/// The conditions that are drawn anew for every trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    draws: Vec<(String, Distribution)>,
    per: Per,
    /// Draws that are of a run where the others are of its line.
    of_run: BTreeSet<String>,
    /// Lines that are each measured several times, and which of them are, once the seed is known.
    lines: Option<(Lines, Vec<u32>)>,
}

/// What a draw belongs to, where there are lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    /// A line: the same in all its runs.
    Line,
    /// A run.
    Run,
}

/// The trials that share their drawn conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Per {
    /// The trials of one repeat: the same line with every arm, so that pairs can be compared.
    #[default]
    Repeat,
    /// None: every arm has lines of its own, as two fleets of devices have.
    Trial,
}

/// What a trial drew: names and values as a scenario writes them.
pub type Conditions = BTreeMap<String, String>;

/// Words that commands of `exec` flows use.
const RESERVED: [&str; 2] = ["client", "server"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    per: Per,
    draw: Vec<Table>,
    lines: Option<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawKeys {
    name: String,
    of: Option<Of>,
    log_normal: Option<LogNormalKeys>,
    uniform: Option<UniformKeys>,
    quantiles: Option<QuantilesKeys>,
    choice: Option<ChoiceKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogNormalKeys {
    median: String,
    sigma: f64,
    low: String,
    high: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UniformKeys {
    low: String,
    high: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantilesKeys {
    at: Vec<f64>,
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceKeys {
    values: Vec<String>,
    weights: Option<Vec<f64>>,
}

/// The schema of `[cohort]`.
pub(super) fn schema() -> serde_json::Value {
    let mut keys = trace::keys::<Keys>();
    let draw = trace::closed(trace::keys::<DrawKeys>());
    keys.insert("draw".to_owned(), json!({ "type": "array", "items": draw }));
    keys.insert("lines".to_owned(), trace::closed(lines::keys()));
    trace::closed(keys)
}

impl Cohort {
    /// Takes it out of the root, where there is one.
    pub(super) fn take(root: &mut Table) -> Result<Option<Self>, Fault> {
        let table = match root.remove("cohort") {
            None => return Ok(None),
            Some(Value::Table(table)) => table,
            Some(_) => return Err(Fault::new("cohort", "expected a table: [cohort]")),
        };
        Self::read(table).map(Some).map_err(|fault| fault.under("cohort"))
    }

    fn read(table: Table) -> Result<Self, Fault> {
        let Keys { per, draw, lines } = read_section(table)?;
        let lines = lines.map(|table| Lines::read(table).map_err(|fault| fault.under("lines")));
        let lines = lines.transpose()?;
        let mut draws: Vec<(String, Distribution)> = Vec::new();
        let mut of_run = BTreeSet::new();
        for (index, table) in draw.into_iter().enumerate() {
            let read = read_section(table).and_then(|keys| DrawKeys::check(keys, lines.is_some()));
            let read = read.map_err(|f| f.under(&format!("draw[{index}]")))?;
            let (name, of, distribution) = read;
            if of == Some(Of::Run) {
                of_run.insert(name.clone());
            }
            if draws.iter().any(|(known, _)| *known == name) {
                let problem = format!("a second one is named `{name}`; names must differ");
                return Err(Fault::new(format!("draw[{index}]"), problem));
            }
            draws.push((name, distribution));
        }
        if draws.is_empty() {
            return Err(Fault::new("draw", "a cohort draws something; expected [[cohort.draw]]"));
        }
        if let Some(lines) = &lines {
            let names: Vec<_> =
                draws.iter().map(|(name, _)| (name.as_str(), of_run.contains(name))).collect();
            lines.check_names(&names).map_err(|fault| fault.under("lines"))?;
        }
        Ok(Self { draws, per, of_run, lines: lines.map(|lines| (lines, Vec::new())) })
    }

    /// Chooses the lines that are eligible with this seed, and returns how many runs of an arm
    /// they make; `None` where the cohort has no lines.
    pub(super) fn choose_lines(&mut self, seed: u64) -> Result<Option<u64>, Fault> {
        let Some((lines, eligible)) = &mut self.lines else { return Ok(None) };
        *eligible = lines.eligible(&self.draws, seed);
        if eligible.is_empty() {
            let problem = "no line is eligible; expected more lines, or other conditions";
            return Err(Fault::new("cohort.lines.eligible", problem));
        }
        Ok(Some(lines.repeats(eligible.len())))
    }

    /// Refuses lines whose classes no probe has.
    pub(super) fn check_probes(&self, arms: &[Arm]) -> Result<(), Fault> {
        let Some((lines, _)) = &self.lines else { return Ok(()) };
        let flows = arms.iter().flat_map(|arm| &arm.flows);
        let mut probes = Vec::new();
        for flow in flows {
            if let FlowKind::Probe(probe) = &flow.kind {
                probes.extend(flows::probes(&flow.name, probe).map(|(name, _)| name));
            }
        }
        lines.check_probes(&probes).map_err(|fault| fault.under("cohort.lines"))
    }

    /// What is to be said of its lines, before they are measured.
    pub fn study(&self) -> Option<StudyRecord> {
        self.lines.as_ref().map(|(lines, eligible)| lines.study(eligible.len()))
    }

    /// The conditions of one trial.
    pub fn draw(&self, seed: u64, repeat: u32, arm: &str) -> Conditions {
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
            Per::Trial => repeat.child(arm),
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

    /// The arm with typical conditions, after the same with the extremes of every draw.
    pub(super) fn typical_arm(
        &self,
        name: &str,
        template: &Base,
        load: &mut LoadFile<'_>,
    ) -> Result<Arm, Fault> {
        let typical = self.typical();
        for (draw, distribution) in &self.draws {
            for value in distribution.extremes() {
                let mut conditions = typical.clone();
                conditions.insert(draw.clone(), value.clone());
                let arm = read_arm(name, &template.filled(&conditions), load);
                arm.map_err(|fault| Fault {
                    problem: format!("with {{{draw}}} = {value}: {}", fault.problem),
                    ..fault
                })?;
            }
        }
        read_arm(name, &template.filled(&typical), load)
    }

    /// Refuses a draw that no arm uses.
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

    /// The arm as the trial of this repeat meets it, and what was drawn for it.
    ///
    /// # Errors
    /// Values that together make no arm, although each fits the typical ones.
    pub(super) fn arm(
        &self,
        (seed, repeat): (u64, u32),
        arm: (&str, &Base),
        document: &Document,
        load: &mut LoadFile<'_>,
    ) -> Result<(Arm, Conditions), ScenarioError> {
        let (name, template) = arm;
        let conditions = self.draw(seed, repeat, name);
        let drawn = read_arm(name, &template.filled(&conditions), load);
        let drawn = drawn.map_err(|mut fault| {
            let with: Vec<String> =
                conditions.iter().map(|(name, value)| format!("{{{name}}} = {value}")).collect();
            fault.problem = format!("with {}: {}", with.join(", "), fault.problem);
            document.locate(fault, None)
        })?;
        Ok((drawn, conditions))
    }
}

impl DrawKeys {
    fn check(self, has_lines: bool) -> Result<(String, Option<Of>, Distribution), Fault> {
        check_name(&self.name).map_err(|problem| Fault::new("name", problem))?;
        if RESERVED.contains(&self.name.as_str()) {
            let problem = format!("`{}` stands for an address in commands", self.name);
            return Err(Fault::new("name", problem));
        }
        if has_lines && OWN.contains(&self.name.as_str()) {
            let problem = format!("`{}` stands for a run's own place in the study", self.name);
            return Err(Fault::new("name", problem));
        }
        if self.of.is_some() && !has_lines {
            return Err(Fault::new("of", "draws of lines and runs need [cohort.lines]"));
        }
        let invalid =
            |key: &'static str| move |error: DistributionError| Fault::new(key, error.to_string());
        let distribution = match (self.log_normal, self.uniform, self.quantiles, self.choice) {
            (Some(keys), None, None, None) => {
                let [median, low, high] = [keys.median, keys.low, keys.high]
                    .map(|text| quantity(&text).map_err(|fault| fault.under("log_normal")));
                Distribution::log_normal(median?, keys.sigma, low?, high?)
                    .map_err(invalid("log_normal"))?
            }
            (None, Some(keys), None, None) => {
                let [low, high] = [keys.low, keys.high]
                    .map(|text| quantity(&text).map_err(|fault| fault.under("uniform")));
                Distribution::uniform(low?, high?).map_err(invalid("uniform"))?
            }
            (None, None, Some(keys), None) => {
                let values: Result<Vec<_>, _> =
                    keys.values.iter().map(|text| quantity(text)).collect();
                let values = values.map_err(|fault| fault.under("quantiles"))?;
                Distribution::quantiles(&keys.at, &values).map_err(invalid("quantiles"))?
            }
            (None, None, None, Some(keys)) => {
                Distribution::choice(keys.values, keys.weights).map_err(invalid("choice"))?
            }
            _ => {
                let problem = "expected one of log_normal, uniform, quantiles or choice";
                return Err(Fault::new("", problem));
            }
        };
        Ok((self.name, self.of, distribution))
    }
}

fn quantity(text: &str) -> Result<Quantity, Fault> {
    Quantity::read(text).ok_or_else(|| {
        let problem = format!("`{text}`: expected a time, rate, size or number, such as \"17ms\"");
        Fault::new("", problem)
    })
}

/// The value with every `{name}` replaced; a text that is nothing but a drawn number becomes the
/// number.
pub(super) fn fill(value: &Value, conditions: &Conditions) -> Value {
    match value {
        Value::String(text) => filled_text(text, conditions),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, conditions)).collect())
        }
        Value::Table(table) => Value::Table(fill_table(table, conditions)),
        other => other.clone(),
    }
}

pub(super) fn fill_table(table: &Table, conditions: &Conditions) -> Table {
    table.iter().map(|(key, value)| (key.clone(), fill(value, conditions))).collect()
}

fn filled_text(text: &str, conditions: &Conditions) -> Value {
    if !text.contains('{') {
        return Value::String(text.to_owned());
    }
    let whole = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let number = whole.and_then(|name| conditions.get(name)?.parse::<i64>().ok());
    if let Some(number) = number {
        return Value::Integer(number);
    }
    let filled = conditions
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value));
    Value::String(filled)
}
