//! A directory to which runs are added one by one, and the careful way of taking old ones out.
//!
//! `series.json` in the directory gives the series a name that no other has. A run that is finished
//! gets `made.json`: of which series it is, the name that its directory was made with, and each
//! file that was written. Only what says all of this of itself is ever removed, file by file as it
//! is listed; nothing is followed that is a link, and a directory with anything else in it stays as
//! it is.
//!
//! [`Series::remove`] may be killed at each of its steps: pages that can be drawn again go first,
//! then `run.json`, then the tables, and `made.json` at last, so that what is half gone is known
//! for what it is and can be finished.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use underload_disk::{self as disk, Access};

use crate::error::StoreError;
use crate::files::{self, PACKETS, RECORD, SAMPLES, SERIES, TRIALS};

/// Of the directory: which series it is.
const NAME: &str = "series.json";
/// Of a run: what was made for it.
const MADE: &str = "made.json";
/// The folder of a report's pictures, in a run and beside all runs.
const PLOTS: &str = "plots";
const PAGE: &str = "report.html";
const FINDINGS: &str = "findings.json";
/// Longer ones are none of ours.
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
struct Made {
    version: u32,
    /// The series that it is of.
    series: String,
    /// The name of its directory: a copy under another name is somebody's own.
    run: String,
    /// When it began, RFC 3339.
    started: String,
    /// What was written, without `made.json` itself.
    files: BTreeSet<String>,
}

/// A run of a series, which may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its directory.
    pub path: PathBuf,
    /// The directory's name.
    pub name: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// What its files take, bytes.
    pub bytes: u64,
    /// Its `run.json` is gone: a removal was begun, or somebody took it.
    pub is_headless: bool,
    files: BTreeSet<String>,
}

/// What is in the directory of a series.
#[derive(Debug, Default)]
pub struct Members {
    /// Its runs, by the time at which they began and by name.
    pub runs: Vec<Member>,
    /// Folders and links that are left alone, each with the reason.
    pub others: Vec<(PathBuf, String)>,
}

impl Series {
    /// The series of a directory, which becomes one with `name` if it is none.
    ///
    /// # Errors
    /// [`StoreError::Inconsistent`] where `series.json` is not ours; else what the disk said.
    pub fn open(path: &Path, name: &str) -> Result<Self, StoreError> {
        if let Some(series) = Self::of(path)? {
            return Ok(series);
        }
        let file = path.join(NAME);
        let named = Named { version: VERSION, series: name.to_owned() };
        write_json(&file, &named)?;
        Ok(Self { path: path.to_owned(), name: named.series })
    }

    /// The series of a directory, if it is one.
    ///
    /// # Errors
    /// As [`Series::open`].
    pub fn of(path: &Path) -> Result<Option<Self>, StoreError> {
        let file = path.join(NAME);
        match fs::symlink_metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let wrong = |reason: String| StoreError::Inconsistent { path: file.clone(), reason };
        let named: Named = read_json(&file).map_err(wrong)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if named.version != VERSION
            || named.series.is_empty()
            || !named.series.chars().all(is_plain)
        {
            return Err(wrong("it was not written by this program, or by a newer one".to_owned()));
        }
        Ok(Some(Self { path: path.to_owned(), name: named.series }))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a finished run in the directory one of the series: lists what was written for it.
    ///
    /// # Errors
    /// [`StoreError::Inconsistent`] where it is none; else what the disk said.
    pub fn adopt(&self, run: &Path, started: &str) -> Result<(), StoreError> {
        let wrong = |reason: &str| StoreError::Inconsistent {
            path: run.to_owned(),
            reason: reason.to_owned(),
        };
        let name = name_of(run).ok_or_else(|| wrong("its name cannot be written down"))?;
        let is_here = run.parent().is_some_and(|parent| parent == self.path);
        if !is_here || !is_real_directory(run) {
            return Err(wrong("it is no directory of this series"));
        }
        let found = entries(run).map_err(StoreError::io(run, "read"))?;
        // What a run is not known to write is not ours to list.
        let files = found.into_iter().filter(|name| is_runs_own(name)).collect();
        let made = Made {
            version: VERSION,
            series: self.name.clone(),
            run: name,
            started: started.to_owned(),
            files,
        };
        write_json(&run.join(MADE), &made)
    }

    /// What is in the directory. Files beside the runs are passed over.
    ///
    /// # Errors
    /// What the disk said of the directory itself.
    pub fn members(&self) -> Result<Members, StoreError> {
        let mut members = Members::default();
        let read = || StoreError::io(&self.path, "read");
        for entry in fs::read_dir(&self.path).map_err(read())? {
            let entry = entry.map_err(read())?;
            // Of the entry itself: a link is a link.
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

    /// Removes a run of the series: `before` is called once what can be drawn again is gone and
    /// before anything else is touched.
    ///
    /// # Errors
    /// [`StoreError::Inconsistent`] if it is not, or no longer, what the series knows; what
    /// `before` or the disk said. What is left then is a run without its pages, or one that
    /// [`Member::is_headless`].
    pub fn remove(
        &self,
        member: &Member,
        before: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let path = &member.path;
        let inconsistent = |reason| StoreError::Inconsistent { path: path.clone(), reason };
        // Whatever happened since it was looked at.
        let now = self.examine(path).map_err(inconsistent)?;
        if now.started != member.started || now.is_headless != member.is_headless {
            return Err(inconsistent("it changed meanwhile".to_owned()));
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
        // A power cut must not take the list and leave what is on it.
        disk::sync_directory(path).map_err(StoreError::io(path, "write"))?;
        remove(MADE)?;
        disk::remove_empty_directory(path).map_err(StoreError::io(path, "remove"))?;
        disk::sync_directory(&self.path).map_err(StoreError::io(&self.path, "write"))
    }

    /// A run of the series, or why a directory is none.
    fn examine(&self, path: &Path) -> Result<Member, String> {
        if !is_real_directory(path) {
            return Err("a link, or no directory".to_owned());
        }
        let name = name_of(path).ok_or("a name that no run has")?;
        if fs::symlink_metadata(path.join(MADE)).is_err() {
            return Err(format!(
                "there is no {MADE} in it: a run under way or cut short, one of an earlier \
                 version, or no run"
            ));
        }
        let made: Made =
            read_json(&path.join(MADE)).map_err(|reason| format!("{MADE}: {reason}"))?;
        if made.version != VERSION || made.series != self.name {
            return Err("a run of another series".to_owned());
        }
        if made.run != name {
            return Err(format!("a copy, or renamed: it was {}", made.run));
        }
        if !made.files.iter().all(|name| is_runs_own(name)) {
            return Err(format!("its {MADE} lists what no run writes"));
        }
        let found = entries(path).map_err(|error| format!("it cannot be read: {error}"))?;
        let mut bytes = 0;
        for name in &found {
            if name != MADE && !made.files.contains(name) {
                return Err(format!("there is something else in it: {name}"));
            }
            let facts = fs::symlink_metadata(path.join(name)).map_err(|error| error.to_string())?;
            if !facts.is_file() {
                return Err(format!("{name} in it is no file"));
            }
            bytes += facts.len();
        }
        Ok(Member {
            path: path.to_owned(),
            name,
            started: made.started,
            bytes,
            is_headless: !found.contains(RECORD),
            files: made.files,
        })
    }
}

/// Files and links in a run's directory, those in its folder of pictures with that before their
/// names. What is in no such place, or has a name that is no text, comes under a name that no run
/// writes.
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

/// Whether a run writes a file of this name.
fn is_runs_own(name: &str) -> bool {
    let tables = [RECORD, SAMPLES, SERIES, PACKETS, TRIALS, FINDINGS, PAGE];
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

/// Reads a small file that is no link.
fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, String> {
    let facts = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.len() > TEXT_BYTES_MAX {
        return Err("it is no file of ours".to_owned());
    }
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut text))
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|_| "it is no file of ours".to_owned())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let json = files::encode(path, value)?;
    disk::write_new(path, &json, Access::Usual).map_err(StoreError::io(path, "create"))
}

#[cfg(test)]
mod tests;
