//! `underload scenarios`: the built-in scenarios.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use underload_record::schema::World;
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario, builtin};
use underload_terminal::console::{self, count};
use underload_terminal::exit::OrBadInput;

use crate::progress::words;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload scenarios
  underload scenarios comcast/upstream > my.toml
  underload scenarios --json")]
pub struct Arguments {
    /// Prints the file of this scenario, which you may copy and change.
    pub name: Option<String>,
    /// Prints the list as one JSON document.
    #[arg(long, conflicts_with = "name")]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(name) = &arguments.name {
        return console::print(&Source::find(name).or_bad_input()?.text);
    }
    let rows = builtin::scenarios().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    if arguments.json {
        return console::print_json(&rows);
    }
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{}\n    {}", row.name, row.title)?;
        if !row.figure.is_empty() {
            writeln!(text, "    reproduces {}", row.figure)?;
        }
        let time = |seconds: f64| words(Duration::from_secs_f64(seconds));
        let (whole, short) = (time(row.duration_s), time(row.short_duration_s));
        let (variants, worlds) = (count(row.variants.len(), "variant"), row.worlds.join(", "));
        let time = if row.worlds.contains(&World::Live.name()) {
            format!(", about {whole} live, {short} with --short")
        } else {
            String::new()
        };
        writeln!(text, "    {variants}{time}; {worlds}")?;
    }
    console::print(&text)
}

#[derive(serde::Serialize)]
struct Row {
    name: &'static str,
    title: String,
    figure: String,
    variants: Vec<String>,
    /// Duration in real time.
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
        variants: whole.variants.into_iter().map(|variant| variant.name).collect(),
        title: whole.title,
        figure: whole.figure,
    })
}
