//! Reads a sweep file, and reports its faults.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};
use underload_record::schema::Extreme;
use underload_scenario::document::{Document, SHORT_OPTION};
use underload_scenario::keys::{Fault, Faults, read_table};
use underload_scenario::metrics::Metrics;
use underload_scenario::simulation::configure;
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario, ScenarioError, ScenarioErrors, builtin};
use underload_sim::trial::TrialLabel;
use underload_store::sweep::SweepColumns;

use super::axis::{Axis, Level};
use super::compute::Files;
use super::points::Points;
use super::{BestKeys, Design, PlotKeys, StopKeys, Sweep, SweepFile, plots};
use crate::cache::digest_text;

const MOST_AXES: usize = 32;
const MOST_METRICS: usize = 64;
/// Points of a design that draws them, at most.
const MOST_SAMPLES: u64 = 100_000_000;
/// Trials of a sweep, at most: their numbers have 32 bits.
const MOST_TRIALS: u64 = u32::MAX as u64;
/// Values of an axis that are tried before a sweep begins, at most.
const MOST_TRIED: u64 = 1_000;
/// Values of an axis without steps that are tried.
const TRIED_OF_RANGE: u64 = 9;
const DEFAULT_METRICS: [&str; 4] = ["load.rtt.p50", "load.rtt.p99", "goodput.up", "goodput.down"];

impl Sweep {
    /// Reads a sweep file. Without `scenario`, the scenario is found by the name in the file,
    /// beside the file or among those built in. `program` is that of [`super::program`]. Returns
    /// all faults of the file, or of its scenario.
    pub fn parse(
        text: &str,
        name: &str,
        scenario: Option<Source>,
        program: &str,
    ) -> Result<Self, ScenarioErrors> {
        Self::parse_with(text, name, scenario, program, BTreeMap::new())
    }

    /// As [`Sweep::parse`], with [`Sweep::files`] of another machine.
    pub fn parse_with(
        text: &str,
        name: &str,
        scenario: Option<Source>,
        program: &str,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, ScenarioErrors> {
        let document = Document::parse(text, name)?;
        let mut faults = Faults::default();
        let Some(read) = Read::new(&document.root, &mut faults) else {
            return Err(document.errors(faults));
        };
        let named = read.file.scenario.as_deref();
        let source = match scenario {
            Some(source) => Some(source),
            None if named.is_none() && !faults.is_empty() => None,
            None => faults.accept(find(named, name)),
        };
        let files = Files::of(files);
        let scenario = source.map(|source| scenario_of(&read.file, &source, &files));
        let (scenario, of_scenario) = match scenario {
            None => (None, ScenarioErrors::default()),
            Some(Ok(scenario)) => (Some(scenario), ScenarioErrors::default()),
            Some(Err(errors)) => (None, of_sweep(errors, &read.file, &mut faults)),
        };
        let mut own = Faults::default();
        let sweep = match scenario {
            Some(scenario) => Self::new(&read, scenario, files, &mut own),
            None => {
                check_alone(&read.file, &mut own);
                None
            }
        };
        own.into_iter().for_each(|fault| faults.add(read.in_file(fault)));
        match sweep.filter(|_| faults.is_empty()) {
            Some(sweep) => Ok(Self {
                name: name.to_owned(),
                text: text.to_owned(),
                program: program.to_owned(),
                ..sweep
            }),
            None => {
                let mut errors = document.errors(faults);
                errors.0.extend(of_scenario.0);
                Err(errors)
            }
        }
    }

    /// Returns the sweep of a file over a scenario, without its name and text.
    fn new(read: &Read, scenario: Scenario, files: Files, faults: &mut Faults) -> Option<Self> {
        let mut file = read.file.clone();
        faults.accept(check_scenario(&scenario));
        let content = faults.accept(digest_of(&file));
        let axes = axes(&file, faults).filter(|_| read.has_all);
        let samples = faults.accept(samples(&file));
        let requested: Vec<String> = named_metrics(&file).cloned().collect();
        faults.accept(check_numbers(&file));
        check_metrics(&file, &Metrics::of(&scenario.variants, None, false), faults);
        fill(&mut file, &scenario);
        let Some(axes) = axes else {
            faults.accept(repeats(&file, &scenario, 1));
            return None;
        };
        let variants: Vec<&str> =
            scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        plots::check(&file, &axes, &variants, faults);
        let columns = faults.accept(columns(&file, &axes));
        let points = samples.map(|samples| points(&file, samples, &axes, scenario.seed));
        let points = points.and_then(|points| faults.accept(points));
        let count = points.as_ref().map_or(1, |points| points.count);
        let repeats = faults.accept(repeats(&file, &scenario, count));
        let sweep = Self {
            name: String::new(),
            text: String::new(),
            file,
            scenario,
            axes,
            points: points?,
            repeats: repeats?,
            columns: columns?,
            program: String::new(),
            content: content?,
            files,
            requested,
        };
        if faults.is_empty() {
            sweep.check(faults);
        }
        Some(sweep)
    }

    /// Tries every variant, and each axis with the others' first values. Reports one fault per axis.
    fn check(&self, faults: &mut Faults) {
        let first: Vec<Level> = self.axes.iter().map(|axis| axis.at(0.0)).collect();
        for variant in &self.scenario.variants {
            if faults.accept(self.try_out(&first, &variant.name)).is_none() {
                return;
            }
        }
        let Some(variant) = self.scenario.variants.first() else { return };
        for (number, axis) in self.axes.iter().enumerate() {
            let tried = axis.levels().unwrap_or(TRIED_OF_RANGE).min(MOST_TRIED);
            for step in 1..tried {
                let mut levels = first.clone();
                levels[number] = match axis.levels() {
                    Some(all) => axis.level(step * (all - 1) / (tried - 1)),
                    None => axis.at(step as f64 / (tried - 1) as f64),
                };
                if faults.accept(self.try_out(&levels, &variant.name)).is_none() {
                    break;
                }
            }
        }
    }

    /// Checks that the variant with these values can be simulated.
    fn try_out(&self, levels: &[Level], variant: &str) -> Result<(), Fault> {
        let load = &mut |file: &str| self.files.note(&self.scenario.name, file);
        let made =
            self.varied(levels, variant).and_then(|varied| varied.variant(&self.scenario, 0, load));
        let (made, _) = made.map_err(|fault| self.blame(&fault, levels))?;
        configure(&made, 0, TrialLabel::default())
            .map_err(|error| self.blame(&Fault::new("", error.to_string()), levels))?;
        Ok(())
    }

    /// Returns the fault of a variant as a fault of the axis that has the value.
    fn blame(&self, fault: &Fault, levels: &[Level]) -> Fault {
        let axis = self.axis_of(&fault.key);
        let Some(axis) = axis else { return Fault::new("scenario", fault.to_string()) };
        let of_key =
            ["unknown key", "not a key", "no flow", "no hop", "the variant", "the scenario"];
        if of_key.iter().any(|start| fault.problem.starts_with(start)) {
            return Fault::new(format!("axis[{axis}].key"), fault.to_string());
        }
        let place = format!("axis[{axis}].{}", self.axes[axis].place());
        Fault::new(place, format!("with `{}`: {fault}", levels[axis].value.text))
    }
}

/// A sweep file without the tables and keys that are wrong.
struct Read {
    file: SweepFile,
    /// Positions in the file of the axes and pictures that are left, by the key of the list.
    left: BTreeMap<&'static str, Vec<usize>>,
    /// True if the file has no faults so far.
    has_all: bool,
}

impl Read {
    /// Reads the keys of a file. `None` if what is left of it cannot be read.
    fn new(root: &Table, faults: &mut Faults) -> Option<Self> {
        let file: Option<SweepFile> = read_table(root, faults);
        if let Some(file) = file {
            return Some(Self { file, left: BTreeMap::new(), has_all: true });
        }
        let mut root = root.clone();
        let mut left = BTreeMap::new();
        for list in ["axis", "plot"] {
            let Some(Value::Array(tables)) = root.get_mut(list) else { continue };
            let is_right = |index: &usize| {
                let item = format!("{list}[{index}]");
                !faults.keys().any(|key| key == item || key.starts_with(&format!("{item}.")))
            };
            let right: Vec<usize> = (0..tables.len()).filter(is_right).collect();
            *tables = right.iter().filter_map(|index| tables.get(*index).cloned()).collect();
            left.insert(list, right);
        }
        let wrong = faults.keys().filter(|key| !key.contains('['));
        let wrong: Vec<String> =
            wrong.filter_map(|key| key.split('.').next().map(str::to_owned)).collect();
        for key in &wrong {
            root.remove(key);
        }
        let file = read_table(&root, &mut Faults::default())?;
        Some(Self { file, left, has_all: false })
    }

    /// Returns a fault of what is left under the key that the whole file has for it.
    fn in_file(&self, fault: Fault) -> Fault {
        let whole = self.left.iter().find_map(|(list, positions)| {
            let (index, rest) = fault.key.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
            let position = positions.get(index.parse::<usize>().ok()?)?;
            Some(format!("{list}[{position}]{rest}"))
        });
        Fault { key: whole.unwrap_or_else(|| fault.key.clone()), ..fault }
    }
}

/// Checks a file whose scenario is wrong.
fn check_alone(file: &SweepFile, faults: &mut Faults) {
    axes(file, faults);
    faults.accept(samples(file));
    faults.accept(check_numbers(file));
}

/// Adds the errors that keys of the sweep file cause to `faults`, and returns the others.
fn of_sweep(errors: ScenarioErrors, file: &SweepFile, faults: &mut Faults) -> ScenarioErrors {
    let place = |error: &ScenarioError| {
        if error.key == SHORT_OPTION {
            return Some(("short".to_owned(), error.problem.clone()));
        }
        if let Some(key) = error.key.strip_prefix("--set ") {
            let is_of_key = |set: &String| set.split('=').next().is_some_and(|it| it.trim() == key);
            let index = file.set.iter().position(|set| is_of_key(set) || set == key)?;
            return Some((format!("set[{index}]"), format!("{key}: {}", error.problem)));
        }
        let is_named = |name: &String| error.problem.contains(&format!("named `{name}`;"));
        let index = file.variants.iter().position(is_named).filter(|_| error.key == "variant")?;
        Some((format!("variants[{index}]"), error.problem.clone()))
    };
    let mut others = ScenarioErrors::default();
    for error in errors.0 {
        match place(&error) {
            Some((key, problem)) => faults.add(Fault::new(key, problem)),
            None => others.0.push(error),
        }
    }
    others
}

/// Returns the digest of the parts of a file on which its rows depend.
fn digest_of(file: &SweepFile) -> Result<String, Fault> {
    let text = file.bare().to_text().map_err(|error| Fault::new("", error.to_string()))?;
    Ok(digest_text(text.as_bytes()))
}

fn find(scenario: Option<&str>, file: &str) -> Result<Source, Fault> {
    let fault = |problem: String| Fault::new("scenario", problem);
    let name = scenario.ok_or_else(|| fault("is missing: a built-in one, or a file".to_owned()))?;
    let beside = Path::new(file).parent().map(|folder| folder.join(name));
    let beside = beside.filter(|path| builtin::find(name).is_none() && path.is_file());
    let name = beside.map_or(name.to_owned(), |path| path.to_string_lossy().into_owned());
    Source::find(&name).map_err(|error| fault(error.to_string()))
}

/// Reads the scenario with the overrides of the sweep file.
fn scenario_of(file: &SweepFile, from: &Source, files: &Files) -> Result<Scenario, ScenarioErrors> {
    let options = Options {
        short: file.short,
        set: file.set.clone(),
        variants: file.variants.clone(),
        repeats_of_sweep: file.repeats,
        seed: file.seed,
        keeps_tables: true,
        ..Options::default()
    };
    let load = &mut |wanted: &str| files.note(&from.name, wanted);
    Scenario::read(&from.text, &from.name, &options, load)
}

/// Rejects a scenario that another machine or a later program could not compute.
fn check_scenario(scenario: &Scenario) -> Result<(), Fault> {
    if let Some(problem) = scenario.sim_problem() {
        return Err(Fault::new("scenario", problem));
    }
    match scenario.own() {
        None => Ok(()),
        Some(own) => {
            let problem = format!(
                "{own}: a sweep may continue on another machine; expected only algorithms of this \
                 program"
            );
            Err(Fault::new("scenario", problem))
        }
    }
}

fn axes(file: &SweepFile, faults: &mut Faults) -> Option<Vec<Axis>> {
    if file.axis.len() > MOST_AXES {
        faults.add(Fault::new("axis", format!("more than {MOST_AXES} axes")));
        return None;
    }
    let is_grid = file.design == Design::Grid;
    let mut axes: Vec<Axis> = Vec::new();
    let mut is_whole = true;
    for (index, keys) in file.axis.iter().enumerate() {
        let place = format!("axis[{index}]");
        let axis = Axis::read(keys.clone(), is_grid).map_err(|fault| fault.under(&place));
        let Some(axis) = faults.accept(axis) else {
            is_whole = false;
            continue;
        };
        let keys = axis.keys();
        let repeated = axes.iter().flat_map(Axis::keys).find(|key| keys.contains(key));
        if let Some(key) = repeated {
            let problem = format!("another axis varies {key}, too; expected one");
            faults.add(Fault::new(place, problem));
        }
        axes.push(axis);
    }
    is_whole.then_some(axes)
}

/// Returns the number of points that a design draws; 0 for a grid.
fn samples(file: &SweepFile) -> Result<u64, Fault> {
    match (file.design, file.samples) {
        (Design::Grid, None) => Ok(0),
        (Design::Grid, Some(_)) => {
            let problem = "is not a key of a grid, which has every combination of its axes' \
                           values; expected `design` \"random\" or \"latin-hypercube\"";
            Err(Fault::new("samples", problem))
        }
        (_, Some(samples)) if (1..=MOST_SAMPLES).contains(&samples) => Ok(samples),
        (_, None) => Err(Fault::new("samples", "is missing: the number of points")),
        (_, Some(_)) => Err(Fault::new("samples", format!("expected 1 to {MOST_SAMPLES}"))),
    }
}

fn points(file: &SweepFile, samples: u64, axes: &[Axis], seed: u64) -> Result<Points, Fault> {
    if file.design != Design::Grid && axes.is_empty() {
        return Err(Fault::new("design", "has no axis to draw from; expected [[axis]] tables"));
    }
    Points::new(file.design, samples, axes, seed).ok_or_else(too_many)
}

/// Returns the trials of a cell, at most.
fn repeats(file: &SweepFile, scenario: &Scenario, points: u64) -> Result<u64, Fault> {
    let own = u64::from(scenario.repeats);
    let repeats = file.repeats.unwrap_or(own);
    if repeats == 0 {
        return Err(Fault::new("repeats", "expected at least 1"));
    }
    if scenario.cohort.as_ref().is_some_and(|cohort| cohort.study().is_some()) && repeats > own {
        let problem = format!("{repeats}: the scenario's lines have {own} runs; expected fewer");
        return Err(Fault::new("repeats", problem));
    }
    let trials = points.checked_mul(scenario.variants.len() as u64);
    let trials = trials.and_then(|cells| cells.checked_mul(repeats));
    if trials.is_none_or(|trials| trials > MOST_TRIALS) {
        return Err(too_many());
    }
    Ok(repeats)
}

fn too_many() -> Fault {
    Fault::new("", format!("more than {MOST_TRIALS} trials; expected fewer values or `repeats`"))
}

fn named_metrics(file: &SweepFile) -> impl Iterator<Item = &String> {
    let stop = file.stop.iter().map(|stop| &stop.metric);
    let best = file.best.iter().map(|best| &best.metric);
    let shown = file.plot.iter().flat_map(PlotKeys::metrics);
    stop.chain(best).chain(shown).chain(&file.metrics)
}

fn fill(file: &mut SweepFile, scenario: &Scenario) {
    if file.metrics.is_empty() {
        file.metrics = DEFAULT_METRICS.map(str::to_owned).to_vec();
    }
    if file.best.is_none() {
        let stop = file.stop.as_ref().map(|stop| stop.metric.clone());
        let headline = scenario.headline.as_ref().map(|headline| headline.metric.clone());
        // The numbers of a study are not those of single trials.
        let headline = headline
            .filter(|metric| !metric.is_empty() && *metric != "cut" && !metric.starts_with("cut."));
        let metric = stop.or(headline).unwrap_or_else(|| "load.rtt.p99".to_owned());
        file.best = Some(BestKeys { metric, order: Extreme::Smallest });
    }
    let needed: Vec<String> = named_metrics(file).cloned().collect();
    for metric in needed {
        if !file.metrics.contains(&metric) {
            file.metrics.push(metric);
        }
    }
}

fn check_numbers(file: &SweepFile) -> Result<(), Fault> {
    let Some(StopKeys { within_percent, within, least, .. }) = &file.stop else { return Ok(()) };
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    match (within_percent, within) {
        (None, None) => {
            let problem = "expected `within_percent` or `within`, half of the interval's width";
            Err(Fault::new("stop", problem))
        }
        (Some(percent), _) if !positive(percent) => {
            Err(Fault::new("stop.within_percent", "expected more than 0"))
        }
        (_, Some(within)) if !positive(within) => {
            Err(Fault::new("stop.within", "expected more than 0"))
        }
        // An interval needs at least two values.
        _ if *least < 2 => Err(Fault::new("stop.least", "expected at least 2")),
        _ => Ok(()),
    }
}

/// Rejects unknown metrics. Flows may depend on the axes.
fn check_metrics(file: &SweepFile, metrics: &Metrics, faults: &mut Faults) {
    let of_stop = file.stop.iter().map(|stop| ("stop.metric".to_owned(), &stop.metric));
    let of_best = file.best.iter().map(|best| ("best.metric".to_owned(), &best.metric));
    let of_plots = file.plot.iter().enumerate().flat_map(|(index, plot)| {
        let keys = ["metric", "x_metric"].map(|key| format!("plot[{index}].{key}"));
        keys.into_iter().zip(plot.metrics())
    });
    let columns = file.metrics.iter().enumerate();
    let columns = columns.map(|(index, metric)| (format!("metrics[{index}]"), metric));
    for (place, metric) in of_stop.chain(of_best).chain(of_plots).chain(columns) {
        faults.accept(metrics.check(&place, metric));
    }
}

/// Returns the columns, whose names must differ.
fn columns(file: &SweepFile, axes: &[Axis]) -> Result<SweepColumns, Fault> {
    if file.metrics.len() > MOST_METRICS {
        return Err(Fault::new("metrics", format!("more than {MOST_METRICS} metrics")));
    }
    let mut names: Vec<String> = SweepColumns::reserved().map(str::to_owned).collect();
    let mut claim = |place: String, own: [String; 3]| {
        let [name, ..] = &own;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Fault::new(place, "expected a name of visible characters"));
        }
        if let Some(taken) = own.iter().find(|name| names.contains(name)) {
            return Err(Fault::new(place, format!("the column `{taken}` exists already")));
        }
        names.extend(own);
        Ok(())
    };
    for (index, axis) in axes.iter().enumerate() {
        let own = ["", ".amount", ".name"].map(|end| format!("{}{end}", axis.name));
        claim(format!("axis[{index}]"), own)?;
    }
    for (index, metric) in file.metrics.iter().enumerate() {
        let own = [".mean", ".low", ".high"].map(|end| format!("{metric}{end}"));
        claim(format!("metrics[{index}]"), own)?;
    }
    let axes = axes.iter().map(Axis::column).collect();
    Ok(SweepColumns { axes, metrics: file.metrics.clone() })
}
