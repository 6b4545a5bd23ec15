//! Reads a sweep file, and reports its faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use toml::Table;
use underload_record::schema::Extreme;
use underload_scenario::document::{Document, SHORT_OPTION};
use underload_scenario::keys::{Fault, Faults, read_table};
use underload_scenario::metrics::Metrics;
use underload_scenario::simulation::configure;
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario, ScenarioError, ScenarioErrors, builtin};
use underload_sim::trial::TrialLabel;
use underload_store::sweep::{SWEEP_VERSION, SweepColumns, SweepManifest};

use super::axis::{Axis, Level};
use super::compute::Files;
use super::file::{BestKeys, Design, MOST_TRIALS, PlotKeys, SweepFile};
use super::plots::MOST_PLOTS;
use super::points::Points;
use super::{Sweep, is_sweep};
use crate::cache::digest_text;

const MOST_AXES: usize = 32;
const MOST_METRICS: usize = 64;
/// Maximum number of values of an axis that are tried before a sweep begins.
const MOST_TRIED: u64 = 1_000;
/// Values of an axis without steps that are tried.
const TRIED_OF_RANGE: u64 = 9;
const DEFAULT_METRICS: [&str; 4] = ["load.rtt.p50", "load.rtt.p99", "goodput.up", "goodput.down"];

impl Sweep {
    /// Reads a sweep file. Without `scenario`, the scenario is found by the name in the file,
    /// beside the file or among those built in. `program` is that of [`program`](crate::cache::program); `files`
    /// has [`Sweep::files`] of another machine, which this one need not have. Returns all faults of
    /// the file and of its scenario.
    pub fn parse(
        text: &str,
        name: &str,
        scenario: Option<Source>,
        program: &str,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, ScenarioErrors> {
        let document = Document::parse(text, name)?;
        let mut faults = Faults::default();
        if !is_sweep(text) && ["path", "flow"].iter().any(|key| document.root.contains_key(*key)) {
            let problem = format!(
                "this is a scenario, for `underload run {name}`; a sweep of it has the key \
                 `scenario = \"{name}\"`"
            );
            faults.add(Fault::new("", problem));
            return Err(document.errors(faults));
        }
        let Some(file) = read_table::<SweepFile>(&document.root, &mut faults) else {
            return Err(document.errors(faults));
        };
        let source = match scenario {
            None if faults.concern("scenario") => None,
            None => faults.accept(find(file.scenario.as_deref(), name)),
            source => source,
        };
        let files = Files::of(files);
        let scenario = source.map(|source| scenario_of(&file, &source, &files));
        let (scenario, of_scenario) = match scenario {
            None => (None, ScenarioErrors::default()),
            Some(Ok(scenario)) => (Some(scenario), ScenarioErrors::default()),
            Some(Err(errors)) => (None, of_sweep(errors, &file, &mut faults)),
        };
        let identity = SweepManifest {
            format_version: SWEEP_VERSION,
            program: program.to_owned(),
            name: name.to_owned(),
            text: text.to_owned(),
            content: content_of(&document.root),
            ..SweepManifest::default()
        };
        match Self::new(file, scenario, identity, files, &mut faults) {
            Some(sweep) if faults.is_empty() => Ok(sweep),
            _ => {
                let mut errors = document.errors(faults);
                errors.0.extend(of_scenario.0);
                Err(errors)
            }
        }
    }

    /// Returns the sweep of a file over a scenario. Checks what it can if the scenario is wrong.
    fn new(
        mut file: SweepFile,
        scenario: Option<Scenario>,
        identity: SweepManifest,
        files: Files,
        faults: &mut Faults,
    ) -> Option<Self> {
        let axes = axes(&file, faults);
        let samples = faults.accept(samples(&file));
        let plots = plots(&file, faults);
        let scenario = scenario?;
        faults.accept(check_scenario(&scenario));
        // Flows may depend on the axes.
        let known = Metrics::of(&scenario.variants, None, false);
        let mut requested = Vec::new();
        for (place, metric) in named_metrics(&file, &plots) {
            faults.accept(known.check(&place, metric));
            requested.push(metric.clone());
        }
        fill(&mut file, &plots, &scenario);
        let (Some(axes), Some(samples)) = (axes, samples) else {
            faults.accept(repeats(&file, &scenario, Some(1)));
            return None;
        };
        let points = Points::new(file.design, samples, &axes, scenario.seed);
        let count = points.as_ref().map(|points| points.count);
        let repeats = faults.accept(repeats(&file, &scenario, count));
        let columns = faults.accept(columns(&file, &axes));
        let variants: Vec<&str> =
            scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
        let plot = |(place, keys): (String, PlotKeys)| {
            let plot = keys.plot(&axes, &variants, &file.metrics);
            faults.accept(plot.map_err(|fault| fault.under(&place)))
        };
        let plots = plots.into_iter().filter_map(plot).collect();
        let manifest = SweepManifest {
            scenario: scenario.name.clone(),
            scenario_text: scenario.text.clone(),
            seed: scenario.seed,
            cells: count? * scenario.variants.len() as u64,
            repeats: repeats?,
            columns: columns?,
            ..identity
        };
        let points = points?;
        let mut sweep = Self { file, scenario, manifest, axes, points, files, plots, requested };
        if faults.is_empty() {
            sweep.check(faults);
            sweep.manifest.files = sweep.files.digests();
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
        let load = &mut |file: &str| self.files.load(&self.scenario.name, file);
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

/// Returns the digest of a file without heading and pictures, on which its rows do not depend.
fn content_of(root: &Table) -> String {
    let mut content = serde_json::json!(root);
    for key in ["title", "plot"] {
        content.as_object_mut().map(|content| content.remove(key));
    }
    digest_text(content.to_string().as_bytes())
}

fn find(scenario: Option<&str>, file: &str) -> Result<Source, Fault> {
    let fault = |problem: String| Fault::new("scenario", problem);
    let name = scenario.ok_or_else(|| fault("is missing: a built-in one, or a file".to_owned()))?;
    // Errors show lines of that file, and a sweep may be a stranger's.
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if builtin::find(name).is_none() && !Path::new(name).components().all(is_plain) {
        let problem =
            format!("`{name}`: expected a file in the folder of this one, or a built-in name");
        return Err(fault(problem));
    }
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
    let load = &mut |wanted: &str| files.load(&from.name, wanted);
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

/// Returns the axes; `None` if one is wrong.
fn axes(file: &SweepFile, faults: &mut Faults) -> Option<Vec<Axis>> {
    if file.axis.len > MOST_AXES {
        faults.add(Fault::new("axis", format!("more than {MOST_AXES} axes")));
        return None;
    }
    let is_grid = file.design == Design::Grid;
    let mut axes: Vec<Axis> = Vec::new();
    for (place, keys) in file.axis.read("axis", faults) {
        let axis = keys.map(|keys| Axis::read(keys, is_grid).map_err(|fault| fault.under(&place)));
        let Some(axis) = axis.and_then(|axis| faults.accept(axis)) else { continue };
        let keys = axis.keys();
        if let Some(key) = axes.iter().flat_map(Axis::keys).find(|key| keys.contains(key)) {
            let problem = format!("another axis varies {key}, too; expected one");
            faults.add(Fault::new(place, problem));
        }
        axes.push(axis);
    }
    (axes.len() == file.axis.len && !faults.concern("axis")).then_some(axes)
}

/// Returns the keys of each picture that is right, with its place.
fn plots(file: &SweepFile, faults: &mut Faults) -> Vec<(String, PlotKeys)> {
    if file.plot.len > MOST_PLOTS {
        faults.add(Fault::new("plot", format!("more than {MOST_PLOTS} pictures")));
    }
    let plots = file.plot.read("plot", faults).into_iter();
    plots.filter_map(|(place, keys)| Some((place, keys?))).collect()
}

/// Returns the number of points that a design draws; 0 for a grid.
fn samples(file: &SweepFile) -> Result<u64, Fault> {
    match (file.design, file.samples) {
        (Design::Grid, None) => Ok(0),
        (Design::Grid, Some(_)) => {
            let problem = "is not a key of a grid, which has every combination of its axes' \
                           values; expected `design` \"random\"";
            Err(Fault::new("samples", problem))
        }
        (_, None) => Err(Fault::new("samples", "is missing: the number of points")),
        (_, Some(_)) if file.axis.len == 0 => {
            Err(Fault::new("design", "has no axis to draw from; expected [[axis]] tables"))
        }
        (_, Some(samples)) => Ok(samples),
    }
}

/// Returns the maximum number of trials of a cell in a sweep of `points` points; `points` is `None`
/// if their number exceeds 64 bits.
fn repeats(file: &SweepFile, scenario: &Scenario, points: Option<u64>) -> Result<u64, Fault> {
    let own = u64::from(scenario.repeats);
    let repeats = file.repeats.unwrap_or(own);
    if scenario.cohort.as_ref().is_some_and(|cohort| cohort.study().is_some()) && repeats > own {
        let problem = format!("{repeats}: the scenario's lines have {own} runs; expected fewer");
        return Err(Fault::new("repeats", problem));
    }
    let cells = points.and_then(|points| points.checked_mul(scenario.variants.len() as u64));
    let trials = cells.and_then(|cells| cells.checked_mul(repeats));
    if trials.is_none_or(|trials| trials > MOST_TRIALS) {
        let problem = format!("more than {MOST_TRIALS} trials; expected fewer values or `repeats`");
        return Err(Fault::new("", problem));
    }
    Ok(repeats)
}

/// Returns the metrics that a file names, with their places.
fn named_metrics<'a>(
    file: &'a SweepFile,
    plots: &'a [(String, PlotKeys)],
) -> impl Iterator<Item = (String, &'a String)> {
    let of_best = file.best.iter().map(|best| ("best.metric".to_owned(), &best.metric));
    let of_plots = plots.iter().flat_map(|(place, keys)| {
        let places = ["metric", "x_metric"].map(|key| format!("{place}.{key}"));
        places.into_iter().zip(keys.metrics())
    });
    let columns = file.metrics.iter().enumerate();
    let columns = columns.map(|(index, metric)| (format!("metrics[{index}]"), metric));
    of_best.chain(of_plots).chain(columns)
}

/// Adds the defaults to the file: its ranking, and a column for every metric.
fn fill(file: &mut SweepFile, plots: &[(String, PlotKeys)], scenario: &Scenario) {
    if file.metrics.is_empty() {
        file.metrics = DEFAULT_METRICS.map(str::to_owned).to_vec();
    }
    if file.best.is_none() {
        let headline = scenario.headline.as_ref().map(|headline| headline.metric.clone());
        // `cut` and its parts are metrics of a study of lines; a sweep's cells have only trials.
        let headline = headline
            .filter(|metric| !metric.is_empty() && *metric != "cut" && !metric.starts_with("cut."));
        let metric = headline.unwrap_or_else(|| "load.rtt.p99".to_owned());
        file.best = Some(BestKeys { metric, order: Extreme::Smallest });
    }
    let needed: Vec<String> = named_metrics(file, plots).map(|(_, it)| it.clone()).collect();
    for metric in needed {
        if !file.metrics.contains(&metric) {
            file.metrics.push(metric);
        }
    }
}

/// Returns the columns, whose names must differ.
fn columns(file: &SweepFile, axes: &[Axis]) -> Result<SweepColumns, Fault> {
    if file.metrics.len() > MOST_METRICS {
        return Err(Fault::new("metrics", format!("more than {MOST_METRICS} metrics")));
    }
    let own = |list: &str, index, name, ends| (format!("{list}[{index}]"), name, ends);
    let of_axes = axes.iter().enumerate();
    let of_axes = of_axes.map(|(index, axis)| own("axis", index, &axis.name, &["", ".amount"][..]));
    let of_metrics = file.metrics.iter().enumerate();
    let of_metrics = of_metrics
        .map(|(index, metric)| own("metrics", index, metric, &["", ".mean", ".low", ".high"][..]));
    let mut columns: BTreeSet<String> = SweepColumns::reserved().map(str::to_owned).collect();
    for (place, name, ends) in of_axes.chain(of_metrics) {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Fault::new(place, "expected a name of visible characters"));
        }
        for column in ends.iter().map(|end| format!("{name}{end}")) {
            if !columns.insert(column.clone()) {
                return Err(Fault::new(place, format!("the column `{column}` exists already")));
            }
        }
    }
    let axes = axes.iter().map(Axis::column).collect();
    Ok(SweepColumns { axes, metrics: file.metrics.clone() })
}
