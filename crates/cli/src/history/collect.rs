//! From run directories to numbers over time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use underload_record::history::{Followed, Point, Trend, Windows};
use underload_store::RunDir;

use super::kept::{self, Kept};

/// Runs that are read, the latest ones: five years, every two hours.
const RUNS_MAX: usize = 22_000;

/// The runs of a directory.
#[derive(Debug, Default)]
pub struct Collected {
    /// Oldest first.
    pub runs: Vec<Run>,
    /// What could not be used, each with its reason.
    pub skipped: Vec<String>,
}

/// A step's name and its values.
pub type Step = (String, Vec<(Followed, f64)>);

/// One run.
#[derive(Debug)]
pub struct Run {
    /// When it began, seconds since 1970.
    pub at_s: i64,
    /// Valid steps.
    pub steps: Vec<Step>,
}

impl Collected {
    /// Every number of every step over time, steps by name.
    pub fn trends(&self, windows: Windows) -> Vec<Trend> {
        let names: BTreeSet<&str> = self
            .runs
            .iter()
            .flat_map(|run| run.steps.iter().map(|(name, _)| name.as_str()))
            .collect();
        let mut points: BTreeMap<(usize, &str), Vec<Point>> = BTreeMap::new();
        for run in &self.runs {
            for (name, values) in &run.steps {
                for (followed, value) in values {
                    let position = Followed::ALL.iter().position(|it| it == followed).unwrap_or(0);
                    let point = Point { at_s: run.at_s, value: *value };
                    points.entry((position, name.as_str())).or_default().push(point);
                }
            }
        }
        let mut trends = Vec::new();
        for (position, followed) in Followed::ALL.into_iter().enumerate() {
            for name in &names {
                if let Some(points) = points.remove(&(position, *name)) {
                    trends.push(Trend::of(name, followed, points, windows));
                }
            }
        }
        trends
    }
}

/// Reads all runs below a directory; what is broken is named and left out.
pub fn collect(directory: &Path) -> anyhow::Result<Collected> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    // Runs are not hidden.
    let is_other = |name: &OsStr| name == "plots" || name.as_encoded_bytes().starts_with(b".");
    folders.retain(|path| !path.file_name().is_some_and(is_other));
    folders.sort();
    let mut collected = Collected::default();
    if folders.len() > RUNS_MAX {
        let older = folders.len() - RUNS_MAX;
        collected.skipped.push(format!("the {older} oldest of {} runs", folders.len()));
        folders.drain(..older);
    }
    // What stays of runs that were removed; one whose removal was cut short counts once.
    let mut found = kept::read(directory).unwrap_or_else(|error| {
        collected.skipped.push(error.to_string());
        Vec::new()
    });
    if folders.is_empty() && found.is_empty() {
        bail!("{}: there are no runs in it", directory.display());
    }
    let mut removed: BTreeMap<String, Vec<Kept>> = BTreeMap::new();
    for kept in &found {
        removed.entry(kept.run.clone()).or_default().push(kept.clone());
    }
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let read = RunDir::read_record(&folder).map_err(anyhow::Error::from);
        let kept = read.and_then(|record| Kept::of(&folder, &record).map_err(|it| anyhow!(it)));
        match kept {
            // Its removal has begun. Where a clock starts anew at each boot, another run may have
            // the name of one that is gone.
            Ok(kept) if removed.get(&name).is_some_and(|of_name| of_name.contains(&kept)) => {}
            Ok(kept) => found.push(kept),
            Err(_) if removed.contains_key(&name) => {}
            Err(error) => {
                // Errors of files name them already.
                let words = format!("{error:#}");
                let name = folder.display().to_string();
                let is_named = words.contains(&name);
                collected.skipped.push(if is_named { words } else { format!("{name}: {words}") });
            }
        }
    }
    // Steps of several presets may share a name.
    let presets: BTreeSet<String> = found.iter().map(|kept| kept.name.clone()).collect();
    for kept in &found {
        let prefix = if presets.len() > 1 {
            format!("{}: ", kept.name.trim_start_matches("measure/"))
        } else {
            String::new()
        };
        let steps: Vec<Step> = kept
            .steps
            .iter()
            .map(|step| (format!("{prefix}{}", step.step), Kept::values(step)))
            .collect();
        match kept.at_s() {
            Some(at_s) if !steps.is_empty() => collected.runs.push(Run { at_s, steps }),
            // Of a run that is gone nobody can look up why.
            _ if removed.contains_key(&kept.run) => {}
            _ => {
                let time = &kept.started;
                collected.skipped.push(format!("the run of {time}: none of its steps is valid"));
            }
        }
    }
    collected.runs.sort_by_key(|run| run.at_s);
    Ok(collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_folders_are_no_runs_and_a_folder_without_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for name in [".cache", "plots"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let said = collect(directory.path()).unwrap_err().to_string();
        assert!(said.ends_with("there are no runs in it"), "{said}");
        fs::create_dir(directory.path().join("holiday")).unwrap();
        let collected = collect(directory.path()).unwrap();
        assert_eq!((collected.runs.len(), collected.skipped.len()), (0, 1));
        assert!(collected.skipped[0].contains("holiday"), "{:?}", collected.skipped);
    }
}
