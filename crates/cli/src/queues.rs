//! `underload queues`: every discipline and link with its parameters, units, defaults, sources.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use underload_aqm::config::{Definition, Fallback, Kind, Param, Profile, closest};
use underload_aqm::registry::{LINKS, QUEUES};
use underload_terminal::exit::OrBadInput;

/// The command line of `underload queues`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload queues
  underload queues docsis-pie
  underload queues codel --json")]
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
    let links = LINKS.iter().map(|entry| ("link", entry.definition));
    let all: Vec<_> = queues.chain(links).collect();
    let mut chosen = all.clone();
    if let Some(name) = &arguments.name {
        chosen.retain(|(_, definition)| definition.is_called(name));
        if chosen.is_empty() {
            let known: Vec<_> = all.iter().map(|(_, definition)| definition.name).collect();
            let meant = closest(name, known.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            let known = known.join(", ");
            let error = anyhow!("there is no queue or link `{name}`{meant} (known: {known})");
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
    if !definition.aliases.is_empty() {
        writeln!(out, "  also called: {}", definition.aliases.join(", "))?;
    }
    writeln!(out, "  source: {}", definition.source)?;
    for (index, profile) in definition.profiles.iter().enumerate() {
        let default = if index == 0 { " (default)" } else { "" };
        writeln!(out, "  profile={}{default}: {}", profile.name, profile.doc)?;
    }
    let rows: Vec<_> = definition
        .all_params()
        .map(|param| (param, Row::new(param, definition.profiles)))
        .collect();
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
pub struct Row {
    pub key: String,
    pub unit: String,
    pub default: String,
    pub range: Option<String>,
    pub meaning: String,
}

impl Row {
    pub fn new(param: &Param, profiles: &[Profile]) -> Self {
        let default = match param.fallback {
            Fallback::Value(text) => text.to_string(),
            Fallback::PerProfile(texts) => per_profile(texts, profiles),
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

/// Defaults by profile, of those profiles that the discipline has. The last text holds for all that
/// are not named before it.
fn per_profile(texts: &[(&str, &str)], profiles: &[Profile]) -> String {
    let is_known = |name: &str| profiles.iter().any(|profile| profile.name == name);
    let mut named: Vec<(&str, String)> = Vec::new();
    for (index, (name, text)) in texts.iter().enumerate() {
        if index + 1 < texts.len() {
            if is_known(name) {
                named.push((text, (*name).to_owned()));
            }
            continue;
        }
        let is_told =
            |profile: &&Profile| texts[..index].iter().all(|(told, _)| *told != profile.name);
        let others: Vec<&str> =
            profiles.iter().filter(is_told).map(|profile| profile.name).collect();
        match (named.is_empty(), others.is_empty()) {
            // All profiles have it: no need to name them.
            (true, _) => return (*text).to_owned(),
            (false, true) => {}
            (false, false) => named.push((text, others.join(", "))),
        }
    }
    let texts = named.into_iter().map(|(text, names)| format!("{text} ({names})"));
    texts.collect::<Vec<_>>().join("; ")
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
        let profiles = definition.profiles.iter();
        Self {
            kind,
            name: definition.name,
            aliases: definition.aliases,
            summary: definition.summary,
            source: definition.source,
            profiles: profiles
                .map(|profile| ProfileEntry { name: profile.name, follows: profile.doc })
                .collect(),
            parameters: definition
                .all_params()
                .map(|param| Row::new(param, definition.profiles))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_name_the_profiles_that_there_are() {
        let profile = |name| Profile { name, doc: "" };
        let texts = [("mahimahi", "1504B"), ("", "1514B")];
        let of = |names: &[&'static str]| {
            let profiles: Vec<Profile> = names.iter().map(|name| profile(*name)).collect();
            per_profile(&texts, &profiles)
        };
        assert_eq!(of(&["rfc", "linux", "mahimahi"]), "1504B (mahimahi); 1514B (rfc, linux)");
        assert_eq!(of(&["rfc", "linux"]), "1514B");
        assert_eq!(of(&["mahimahi"]), "1504B (mahimahi)");
    }

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
