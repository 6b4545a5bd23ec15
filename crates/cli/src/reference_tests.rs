//! The pages of the book that are generated from the definitions of commands, queues, links and
//! scenarios.
//!
//! The tests compare the files of `docs/reference/` with these texts. With the variable
//! `UNDERLOAD_WRITE_REFERENCE`, as `cargo xtask reference` sets it, they write the files instead.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

use clap::Command;
use serde_json::Value as Json;
use underload_aqm::config::Definition;
use underload_aqm::registry::{LINKS, QUEUES};
use underload_record::schema::World;
use underload_run::sweep::SweepFile;
use underload_scenario::{Scenario, builtin, json_schema};
use underload_terminal::help::with_rare_options;

use crate::queues::Row;

/// The comment that follows the title of every page.
const NOTE: &str =
    "<!-- Written by `cargo xtask reference` from the program. Do not edit it here. -->\n";
/// Width of the help in the book.
const COLUMNS: usize = 100;

fn commands() -> String {
    format!(
        "# Commands\n\n{NOTE}\nEvery command with its options, as `--help` explains them. Data \
         goes to stdout, progress and prose to stderr.\n{}",
        help(crate::command())
    )
}

fn commands_of_fleet() -> String {
    format!(
        "# Commands of a fleet\n\n{NOTE}\nEvery command of `underload-fleet`, which `underload \
         fleet` runs, with its options, as `--help` explains them.\n{}",
        help(underload_fleet_cli::command())
    )
}

/// Returns the help of every command as Markdown with a heading for each.
fn help(command: Command) -> String {
    let mut text = String::new();
    let mut program = with_rare_options(command).term_width(COLUMNS);
    program.build();
    add_section(&mut text, &mut program);
    text
}

fn add_section(text: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(text, "\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    let shown = |it: &&mut Command| !it.is_hide_set() && it.get_name() != "help";
    for below in command.get_subcommands_mut().filter(shown) {
        add_section(text, below);
    }
}

fn queues_and_links() -> String {
    let mut text = format!(
        "# Queues and links\n\n{NOTE}\nThe names and keys of a SPEC, \
         `NAME[:key=value[,key=value...]]`, for example `codel:profile=linux,target=5ms,ecn=on`; \
         `underload queues NAME` prints the same. The spellings of other programs are accepted: \
         `fq_codel` is `fq-codel`. Source and differences of each algorithm are on its own page, \
         see [the list](../queues.md).\n"
    );
    let kinds = [
        ("Queues", QUEUES.iter().map(|entry| entry.definition).collect::<Vec<_>>()),
        ("Links", LINKS.iter().map(|entry| entry.definition).collect()),
    ];
    for (title, definitions) in kinds {
        let _ = writeln!(text, "\n## {title}");
        for definition in definitions {
            describe(&mut text, definition);
        }
    }
    text
}

fn describe(text: &mut String, definition: &Definition) {
    let Definition { name, aliases, summary, source, profiles, .. } = definition;
    let _ = writeln!(text, "\n### `{name}`\n\n{}. Source: {}.", cell(summary), cell(source));
    if !aliases.is_empty() {
        let _ = writeln!(text, "Also called: `{}`.", aliases.join("`, `"));
    }
    if !profiles.is_empty() {
        let _ = writeln!(text, "\n| profile | follows |\n|---|---|");
    }
    for (index, profile) in profiles.iter().enumerate() {
        let default = if index == 0 { " (default)" } else { "" };
        let _ = writeln!(text, "| `{}`{default} | {} |", profile.name, cell(profile.doc));
    }
    if definition.all_params().next().is_none() {
        return;
    }
    let _ = writeln!(text, "\n| key | unit | default | range | meaning |\n|---|---|---|---|---|");
    for param in definition.all_params() {
        let Row { key, unit, default, range, meaning } = Row::new(param, profiles);
        let [unit, default, range, meaning] =
            [&unit, &default, &range.unwrap_or_default(), &meaning].map(|it| cell(it));
        let _ = writeln!(text, "| `{key}` | {unit} | {default} | {range} | {meaning} |");
    }
}

fn scenarios() -> String {
    let mut text = format!(
        "# Built-in scenarios\n\n{NOTE}\n`underload run NAME` runs one, `underload scenarios NAME` \
         prints its file, and [figures.md](figures.md) has the results of those with published \
         numbers.\n\n\
         | name | what it asks | reproduces | variants | worlds |\n|---|---|---|---|---|\n"
    );
    for builtin in builtin::scenarios() {
        let scenario = Scenario::parse(builtin.text, builtin.name).expect("it is valid");
        let worlds: Vec<_> = scenario.worlds().into_iter().map(World::name).collect();
        let (title, figure) = (cell(&scenario.title), cell(&scenario.figure));
        let (name, variants) = (builtin.name, scenario.variants.len());
        let _ = writeln!(
            text,
            "| `{name}` | {title} | {figure} | {variants} | {} |",
            worlds.join(", ")
        );
    }
    text
}

fn scenario_keys() -> String {
    let mut text = format!(
        "# Keys of scenario and sweep files\n\n{NOTE}\nEvery table of a \
         [scenario file](../scenario-format.md) and of a [sweep file](../how-to/sweep.md), with \
         its keys. `underload check FILE` checks a file.\n"
    );
    let files = [("Scenario files", json_schema()), ("Sweep files", SweepFile::json_schema())];
    for (title, schema) in &files {
        let _ = writeln!(text, "\n## {title}");
        key_tables(&mut text, schema);
    }
    text
}

/// Writes the keys of a file's tables, one level after the other. A table whose keys are written
/// already, such as `[variant.path]` after `[path]`, is skipped.
fn key_tables(text: &mut String, file: &Json) {
    let mut written: Vec<&Json> = Vec::new();
    let mut tables = VecDeque::from([(String::new(), "Top of the file".to_owned(), file)]);
    while let Some((path, title, schema)) = tables.pop_front() {
        let Some(keys) = schema["properties"].as_object() else { continue };
        if written.contains(&&schema["properties"]) {
            continue;
        }
        written.push(&schema["properties"]);
        let kind = keys.get("kind").and_then(|kind| kind["const"].as_str());
        let kind = kind.map_or(String::new(), |kind| format!(", `kind = \"{kind}\"`"));
        let _ = writeln!(text, "\n### {title}{kind}\n\n| key | meaning | default |\n|---|---|---|");
        for (key, value) in keys.iter().filter(|(_, value)| value.get("const").is_none()) {
            let mut required = schema["required"].as_array().into_iter().flatten();
            let is_required = required.any(|name| name == key.as_str());
            let default = if is_required { "required".to_owned() } else { default(value) };
            let _ = writeln!(text, "| `{key}` | {} | {default} |", cell(&meaning(value)));
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let (item, title) = match value.get("items") {
                Some(item) => (item, format!("`[[{path}]]`")),
                None => (value, format!("`[{path}]`")),
            };
            let kinds = item["anyOf"].as_array().map_or(std::slice::from_ref(item), Vec::as_slice);
            tables.extend(kinds.iter().map(|kind| (path.clone(), title.clone(), kind)));
        }
    }
}

/// Describes the meaning and the accepted values of a key.
fn meaning(schema: &Json) -> String {
    let mut meaning = schema["description"].as_str().unwrap_or_default().to_owned();
    let words = schema.get("enum").or(schema["items"].get("enum")).and_then(Json::as_array);
    if let Some(words) = words {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        let _ = write!(meaning, ": {}", words.join(", "));
    }
    if let (Some(low), Some(high)) = (schema.get("minimum"), schema.get("maximum")) {
        let _ = write!(meaning, ", {low} to {high}");
    }
    meaning
}

fn default(schema: &Json) -> String {
    match schema.get("default") {
        None => String::new(),
        Some(Json::String(text)) if text.is_empty() => String::new(),
        Some(default) => format!("`{default}`"),
    }
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.trim_end_matches('.').replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// Compares a page with its file, or writes the file.
fn check(name: &str, text: &str) {
    let file = format!("docs/reference/{name}.md");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&file);
    if std::env::var_os("UNDERLOAD_WRITE_REFERENCE").is_some() {
        std::fs::write(path, text).expect("the page can be written");
        return;
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    let line = (1..).zip(stored.lines().zip(text.lines())).find(|(_, (a, b))| a != b);
    assert!(
        stored == text,
        "{file} is not what the program says, first at {line:?}: cargo xtask reference"
    );
}

#[test]
fn the_reference_pages_match_the_programs() {
    check("commands", &commands());
    check("fleet", &commands_of_fleet());
    check("queues-and-links", &queues_and_links());
    check("scenarios", &scenarios());
    check("scenario-keys", &scenario_keys());
    check("documents", &crate::items_tests::page(NOTE));
}

#[test]
fn a_cell_with_a_pipe_stays_one_cell() {
    assert_eq!(cell("a|b <T>\nc."), "a\\|b &lt;T> c");
}
