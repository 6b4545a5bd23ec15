//! `underload queues`: every discipline and link with its parameters, units, defaults, sources.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use underload_aqm::config::{Definition, Fallback, Kind, Param};
use underload_aqm::registry::{LINKS, QUEUES};

use crate::exit::OrBadInput;

/// The command line of `underload queues`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only this discipline or link, in full.
    pub name: Option<String>,
    /// Prints one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Prints the registry.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let queues = QUEUES.iter().map(|entry| ("queue", entry.definition));
    let links = LINKS.iter().map(|definition| ("link", *definition));
    let all: Vec<_> = queues.chain(links).collect();
    let mut chosen = all.clone();
    if let Some(name) = &arguments.name {
        chosen.retain(|(_, definition)| definition.name == name);
        if chosen.is_empty() {
            let known: Vec<_> = all.iter().map(|(_, definition)| definition.name).collect();
            let error = anyhow!("there is no queue or link `{name}`; known: {}", known.join(", "));
            return Err(error).or_bad_input();
        }
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        let entries: Vec<_> = chosen.iter().map(|(what, entry)| Entry::new(what, entry)).collect();
        serde_json::to_writer_pretty(&mut out, &entries)?;
        writeln!(out)?;
        return Ok(());
    }
    for (what, definition) in chosen {
        print(&mut out, what, definition)?;
    }
    if arguments.name.is_none() {
        writeln!(out, "SPEC: NAME[:key=value[,key=value...]], for example {EXAMPLE}")?;
    }
    Ok(())
}

const EXAMPLE: &str = "codel:profile=linux,target=5ms,ecn=on";

fn print(out: &mut impl Write, what: &str, definition: &Definition) -> io::Result<()> {
    writeln!(out, "{} ({what}): {}", definition.name, definition.summary)?;
    writeln!(out, "  source: {}", definition.source)?;
    for (index, profile) in definition.profiles.iter().enumerate() {
        let default = if index == 0 { " (default)" } else { "" };
        writeln!(out, "  profile={}{default}: {}", profile.name, profile.doc)?;
    }
    let rows: Vec<_> = definition.all_params().map(|param| (param, Row::new(param))).collect();
    let width = |of: fn(&Row) -> &str| rows.iter().map(|(_, row)| of(row).len()).max().unwrap_or(0);
    let widths = (width(|row| &row.key), width(|row| &row.unit), width(|row| &row.default));
    for (param, row) in &rows {
        let range = row.range.as_ref().map(|range| format!(" [{range}]")).unwrap_or_default();
        writeln!(
            out,
            "  {:<key$}  {:<unit$}  {:<default$}  {}{range}",
            row.key,
            row.unit,
            row.default,
            param.doc,
            key = widths.0,
            unit = widths.1,
            default = widths.2,
        )?;
    }
    writeln!(out)
}

/// A parameter as text.
#[derive(Serialize)]
struct Row {
    key: String,
    unit: String,
    default: String,
    range: Option<String>,
    meaning: String,
}

impl Row {
    fn new(param: &Param) -> Self {
        let default = match param.fallback {
            Fallback::Value(text) => text.to_string(),
            Fallback::PerProfile(texts) => texts
                .iter()
                .map(|(profile, text)| format!("{text} ({profile})"))
                .collect::<Vec<_>>()
                .join(", "),
            Fallback::Absent(meaning) => format!("none: {meaning}"),
            Fallback::Required => "required".to_string(),
        };
        let unit = match param.kind {
            Kind::Choice(words) => words.join("|"),
            kind => kind.unit().to_string(),
        };
        let range = param.range.map(|(low, high)| format!("{low} to {high}"));
        Self { key: param.key.to_string(), unit, default, range, meaning: param.doc.to_string() }
    }
}

#[derive(Serialize)]
struct Entry {
    kind: &'static str,
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    profiles: Vec<ProfileEntry>,
    parameters: Vec<Row>,
}

#[derive(Serialize)]
struct ProfileEntry {
    name: &'static str,
    follows: &'static str,
}

impl Entry {
    fn new(kind: &'static str, definition: &Definition) -> Self {
        let profiles = definition.profiles.iter();
        Self {
            kind,
            name: definition.name,
            summary: definition.summary,
            source: definition.source,
            profiles: profiles
                .map(|profile| ProfileEntry { name: profile.name, follows: profile.doc })
                .collect(),
            parameters: definition.all_params().map(Row::new).collect(),
        }
    }
}
