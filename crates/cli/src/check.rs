//! `underload check`: every error in scenario and sweep files.

use clap::{Args, ValueEnum};
use underload_run::check::Checked;
use underload_run::sweep::SweepFile;
use underload_scenario::json_schema;
use underload_scenario::source::Source;
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
  underload check my.toml --explain --set path.up=20mbit
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
    /// Prints every setting in force, with its unit and where it comes from: a line of the file, an
    /// option, or the default.
    #[arg(long, conflicts_with = "schema")]
    explain: bool,
    /// With --explain, overrides a key as `underload run --set` does.
    #[arg(long, value_name = "KEY=VALUE", requires = "explain")]
    set: Vec<String>,
    /// Prints one JSON document: a list with an entry for each file.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Scenario,
    Sweep,
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
            let (checked, errors) = Checked::new(&source, self.explain.then_some(&*self.set));
            if !self.json && errors.0.is_empty() {
                console::print(&(checked.line() + &checked.explanation()))?;
            } else if !self.json {
                console::say_warning(format_args!("error: {errors}"));
            }
            results.push(checked);
        }
        if self.json {
            console::print_json(&results)?;
        }
        let errors: usize = results.iter().map(|file| file.errors.len()).sum();
        if errors == 0 {
            return Ok(());
        }
        let wrong = results.iter().filter(|file| !file.errors.is_empty()).count();
        refuse!("{} in {}", count(errors, "mistake"), count(wrong, "file"))
    }
}
