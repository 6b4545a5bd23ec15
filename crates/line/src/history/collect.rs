//! Reads run directories, and returns their numbers over time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use underload_probe::control::in_full;
use underload_record::history::{Followed, Labelled, Level, Mark, Point, Trend, Windows};
use underload_record::judgement::Grade;
use underload_store::RunDir;

use super::marks;
use super::removed::{self, RunNumbers, StepNumbers};
use crate::series::local_zone;

/// The number of the latest runs that are read: five years at one run every two hours.
const RUNS_MAX: usize = 22_000;
/// The earliest plausible time of a run, 2026-01-01, in seconds since 1970: this program is not
/// older. A clock that restarts at each boot begins at 1970.
const EARLIEST_S: i64 = 1_767_225_600;
/// How far the clock of another machine may be ahead.
const AHEAD_MAX_S: i64 = 3_600;

/// The runs in a directory.
#[derive(Debug, Default)]
pub struct Collected {
    /// The runs, oldest first.
    pub runs: Vec<Run>,
    /// Runs that cannot be used, each with the reason.
    pub skipped: Vec<String>,
    /// In order of time.
    pub marks: Vec<Mark>,
}

/// A step's name and its values.
pub type Step = (String, Vec<(Followed, f64)>);

#[derive(Debug)]
pub struct Run {
    /// When it began, seconds since 1970.
    pub at_s: i64,
    /// The user's words about it; empty if there were none.
    pub label: String,
    /// The grade of the run; `None` if no step was graded.
    pub grade: Option<Grade>,
    pub steps: Vec<Step>,
}

impl Collected {
    /// Every number of every step over time, with the steps ordered by name.
    pub fn trends(&self, windows: Windows) -> Vec<Trend> {
        let latest_s = self.latest_s().unwrap_or(0);
        let zone = local_zone(|_| ());
        let steps = self.runs.iter().flat_map(|run| &run.steps);
        let names: BTreeSet<&str> = steps.map(|(name, _)| name.as_str()).collect();
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_by_cached_key(|name| with_long_numbers(name));
        let mut points: BTreeMap<(usize, &str), Vec<Point>> = BTreeMap::new();
        for run in &self.runs {
            for (name, values) in &run.steps {
                for (followed, value) in values {
                    let position = Followed::ALL.iter().position(|it| it == followed).unwrap_or(0);
                    let point = point(run.at_s, *value, &zone);
                    points.entry((position, name.as_str())).or_default().push(point);
                }
            }
        }
        let mut trends = Vec::new();
        for (position, followed) in Followed::ALL.into_iter().enumerate() {
            for name in &names {
                if let Some(points) = points.remove(&(position, *name)) {
                    trends.push(Trend::of(name, followed, points, windows, latest_s));
                }
            }
        }
        trends
    }

    /// Every number of every step in the runs with each label, by label.
    pub fn labelled(&self) -> Vec<Labelled> {
        let mut values: BTreeMap<(&str, usize, &str), Vec<f64>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| !run.label.is_empty()) {
            for (step, numbers) in &run.steps {
                for (followed, value) in numbers {
                    let position = Followed::ALL.iter().position(|it| it == followed).unwrap_or(0);
                    values.entry((&run.label, position, step)).or_default().push(*value);
                }
            }
        }
        let labelled = |((label, position, step), values): ((&str, usize, &str), Vec<f64>)| {
            let (label, step) = (label.to_owned(), step.to_owned());
            let followed = *Followed::ALL.get(position)?;
            Some(Labelled { label, step, followed, level: Level::new(values)? })
        };
        values.into_iter().filter_map(labelled).collect()
    }

    /// When the latest run began, seconds since 1970.
    pub fn latest_s(&self) -> Option<i64> {
        self.runs.iter().map(|run| run.at_s).max()
    }
}

/// Returns a value of a run that began at `at_s`.
pub fn point(at_s: i64, value: f64, zone: &TimeZone) -> Point {
    let began = Timestamp::from_second(at_s).unwrap_or_default();
    Point { at_s, offset_s: zone.to_offset(began).seconds(), value }
}

/// Why a directory has no history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(
        "{}: expected the runs that `underload measure HOST --every 4h` writes",
        directory.display()
    )]
    Directory { directory: PathBuf, source: io::Error },
    #[error("{}: there are no runs in it", directory.display())]
    NoRuns { directory: PathBuf },
}

/// Reads all runs in a directory at `now_s` (seconds since 1970). Skips and names a run that is
/// damaged, or whose time is impossible because its clock was wrong.
///
/// # Errors
/// Returns an error if the directory cannot be read or has no runs.
pub fn collect(directory: &Path, now_s: i64) -> Result<Collected, HistoryError> {
    let mut collected = Collected::default();
    let folders = folders(directory, &mut collected.skipped)?;
    // Numbers of removed runs. A run whose removal was interrupted is in both places, and counts
    // once.
    let mut found = removed::read(directory).unwrap_or_else(|error| {
        collected.skipped.push(error.to_string());
        Vec::new()
    });
    if folders.is_empty() && found.is_empty() {
        return Err(HistoryError::NoRuns { directory: directory.to_owned() });
    }
    let mut removed: BTreeMap<String, Vec<RunNumbers>> = BTreeMap::new();
    for numbers in &found {
        removed.entry(numbers.run.clone()).or_default().push(numbers.clone());
    }
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let read = RunDir::read_record(&folder).map_err(|error| in_full(&error));
        let numbers = read.and_then(|record| Ok(RunNumbers::from_record(&folder, &record)?));
        match numbers {
            // The removal of this run was interrupted. Its name alone does not prove that: where
            // the clock restarts at each boot, a later run may get the name of a removed one.
            Ok(numbers) if removed.get(&name).is_some_and(|of_name| of_name.contains(&numbers)) => {
            }
            Ok(numbers) => found.push(numbers),
            Err(_) if removed.contains_key(&name) => {}
            Err(words) => {
                // Errors about files already contain the path.
                let name = folder.display().to_string();
                let is_named = words.contains(&name);
                collected.skipped.push(if is_named { words } else { format!("{name}: {words}") });
            }
        }
    }
    let prefix = prefix(&found);
    for numbers in &found {
        match run_of(numbers, &prefix(numbers), now_s) {
            Ok(run) if !run.steps.is_empty() => collected.runs.push(run),
            Err(Some(wrong_clock)) => collected.skipped.push(wrong_clock),
            // The reason is useless for a removed run, because its files no longer exist.
            _ if removed.contains_key(&numbers.run) => {}
            _ => {
                let time = &numbers.started;
                collected.skipped.push(format!("the run of {time}: no step is valid"));
            }
        }
    }
    collected.runs.sort_by_key(|run| run.at_s);
    match marks::read(directory) {
        Ok(marks) => collected.marks = marks,
        Err(error) => collected.skipped.push(error.to_string()),
    }
    Ok(collected)
}

/// Returns what precedes the name of a run's steps, because steps of several lines or presets may
/// share a name: the device and the preset, if the runs differ in them.
fn prefix(runs: &[RunNumbers]) -> impl Fn(&RunNumbers) -> String + use<> {
    let count = |of: fn(&RunNumbers) -> &str| runs.iter().map(of).collect::<BTreeSet<_>>().len();
    let has_devices = count(|numbers| &numbers.device) > 1;
    let has_presets = count(|numbers| &numbers.name) > 1;
    move |numbers| {
        let device = Some(numbers.device.as_str()).filter(|it| has_devices && !it.is_empty());
        let preset = numbers.name.trim_start_matches("measure/");
        let parts = device.into_iter().chain(has_presets.then_some(preset));
        parts.flat_map(|part| [part, ": "]).collect()
    }
}

/// Lengthens each number in a name by zeros, so that `line2` sorts before `line10`.
fn with_long_numbers(name: &str) -> Vec<String> {
    let numbers = name.split_inclusive(|c: char| !c.is_ascii_digit());
    numbers.map(|part| format!("{part:0>12}")).collect()
}

fn folders(directory: &Path, skipped: &mut Vec<String>) -> Result<Vec<PathBuf>, HistoryError> {
    let directory_error =
        |source| HistoryError::Directory { directory: directory.to_owned(), source };
    let entries = fs::read_dir(directory).map_err(directory_error)?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    // Hidden directories are not runs.
    let is_other = |name: &OsStr| name == "plots" || name.as_encoded_bytes().starts_with(b".");
    folders.retain(|path| !path.file_name().is_some_and(is_other));
    folders.sort();
    if folders.len() > RUNS_MAX {
        let older = folders.len() - RUNS_MAX;
        skipped.push(format!("the {older} oldest of {} runs", folders.len()));
        folders.drain(..older);
    }
    Ok(folders)
}

/// A run with its steps; `prefix` precedes each step's name. The error says that a clock was wrong;
/// it is `None` if the time cannot be parsed.
fn run_of(numbers: &RunNumbers, prefix: &str, now_s: i64) -> Result<Run, Option<String>> {
    let at_s = numbers.at_s().ok_or(None)?;
    // A run with such a time would sort as the first or the latest of all, and every other run
    // would be compared with it.
    let when = if at_s < EARLIEST_S {
        Some("which is before this program was written: the clock was wrong")
    } else if at_s > now_s.saturating_add(AHEAD_MAX_S) {
        Some("which is in the future: its clock was wrong, or this machine's is")
    } else {
        None
    };
    if let Some(when) = when {
        return Err(Some(format!("the run of {}, {when}", numbers.started)));
    }
    let step = |step: &StepNumbers| (format!("{prefix}{}", step.step), RunNumbers::values(step));
    let label = crate::label(&numbers.label).unwrap_or_default();
    let steps = numbers.steps.iter().map(step).collect();
    Ok(Run { at_s, label, grade: numbers.grade, steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_folders_are_ignored_and_a_folder_without_runs_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for name in [".cache", "plots"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let said = collect(directory.path(), EARLIEST_S).unwrap_err().to_string();
        assert!(said.ends_with("there are no runs in it"), "{said}");
        fs::create_dir(directory.path().join("holiday")).unwrap();
        let collected = collect(directory.path(), EARLIEST_S).unwrap();
        assert_eq!((collected.runs.len(), collected.skipped.len()), (0, 1));
        assert!(collected.skipped[0].contains("holiday"), "{:?}", collected.skipped);
    }

    #[test]
    fn names_sort_by_their_numbers() {
        let mut names = ["line10: up", "line2: up", "line1: up", "line: up", "line2: down"];
        names.sort_by_cached_key(|name| with_long_numbers(name));
        assert_eq!(names, ["line: up", "line1: up", "line2: down", "line2: up", "line10: up"]);
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_hide_a_line_that_became_worse() {
        let directory = tempfile::tempdir().unwrap();
        let step = |value: f64| StepNumbers {
            step: "up".to_owned(),
            values: BTreeMap::from([(Followed::LoadP99.name().to_owned(), value)]),
        };
        let add = |at_s: i64, value: f64| {
            let numbers = RunNumbers {
                run: at_s.to_string(),
                started: jiff::Timestamp::from_second(at_s).unwrap().to_string(),
                name: "measure/quick".to_owned(),
                label: if value > 50.0 { "wifi" } else { "" }.to_owned(),
                device: String::new(),
                grade: Some(if value > 50.0 { Grade::C } else { Grade::B }),
                steps: vec![step(value)],
            };
            removed::add(directory.path(), &numbers).unwrap();
        };
        let start_s = EARLIEST_S + 86_400;
        for run in 0..60 {
            add(start_s + run * 6 * 3_600, if run < 40 { 42.0 } else { 92.0 });
        }
        let now_s = start_s + 60 * 6 * 3_600;
        add(60, 42.0);
        add(now_s + 400 * 86_400, 42.0);
        let collected = collect(directory.path(), now_s).unwrap();
        let skipped = &collected.skipped;
        assert_eq!((collected.runs.len(), skipped.len()), (60, 2), "{skipped:?}");
        let grades = [&collected.runs[0], &collected.runs[59]].map(|run| run.grade);
        assert_eq!(grades, [Some(Grade::B), Some(Grade::C)]);
        assert!(skipped[0].contains("1970-01-01") && skipped[1].contains("in the future"));
        let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
        assert!(collected.trends(windows)[0].is_worse_by(50.0));
        let [wifi] = &collected.labelled()[..] else { panic!("{:?}", collected.labelled()) };
        assert_eq!((wifi.label.as_str(), wifi.level.runs, wifi.level.p50), ("wifi", 20, 92.0));
        // For a clock at 1970, all runs are in the future and rejected.
        assert!(collect(directory.path(), 0).unwrap().runs.is_empty());
    }

    #[test]
    fn lines_that_devices_name_are_compared_apart() {
        let directory = tempfile::tempdir().unwrap();
        let trends = |device: &str, p99_ms: f64| {
            let value = (Followed::LoadP99.name().to_owned(), p99_ms);
            let step = StepNumbers { step: "up".to_owned(), values: [value].into() };
            let numbers = RunNumbers {
                run: format!("of {device}"),
                started: "2026-11-27T00:00:00Z".to_owned(),
                name: "measure/quick".to_owned(),
                label: String::new(),
                device: device.to_owned(),
                grade: None,
                steps: vec![step],
            };
            removed::add(directory.path(), &numbers).unwrap();
            let collected = collect(directory.path(), EARLIEST_S + 365 * 86_400).unwrap();
            let trends = collected.trends(Windows { baseline_s: 86_400, recent_s: 86_400 });
            let name = |it: Trend| format!("{} {}", it.step, it.points[0].value);
            trends.into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(trends("wan1", 40.0), ["up 40"]);
        assert_eq!(trends("wan2", 90.0), ["wan1: up 40", "wan2: up 90"]);
        assert_eq!(trends("", 20.0), ["up 20", "wan1: up 40", "wan2: up 90"]);
    }
}
