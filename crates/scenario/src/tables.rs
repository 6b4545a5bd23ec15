//! The tables that a trial is read from, and the overrides of their keys.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::flow::AnyFlow;
use super::path::PathKeys;
use super::phases::Phases;
use crate::keys::{
    Combined, Fault, Faults, Raw, Tables, alternatives, did_you_mean, join, keys, read_table,
    text_of,
};

const MAX_HOPS: usize = 16;

/// The conditions drawn for a trial: values by the names of their draws, as written in a scenario.
pub type Conditions = BTreeMap<String, String>;

/// The tables of a scenario that describe one trial; variants may override their keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Base {
    /// The table `[path]` without its hops.
    pub path: Table,
    /// From the client to the server; empty if `path` itself names the links.
    pub hops: Vec<(String, Table)>,
    pub phases: Table,
    /// In the order of the file.
    pub flows: Vec<(String, Table)>,
    /// The table or option that overrides each key, by key.
    origins: BTreeMap<String, String>,
    /// Names of dropped flows and hops that are wrong; an empty name if it is unknown.
    dropped: Vec<String>,
}

/// A key and its new value: `path.up`, `path.hop.modem.up`, `phases.load`, `flow.bulk.count`.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub key: String,
    pub value: Value,
}

const OVERRIDABLE: &str = "path.KEY, path.hop.NAME.KEY, phases.KEY or flow.NAME.KEY";

impl Base {
    /// Returns the tables of a file. Hops and flows that are wrong are dropped, also if the faults
    /// concern the list `flow`.
    pub(super) fn new(
        mut path: Table,
        phases: Table,
        flows: &Tables<AnyFlow>,
        faults: &mut Faults,
    ) -> Self {
        let mut dropped = Vec::new();
        let hops = faults.under("path", |it| take_hops(&mut path, &mut dropped, it));
        if !dropped.is_empty() {
            // The delays belong to the last hop, which may be the one that was dropped.
            path.retain(|key, _| !matches!(key, "rtt" | "up_delay" | "down_delay"));
        }
        if faults.concern("flow") {
            dropped.push(String::new());
        }
        let mut flows = named_flows(flows, &mut dropped, faults);
        if dropped.is_empty() {
            faults.accept(ensure_probe(&mut flows));
        }
        Self { path, hops, phases, flows, origins: BTreeMap::new(), dropped }
    }

    /// Returns what overrides `key`, or a table around it: a table of the file, such as `variant[1]`,
    /// or an option of the command line. `None` if nothing overrides the key.
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        let inside = |set: &str| {
            let rest = key.strip_prefix(set);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.origins.iter().find(|(set, _)| inside(set)).map(|(_, place)| place.as_str())
    }

    /// Whether the command line or a table of the file overrides a key.
    pub(super) fn is_overridden(&self, key: &str) -> bool {
        self.origin(key).is_some_and(|origin| origin.contains('['))
    }

    /// Returns every key as in an override, with its value as in the file; strings without quotes.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        let hops = self.hops.iter().map(|(name, table)| (format!("path.hop.{name}"), table));
        let flows = self.flows.iter().map(|(name, table)| (format!("flow.{name}"), table));
        let own = [("path".to_owned(), &self.path), ("phases".to_owned(), &self.phases)];
        let tables = own.into_iter().chain(hops).chain(flows);
        let entries = tables.flat_map(|(section, table)| {
            table.iter().map(move |(key, value)| (join(&section, key), text_of(key, value)))
        });
        entries.collect()
    }

    /// Gives bulk flows a random start, so that repeats differ, unless the scenario says when its
    /// flows start. `changed` are the keys that variants override.
    pub(super) fn spread_starts(&mut self, changed: &[&str]) {
        let is_jitter = |key: &str| key.ends_with(".start_jitter");
        let is_known = |(_, table): &(String, Table)| table.contains_key("start_jitter");
        if changed.iter().any(|key| is_jitter(key)) || self.flows.iter().any(is_known) {
            return;
        }
        for (name, table) in &mut self.flows {
            let is_bulk = matches!(kind(table), Some("tcp" | "udp"));
            let is_timed = ["start", "stop"].iter().any(|key| {
                let whole = format!("flow.{name}.{key}");
                table.contains_key(*key) || changed.contains(&whole.as_str())
            });
            if is_bulk && !is_timed {
                table.insert("start_jitter".to_owned(), Value::from(DEFAULT_START_JITTER));
            }
        }
    }

    /// Replaces `{name}` in the tables by the drawn conditions.
    pub(super) fn filled(&self, conditions: &Conditions) -> Self {
        let named = |(name, table): &(String, Table)| (name.clone(), fill_table(table, conditions));
        Self {
            path: fill_table(&self.path, conditions),
            hops: self.hops.iter().map(named).collect(),
            phases: fill_table(&self.phases, conditions),
            flows: self.flows.iter().map(named).collect(),
            origins: self.origins.clone(),
            dropped: self.dropped.clone(),
        }
    }

    /// Applies an override from a place in the file or the command line; a table or list is
    /// replaced whole. Ignores an override that may be of a dropped flow.
    pub(super) fn set(&mut self, change: &Override, place: &str) -> Result<(), Fault> {
        match self.replace(change) {
            Err(_) if self.is_dropped(&change.key) => return Ok(()),
            replaced => replaced.map_err(|fault| fault.of_origin(Some(place)))?,
        }
        self.origins.insert(change.key.clone(), place.to_owned());
        Ok(())
    }

    /// Whether a flow or hop was dropped because it is wrong.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Whether a key may be of a dropped flow or hop.
    fn is_dropped(&self, key: &str) -> bool {
        let section = ["flow.", "path.hop."].into_iter().find_map(|it| key.strip_prefix(it));
        let name = section.and_then(|rest| rest.rsplit_once('.')).map(|(name, _)| name);
        let is_of = |dropped: &String| dropped.is_empty() || Some(dropped.as_str()) == name;
        name.is_some() && self.dropped.iter().any(is_of)
    }

    fn replace(&mut self, change: &Override) -> Result<(), Fault> {
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
            return Err(Fault::new(&change.key, "cannot be overridden; expected another key"));
        }
        if section == "flow" && matches!(key, "name" | "kind") {
            let problem = "cannot be overridden; declare a second flow, with `count = 0` in the \
                           variants that do not use it";
            return Err(Fault::new(&change.key, problem));
        }
        table.insert(key.to_owned(), change.value.clone());
        Ok(())
    }
}

/// Returns the table of the flow or hop named in `rest`, which is `NAME.KEY`, and the key.
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

/// The overrides in a table of a variant, a sweep's point or the short form.
#[derive(Debug, Clone, Default)]
pub struct Overrides(pub Vec<Override>);

keys! {
    pub(super) struct OverrideKeys [lenient] {
        /// Keys of `[path]` to override; those of a hop as `path.hop.NAME.KEY`.
        path: Option<Raw<PathKeys>>,
        /// Keys of `[phases]` to override.
        phases: Option<Raw<Phases>>,
        /// Keys of flows to override, as `flow.NAME.KEY`.
        flow: Option<BTreeMap<String, Table>>,
    }
}

impl Combined for Overrides {
    type Keys = OverrideKeys;

    fn combine(keys: OverrideKeys, faults: &mut Faults) -> Option<Self> {
        let mut found = Vec::new();
        let mut add = |section: &str, table: &Table| {
            let change = |(key, value): (&String, &Value)| Override {
                key: join(section, key),
                value: value.clone(),
            };
            found.extend(table.iter().map(change));
        };
        let mut path = keys.path.map(|path| path.table).unwrap_or_default();
        let hops = path.remove("hop").unwrap_or_else(|| Table::new().into());
        match hops.try_into::<BTreeMap<String, Table>>() {
            Ok(hops) => hops.iter().for_each(|(name, hop)| add(&format!("path.hop.{name}"), hop)),
            Err(_) => {
                let problem = format!("expected a table of keys to override, {OVERRIDABLE}");
                faults.add(Fault::new("path.hop", problem));
            }
        }
        add("path", &path);
        add("phases", &keys.phases.map(|phases| phases.table).unwrap_or_default());
        for (name, flow) in &keys.flow.unwrap_or_default() {
            add(&format!("flow.{name}"), flow);
        }
        Some(Self(found))
    }
}

/// Returns the tables of the flows by name, and adds the names of the others to `dropped`.
fn named_flows(
    tables: &Tables<AnyFlow>,
    dropped: &mut Vec<String>,
    faults: &mut Faults,
) -> Vec<(String, Table)> {
    let mut flows: Vec<(String, Table)> = Vec::new();
    for (index, table) in &tables.items {
        let mut table = table.clone();
        let text = |key| table.get(key).and_then(Value::as_str).map(str::to_owned);
        let kind = text("kind");
        let given = text("name").or_else(|| kind.clone());
        let name = faults.under(&format!("flow[{index}]"), |faults| {
            if kind.is_none() {
                faults.add(Fault::new("", "`kind` is missing, for example kind = \"tcp\""));
            }
            take_unique_name(&mut table, Some(kind?), &flows, faults)
        });
        match name {
            Some(name) => flows.push((name, table)),
            None => dropped.push(given.unwrap_or_default()),
        }
    }
    flows
}

/// The longest random delay of the start of a bulk flow whose start the scenario leaves open.
const DEFAULT_START_JITTER: &str = "1s";
/// Kind of the flow that measures latency, and its name if the scenario has none that measures.
const PROBE: &str = "probe";

fn kind(flow: &Table) -> Option<&str> {
    flow.get("kind").and_then(Value::as_str)
}

/// Adds a probe if no flow measures anything.
fn ensure_probe(flows: &mut Vec<(String, Table)>) -> Result<(), Fault> {
    if flows.is_empty() {
        return Err(Fault::new("flow", "is missing; expected [[flow]] tables"));
    }
    let measures = |flow: &Table| !matches!(kind(flow), Some("tcp" | "udp"));
    if flows.iter().any(|(_, flow)| measures(flow)) {
        return Ok(());
    }
    if flows.iter().any(|(name, _)| name == PROBE) {
        let problem = "nothing measures latency; expected another flow with kind = \"probe\"";
        return Err(Fault::new("flow", problem));
    }
    let probe = Table::from_iter([("kind".to_owned(), Value::from(PROBE))]);
    flows.push((PROBE.to_owned(), probe));
    Ok(())
}

/// Removes `hop` from `[path]` and returns the valid hops with their names. Adds an empty name to
/// `dropped` for each invalid hop.
fn take_hops(
    path: &mut Table,
    dropped: &mut Vec<String>,
    faults: &mut Faults,
) -> Vec<(String, Table)> {
    let mut hops: Vec<(String, Table)> = Vec::new();
    let Some(tables) = path.remove("hop") else { return hops };
    let tables: Vec<Table> = tables.try_into().unwrap_or_else(|_| {
        dropped.push(String::new());
        faults.add(Fault::new("hop", "expected tables: [[path.hop]]"));
        Vec::new()
    });
    if tables.len() > MAX_HOPS {
        let problem = format!("{} hops; expected at most {MAX_HOPS}", tables.len());
        faults.add(Fault::new("hop", problem));
    }
    for (index, mut table) in tables.into_iter().enumerate() {
        let name = faults.under(&format!("hop[{index}]"), |faults| {
            take_unique_name(&mut table, None, &hops, faults)
        });
        match name {
            Some(name) => hops.push((name, table)),
            None => dropped.push(String::new()),
        }
    }
    hops
}

/// Removes the name from a table and returns it, or `default` if the table has no name. Rejects a
/// name that one of `others` has.
fn take_unique_name(
    table: &mut Table,
    default: Option<String>,
    others: &[(String, Table)],
    faults: &mut Faults,
) -> Option<String> {
    let named = Table::from_iter(table.remove_entry("name"));
    let name = read_table::<Named>(&named, faults)?.name;
    let Some(name) = name.or(default) else {
        faults.add(Fault::new("", "`name` is missing, for example name = \"modem\""));
        return None;
    };
    let checked = check_name(&name).map_err(|problem| Fault::new("name", problem));
    faults.accept(checked)?;
    if others.iter().any(|(known, _)| *known == name) {
        let problem = format!("the name `{name}` is taken; expected another `name`");
        faults.add(Fault::new("", problem));
        return None;
    }
    Some(name)
}

keys! {
    struct Named {
        name: Option<String>,
    }
}

/// Checks that a name is suitable for tables, keys and file names.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_+:=,%".contains(c);
    if (1..=80).contains(&name.len()) && name.chars().all(|c| plain(c) || c == '.') {
        return Ok(());
    }
    Err("a name has 1 to 80 of the characters a-z A-Z 0-9 - _ + : = , % .".to_owned())
}

/// Replaces every `{name}` in a table; a string that is only a drawn number becomes the number.
fn fill_table(table: &Table, conditions: &Conditions) -> Table {
    table.iter().map(|(key, value)| (key.clone(), fill(value, conditions))).collect()
}

fn fill(value: &Value, conditions: &Conditions) -> Value {
    match value {
        Value::String(text) => filled_text(text, conditions),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, conditions)).collect())
        }
        Value::Table(table) => Value::Table(fill_table(table, conditions)),
        other => other.clone(),
    }
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
