//! `underload queues`: every discipline and link with its parameters, units, defaults, sources.

use std::fmt::{self, Write as _};

use clap::Args;
use serde::Serialize;
use underload_aqm::config::{ConfigError, Definition, Kind, Param, Profile, closest};
use underload_aqm::registry::{LINKS, QUEUES};
use underload_terminal::console;
use underload_terminal::exit::bad_input;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload queues
  underload queues docsis-pie
  underload queues codel --json")]
pub struct Arguments {
    /// Prints only this queue or link.
    pub name: Option<String>,
    /// Prints one JSON document.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let queues = QUEUES.iter().map(|entry| ("queue", entry.definition));
    let links = LINKS.iter().map(|entry| ("link", entry.definition));
    let all: Vec<_> = queues.chain(links).collect();
    let mut chosen = all.clone();
    if let Some(name) = &arguments.name {
        chosen.retain(|(_, definition)| definition.is_called(name));
        if chosen.is_empty() {
            let known: Vec<_> = all.iter().map(|(_, definition)| definition.name).collect();
            return Err(bad_input(ConfigError::UnknownName {
                what: "queue or link",
                name: name.clone(),
                suggestion: closest(name, known.iter().copied()).map(str::to_owned),
                known: known.join(", "),
            }));
        }
    }
    if arguments.json {
        let entries: Vec<_> = chosen.iter().map(|(what, entry)| Entry::new(what, entry)).collect();
        return console::print_json(&entries);
    }
    let mut text = String::new();
    for (what, definition) in chosen {
        describe(&mut text, what, definition)?;
    }
    if arguments.name.is_none() {
        writeln!(text, "SPEC: NAME[:key=value[,key=value...]], for example {EXAMPLE}")?;
    }
    console::print(&text)
}

const EXAMPLE: &str = "codel:profile=linux,target=5ms,ecn=on";

fn describe(out: &mut String, what: &str, definition: &Definition) -> fmt::Result {
    writeln!(out, "{} ({what}): {}", definition.name, definition.summary)?;
    if !definition.aliases.is_empty() {
        writeln!(out, "  also called: {}", definition.aliases.join(", "))?;
    }
    writeln!(out, "  source: {}", definition.source)?;
    for (index, profile) in definition.profiles.iter().enumerate() {
        let default = if index == 0 { " (default)" } else { "" };
        writeln!(out, "  {}={}{default}: {}", definition.profile_key, profile.name, profile.doc)?;
    }
    let rows: Vec<_> =
        definition.all_params().map(|param| Row::new(param, definition.profiles)).collect();
    let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max().unwrap_or(0);
    let (keys, units, defaults) =
        (width(|row| &row.key), width(|row| &row.unit), width(|row| &row.default));
    for Row { key, unit, default, range, meaning } in &rows {
        let range = range.as_ref().map(|range| format!(" [{range}]")).unwrap_or_default();
        writeln!(out, "  {key:<keys$}  {unit:<units$}  {default:<defaults$}  {meaning}{range}")?;
    }
    writeln!(out)
}

#[derive(Serialize)]
pub struct Row {
    pub key: String,
    pub unit: String,
    pub default: String,
    pub range: Option<String>,
    pub meaning: String,
}

impl Row {
    pub fn new(param: &Param, profiles: &[Profile]) -> Self {
        let default = param.default_text(profiles);
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
    aliases: &'static [&'static str],
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
        let Definition { name, aliases, summary, source, profiles, .. } = *definition;
        let parameters = definition.all_params().map(|param| Row::new(param, profiles)).collect();
        let entry = |profile: &Profile| ProfileEntry { name: profile.name, follows: profile.doc };
        let profiles = profiles.iter().map(entry).collect();
        Self { kind, name, aliases, summary, source, profiles, parameters }
    }
}

#[cfg(test)]
mod tests {
    use underload_aqm::config::Fallback;

    use super::*;

    #[test]
    fn no_listed_default_has_empty_brackets_or_a_profile_that_is_missing() {
        let queues = QUEUES.iter().map(|entry| entry.definition);
        for definition in queues.chain(LINKS.iter().map(|entry| entry.definition)) {
            let known: Vec<&str> = definition.profiles.iter().map(|it| it.name).collect();
            for param in definition.all_params() {
                let Fallback::PerProfile(_) = param.fallback else { continue };
                let row = Row::new(param, definition.profiles);
                let brackets = row.default.split('(').skip(1);
                let names = brackets.filter_map(|rest| rest.split(')').next());
                for name in names.flat_map(|names| names.split(", ")) {
                    assert!(
                        known.contains(&name),
                        "{} {}: {}",
                        definition.name,
                        row.key,
                        row.default
                    );
                }
            }
        }
    }
}
