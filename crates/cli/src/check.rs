//! `underload check`: every error in scenario and sweep files.

use clap::{Args, ValueEnum};
use serde::Serialize;
use underload_record::schema::World;
use underload_run::scenario::{Scenario, ScenarioError, ScenarioErrors, json_schema};
use underload_run::source::{Source, load_file};
use underload_run::sweep::{self, Sweep, SweepFile};
use underload_terminal::console::{self, count};
use underload_terminal::exit::{OrBadInput, refuse};

#[derive(Debug, Args)]
#[command(after_help = "\
Editors complete and check the keys of a TOML file that begins with `#:schema scenario.schema.json`.
`underload check --schema > scenario.schema.json` writes that schema, `--schema sweep` the one of
sweep files.

Exit status: 0 no errors, 2 errors.

Examples:
  underload check my.toml
  underload check scenarios/*.toml --json
  underload check --schema > scenario.schema.json")]
pub struct Arguments {
    /// Scenario files, names of built-in scenarios, and sweep files.
    #[arg(required_unless_present = "schema", value_name = "FILE")]
    files: Vec<String>,
    /// Prints the JSON schema of scenario files, or of sweep files, instead.
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "scenario")]
    #[arg(conflicts_with_all = ["files", "json"])]
    schema: Option<Kind>,
    /// Prints one JSON document: a list with an entry for each file.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Scenario,
    Sweep,
}

/// The result for one file.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    arms: usize,
    /// `None` for a scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<u64>,
    trials: usize,
    worlds: Vec<&'static str>,
    errors: Vec<Fault>,
}

#[derive(Debug, Serialize)]
struct Fault {
    /// Counted from 1. `None` if the error is about the whole file.
    line: Option<usize>,
    column: Option<usize>,
    key: String,
    problem: String,
}

impl Arguments {
    pub fn run(&self) -> anyhow::Result<()> {
        match self.schema {
            Some(Kind::Scenario) => return console::print_json(&json_schema()),
            Some(Kind::Sweep) => return console::print_json(&SweepFile::json_schema()),
            None => {}
        }
        let mut results = Vec::new();
        for file in &self.files {
            let source = Source::find(file).or_bad_input()?;
            let (checked, errors) = Checked::new(&source);
            if !self.json && errors.0.is_empty() {
                console::print(&checked.line())?;
            } else if !self.json {
                console::say_warning(format_args!("error: {errors}"));
            }
            results.push(checked);
        }
        if self.json {
            console::print_json(&results)?;
        }
        let errors = results.iter().map(|file| file.errors.len()).sum();
        if errors == 0 {
            return Ok(());
        }
        let wrong = results.iter().filter(|file| !file.errors.is_empty()).count();
        refuse!("{} in {}", count(errors, "mistake"), count(wrong, "file"))
    }
}

impl Checked {
    fn new(source: &Source) -> (Self, ScenarioErrors) {
        let Source { text, name, .. } = source;
        let mut checked = Self {
            file: name.clone(),
            arms: 0,
            cells: None,
            trials: 0,
            worlds: Vec::new(),
            errors: Vec::new(),
        };
        let outcome = if sweep::is_sweep(text) {
            checked.cells = Some(0);
            // The identity of the program matters only to computed results.
            Sweep::parse(text, name, None, "").map(|sweep| {
                checked.arms = sweep.scenario().arms.len();
                checked.cells = Some(sweep.cells());
                checked.trials = sweep.trials() as usize;
                checked.worlds.push(World::Sim.name());
            })
        } else {
            Scenario::check(text, name, &mut |file| load_file(name, file)).map(|scenario| {
                checked.arms = scenario.arms.len();
                checked.trials = scenario.trials();
                checked.worlds = scenario.worlds().into_iter().map(World::name).collect();
            })
        };
        let errors = outcome.err().unwrap_or_default();
        checked.errors = errors.0.iter().map(Fault::new).collect();
        (checked, errors)
    }

    fn line(&self) -> String {
        let sweep = self.cells.map_or(String::new(), |cells| {
            format!("a sweep of {}, ", count(cells as usize, "cell"))
        });
        let (arms, trials) = (count(self.arms, "variant"), count(self.trials, "trial"));
        let worlds = match self.worlds.as_slice() {
            ["sim"] => "simulator only".to_owned(),
            worlds => worlds.join(", "),
        };
        format!("{}: OK ({sweep}{arms}, {trials}; {worlds})\n", self.file)
    }
}

impl Fault {
    fn new(error: &ScenarioError) -> Self {
        Self {
            line: error.line,
            column: error.excerpt.as_ref().map(|excerpt| excerpt.column),
            key: error.key.clone(),
            problem: error.problem.clone(),
        }
    }
}
