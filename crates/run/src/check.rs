//! Checks the file of a scenario or a sweep, and returns its faults.

use std::collections::BTreeMap;

use serde::Serialize;
use underload_record::schema::World;
use underload_record::text::{count, one_line};
use underload_scenario::source::{Source, load_file};
use underload_scenario::{Options, Scenario, ScenarioError, ScenarioErrors, Setting, SettingValue};

use crate::sweep::{self, Sweep};
use crate::world::machine_problem;

/// A checked file, with its errors.
#[derive(Debug, Default, Serialize)]
pub struct Checked {
    file: String,
    variants: usize,
    /// `None` for a scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<u64>,
    trials: usize,
    worlds: Vec<&'static str>,
    /// Why a world cannot run the file, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refusals: BTreeMap<&'static str, String>,
    /// The settings in force, with --explain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settings: Vec<Setting>,
    pub errors: Vec<Fault>,
}

/// An error of a file.
#[derive(Debug, Serialize)]
pub struct Fault {
    /// Counted from 1. `None` if the error is about the whole file.
    line: Option<usize>,
    column: Option<usize>,
    key: String,
    problem: String,
}

impl Checked {
    /// Checks a file. `explained` are the overrides whose settings are to be listed.
    pub fn new(source: &Source, explained: Option<&[String]>) -> (Self, ScenarioErrors) {
        let Source { text, name, .. } = source;
        let mut checked = Self { file: name.clone(), ..Self::default() };
        let outcome = if sweep::is_sweep(text) {
            checked.cells = Some(0);
            // The identity of the program matters only to computed results.
            Sweep::parse(text, name, None, "", BTreeMap::new()).map(|sweep| {
                checked.variants = sweep.scenario.variants.len();
                checked.cells = Some(sweep.manifest.cells);
                checked.trials = sweep.manifest.trials() as usize;
                checked.worlds.push(World::Sim.name());
                if explained.is_some() {
                    checked.settings = sweep.settings();
                }
            })
        } else {
            Scenario::check(text, name, &mut |file| load_file(name, file)).map(|scenario| {
                checked.variants = scenario.variants.len();
                checked.trials = scenario.trials();
                checked.worlds = scenario.worlds().into_iter().map(World::name).collect();
                let problems =
                    [(World::Sim, scenario.sim_problem()), (World::Live, scenario.live_problem())];
                let refusals = problems.into_iter().filter_map(|(it, why)| Some((it.name(), why?)));
                checked.refusals = refusals.collect();
                // A scenario that the simulator cannot run depends on what this machine can run.
                if checked.worlds == [World::Live.name()] {
                    let problem = machine_problem(&scenario);
                    checked.refusals.extend(problem.map(|it| (World::Live.name(), it)));
                }
            })
        };
        let outcome = outcome.and_then(|()| match explained {
            Some(set) if checked.cells.is_none() => {
                let options =
                    Options { set: set.to_vec(), keeps_tables: true, ..Options::default() };
                checked.settings = source.scenario(&options, &[])?.settings();
                Ok(())
            }
            _ => Ok(()),
        });
        let errors = outcome.err().unwrap_or_default();
        checked.errors = errors.0.iter().map(Fault::new).collect();
        (checked, errors)
    }

    /// Says that the file has no errors, what it has, and which worlds cannot run it.
    pub fn line(&self) -> String {
        let sweep = self
            .cells
            .map_or(String::new(), |cells| format!("a sweep of {}, ", count(cells, "cell")));
        let (variants, trials) = (count(self.variants, "variant"), count(self.trials, "trial"));
        let worlds = match self.worlds.as_slice() {
            ["sim"] => "simulator only".to_owned(),
            worlds => worlds.join(", "),
        };
        // Most scenarios of applications do not run live, which needs no warning.
        let places = [(World::Sim, "in sim"), (World::Live, "on this machine")];
        let refusals = places.into_iter().map_while(|(world, place)| {
            let why = self.refusals.get(world.name())?;
            Some(format!("  not {place}: {why}\n"))
        });
        let refusals: String = refusals.collect();
        format!("{}: OK ({sweep}{variants}, {trials}; {worlds})\n{refusals}", self.file)
    }

    /// Formats the settings in columns: key, value, origin. A key whose value differs between
    /// variants has a line for each value.
    pub fn explanation(&self) -> String {
        let lines = self.settings.iter().flat_map(|setting| match setting.values.as_slice() {
            [only] if only.variants.is_empty() => vec![row(&setting.key, only)],
            values => {
                let name = |value: &SettingValue| format!("    {}", names(&value.variants));
                let own = values.iter().map(|value| row(&name(value), value));
                std::iter::once([setting.key.clone(), String::new(), String::new()])
                    .chain(own)
                    .collect()
            }
        });
        let lines: Vec<[String; 3]> = lines.collect();
        let width = |column: usize| {
            let widths = lines.iter().map(|line| line[column].chars().count());
            widths.filter(|width| *width <= WIDEST).max().unwrap_or_default()
        };
        let (keys, values) = (width(0), width(1));
        let line = |[key, value, origin]: &[String; 3]| {
            let line = format!("  {key:<keys$}  {value:<values$}  {origin}");
            one_line(line.trim_end()) + "\n"
        };
        lines.iter().map(line).collect()
    }
}

/// Widest key or value that sets the width of its column.
const WIDEST: usize = 40;
/// Maximum number of names of variants in a line.
const MOST_NAMES: usize = 3;

fn row(key: &str, value: &SettingValue) -> [String; 3] {
    let text = value.value.clone().unwrap_or_else(|| "-".to_owned());
    [key.to_owned(), text, value.origin.clone()]
}

/// Joins names of variants: `fifo, codel and 12 more`.
fn names(variants: &[String]) -> String {
    let more = variants.len().saturating_sub(MOST_NAMES);
    let shown = variants.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
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
