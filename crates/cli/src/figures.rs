//! `underload figures`: every published number of the built-in scenarios beside ours, in virtual
//! time.

use anyhow::{Context as _, bail};
use clap::Args;
use underload_record::schema::World;
use underload_report::{Figure, figures_table};
use underload_run::{Destination, Settings};
use underload_scenario::{Options, Scenario, builtin};
use underload_terminal::console::{self, note};
use underload_terminal::exit::OrBadInput;

use crate::fail::{self, FailOn};
use crate::run;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  underload figures
  underload figures bode kernel --short
  underload figures buffer-control/figure-10-calls
  underload figures comcast --json --fail-on miss")]
pub struct Arguments {
    /// Runs the built-in scenarios whose names begin with NAME, such as `bode` [default: all].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Runs the short forms: a quick look with fewer numbers, which are not judged.
    #[arg(long)]
    pub short: bool,
    /// Prints one JSON document: a list with an entry for each scenario.
    #[arg(long)]
    pub json: bool,
    /// When to exit with status 1 although all runs succeeded.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FailOn::Never)]
    pub fail_on: FailOn,
    /// Computes every trial, even if the cache has it.
    #[arg(long)]
    pub no_cache: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scenarios = arguments.scenarios().or_bad_input()?;
    let figures = arguments.figures(&scenarios)?;
    if arguments.json {
        console::print_json(&figures)?;
    } else {
        console::print(&console::result(&figures_table(&figures)))?;
    }
    let numbers = figures.iter().flat_map(|figure| &figure.expectations);
    fail::judge(arguments.fail_on, numbers)
}

impl Arguments {
    /// Returns the wanted scenarios that have published numbers and run in virtual time.
    fn scenarios(&self) -> anyhow::Result<Vec<Scenario>> {
        let wanted = |name: &str| {
            self.names.is_empty() || self.names.iter().any(|start| name.starts_with(start.as_str()))
        };
        let mut scenarios = Vec::new();
        for builtin in builtin::scenarios().filter(|builtin| wanted(builtin.name)) {
            let options = Options { short: self.short, ..Options::default() };
            let (text, name) = (builtin.text, builtin.name);
            let scenario = Scenario::parse_with(text, name, &options, &mut builtin::load_file)?;
            if !scenario.published.is_empty() && scenario.worlds().contains(&World::Sim) {
                scenarios.push(scenario);
            }
        }
        let is_found = |name: &&String| {
            scenarios.iter().any(|scenario: &Scenario| scenario.name.starts_with(name.as_str()))
        };
        if let Some(name) = self.names.iter().find(|name| !is_found(name)) {
            let is_published =
                |it: &builtin::BuiltIn| it.text.lines().any(|line| line.trim() == "[[published]]");
            let known = builtin::scenarios().filter(is_published).map(|builtin| builtin.name);
            let instead = builtin::suggestion(name, known.collect::<Vec<_>>().into_iter());
            bail!("no scenario with published numbers begins with {name}; {instead}");
        }
        Ok(scenarios)
    }

    /// Runs the scenarios, and returns their published numbers with ours.
    fn figures(&self, scenarios: &[Scenario]) -> anyhow::Result<Vec<Figure>> {
        let run = |(position, scenario): (usize, &Scenario)| {
            note!("[{} of {}]", position + 1, scenarios.len());
            let (uses_cache, commit) = (!self.no_cache, run::COMMIT);
            let destination = Destination::Memory;
            let settings = Settings { uses_cache, commit, destination, ..Settings::default() };
            let run = run::run_only(scenario, settings).with_context(|| scenario.name.clone())?;
            let (scenario, figure) = (scenario.name.clone(), scenario.figure.clone());
            Ok(Figure { scenario, figure, expectations: run.record.expectations })
        };
        scenarios.iter().enumerate().map(run).collect()
    }
}
