//! `underload scenarios`: what is built in, and what is in it.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use underload_record::schema::World;
use underload_run::scenario::{Options, Scenario, builtin};
use underload_run::source::Source;
use underload_terminal::exit::OrBadInput;

use crate::progress::words;

/// The command line of `underload scenarios`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload scenarios
  underload scenarios comcast/upstream > my.toml
  underload scenarios --json")]
pub struct Arguments {
    /// Prints this scenario's file, to read or to start one's own from.
    pub name: Option<String>,
    /// Prints the list as one JSON document.
    #[arg(long, conflicts_with = "name")]
    pub json: bool,
}

/// Lists the built-in scenarios, or prints one.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some(name) = &arguments.name {
        let source = Source::find(name).or_bad_input()?;
        return out.write_all(source.text.as_bytes()).context("writing the scenario");
    }
    let rows = builtin::scenarios().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &rows).context("writing the list")?;
        return writeln!(out).context("writing the list");
    }
    for row in rows {
        writeln!(out, "{}\n    {}", row.name, row.title).context("writing the list")?;
        if !row.figure.is_empty() {
            writeln!(out, "    reproduces {}", row.figure).context("writing the list")?;
        }
        let time = |seconds: f64| words(Duration::from_secs_f64(seconds));
        let (whole, short) = (time(row.duration_s), time(row.short_duration_s));
        let (arms, worlds) = (row.arms.len(), row.worlds.join(", "));
        let plural = if arms == 1 { "arm" } else { "arms" };
        let time = if row.worlds.contains(&World::Live.name()) {
            format!(", about {whole} live, {short} with --short")
        } else {
            String::new()
        };
        writeln!(out, "    {arms} {plural}{time}; {worlds}").context("writing the list")?;
    }
    Ok(())
}

/// One row of the list of scenarios.
#[derive(serde::Serialize)]
struct Row {
    name: &'static str,
    title: String,
    figure: String,
    arms: Vec<String>,
    /// Duration of the scenario in real time, seconds.
    duration_s: f64,
    short_duration_s: f64,
    worlds: Vec<&'static str>,
}

fn row(builtin: builtin::BuiltIn) -> anyhow::Result<Row> {
    let whole = Scenario::parse(builtin.text, builtin.name).or_bad_input()?;
    let options = Options { short: true, ..Options::default() };
    let load = &mut builtin::load_file;
    let short = Scenario::parse_with(builtin.text, builtin.name, &options, load).or_bad_input()?;
    Ok(Row {
        name: builtin.name,
        duration_s: whole.estimate_seconds(),
        short_duration_s: short.estimate_seconds(),
        worlds: whole.worlds().into_iter().map(World::name).collect(),
        arms: whole.arms.into_iter().map(|arm| arm.name).collect(),
        title: whole.title,
        figure: whole.figure,
    })
}
