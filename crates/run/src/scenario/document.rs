//! The file as TOML, with the line of every key, and the overrides laid over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::de::DeTable;
use toml::{Table, Value};
use underload_aqm::registry::QueueEntry;

use super::cohort::{Conditions, fill_table};
use super::error::{Fault, MORE_MAY_FOLLOW, ScenarioError, alternatives, did_you_mean};
use super::place::{Place, Step, place_of_keys};

/// Bytes of a scenario file, at most.
const MAX_LEN: usize = 1 << 20;
/// Mistakes in the grammar of a file that are told, at most: one may look like many.
const MAX_SYNTAX_ERRORS: usize = 5;
/// Links of a direction, at most.
const MAX_HOPS: usize = 16;

/// A parsed file and where its keys stand.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub scenario: String,
    pub root: Table,
    text: Arc<str>,
    pub(super) places: Arc<BTreeMap<String, Place>>,
}

impl Document {
    /// Of tables that no file holds.
    pub(super) fn new(scenario: &str, root: Table) -> Self {
        let (text, places) = (Arc::from(""), Arc::default());
        Self { scenario: scenario.to_owned(), root, text, places }
    }

    pub(crate) fn parse(text: &str, scenario: &str) -> Result<Self, ScenarioError> {
        Self::parse_all(text, scenario).map_err(|errors| {
            let whole = || ScenarioError::new(scenario, "", "cannot be read");
            errors.into_iter().next().unwrap_or_else(whole)
        })
    }

    /// The same; of a text that is no TOML all that is wrong.
    pub(super) fn parse_all(text: &str, scenario: &str) -> Result<Self, Vec<ScenarioError>> {
        if text.len() > MAX_LEN {
            return Err(vec![ScenarioError::new(scenario, "", "longer than 1 MiB")]);
        }
        let syntax = |error: toml::de::Error| {
            let problem = error.message().trim().replace('\n', ", ");
            ScenarioError::new(scenario, "", problem).at(text, error.span())
        };
        let (spanned, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let mut errors: Vec<_> =
                errors.into_iter().take(MAX_SYNTAX_ERRORS).map(syntax).collect();
            if let Some(last) = errors.last_mut() {
                last.problem += MORE_MAY_FOLLOW;
            }
            return Err(errors);
        }
        let places = Arc::new(place_of_keys(spanned.get_ref()));
        let root = text.parse::<Table>().map_err(|error| vec![syntax(error)])?;
        Ok(Self { scenario: scenario.to_owned(), root, text: Arc::from(text), places })
    }

    /// The error for a fault, with the line of its key or of the nearest table around it. `origin`
    /// is where the key got its value, should that be an override: see [`Base::origin`].
    pub(crate) fn locate(&self, fault: Fault, origin: Option<&str>) -> ScenarioError {
        let Fault { key, problem } = fault;
        if origin == Some(COMMAND_LINE) {
            return ScenarioError::new(&self.scenario, format!("--set {key}"), problem);
        }
        let of_origin = origin.map(|origin| format!("{origin}.{key}"));
        let nearest = of_origin.as_deref().and_then(|key| self.nearest(key));
        let nearest = nearest.or_else(|| self.nearest(&key));
        let error = ScenarioError::new(&self.scenario, &key, problem);
        let Some((place, rest)) = nearest else { return error };
        let is_of_key = error.problem.starts_with("unknown key") || !rest.is_empty();
        let span = if is_of_key { &place.key } else { &place.value };
        let missing = rest.split('.').filter(|part| !part.is_empty());
        let missing = missing.map(|part| Step::Key(part.to_owned()));
        let steps = place.steps.iter().cloned().chain(missing).collect();
        error.at(&self.text, Some(span.clone())).of(steps)
    }

    /// Where a key stands, or the nearest table around it; and the rest of the key in that.
    fn nearest<'a>(&self, key: &'a str) -> Option<(&Place, &'a str)> {
        let mut end = key.len();
        loop {
            if let Some(place) = self.places.get(&key[..end]) {
                return Some((place, key[end..].trim_start_matches('.')));
            }
            end = key[..end].rfind(['.', '['])?;
        }
    }
}

pub(super) fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// What a scenario says about one trial: the tables that arms may override.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Base {
    /// Without its hops.
    pub path: Table,
    /// From the client to the server; empty where `path` itself names the links.
    pub hops: Vec<(String, Table)>,
    pub phases: Table,
    /// Names and tables of the flows, in the order of the file.
    pub flows: Vec<(String, Table)>,
    /// For each overridden key, the option that gave its value.
    origins: BTreeMap<String, String>,
}

/// A queue's SPEC with the name that we print: `fq-codel` of `fq_codel`.
fn with_our_name(spec: &str) -> String {
    let (name, rest) = spec.find(':').map_or((spec, ""), |colon| spec.split_at(colon));
    let known = QueueEntry::find(name.trim()).map(|entry| entry.definition.name);
    format!("{}{rest}", known.unwrap_or(name))
}

/// The origin of what the command line overrides.
pub(super) const COMMAND_LINE: &str = "--set";

/// A key and its new value: `path.up`, `path.hop.modem.up`, `phases.load`, `flow.bulk.count`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Override {
    pub key: String,
    pub value: Value,
}

/// The keys that an override may name, for messages.
const OVERRIDABLE: &str = "path.KEY, path.hop.NAME.KEY, phases.KEY or flow.NAME.KEY";

impl Base {
    /// Takes its tables out of the file's root.
    pub(super) fn take(root: &mut Table) -> Result<Self, Fault> {
        let mut path = take_table(root, "path")?;
        let hops = take_hops(&mut path).map_err(|fault| fault.under("path"))?;
        Ok(Self {
            path,
            hops,
            phases: take_table(root, "phases")?,
            flows: take_flows(root)?,
            origins: BTreeMap::new(),
        })
    }

    /// Where the key of a fault, or the key around it, got its value: the place of an
    /// override in the file, for example `arm[1]`, or [`COMMAND_LINE`].
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        let inside = |set: &str| {
            let rest = key.strip_prefix(set);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.origins.iter().find(|(set, _)| inside(set)).map(|(_, place)| place.as_str())
    }

    /// Every key with its value, as an override would name it and as the file has it; a text
    /// without its quotes.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        let hops = self.hops.iter().map(|(name, table)| (format!("path.hop.{name}"), table));
        let flows = self.flows.iter().map(|(name, table)| (format!("flow.{name}"), table));
        let own = [("path".to_owned(), &self.path), ("phases".to_owned(), &self.phases)];
        let tables = own.into_iter().chain(hops).chain(flows);
        let text = |key: &str, value: &Value| match value {
            Value::String(spec) if key.ends_with("_queue") => with_our_name(spec),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let entries = tables.flat_map(|(section, table)| {
            table.iter().map(move |(key, value)| (join(&section, key), text(key, value)))
        });
        entries.collect()
    }

    /// The document with the drawn conditions in place of `{name}`.
    pub(super) fn filled(&self, conditions: &Conditions) -> Self {
        let named = |(name, table): &(String, Table)| (name.clone(), fill_table(table, conditions));
        Self {
            path: fill_table(&self.path, conditions),
            hops: self.hops.iter().map(named).collect(),
            phases: fill_table(&self.phases, conditions),
            flows: self.flows.iter().map(named).collect(),
            origins: self.origins.clone(),
        }
    }

    /// Replaces one value, from a place in the file or the command line; a table or list is
    /// replaced whole.
    pub(super) fn set(&mut self, change: &Override, place: &str) -> Result<(), Fault> {
        self.origins.insert(change.key.clone(), place.to_owned());
        let unknown = || Fault::new(&change.key, format!("not a key; expected {OVERRIDABLE}"));
        let (section, rest) = change.key.split_once('.').ok_or_else(unknown)?;
        let hop = rest.strip_prefix("hop.").filter(|_| section == "path");
        let (table, key) = match (section, hop) {
            (_, Some(rest)) => named_table(&mut self.hops, "hop", rest, &change.key)?,
            ("path", None) => (&mut self.path, rest),
            ("phases", None) => (&mut self.phases, rest),
            ("flow", None) => named_table(&mut self.flows, "flow", rest, &change.key)?,
            _ => return Err(unknown()),
        };
        if key.contains('.') || (section, rest) == ("path", "hop") {
            return Err(unknown());
        }
        if hop.is_some() && key == "name" {
            return Err(Fault::new(&change.key, "a hop keeps its name"));
        }
        if section == "flow" && matches!(key, "name" | "kind") {
            let problem = "a flow keeps its name and kind; declare another, with `count = 0` where \
                           it should rest";
            return Err(Fault::new(&change.key, problem));
        }
        table.insert(key.to_owned(), change.value.clone());
        Ok(())
    }
}

/// The table of a flow or hop, and the key in it, that `NAME.KEY` means.
fn named_table<'a, 'k>(
    tables: &'a mut [(String, Table)],
    what: &str,
    rest: &'k str,
    whole_key: &str,
) -> Result<(&'a mut Table, &'k str), Fault> {
    let unknown = || Fault::new(whole_key, format!("not a key; expected {OVERRIDABLE}"));
    let (name, key) = rest.rsplit_once('.').ok_or_else(unknown)?;
    match tables.iter().position(|(known, _)| known == name) {
        Some(position) => Ok((&mut tables[position].1, key)),
        None if tables.is_empty() => {
            Err(Fault::new(whole_key, format!("the scenario has no [[path.{what}]]")))
        }
        None => {
            let names = alternatives(tables.iter().map(|(name, _)| name.as_str()));
            let meant = did_you_mean(name, tables.iter().map(|(name, _)| name.as_str()));
            let problem = format!("no {what} is named `{name}`; expected {names}{meant}");
            Err(Fault::new(whole_key, problem))
        }
    }
}

/// The overrides that a table of an arm, a sweep's point or the short form spells out.
pub(super) fn overrides(table: &Table) -> Result<Vec<Override>, Fault> {
    let mut found = Vec::new();
    for (section, value) in table {
        let deep = match section.as_str() {
            "path" | "phases" => 1,
            "flow" => 2,
            _ => {
                let meant = did_you_mean(section, ["path", "phases", "flow"]);
                let problem = format!("unknown key to override; expected {OVERRIDABLE}{meant}");
                return Err(Fault::new(section, problem));
            }
        };
        flatten(section, value, deep, &mut found)?;
    }
    Ok(found)
}

fn flatten(key: &str, value: &Value, deep: u32, found: &mut Vec<Override>) -> Result<(), Fault> {
    if deep == 0 {
        found.push(Override { key: key.to_owned(), value: value.clone() });
        return Ok(());
    }
    let Value::Table(table) = value else {
        let problem = format!("expected a table of keys to override, {OVERRIDABLE}");
        return Err(Fault::new(key, problem));
    };
    table.iter().try_for_each(|(name, value)| {
        // A hop has a name between it and its keys.
        let deep = if (key, name.as_str()) == ("path", "hop") { deep + 2 } else { deep };
        flatten(&join(key, name), value, deep - 1, found)
    })
}

/// Takes `key` out of `table` where it is a table; an absent one is empty.
fn take_table(table: &mut Table, key: &str) -> Result<Table, Fault> {
    match table.remove(key) {
        None => Ok(Table::new()),
        Some(Value::Table(inner)) => Ok(inner),
        Some(_) => Err(Fault::new(key, format!("expected a table: [{key}]"))),
    }
}

/// Takes the tables of a list such as `[[arm]]` out of `table`; an absent one is empty.
pub(super) fn take_tables(table: &mut Table, key: &str) -> Result<Vec<Table>, Fault> {
    let expected = || Fault::new(key, format!("expected tables: [[{key}]]"));
    match table.remove(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::Table(inner) => Ok(inner),
                _ => Err(expected()),
            })
            .collect(),
        Some(_) => Err(expected()),
    }
}

/// Takes a text out of `table`; an absent one is `None`.
pub(super) fn take_text(table: &mut Table, key: &str) -> Result<Option<String>, Fault> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Fault::new(key, "expected a text in quotes")),
    }
}

fn take_flows(root: &mut Table) -> Result<Vec<(String, Table)>, Fault> {
    let mut flows: Vec<(String, Table)> = Vec::new();
    for (index, mut table) in take_tables(root, "flow")?.into_iter().enumerate() {
        let place = format!("flow[{index}]");
        let kind = match table.get("kind") {
            Some(Value::String(kind)) => kind.clone(),
            _ => return Err(Fault::new(place, "`kind` is missing, for example kind = \"tcp\"")),
        };
        let name = take_text(&mut table, "name").map_err(|fault| fault.under(&place))?;
        let name = name.unwrap_or(kind);
        check_name(&name).map_err(|problem| Fault::new(format!("{place}.name"), problem))?;
        if flows.iter().any(|(known, _)| *known == name) {
            let problem = format!("a second flow is named `{name}`; give each its own `name`");
            return Err(Fault::new(place, problem));
        }
        flows.push((name, table));
    }
    Ok(flows)
}

/// Takes `hop` out of `[path]`.
fn take_hops(path: &mut Table) -> Result<Vec<(String, Table)>, Fault> {
    let expected = |_| Fault::new("hop", "expected tables: [[path.hop]]");
    let mut hops: Vec<(String, Table)> = Vec::new();
    for (index, mut table) in take_tables(path, "hop").map_err(expected)?.into_iter().enumerate() {
        let place = format!("hop[{index}]");
        let name = take_text(&mut table, "name").map_err(|fault| fault.under(&place))?;
        let name = name
            .ok_or_else(|| Fault::new(&place, "`name` is missing, for example name = \"modem\""))?;
        check_name(&name).map_err(|problem| Fault::new(format!("{place}.name"), problem))?;
        if hops.iter().any(|(known, _)| *known == name) {
            let problem = format!("a second hop is named `{name}`; names must differ");
            return Err(Fault::new(place, problem));
        }
        hops.push((name, table));
    }
    if hops.len() > MAX_HOPS {
        let problem = format!("{} hops; expected at most {MAX_HOPS}", hops.len());
        return Err(Fault::new("hop", problem));
    }
    Ok(hops)
}

/// Names stand in tables, keys and file names: short and plain.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_+:=,%".contains(c);
    if (1..=80).contains(&name.len()) && name.chars().all(|c| plain(c) || c == '.') {
        return Ok(());
    }
    Err("a name has 1 to 80 of the characters a-z A-Z 0-9 - _ + : = , % .".to_owned())
}
