//! `underload figures`: every published number of the built-in scenarios beside ours, in virtual
//! time.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use underload_record::schema::World;
use underload_report::{
    Figure, FigurePage, figures_table, write_figure_pages, write_figures_markdown,
};
use underload_run::{Destination, Run, Settings};
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
  underload figures buffer-control --markdown pages
  underload figures buffer-control --html figures
  underload figures comcast --json --fail-on miss")]
pub struct Arguments {
    /// Runs the built-in scenarios whose names begin with NAME, such as `bode` [default: all].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Runs the short forms: a quick look with fewer numbers, which are not judged.
    #[arg(long)]
    pub short: bool,
    /// Writes an index and a page per paper as Markdown into this directory: the numbers alone.
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub markdown: Option<PathBuf>,
    /// Writes a page per paper into this directory, with the figures and their numbers.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["markdown", "json"])]
    pub html: Option<PathBuf>,
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
    if let Some(folder) = &arguments.html {
        return arguments.write_pages(&scenarios, folder);
    }
    let figures = arguments.run_each(&scenarios, &Destination::Memory, |scenario, run| Figure {
        scenario: scenario.name.clone(),
        figure: scenario.figure.clone(),
        expectations: run.record.expectations,
    })?;
    if arguments.json {
        console::print_json(&figures)?;
    } else if let Some(folder) = &arguments.markdown {
        let index = write_figures_markdown(folder, &figures, &arguments.command(folder))
            .context("writing the pages")?;
        console::print(&format!("{}\n", index.display()))?;
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

    /// Runs the scenarios, and returns what `result` makes of each run.
    fn run_each<T>(
        &self,
        scenarios: &[Scenario],
        destination: &Destination,
        result: impl Fn(&Scenario, Run) -> T,
    ) -> anyhow::Result<Vec<T>> {
        let run = |(position, scenario): (usize, &Scenario)| {
            note!("[{} of {}]", position + 1, scenarios.len());
            let (uses_cache, commit) = (!self.no_cache, run::COMMIT);
            let destination = destination.clone();
            let settings = Settings { uses_cache, commit, destination, ..Settings::default() };
            let run = run::run_only(scenario, settings).with_context(|| scenario.name.clone())?;
            Ok(result(scenario, run))
        };
        scenarios.iter().enumerate().map(run).collect()
    }

    /// Writes a page per paper, and an index.
    fn write_pages(&self, scenarios: &[Scenario], folder: &Path) -> anyhow::Result<()> {
        let pages = self.run_each(scenarios, &Destination::Caller, |scenario, run| {
            FigurePage::of(&run.into_data(), &scenario.figure, &scenario.description)
        })?;
        let first = write_figure_pages(folder, &pages).context("writing the pages")?;
        console::print(&format!("{}\n", first.display()))
    }

    /// Returns the command that writes the same pages again.
    fn command(&self, folder: &Path) -> String {
        let start = format!("underload figures --markdown {}", folder.display());
        let mut words = vec![start.as_str()];
        words.extend(self.short.then_some("--short"));
        words.extend(self.names.iter().map(String::as_str));
        words.join(" ")
    }
}
