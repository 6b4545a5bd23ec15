//! Directories to which runs are added, and from which old runs are removed safely.
//!
//! `series.json` in the directory has the unique name of the series. A finished run gets
//! `made.json`, with the series, the original name of the run's directory, and each written file.
//! Only a run whose `made.json` matches is removed, file by file as listed; links are not followed,
//! and a directory with any other file is not changed.
//!
//! [`Series::remove`] may be killed at any step: pages that can be drawn again are removed first,
//! then `run.json`, then the tables, and `made.json` at last, so that a partial removal is
//! recognised and can be completed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};

use crate::error::{Result, StoreError};
use crate::files::{self, RECORD, SAMPLES, SERIES, TRIALS};

const NAME: &str = "series.json";
const MADE: &str = "made.json";
/// The folder of a report's pictures, in a run and beside all runs.
const PLOTS: &str = "plots";
const PAGE: &str = "report.html";
const FINDINGS: &str = "findings.json";
/// Maximum number of bytes of `series.json` and `made.json`.
const TEXT_BYTES_MAX: u64 = 1 << 20;
const VERSION: u32 = 1;

/// A directory of runs that belong together.
#[derive(Debug)]
pub struct Series {
    path: PathBuf,
    name: String,
}

/// The content of `series.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    version: u32,
    series: String,
}

/// The content of `made.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunMark {
    version: u32,
    series: String,
    /// The name of the run's directory. A copy under another name belongs to the user.
    run: String,
    /// When the run began, RFC 3339.
    started: String,
    /// The written files, without `made.json`.
    files: BTreeSet<String>,
}

/// A run of a series, which may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub path: PathBuf,
    pub name: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// Whether `run.json` is missing, because a removal was begun or the file was moved.
    pub is_headless: bool,
    files: BTreeSet<String>,
}

/// The content of a series' directory.
#[derive(Debug, Default)]
pub struct Members {
    /// The runs, by the time at which they began and by name.
    pub runs: Vec<Member>,
    /// Folders and links that do not belong to the series, each with the reason.
    pub others: Vec<(PathBuf, String)>,
}

impl Series {
    /// Opens the series of a directory, or creates one with `name`.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if another program wrote `series.json`.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        if let Some(series) = Self::find(path)? {
            return Ok(series);
        }
        let file = path.join(NAME);
        let named = Named { version: VERSION, series: name.to_owned() };
        match write_json(&file, &named) {
            Ok(()) => Ok(Self { path: path.to_owned(), name: named.series }),
            // Another process created it meanwhile.
            Err(error) => Self::find(path)?.ok_or(error),
        }
    }

    /// Returns the series of a directory, if there is one.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let file = path.join(NAME);
        match fs::symlink_metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let named: Named =
            read_json(&file).map_err(|reason| StoreError::inconsistent(&file, reason))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_name = !named.series.is_empty() && named.series.chars().all(is_plain);
        if named.version != VERSION || !is_name {
            let reason = "written by a newer or another program";
            return Err(StoreError::inconsistent(&file, reason));
        }
        Ok(Some(Self { path: path.to_owned(), name: named.series }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a finished run in the directory to the series: writes its `made.json`.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if `run` is not a directory of the series.
    pub fn adopt(&self, run: &Path, started: &str) -> Result<()> {
        let wrong = |reason: &str| StoreError::inconsistent(run, reason);
        let name = name_of(run).ok_or_else(|| wrong("its name is not UTF-8"))?;
        let is_here = run.parent().is_some_and(|parent| parent == self.path);
        if !is_here || !is_real_directory(run) {
            return Err(wrong("not a directory of this series"));
        }
        let found = entries(run).map_err(StoreError::io(run, "read"))?;
        // Other files belong to the user.
        let files = found.into_iter().filter(|name| is_file_of_run(name)).collect();
        let made = RunMark {
            version: VERSION,
            series: self.name.clone(),
            run: name,
            started: started.to_owned(),
            files,
        };
        write_json(&run.join(MADE), &made)
    }

    /// Returns the content of the directory, without files beside the runs.
    pub fn members(&self) -> Result<Members> {
        let mut members = Members::default();
        let read = || StoreError::io(&self.path, "read");
        for entry in fs::read_dir(&self.path).map_err(read())? {
            let entry = entry.map_err(read())?;
            // The type of the entry itself: links are not followed.
            let kind = entry.file_type().map_err(read())?;
            let path = entry.path();
            if kind.is_file() || entry.file_name() == PLOTS {
                continue;
            }
            match self.examine(&path) {
                Ok(member) => members.runs.push(member),
                Err(reason) => members.others.push((path, reason)),
            }
        }
        members.runs.sort_by(|a, b| (&a.started, &a.name).cmp(&(&b.started, &b.name)));
        members.others.sort();
        Ok(members)
    }

    /// Removes a run of the series. Calls `before` once the pages are removed, which can be drawn
    /// again, and before any other file is.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if the run has changed or is not of the series, or the
    /// error of `before`. After an error, a run without its pages is left, or one with
    /// [`Member::is_headless`].
    pub fn remove(&self, member: &Member, before: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let path = &member.path;
        // The run may have changed since `members`.
        let now = self.examine(path).map_err(|reason| StoreError::inconsistent(path, reason))?;
        if now.started != member.started || now.is_headless != member.is_headless {
            return Err(StoreError::inconsistent(path, "changed since it was listed"));
        }
        let remove = |name: &str| {
            let file = path.join(name);
            disk::remove(&file).map_err(StoreError::io(&file, "remove"))
        };
        let (pages, rest): (Vec<&String>, Vec<&String>) =
            now.files.iter().partition(|name| *name == PAGE || name.starts_with(PLOTS));
        pages.into_iter().try_for_each(|name| remove(name))?;
        let plots = path.join(PLOTS);
        if is_real_directory(&plots) {
            disk::remove_empty_directory(&plots).map_err(StoreError::io(&plots, "remove"))?;
        }
        before().map_err(StoreError::io(path, "keep the numbers of"))?;
        remove(RECORD)?;
        rest.into_iter().filter(|name| *name != RECORD).try_for_each(|name| remove(name))?;
        // After a power cut, no file may exist without `made.json`, which lists it.
        disk::sync_directory(path).map_err(StoreError::io(path, "write"))?;
        remove(MADE)?;
        disk::remove_empty_directory(path).map_err(StoreError::io(path, "remove"))?;
        disk::sync_directory(&self.path).map_err(StoreError::io(&self.path, "write"))
    }

    /// Returns a run of the series, or why a directory is not one.
    fn examine(&self, path: &Path) -> Result<Member, String> {
        if !is_real_directory(path) {
            return Err("a link, or not a directory".to_owned());
        }
        let name = name_of(path).ok_or("its name is not UTF-8")?;
        if fs::symlink_metadata(path.join(MADE)).is_err() {
            return Err(format!("it has no {MADE}: an incomplete run, or no run"));
        }
        let made: RunMark =
            read_json(&path.join(MADE)).map_err(|reason| format!("{MADE}: {reason}"))?;
        if made.version != VERSION || made.series != self.name {
            return Err("a run of another series".to_owned());
        }
        if made.run != name {
            return Err(format!("a copy, or renamed: it was {}", made.run));
        }
        if !made.files.iter().all(|name| is_file_of_run(name)) {
            return Err(format!("its {MADE} lists files that no run writes"));
        }
        let found = entries(path).map_err(|error| format!("it cannot be read: {error}"))?;
        for name in &found {
            if name != MADE && !made.files.contains(name) {
                return Err(format!("it has another file: {name}"));
            }
            let facts = fs::symlink_metadata(path.join(name)).map_err(|error| error.to_string())?;
            if !facts.is_file() {
                return Err(format!("{name} in it is not a regular file"));
            }
        }
        Ok(Member {
            path: path.to_owned(),
            name,
            started: made.started,
            is_headless: !found.contains(RECORD),
            files: made.files,
        })
    }
}

/// Returns files, links and folders in a run's directory, and in its folder of pictures with that
/// folder's name before theirs. A name that is not UTF-8 is converted to one that no run writes.
fn entries(run: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut list = |folder: &Path, prefix: &str| -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_plots = prefix.is_empty() && name == PLOTS && entry.file_type()?.is_dir();
            if !is_plots {
                found.insert(format!("{prefix}{}", name.to_string_lossy()));
            }
        }
        Ok(())
    };
    list(run, "")?;
    let plots = run.join(PLOTS);
    if is_real_directory(&plots) {
        list(&plots, &format!("{PLOTS}/"))?;
    }
    Ok(found)
}

fn is_file_of_run(name: &str) -> bool {
    let tables = [RECORD, SAMPLES, SERIES, TRIALS, FINDINGS, PAGE];
    let is_picture = || {
        let stem = name.strip_prefix("plots/").and_then(|name| name.strip_suffix(".svg"));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        stem.is_some_and(|stem| !stem.is_empty() && stem.chars().all(is_plain))
    };
    tables.contains(&name) || is_picture()
}

fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir())
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// Reads a small file, and does not follow a link.
fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, String> {
    let facts = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("not a file of this program".to_owned());
    }
    let text = disk::read_file(path, TEXT_BYTES_MAX).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|_| "not a file of this program".to_owned())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = files::encode(path, value)?;
    disk::write_new(path, &json, Access::Usual).map_err(StoreError::io(path, "create"))
}

#[cfg(test)]
mod tests;
