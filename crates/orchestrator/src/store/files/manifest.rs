//! The manifest of an archive, which alone decides which files and results belong to it.
//!
//! A file belongs to the archive once a manifest that names it is on disk. A result of a day whose
//! number is not above [`PlanDay::up_to`] is in that day's files, whether or not the database still
//! has it. So replacing the manifest moves results atomically.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use underload_disk::Access;
use underload_fleet::store::StoreError;

use super::table::{Written, damaged, failed};

/// Version of the manifest and of the columns of its files.
const FORMAT: u32 = 1;
pub(super) const NAME: &str = "manifest.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: u32,
    /// Identifier of the archive, which the database stores too.
    pub(crate) archive: String,
    next_file: u64,
    /// Ordered by day and plan.
    pub(crate) days: Vec<PlanDay>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanDay {
    /// Days since 1970-01-01, UTC.
    pub(crate) day: u32,
    pub(crate) plan: String,
    /// All results of the day with numbers up to this are in `parts`.
    pub(crate) up_to: i64,
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// Path relative to the archive.
    pub(crate) file: String,
    pub(crate) rows_are: Rows,
    pub(crate) rows: u64,
    pub(crate) results: u64,
    /// Highest number of its results.
    pub(crate) last: i64,
    pub(crate) bytes: u64,
    /// Hexadecimal SHA-256 of the file.
    pub(crate) sha256: String,
}

underload_aqm::named! {
    /// The content of a file's rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Rows {
        /// A series of a run.
        Runs = "runs",
        /// A sum of series of lines that are alike.
        Sums = "sums",
        /// How many runs had an outcome.
        Ends = "ends",
    }
}

/// The part of a manifest that all versions have.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Manifest {
    /// Creates the manifest of an archive without files.
    pub(crate) fn new(archive: String) -> Self {
        Self { format: FORMAT, archive, next_file: 1, days: Vec::new() }
    }

    /// Reads the manifest in a directory; `None` if the file is missing.
    ///
    /// # Errors
    /// Returns [`StoreError::Broken`] if it is damaged, of another version, or names a file outside
    /// of the directory.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, StoreError> {
        let path = directory.join(NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path)(error)),
        };
        let wrong = |error: serde_json::Error| damaged(&path, &error.to_string());
        let Version { format } = serde_json::from_slice(&bytes).map_err(wrong)?;
        if format != FORMAT {
            let why = format!("format {format}, this program reads format {FORMAT}");
            return Err(damaged(&path, &why));
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(wrong)?;
        let parts = manifest.days.iter().flat_map(|day| &day.parts);
        let is_below = |part: &Part| {
            Path::new(&part.file).components().all(|step| matches!(step, Component::Normal(_)))
        };
        match parts.into_iter().find(|part| !is_below(part)) {
            Some(part) => {
                Err(damaged(&path, &format!("{:?} is outside of the archive", part.file)))
            }
            None => Ok(Some(manifest)),
        }
    }

    /// Replaces the manifest in a directory, synced to disk. After an error the earlier one is
    /// intact.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let path = directory.join(NAME);
        let broken = |error| StoreError::broken("a manifest").because(error);
        let bytes = serde_json::to_vec_pretty(self).map_err(broken)?;
        underload_disk::write_whole(&path, &bytes, Access::Owner).map_err(failed(&path))
    }

    /// Returns a name for a new file of a day.
    pub(crate) fn name(&mut self, plan: &str, day: u32, rows_are: Rows) -> String {
        let number = self.next_file;
        self.next_file += 1;
        format!("plan={}/day={}/{}-{number:08}.parquet", in_path(plan), date(day), rows_are.name())
    }

    pub(crate) fn day(&self, plan: &str, day: u32) -> Option<&PlanDay> {
        let place = self.place(plan, day).ok()?;
        self.days.get(place)
    }

    /// Returns a day of a plan, which is added if it is missing.
    pub(crate) fn day_mut(&mut self, plan: &str, day: u32) -> &mut PlanDay {
        let place = self.place(plan, day).unwrap_or_else(|place| {
            let new = PlanDay { day, plan: plan.to_owned(), up_to: 0, parts: Vec::new() };
            self.days.insert(place, new);
            place
        });
        &mut self.days[place]
    }

    fn place(&self, plan: &str, day: u32) -> Result<usize, usize> {
        self.days.binary_search_by(|known| (known.day, known.plan.as_str()).cmp(&(day, plan)))
    }

    /// Returns whether the files contain the result with this plan, day and number.
    pub(crate) fn has(&self, plan: &str, day: u32, number: i64) -> bool {
        self.day(plan, day).is_some_and(|known| number <= known.up_to)
    }

    /// The highest number of the results in all files.
    pub(crate) fn last(&self) -> i64 {
        self.days.iter().map(|day| day.up_to).max().unwrap_or(0)
    }

    pub(crate) fn names(&self, file: &Path) -> bool {
        let mut parts = self.days.iter().flat_map(|day| &day.parts);
        parts.any(|part| Path::new(&part.file) == file)
    }
}

impl Part {
    pub(crate) fn new(
        file: String,
        rows_are: Rows,
        (results, last): (u64, i64),
        written: Written,
    ) -> Self {
        let Written { rows, bytes, sha256 } = written;
        Self { file, rows_are, rows, results, last, bytes, sha256 }
    }

    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(&self.file)
    }
}

/// Escapes a plan's name for use as a directory name.
fn in_path(plan: &str) -> String {
    let mut name = String::new();
    for byte in plan.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => {
                name.push('%');
                name.push_str(&data_encoding::HEXUPPER.encode(&[byte]));
            }
        }
    }
    if name.len() > NAME_MAX {
        let digest = ring::digest::digest(&ring::digest::SHA256, plan.as_bytes());
        name.truncate(NAME_MAX);
        name.push_str(&data_encoding::HEXLOWER.encode(&digest.as_ref()[..8]));
    }
    name
}

/// Formats a day as `2026-01-31`, or as its number if the calendar has no such day.
pub(crate) fn date(day: u32) -> String {
    let since = jiff::Span::new().try_days(i64::from(day));
    let date = since.and_then(|since| jiff::civil::date(1970, 1, 1).checked_add(since));
    date.map_or_else(|_| day.to_string(), |date| date.to_string())
}

/// Bytes of a plan's name in a directory name. The rest of a longer name is replaced by a hash.
const NAME_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_have_plan_and_day_and_stay_in_the_archive() {
        let mut manifest = Manifest::new("a".to_owned());
        let first = manifest.name("../Straße", 20_454, Rows::Runs);
        assert_eq!(first, "plan=%2E%2E%2FStra%C3%9Fe/day=2026-01-01/runs-00000001.parquet");
        let other = manifest.name("trial", u32::MAX, Rows::Sums);
        assert_eq!(other, "plan=trial/day=4294967295/sums-00000002.parquet");
    }

    #[test]
    fn long_names_of_plans_give_different_directories() {
        let mut manifest = Manifest::new("a".to_owned());
        let names = ["ä".repeat(64), format!("{}b", "ä".repeat(63))];
        let files = names.map(|name| manifest.name(&name, 1, Rows::Runs));
        let folders = files.each_ref().map(|file| file.split('/').next().expect("a folder"));
        assert_ne!(folders[0], folders[1]);
        assert!(folders.iter().all(|folder| folder.len() < 255));
    }

    #[test]
    fn a_manifest_finds_a_result_by_plan_day_and_number() {
        let mut manifest = Manifest::new("a".to_owned());
        manifest.day_mut("b", 2).up_to = 7;
        manifest.day_mut("a", 2).up_to = 5;
        manifest.day_mut("z", 1).up_to = 9;
        let names: Vec<_> = manifest.days.iter().map(|day| day.plan.as_str()).collect();
        assert_eq!((names, manifest.last()), (vec!["z", "a", "b"], 9));
        assert!(manifest.has("a", 2, 5) && !manifest.has("a", 2, 6) && !manifest.has("a", 1, 1));
    }

    #[test]
    fn a_manifest_with_outside_paths_or_a_newer_version_is_refused() {
        let folder = underload_disk::faults::private_tempdir().expect("a folder");
        let mut manifest = Manifest::new("a".to_owned());
        let written = Written { rows: 1, bytes: 1, sha256: String::new() };
        let part = Part::new("../secret".to_owned(), Rows::Runs, (1, 1), written);
        manifest.day_mut("a", 1).parts.push(part);
        manifest.write(folder.path()).expect("it is written");
        let error = Manifest::read(folder.path()).expect_err("it is refused");
        assert!(error.to_string().contains("secret"), "{error}");
        std::fs::write(folder.path().join(NAME), r#"{"format":2,"new":1}"#).expect("written");
        let error = Manifest::read(folder.path()).expect_err("it is newer");
        assert!(error.to_string().contains("format 2"), "{error}");
    }
}
