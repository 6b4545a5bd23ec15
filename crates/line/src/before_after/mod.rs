//! Lines before and after a change: finds the runs of each line on both sides, and compares them by
//! the rules of `record`.
//!
//! A line is compared with itself: a measured history hour by hour ([`LikeHours`]), a run by its trials
//! ([`compare_runs`]). Of several lines each is one pair ([`compare_lines`]), however often it was
//! measured. Different lines on both sides are two groups ([`compare_groups`]).

mod fleet;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use underload_measure::followed;
use underload_record::cohorts::compare_groups;
use underload_record::comparison::{
    Comparison, OfRun, PairCounts, Verdict, compare_lines, compare_runs, statistic,
};
use underload_record::history::{Followed, Level, LikeHours, Point};
use underload_record::schema::{Quantile, RunRecord, World};
use underload_report::{
    LoadError, Pairs, before_and_after, change_sentence, load_to_show, pairs_page,
};
use underload_store::RunData;

use crate::history::removed::RunNumbers;
use crate::history::{HistoryError, Run, collect, point};
use crate::series::local_zone;

/// What is measured on one side: the runs of each line, by its name.
pub type Side = BTreeMap<String, LineRuns>;

/// The runs of a line on one side.
#[derive(Debug, Default)]
pub struct LineRuns {
    /// Runs that were read as a whole, and files of other tools.
    pub runs: Vec<(PathBuf, RunData)>,
    /// The runs of directories that have several, and results of a fleet.
    pub history: Vec<Run>,
    /// The firmware that a fleet recorded, else the name of the folder that the runs are in.
    pub group: String,
}

/// The metric, and the step or variant, that both sides are compared by.
#[derive(Debug, Clone)]
pub struct Choice {
    /// `None` for the first of [`USUAL`] that both sides have.
    pub metric: Option<Followed>,
    /// The step or variant; `None` for the one that most lines have on both sides.
    pub step: Option<String>,
    /// Whether the lines of both sides are different ones.
    pub are_groups: bool,
}

/// The numbers that are compared by default.
pub const USUAL: &[Followed] = &[
    Followed::LoadP99,
    Followed::StatedLoad,
    Followed::IdleP50,
    Followed::InsideP99,
    Followed::GoodputDown,
    Followed::GoodputUp,
];

/// The most groups that a sentence names.
const GROUPS_SHOWN: usize = 4;

/// The comparison of both sides.
#[derive(Debug, Serialize)]
pub struct BeforeAfter {
    pub version: u32,
    pub metric: Followed,
    /// The step or variant that is compared, as it is called before the change.
    pub step: String,
    pub sentences: Vec<String>,
    /// Over all lines; of a line alone its own.
    pub comparison: Comparison,
    /// Pairs of lines, or of a line alone of its trials, that became better; `None` without pairs.
    pub improved: Option<u32>,
    pub lines: Vec<LinePair>,
    /// Lines that are not compared, each with the reason.
    pub left_out: Vec<String>,
    /// The other steps of measured lines that have a value on both sides, unless one was chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_steps: Vec<BeforeAfter>,
}

/// A line before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinePair {
    pub line: String,
    pub comparison: Comparison,
    /// The runs at the same hours; `None` for a line with one run on each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<LikeHours>,
}

/// Why nothing is compared.
#[derive(Debug, thiserror::Error)]
pub enum BeforeAfterError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error("{}: occurs twice", path.display())]
    Twice { path: PathBuf },
    #[error(
        "no line is on both sides: before {before}, after {after}; a line is known by the label or \
         the name of its directory or file; expected equal ones, or --by group for different lines"
    )]
    NoPair { before: String, after: String },
    #[error("--step {step}: no line has it on both sides; there are {known}")]
    Step { step: String, known: String },
    #[error(
        "--by group compares latencies; expected load-p99, load-p50, stated-load, inside-p99 or idle-p50"
    )]
    NoLatency,
    #[error("{line}: {problem}")]
    Run { line: String, problem: &'static str },
    #[error("{}: {problem}", path.display())]
    Fleet { path: PathBuf, problem: String },
    #[error("no line has a valid {what} on both sides; --metric names another number")]
    NoValue { what: &'static str },
}

/// Reads the runs of one side, at `now_s` (seconds since 1970): run directories, directories of runs,
/// Parquet files of a fleet's results, and files of other tools. Returns also the runs that cannot be
/// used. `seen` has the paths of the other side.
///
/// # Errors
/// Returns an error if a path occurs twice or cannot be read.
pub fn read(
    paths: &[PathBuf],
    now_s: i64,
    seen: &mut BTreeSet<PathBuf>,
) -> Result<(Side, Vec<String>), BeforeAfterError> {
    let (mut side, mut skipped) = (Side::new(), Vec::new());
    for path in paths {
        let full = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.insert(full.clone()) {
            return Err(BeforeAfterError::Twice { path: path.clone() });
        }
        let group = full.parent().map_or_else(String::new, file_name);
        if path.extension().is_some_and(|it| it == "parquet") {
            fleet::read(path, &group, &mut side)?;
            continue;
        }
        if path.is_dir() && !path.join("run.json").exists() {
            let collected = collect(path, now_s)?;
            skipped.extend(collected.skipped);
            side.entry(file_name(path)).or_default().add(&group).history.extend(collected.runs);
            continue;
        }
        for run in load_to_show(&[path])? {
            let name = match run.record.label.as_str() {
                "" => file_name(path),
                label => label.to_owned(),
            };
            side.entry(name).or_default().add(&group).runs.push((path.clone(), run));
        }
    }
    Ok((side, skipped))
}

/// Returns the last part of a path, of a file without its extensions.
fn file_name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().filter(|_| path.is_file());
    stem.unwrap_or(&name).to_owned()
}

/// Compares the runs after a change with those before it: of measured lines each step, of others one
/// variant, and says which it leaves out.
///
/// # Errors
/// Returns an error if no line has values on both sides.
pub fn compare(
    before: &Side,
    after: &Side,
    choice: &Choice,
) -> Result<BeforeAfter, BeforeAfterError> {
    let mut found = compare_step(before, after, choice)?;
    let lines = || before.values().chain(after.values());
    let is_measured = |(_, run): &(PathBuf, RunData)| run.record.world == World::Measured;
    if choice.step.is_none() {
        let mut seen = BTreeSet::from([found.step.clone()]);
        let mut steps: Vec<String> = lines().flat_map(|line| line.steps(found.metric)).collect();
        steps.retain(|step| seen.insert(step.clone()));
        if !lines().all(|line| line.runs.iter().all(is_measured)) {
            // Runs with one variant each are compared whatever these are called.
            let several = lines().map(|line| line.steps(found.metric)).filter(|it| it.len() > 1);
            let several: BTreeSet<String> = several.flatten().collect();
            steps.retain(|step| several.contains(step));
            let (step, others) = (&found.step, steps.join(", "));
            let left_out = format!("variants besides {step}: {others} (--step names another)");
            found.left_out.extend((!steps.is_empty()).then_some(left_out));
            return Ok(found);
        }
        let of_step = |step: String| {
            let choice = Choice { metric: Some(found.metric), step: Some(step), ..choice.clone() };
            compare_step(before, after, &choice).ok()
        };
        found.other_steps = steps.into_iter().filter_map(of_step).collect();
    }
    Ok(found)
}

fn compare_step(
    before: &Side,
    after: &Side,
    choice: &Choice,
) -> Result<BeforeAfter, BeforeAfterError> {
    let metrics = choice.metric.as_ref().map_or(USUAL, std::slice::from_ref);
    for metric in metrics {
        let compare = if choice.are_groups { groups } else { pairs };
        let outcome = compare(before, after, *metric, choice);
        if !matches!(outcome, Err(BeforeAfterError::NoValue { .. })) {
            return outcome;
        }
    }
    Err(BeforeAfterError::NoValue { what: metrics.first().map_or("", |metric| metric.words().0) })
}

/// A line with its runs before and after.
type Pair<'a> = (String, &'a LineRuns, &'a LineRuns);

fn pairs(
    before: &Side,
    after: &Side,
    metric: Followed,
    choice: &Choice,
) -> Result<BeforeAfter, BeforeAfterError> {
    let pair = |(name, runs)| Some((String::clone(name), runs, after.get(name)?));
    let mut pairs: Vec<Pair<'_>> = before.iter().filter_map(pair).collect();
    if let ([(old, before)], [(new, after)]) =
        (&before.iter().collect::<Vec<_>>()[..], &after.iter().collect::<Vec<_>>()[..])
    {
        let name = if old == new { String::clone(old) } else { format!("{old}, {new}") };
        pairs = vec![(name, *before, *after)];
    }
    if pairs.is_empty() {
        return Err(BeforeAfterError::NoPair { before: names(before), after: names(after) });
    }
    let step = chosen_step(&pairs, metric, choice)?;
    let are_runs = pairs.iter().all(|(_, before, after)| before.is_one_run() && after.is_one_run());
    let run_metric = run_metric(metric).filter(|_| are_runs);
    let all = match run_metric {
        Some(name) => of_runs(&pairs, &step, name),
        None => of_histories(&pairs, &step, metric)?,
    };
    // Of a line alone it is said why its hours cannot be compared.
    let is_alone = pairs.len() == 1;
    let is_compared = |it: &LinePair| match it.comparison.verdict {
        Verdict::NotMeasured => false,
        Verdict::Lost => true,
        _ => is_alone || it.comparison.value.is_some(),
    };
    let (lines, without): (Vec<LinePair>, Vec<LinePair>) = all.into_iter().partition(is_compared);
    let comparisons: Vec<Comparison> = lines.iter().map(|it| it.comparison.clone()).collect();
    let comparison = match comparisons.as_slice() {
        [only] => Some(only.clone()),
        several => compare_lines(several),
    };
    let what = metric.words().0;
    let comparison = comparison.ok_or(BeforeAfterError::NoValue { what })?;
    let alone = lines.first().filter(|_| lines.len() == 1);
    let noun = if alone.is_some() { "pairs of trials" } else { "lines" };
    let sentence = match alone.and_then(|it| it.hours.as_ref()) {
        Some(hours) => {
            let start = format!("{} {step}: {what}", lines[0].line);
            before_and_after(&start, metric.words().1, hours, (hours.earlier, hours.later))
        }
        None => change_sentence(&words(metric, &comparison), &comparison, noun),
    };
    let of_side = |side: &Side, other: &Side, words: &'static str| {
        let alone = side.keys().filter(|name| !other.contains_key(*name)).cloned();
        alone.map(|name| format!("{name}: only {words}")).collect::<Vec<String>>()
    };
    let mut left_out: Vec<String> =
        without.into_iter().map(|it| format!("{}: no value of both sides", it.line)).collect();
    if before.len().max(after.len()) > 1 {
        left_out.extend(of_side(before, after, "before"));
        left_out.extend(of_side(after, before, "after"));
    }
    let PairCounts { compared, lower, higher, .. } = comparison.pairs;
    let better = if metric.more_is_worse() { lower } else { higher };
    let improved = (compared > 0).then_some(better);
    let found = BeforeAfter::new(metric, step, vec![sentence], comparison);
    Ok(BeforeAfter { improved, lines, left_out, ..found })
}

impl BeforeAfter {
    /// Renders the page of this comparison and of the other steps.
    pub fn page(&self) -> String {
        let pairs = |it: &'_ Self| Pairs {
            step: it.step.clone(),
            number: it.metric.words(),
            sentences: it.sentences.clone(),
            lines: it.lines.iter().map(|it| (it.line.clone(), it.comparison.clone())).collect(),
            left_out: it.left_out.clone(),
        };
        let steps = [self].into_iter().chain(&self.other_steps);
        pairs_page(&steps.map(pairs).collect::<Vec<_>>())
    }

    fn new(metric: Followed, step: String, sentences: Vec<String>, comparison: Comparison) -> Self {
        Self {
            version: 1,
            metric,
            step,
            sentences,
            comparison,
            improved: None,
            lines: Vec::new(),
            left_out: Vec::new(),
            other_steps: Vec::new(),
        }
    }
}

fn groups(
    before: &Side,
    after: &Side,
    metric: Followed,
    choice: &Choice,
) -> Result<BeforeAfter, BeforeAfterError> {
    let (what, unit) = metric.words();
    if unit != "ms" {
        return Err(BeforeAfterError::NoLatency);
    }
    // A line of one side has no partner, so it stands for both.
    let all: Vec<Pair<'_>> =
        before.iter().chain(after).map(|(name, runs)| (name.clone(), runs, runs)).collect();
    let step = chosen_step(&all, metric, choice)?;
    let values = |side: &Side| {
        let value = |runs: &LineRuns| Some(level(&runs.values(&step, metric))?.p50);
        let named = side.iter().filter_map(|(line, runs)| Some((line.clone(), value(runs)?)));
        named.collect::<Vec<(String, f64)>>()
    };
    let (old, new) = (values(before), values(after));
    let [of_old, of_new] = [&old, &new].map(|side| side.iter().map(|it| it.1).collect::<Vec<_>>());
    let comparison = compare_groups(&of_new, &of_old).ok_or(BeforeAfterError::NoValue { what })?;
    let sentence = change_sentence(what, &comparison, "lines on each side");
    let count = format!(
        "{} lines after ({}), {} before ({}), one value each.",
        new.len(),
        group_names(after),
        old.len(),
        group_names(before)
    );
    let one = |line, baseline_value, value| {
        let unit = unit.to_owned();
        let comparison = Comparison { value, baseline_value, unit, ..Comparison::default() };
        LinePair { line, comparison, hours: None }
    };
    let old = old.into_iter().map(|(line, value)| one(line, Some(value), None));
    let lines =
        old.chain(new.into_iter().map(|(line, value)| one(line, None, Some(value)))).collect();
    Ok(BeforeAfter { lines, ..BeforeAfter::new(metric, step, vec![sentence, count], comparison) })
}

/// Compares lines with one run on each side, all by one percentile.
fn of_runs(pairs: &[Pair<'_>], step: &str, metric: &str) -> Vec<LinePair> {
    let both = pairs.iter().flat_map(|(_, before, after)| [before, after]);
    let runs: Vec<&RunRecord> = both.filter_map(|runs| runs.record()).collect();
    let of = |run: usize| OfRun { run, variant: variant_of(runs[run], step) };
    // A comparison without one of its variants is left out of the answer.
    let has = |run: usize| runs[run].variants.iter().any(|it| it.name == of(run).variant);
    let is_known = |place: usize| has(2 * place) && has(2 * place + 1);
    let places = (0..runs.len() / 2).filter(|place| is_known(*place));
    let compared: Vec<(OfRun<'_>, OfRun<'_>)> =
        places.map(|place| (of(2 * place + 1), of(2 * place))).collect();
    let mut found = compare_runs(&runs, &compared, metric).into_iter();
    let named = |(place, (line, ..)): (usize, &Pair<'_>)| LinePair {
        line: line.clone(),
        comparison: is_known(place).then(|| found.next()).flatten().unwrap_or_default(),
        hours: None,
    };
    pairs.iter().enumerate().map(named).collect()
}

/// Compares lines of which some have several runs on a side.
fn of_histories(
    pairs: &[Pair<'_>],
    step: &str,
    metric: Followed,
) -> Result<Vec<LinePair>, BeforeAfterError> {
    let (zone, unit) = (local_zone(|_| ()), metric.words().1);
    let one = |(line, before, after): &Pair<'_>| -> Result<LinePair, BeforeAfterError> {
        let (before, after) = (before.values(step, metric), after.values(step, metric));
        let points = |values: &Values| {
            let point = |(at_s, value): &(Result<i64, _>, f64)| Ok(point((*at_s)?, *value, &zone));
            let all: Result<Vec<Point>, &'static str> = values.iter().map(point).collect();
            all.map_err(|problem| BeforeAfterError::Run { line: line.clone(), problem })
        };
        let is_history = before.len().max(after.len()) > 1;
        let hours = if is_history {
            Some(LikeHours::new(&points(&before)?, &points(&after)?, unit))
        } else {
            None
        };
        let is_measured = !before.is_empty() && !after.is_empty();
        let (earlier, later) = match &hours {
            Some(hours) => (hours.earlier, hours.later),
            None => (level(&before), level(&after)),
        };
        let comparison = Comparison {
            metric: run_metric(metric).unwrap_or(metric.name()).to_owned(),
            unit: unit.to_owned(),
            value: later.map(|level| level.p50),
            baseline_value: earlier.map(|level| level.p50),
            is_ratio: true,
            range: hours.as_ref().and_then(|hours| hours.range),
            verdict: match &hours {
                _ if !is_measured => Verdict::NotMeasured,
                Some(hours) => hours.verdict,
                None => Verdict::TooFew,
            },
            ..Comparison::default()
        };
        Ok(LinePair { line: line.clone(), comparison, hours })
    };
    pairs.iter().map(one).collect()
}

/// Values of runs, each with the time at which its run began, or why that is unknown.
type Values = Vec<(Result<i64, &'static str>, f64)>;

fn level(values: &Values) -> Option<Level> {
    Level::new(values.iter().map(|(_, value)| *value))
}

impl LineRuns {
    /// Returns the line, whose runs are in the group `group`.
    fn add(&mut self, group: &str) -> &mut Self {
        group.clone_into(&mut self.group);
        self
    }

    fn is_one_run(&self) -> bool {
        self.runs.len() == 1 && self.history.is_empty()
    }

    /// Returns the steps or variants that have the number, in the order of the runs.
    fn steps(&self, metric: Followed) -> Vec<String> {
        let of_run = |(_, run): &(PathBuf, RunData)| {
            let valid = run.record.trials.iter().filter(|trial| trial.validity.is_valid());
            let known: BTreeSet<&str> = valid.map(|trial| trial.variant.as_str()).collect();
            let variants = run.record.variants.iter().map(|variant| variant.name.clone());
            variants.filter(|name| known.contains(name.as_str())).collect::<Vec<_>>()
        };
        let has = |values: &[(Followed, f64)]| values.iter().any(|(it, _)| *it == metric);
        let of_history = self.history.iter().flat_map(|run| &run.steps);
        let of_history = of_history.filter(|(_, values)| has(values)).map(|it| it.0.clone());
        let mut seen = BTreeSet::new();
        let all = self.runs.iter().flat_map(of_run).chain(of_history);
        all.filter(|name| seen.insert(name.clone())).collect()
    }

    /// Returns the record of the only run.
    fn record(&self) -> Option<&RunRecord> {
        self.runs.first().map(|(_, run)| &run.record)
    }

    /// Returns the number of each run.
    fn values(&self, step: &str, metric: Followed) -> Values {
        let mut all = Vec::new();
        for (path, run) in &self.runs {
            let numbers = RunNumbers::from_record(path, &run.record);
            let at_s = numbers.map(|numbers| numbers.at_s().unwrap_or_default());
            let name = variant_of(&run.record, step);
            let valid = run.record.trials.iter().filter(|trial| trial.validity.is_valid());
            let of_step = valid.filter(|trial| trial.variant == name);
            let values = of_step.flat_map(followed).filter(|it| it.0 == metric);
            all.extend(values.map(|(_, value)| (at_s, value)));
        }
        for run in &self.history {
            let of_step = run.steps.iter().filter(|(name, _)| name == step);
            let values = of_step.flat_map(|(_, values)| values).filter(|it| it.0 == metric);
            all.extend(values.map(|(_, value)| (Ok(run.at_s), *value)));
        }
        all
    }
}

/// Returns the variant that is compared: the only one of a run, whatever it is called.
fn variant_of<'a>(record: &'a RunRecord, step: &'a str) -> &'a str {
    match record.variants.as_slice() {
        [only] => &only.name,
        _ => step,
    }
}

/// Returns the step that is compared: the first of those that most lines have on both sides.
fn chosen_step(
    pairs: &[Pair<'_>],
    metric: Followed,
    choice: &Choice,
) -> Result<String, BeforeAfterError> {
    let both = |(_, before, after): &Pair<'_>| {
        let (mut before, after) = (before.steps(metric), after.steps(metric));
        // Runs with one variant each are compared whatever these are called.
        let are_only = before.len() == 1 && after.len() == 1;
        before.retain(|step| are_only || after.contains(step));
        before
    };
    let all: Vec<String> = pairs.iter().flat_map(both).collect();
    let count = |step: &&String| all.iter().filter(|it| it == step).count();
    let most = all.iter().rev().max_by_key(count);
    match &choice.step {
        None => most.cloned().ok_or(BeforeAfterError::NoValue { what: metric.words().0 }),
        Some(step) if all.contains(step) => Ok(step.clone()),
        Some(step) => {
            let known: BTreeSet<&str> = all.iter().map(String::as_str).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(BeforeAfterError::Step { step: step.clone(), known })
        }
    }
}

/// Returns the metric of a run that is a number of a history.
fn run_metric(metric: Followed) -> Option<&'static str> {
    Some(match metric {
        Followed::LoadP99 => "load.rtt.p99",
        Followed::LoadP50 => "load.rtt.p50",
        Followed::IdleP50 => "idle.rtt.p50",
        Followed::GoodputUp => "goodput.up",
        Followed::GoodputDown => "goodput.down",
        Followed::StatedLoad | Followed::InsideP99 | Followed::Qoo => return None,
    })
}

/// Returns the words of the number that was compared: a run with few probes has no p99.
fn words(metric: Followed, comparison: &Comparison) -> String {
    let what = metric.words().0;
    let quantile = statistic(&comparison.metric).1.map(Quantile::name);
    quantile.map_or(what.to_owned(), |name| what.replace("p99", name))
}

/// Returns the names of a side's groups, at most [`GROUPS_SHOWN`].
fn group_names(side: &Side) -> String {
    let names: BTreeSet<&str> = side.values().map(|runs| runs.group.as_str()).collect();
    names.into_iter().take(GROUPS_SHOWN).collect::<Vec<_>>().join(", ")
}

fn names(side: &Side) -> String {
    side.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
