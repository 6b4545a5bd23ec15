//! Numbers of removed runs, one line per run: `history` needs them after the directory is deleted.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use underload_measure::followed;
use underload_record::history::Followed;
use underload_record::judgement::Grade;
use underload_record::schema::{RunRecord, TrialRecord, World};

use super::lines::{self, line};

const FILE: &str = "removed-runs.jsonl";
/// Number of lines, the latest ones, that a rewrite of the file retains. It equals the maximum number
/// of run directories that `history` reads.
pub const LINES_MAX: usize = 22_000;
/// The file is rewritten after this many lines were appended.
const LINES_SLACK: usize = 2_000;
/// Larger values are implausible: in milliseconds this is eleven days, in Mbit/s a petabit per
/// second.
const VALUE_MAX: f64 = 1e9;

/// The numbers of a run, which are stored when its directory is removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunNumbers {
    /// The name of the directory that had the run.
    pub run: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// Name of the scenario, such as `measure/quick`.
    pub name: String,
    /// The user's words about the run; empty if there were none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The only network interface that the run used; empty if it used the interfaces of the routes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The grade of its judgement; `None` if no step had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Only the valid steps.
    pub steps: Vec<StepNumbers>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepNumbers {
    pub step: String,
    /// Values in the units of [`Followed`], by its names.
    pub values: BTreeMap<String, f64>,
}

impl RunNumbers {
    /// Extracts the numbers from the record of a measured run.
    ///
    /// # Errors
    /// Returns a sentence if the run has no numbers to store.
    pub fn from_record(run: &Path, record: &RunRecord) -> Result<Self, &'static str> {
        if record.world != World::Measured {
            return Err("it is simulated or emulated, and no line");
        }
        let name = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let step = |trial: &TrialRecord| StepNumbers {
            step: trial.variant.clone(),
            values: followed(trial)
                .into_iter()
                .map(|(followed, value)| (followed.name().to_owned(), value))
                .collect(),
        };
        let kept = Self {
            run: name,
            started: record.host.started.clone(),
            name: record.scenario.name.clone(),
            label: record.label.clone(),
            device: record.host.device.clone(),
            grade: record.judgement.as_ref().and_then(|judgement| judgement.grade),
            steps: record.trials.iter().filter(|it| it.validity.is_valid()).map(step).collect(),
        };
        kept.at_s().map(|_| kept.clone()).ok_or("the time at which it began cannot be read")
    }

    /// When it began, seconds since 1970; `None` if the time cannot be parsed.
    pub fn at_s(&self) -> Option<i64> {
        self.started.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
    }

    /// Returns a step's values without implausible ones.
    pub fn values(step: &StepNumbers) -> Vec<(Followed, f64)> {
        let of = |followed: Followed| Some((followed, *step.values.get(followed.name())?));
        let is_possible = |(_, value): &(Followed, f64)| (0.0..=VALUE_MAX).contains(value);
        Followed::ALL.into_iter().filter_map(of).filter(is_possible).collect()
    }
}

/// Reads the numbers of the runs that were removed from a directory, in the order of removal. Skips
/// damaged lines.
///
/// # Errors
/// Returns the error of the system call; [`io::ErrorKind::InvalidData`] for a file that this
/// program did not write.
pub fn read(directory: &Path) -> io::Result<Vec<RunNumbers>> {
    lines::open(&directory.join(FILE)).map(|(_, kept)| kept)
}

/// Appends the numbers of a run. They are on disk when this returns. An error or a kill leaves all
/// earlier numbers intact.
///
/// # Errors
/// As [`read`].
pub fn add(directory: &Path, kept: &RunNumbers) -> io::Result<()> {
    let (mut journal, mut all): (_, Vec<RunNumbers>) = lines::open(&directory.join(FILE))?;
    if all.len() >= LINES_MAX + LINES_SLACK {
        all.drain(..all.len() - LINES_MAX);
        let text = all.iter().map(line).collect::<io::Result<String>>()?;
        journal.rewrite(text.as_bytes())?;
    }
    journal.append_synced(line(kept)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use underload_disk::faults::{self, Fault, Tree};

    use super::*;

    fn kept(run: &str) -> RunNumbers {
        let values = BTreeMap::from([("load-p99".to_owned(), 85.5), ("news".to_owned(), 1.0)]);
        let steps = vec![StepNumbers { step: "up".to_owned(), values }];
        let started = "2026-11-23T10:00:00Z".to_owned();
        let (name, label, device) = ("measure/quick".to_owned(), String::new(), String::new());
        RunNumbers { run: run.to_owned(), started, name, label, device, grade: None, steps }
    }

    #[test]
    fn stored_numbers_read_back_and_a_torn_line_damages_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert_eq!(read(at).unwrap(), []);
        add(at, &kept("a")).unwrap();
        add(at, &kept("b")).unwrap();
        let path = at.join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        add(at, &kept("c")).unwrap();
        assert_eq!(read(at).unwrap(), [kept("a"), kept("c")]);
        let step = |value: f64| {
            let mut kept = kept("a");
            kept.steps[0].values.insert("load-p99".to_owned(), value);
            RunNumbers::values(&kept.steps[0])
        };
        assert_eq!(step(85.5), [(Followed::LoadP99, 85.5)]);
        for impossible in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(step(impossible), []);
        }
        let mut bytes = fs::read(&path).unwrap();
        bytes.splice(0..0, *b"\xff\xfe\0{}\n[1]\n");
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(at).unwrap(), [kept("a"), kept("c")]);
        // A file that this program did not write is neither read nor changed.
        fs::write(&path, "my notes\n").unwrap();
        assert!(read(at).is_err() && add(at, &kept("d")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "my notes\n");
        #[cfg(unix)]
        {
            fs::rename(&path, at.join("notes")).unwrap();
            std::os::unix::fs::symlink("notes", &path).unwrap();
            assert!(add(at, &kept("d")).is_err());
            assert_eq!(fs::read_to_string(at.join("notes")).unwrap(), "my notes\n");
        }
    }

    #[test]
    fn a_line_of_an_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let line = concat!(
            r#"{"run":"a","started":"2026-11-23T10:00:00Z","name":"measure/quick","steps":"#,
            r#"[{"step":"up","values":{"load-p99":85.5,"news":1.0}}]}"#,
            "\n",
        );
        fs::write(directory.path().join(FILE), line).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [kept("a")]);
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let many: String =
            (0..LINES_MAX + LINES_SLACK).map(|at| line(&kept(&at.to_string())).unwrap()).collect();
        fs::write(directory.path().join(FILE), many).unwrap();
        add(directory.path(), &kept("last")).unwrap();
        let left = read(directory.path()).unwrap();
        assert_eq!(left.len(), LINES_MAX + 1);
        assert_eq!((left[0].run.as_str(), left[LINES_MAX].run.as_str()), ("2000", "last"));
    }

    /// A full disk, a kill or a power cut at any step leaves all earlier numbers intact.
    #[test]
    fn no_interrupted_step_loses_stored_numbers() {
        let few = 3;
        let text: String = (0..few).map(|at| line(&kept(&at.to_string())).unwrap()).collect();
        let before = Tree::from([(PathBuf::from(FILE), Some(text.into_bytes()))]);
        let action = |root: &Path| add(root, &kept("new")).is_ok();
        faults::at_every_step(&before, action, |fault, root, outcome| {
            let left = faults::tree(root);
            let cuts: &[Tree] = match fault {
                Fault::Kill(_) => &outcome.after_power_cut,
                _ => &[],
            };
            for tree in std::iter::once(&left).chain(cuts) {
                faults::restore(root, tree);
                let left = read(root).unwrap();
                let has = |run: &str| left.iter().any(|kept| kept.run == run);
                assert!((0..few).all(|at| has(&at.to_string())), "{fault:?}");
                let is_new = has("new");
                assert!(is_new || !outcome.result || outcome.is_hit, "{fault:?}");
            }
        });
    }
}
