//! `underload check`: every error of scenario files, before anything runs.

use std::io::Write as _;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use serde::Serialize;
use underload_record::schema::World;
use underload_run::scenario::{Scenario, ScenarioError, ScenarioErrors, json_schema};
use underload_run::source::{Source, load_file};
use underload_run::sweep::{self, Sweep, SweepFile};
use underload_terminal::console::{self, count};
use underload_terminal::exit::{OrBadInput, bad_input};

/// The command line of `underload check`.
#[derive(Debug, Args)]
#[command(after_help = "\
A file that begins with the line `#:schema scenario.schema.json` has its keys completed and checked
by editors that know TOML, once `underload check --schema > scenario.schema.json` has put it there;
a sweep file likewise, with `--schema sweep`.

Exit status: 0 all are right, 2 something is wrong.

Examples:
  underload check my.toml
  underload check scenarios/*.toml --json
  underload check --schema > scenario.schema.json")]
pub struct Arguments {
    /// Scenario files, or the names of built-in ones; sweep files.
    #[arg(required_unless_present = "schema", value_name = "FILE")]
    files: Vec<String>,
    /// Prints the format of scenario files, or of sweep files, as a JSON schema instead.
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "scenario")]
    #[arg(conflicts_with_all = ["files", "json"])]
    schema: Option<Kind>,
    /// Prints one JSON document: a list with an entry for each file.
    #[arg(long)]
    json: bool,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Scenario files.
    Scenario,
    /// Sweep files.
    Sweep,
}

/// What was found of a file.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    arms: usize,
    /// Of a sweep file.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<u64>,
    trials: usize,
    worlds: Vec<&'static str>,
    errors: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
struct Fault {
    /// From 1; null where it has no place in the file.
    line: Option<usize>,
    column: Option<usize>,
    key: String,
    problem: String,
}

impl Arguments {
    /// Checks each file.
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if let Some(kind) = self.schema {
            let schema = match kind {
                Kind::Scenario => json_schema(),
                Kind::Sweep => SweepFile::json_schema(),
            };
            serde_json::to_writer_pretty(&mut out, &schema).context("writing the schema")?;
            return writeln!(out).context("writing the schema");
        }
        let mut checked = Vec::new();
        let mut errors = 0;
        for file in &self.files {
            let source = Source::find(file).or_bad_input()?;
            let is_sweep = sweep::is_sweep(&source.text);
            let check = if is_sweep { Checked::sweep } else { Checked::scenario };
            let (of_file, faults) = check(&source);
            errors += faults.0.len();
            if !self.json && faults.0.is_empty() {
                writeln!(out, "{}", of_file.words()).context("writing the result")?;
            }
            if !self.json && !faults.0.is_empty() {
                console::say_warning(format_args!("error: {faults}"));
            }
            checked.push(of_file);
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &checked).context("writing JSON")?;
            writeln!(out).context("writing JSON")?;
        }
        if errors == 0 {
            return Ok(());
        }
        let wrong = checked.iter().filter(|it| !it.errors.is_empty()).count();
        Err(bad_input(anyhow!("{} in {}", count(errors, "mistake"), count(wrong, "file"))))
    }
}

impl Checked {
    /// A scenario as it stands, and in its short form.
    fn scenario(source: &Source) -> (Self, ScenarioErrors) {
        let load = &mut |file: &str| load_file(&source.name, file);
        let (scenario, errors) = parts(Scenario::check(&source.text, &source.name, load));
        let worlds = scenario.as_ref().map(Scenario::worlds).unwrap_or_default();
        let of_file = Self {
            cells: None,
            file: source.name.clone(),
            arms: scenario.as_ref().map_or(0, |scenario| scenario.arms.len()),
            trials: scenario.as_ref().map_or(0, Scenario::trials),
            worlds: worlds.into_iter().map(World::name).collect(),
            errors: errors.0.iter().map(Fault::of).collect(),
        };
        (of_file, errors)
    }

    /// A sweep as it stands. Nothing is computed, so it does not matter by what.
    fn sweep(source: &Source) -> (Self, ScenarioErrors) {
        let (sweep, errors) = parts(Sweep::parse(&source.text, &source.name, None, ""));
        let of_file = Self {
            file: source.name.clone(),
            arms: sweep.as_ref().map_or(0, |sweep| sweep.scenario().arms.len()),
            cells: Some(sweep.as_ref().map_or(0, Sweep::cells)),
            trials: sweep.as_ref().map_or(0, |sweep| sweep.trials() as usize),
            worlds: sweep.iter().map(|_| World::Sim.name()).collect(),
            errors: errors.0.iter().map(Fault::of).collect(),
        };
        (of_file, errors)
    }

    fn words(&self) -> String {
        let of = self.cells.map_or(String::new(), |cells| {
            format!("a sweep of {}, ", count(cells as usize, "cell"))
        });
        let (arms, trials) = (count(self.arms, "arm"), count(self.trials, "trial"));
        let worlds = match self.worlds.as_slice() {
            ["sim"] => "simulator only".to_owned(),
            worlds => worlds.join(", "),
        };
        format!("{}: OK ({of}{arms}, {trials}; {worlds})", self.file)
    }
}

fn parts<T>(read: Result<T, ScenarioErrors>) -> (Option<T>, ScenarioErrors) {
    match read {
        Ok(value) => (Some(value), ScenarioErrors::default()),
        Err(errors) => (None, errors),
    }
}

impl Fault {
    fn of(error: &ScenarioError) -> Self {
        Self {
            line: error.line,
            column: error.excerpt.as_ref().map(|excerpt| excerpt.column),
            key: error.key.clone(),
            problem: error.problem.clone(),
        }
    }
}
