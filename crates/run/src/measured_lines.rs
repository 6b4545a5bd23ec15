//! The study of `[cohort.lines]` over real access lines: a list of lines, each with its run
//! directories, in place of drawn conditions.
//!
//! ```toml
//! class = "probe-dscp45"              # whose lag is expected to be shorter
//! against = "probe-dscp8"             # than the lag of this one
//! full_percent = 95.0                 # default
//! by = ["model"]                      # facts that lines are grouped by
//!
//! [[line]]
//! name = "the house by the lake"
//! facts = { model = "XB7" }
//! runs = ["lake/monday", "lake/tuesday"]
//! ```
//!
//! Paths of run directories are relative to the list's folder. Every valid trial that has both
//! classes, idle and under load, is a run of the line, on the day on which the run began.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use underload_disk as disk;
use underload_record::schema::{
    Phase, RunRecord, Sample, ScenarioRecord, StudyRecord, TrialRecord, VariantRecord,
};
use underload_record::{DAY, LINE, LatencyPools, conclude};
use underload_store::{RunData, RunDir, StoreError};

/// Why a list of lines makes no study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinesError {
    #[error("{}: cannot read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {problem}", path.display())]
    List { path: PathBuf, problem: String },
    #[error(transparent)]
    Run(#[from] StoreError),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    title: String,
    class: String,
    against: String,
    #[serde(default = "default_full_percent")]
    full_percent: f64,
    #[serde(default)]
    by: Vec<String>,
    #[serde(default)]
    line: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    facts: BTreeMap<String, String>,
    runs: Vec<PathBuf>,
}

const fn default_full_percent() -> f64 {
    95.0
}

/// Maximum size of a list, bytes: enough for ten thousand lines with a hundred runs each.
const LIST_BYTES_MOST: u64 = 64 << 20;
const LINES_MOST: usize = 10_000;
/// The only variant of the study.
const VARIANT: &str = "measured";
/// The condition with a line's name. A fact must not have this name, [`LINE`] or [`DAY`].
const NAME: &str = "name";

/// Reads the runs of every line, and merges them to one run with a study, without samples.
pub fn load(path: &Path) -> Result<RunData, LinesError> {
    let text = read_text(path).map_err(|source| LinesError::Io { path: path.into(), source })?;
    let refuse = |problem| LinesError::List { path: path.into(), problem };
    let list: List = toml::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    check(&list).map_err(refuse)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    check_distinct(&list, folder).map_err(refuse)?;
    let mut merged: Option<RunRecord> = None;
    let (mut pools, mut days, mut left_out) = (LatencyPools::default(), Days::default(), vec![]);
    for (number, line) in list.line.iter().enumerate() {
        for directory in &line.runs {
            let run = RunDir::read(folder.join(directory))?;
            let day = days.number(&run.record.host.started);
            left_out.extend(run.left_out.iter().cloned());
            let all = match &mut merged {
                Some(all) if all.world != run.record.world => {
                    let (one, other) = (all.world.name(), run.record.world.name());
                    return Err(refuse(format!(
                        "line.{number}.runs: {} is {other}, earlier runs are {one}; expected runs \
                         of one world",
                        directory.display()
                    )));
                }
                Some(all) => all,
                None => merged.insert(empty(&list, &text, &run.record)),
            };
            let before = all.trials.len();
            add(all, &mut pools, &list, &run, &conditions(number, line, day));
            if all.trials.len() == before {
                return Err(refuse(format!(
                    "line.{number}.runs: {} has no valid trial with {} and {}, idle and under \
                     load; it probed {}; expected runs of `measure --preset ull` or similar",
                    directory.display(),
                    list.class,
                    list.against,
                    probes(&run.record)
                )));
            }
        }
    }
    let mut record = merged.ok_or_else(|| refuse("line: expected at least one".to_owned()))?;
    conclude(&mut record, &pools);
    record.complete = true;
    Ok(RunData { record, samples: Vec::new(), series: Vec::new(), left_out })
}

fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(disk::read_file(path, LIST_BYTES_MOST)?).map_err(io::Error::other)
}

fn check(list: &List) -> Result<(), String> {
    if !(list.full_percent > 0.0 && list.full_percent <= 100.0) {
        return Err("full_percent: expected more than 0 and at most 100".to_owned());
    }
    if list.line.is_empty() || list.line.len() > LINES_MOST {
        return Err(format!("line: expected 1 to {LINES_MOST} of them"));
    }
    let mut names = BTreeSet::new();
    for (number, line) in list.line.iter().enumerate() {
        if line.runs.is_empty() {
            return Err(format!("line.{number}.runs: expected at least one"));
        }
        if !names.insert(&line.name) {
            return Err(format!("line.{number}.name: `{}` occurs twice; names differ", line.name));
        }
        if let Some(fact) = [LINE, DAY, NAME].into_iter().find(|own| line.facts.contains_key(*own))
        {
            return Err(format!("line.{number}.facts.{fact}: is reserved; expected another name"));
        }
        if let Some(missing) = list.by.iter().find(|fact| !line.facts.contains_key(*fact)) {
            return Err(format!("line.{number}.facts: `{missing}` is missing, which `by` names"));
        }
    }
    Ok(())
}

/// Rejects a run that occurs twice, under whatever path, as this makes intervals too narrow.
fn check_distinct(list: &List, folder: &Path) -> Result<(), String> {
    let mut places = BTreeSet::new();
    for (number, line) in list.line.iter().enumerate() {
        for run in &line.runs {
            let place = folder.join(run);
            // A missing one is reported when it is read.
            if !places.insert(place.canonicalize().unwrap_or(place)) {
                return Err(format!("line.{number}.runs: {} occurs twice", run.display()));
            }
        }
    }
    Ok(())
}

/// Dates of days, numbered by their position.
#[derive(Debug, Default)]
struct Days {
    dates: Vec<String>,
}

impl Days {
    /// Returns the number of the day of an instant in RFC 3339.
    fn number(&mut self, started: &str) -> usize {
        let date = started.split('T').next().unwrap_or_default();
        self.dates.iter().position(|known| known == date).unwrap_or_else(|| {
            self.dates.push(date.to_owned());
            self.dates.len() - 1
        })
    }
}

fn conditions(number: usize, line: &Line, day: usize) -> BTreeMap<String, String> {
    let own = [(LINE, number.to_string()), (DAY, day.to_string()), (NAME, line.name.clone())];
    let own = own.map(|(key, value)| (key.to_owned(), value));
    line.facts.clone().into_iter().chain(own).collect()
}

/// Returns the study without trials, with the provenance of the first run.
fn empty(list: &List, text: &str, first: &RunRecord) -> RunRecord {
    let title =
        if list.title.is_empty() { "Measured lines".to_owned() } else { list.title.clone() };
    let study = StudyRecord {
        class: list.class.clone(),
        against: list.against.clone(),
        full_percent: list.full_percent,
        by: list.by.clone(),
        lines: list.line.len() as u32,
        ..StudyRecord::default()
    };
    RunRecord {
        scenario: ScenarioRecord {
            name: "lines".to_owned(),
            title,
            text: text.to_owned(),
            headline: None,
            plots: Vec::new(),
        },
        variants: vec![VariantRecord { name: VARIANT.to_owned(), ..VariantRecord::default() }],
        trials: Vec::new(),
        summaries: Vec::new(),
        expectations: Vec::new(),
        judgement: None,
        verdict: Vec::new(),
        label: String::new(),
        study: Some(study),
        ..first.clone()
    }
}

/// Adds the trials of a run that measured both classes.
fn add(
    all: &mut RunRecord,
    pools: &mut LatencyPools,
    list: &List,
    run: &RunData,
    conditions: &BTreeMap<String, String>,
) {
    for trial in run.record.trials.iter().filter(|trial| trial.validity.is_valid()) {
        let samples = run.samples_of(trial.index);
        let is_whole = [&list.class, &list.against].into_iter().all(|class| {
            let mut phases = [Phase::Idle, Phase::Load].into_iter();
            phases.all(|phase| has_answers(trial, samples, class, phase))
        });
        if !is_whole {
            continue;
        }
        let index = all.trials.len() as u32;
        let (variant, conditions) = (VARIANT.to_owned(), conditions.clone());
        let trial = TrialRecord { index, variant, repeat: index, conditions, ..trial.clone() };
        pools.add(&trial, samples);
        all.trials.push(trial);
    }
}

fn probes(record: &RunRecord) -> String {
    let flows = record.trials.iter().flat_map(|trial| &trial.flows);
    let names = flows.filter(|flow| flow.kind == "probe").map(|flow| flow.name.as_str());
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() { "nothing".to_owned() } else { Vec::from_iter(names).join(", ") }
}

fn has_answers(trial: &TrialRecord, samples: &[Sample], class: &str, phase: Phase) -> bool {
    let Some(flow) = trial.flows.iter().position(|flow| flow.name == class) else { return false };
    samples.iter().any(|sample| {
        usize::from(sample.flow) == flow && sample.phase == phase && sample.rtt_ns.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lines.toml");
        std::fs::write(&path, text).expect("a file");
        load(&path).expect_err(text).to_string()
    }

    #[test]
    fn a_faulty_list_names_its_place_and_what_is_accepted() {
        const HEAD: &str = "class = \"a\"\nagainst = \"b\"\n";
        for (text, expected) in [
            ("", "missing field `class`"),
            ("class = 3", "expected a string"),
            (HEAD, "line: expected 1 to 10000 of them"),
            ("klass = 3", "unknown field `klass`"),
            ("class='a'\nagainst='b'\nfull_percent=nan\n[[line]]\nname='x'\nruns=['y']", "than 0"),
            ("class='a'\nagainst='b'\n[[line]]\nname='x'\nruns=[]", "line.0.runs: expected at"),
            (
                "class='a'\nagainst='b'\nby=['m']\n[[line]]\nname='x'\nruns=['y']",
                "line.0.facts: `m` is missing, which `by` names",
            ),
            (
                "class='a'\nagainst='b'\n[[line]]\nname='x'\nruns=['y', 'y']",
                "line.0.runs: y occurs twice",
            ),
            (
                "class='a'\nagainst='b'\n[[line]]\nname='x'\nruns=['y']\nfacts={day='3'}",
                "line.0.facts.day: is reserved",
            ),
            ("class='a'\nagainst='b'\n[[line]]\nname='x'\nruns=['nowhere']", "nowhere"),
        ] {
            let found = problem(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
        let missing = load(Path::new("/nowhere/lines.toml")).expect_err("no such file");
        assert!(missing.to_string().contains("/nowhere/lines.toml: cannot read"), "{missing}");
    }

    #[test]
    fn a_list_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lines.toml");
        std::fs::write(&path, "class='a'\nagainst='b'\n").expect("a file");
        let file = std::fs::File::options().write(true).open(&path).expect("it");
        file.set_len(LIST_BYTES_MOST + 1).expect("longer");
        let error = load(&path).expect_err("too long");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert_eq!(cause, "more than 67108864 bytes", "{error}");
    }

    #[test]
    fn runs_of_one_date_are_of_one_day() {
        let mut days = Days::default();
        let of = ["2026-11-20T01:00:00Z", "2026-11-21T01:00:00Z", "2026-11-20T23:00:00Z", ""];
        assert_eq!(of.map(|started| days.number(started)), [0, 1, 0, 2]);
    }
}
