//! The catalogue of the archive: rows of the database that name its files.
//!
//! A file belongs to the archive from the transaction that deletes its results from the database,
//! or replaces the files that had them, to the transaction that replaces it. Before and after, its
//! row is unused: it is stored before the file is written, so that a file that a killed process
//! left is found and deleted.

use std::path::{Path, PathBuf};

use underload_fleet::store::{Result, StoreError};

use crate::random;
use crate::store::database::{Database, Row, Value, change, values};
use crate::store::tables::FILES;

/// A file of results of one day of a plan, or, without rows, a day whose results were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Relative to the archive.
    pub(crate) path: String,
    pub(crate) plan: String,
    /// Days since 1970-01-01, UTC.
    pub(crate) day: u32,
    /// Rows of the file; 0 if only the sums of the day remain, which the database has.
    pub(crate) rows: u64,
    pub(crate) results: u64,
    /// Highest number of its results.
    pub(crate) last: i64,
    pub(crate) bytes: u64,
    /// Hexadecimal SHA-256 of the file.
    pub(crate) sha256: String,
}

impl Part {
    /// Chooses a path for a new file of a day.
    pub(crate) fn new(plan: &str, day: u32) -> Result<Self> {
        let name = data_encoding::HEXLOWER.encode(&random::bytes::<8>()?);
        let day_of = Self::without_runs(plan, day);
        Ok(Self { path: format!("{}/runs-{name}.parquet", day_of.path), ..day_of })
    }

    /// Creates the entry of a day of which only sums remain.
    pub(crate) fn without_runs(plan: &str, day: u32) -> Self {
        let path = format!("plan={}/day={}", in_path(plan), date(day));
        let (plan, sha256) = (plan.to_owned(), String::new());
        Self { path, plan, day, rows: 0, results: 0, last: 0, bytes: 0, sha256 }
    }

    pub(crate) fn has_runs(&self) -> bool {
        self.rows > 0
    }

    pub(crate) fn in_folder(&self, folder: &Path) -> PathBuf {
        folder.join(&self.path)
    }

    fn values(&self, unused_since_ms: u64) -> Vec<Value> {
        let Self { rows, results, last, bytes, .. } = *self;
        let (path, plan, sha256) = (self.path.as_str(), self.plan.as_str(), self.sha256.as_str());
        values![path, plan, self.day, rows, results, last, bytes, sha256, unused_since_ms]
    }

    fn from_row(mut row: Row) -> Result<Self> {
        Ok(Self {
            path: row.text()?,
            plan: row.text()?,
            day: row.small()?,
            rows: row.number()?,
            results: row.number()?,
            last: row.long()?,
            bytes: row.number()?,
            sha256: row.text()?,
        })
    }
}

/// Returns the files of the archive, ordered by day, plan and path.
pub(crate) fn parts(database: &mut dyn Database) -> Result<Vec<Part>> {
    select(database, "WHERE unused_since_ms = 0")
}

/// As [`parts`], and the files that were replaced and are not deleted yet.
pub(crate) fn stored(database: &mut dyn Database) -> Result<Vec<Part>> {
    select(database, "")
}

fn select(database: &mut dyn Database, condition: &str) -> Result<Vec<Part>> {
    let sql = format!("SELECT {} FROM files {condition} ORDER BY day, plan, path", FILES.names());
    database.query(&sql, &[vec![]])?.into_iter().map(Part::from_row).collect()
}

/// Stores the row of a file that will be written.
pub(crate) fn announce(database: &mut dyn Database, part: &Part, now_ms: u64) -> Result<()> {
    database.change(&FILES.insert(), &[part.values(now_ms.max(1))]).map(drop)
}

/// Replaces files of the archive, and deletes the results with `numbers` from the database, in one
/// transaction.
///
/// # Errors
/// [`StoreError::Temporary`] if another process replaced a file or moved a result before.
pub(crate) fn replace(
    database: &mut dyn Database,
    (old, new): (&[Part], &[Part]),
    numbers: &[Vec<Value>],
    now_ms: u64,
) -> Result<()> {
    change(database, |database| replace_within(database, (old, new), numbers, now_ms))
}

/// As [`replace`], within a transaction.
pub(crate) fn replace_within(
    database: &mut dyn Database,
    (old, new): (&[Part], &[Part]),
    numbers: &[Vec<Value>],
    now_ms: u64,
) -> Result<()> {
    let sql = "UPDATE files SET unused_since_ms = $1 WHERE path = $2 AND unused_since_ms = 0";
    let rows: Vec<_> = old.iter().map(|it| values![now_ms.max(1), it.path.as_str()]).collect();
    let mut changed = database.change(sql, &rows)?;
    changed += database.change(DELETE_RESULTS, numbers)?;
    if changed != (old.len() + numbers.len()) as u64 {
        return Err(StoreError::temporary("another process moved the same results first"));
    }
    let rows: Vec<_> = new.iter().map(|part| part.values(0)).collect();
    database.change(&FILES.put(), &rows).map(drop)
}

/// Returns the paths of files that were replaced, and of those that were not finished within
/// [`UNFINISHED_FOR_MS`].
pub(crate) fn unused(database: &mut dyn Database, now_ms: u64) -> Result<Vec<String>> {
    let sql = "SELECT path FROM files
        WHERE unused_since_ms > 0 AND (rows > 0 OR unused_since_ms <= $1) LIMIT 1000";
    let until = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_sub(UNFINISHED_FOR_MS);
    database.query(sql, &[values![until]])?.into_iter().map(|mut row| row.text()).collect()
}

/// Deletes the rows of files that no longer exist.
pub(crate) fn forget(database: &mut dyn Database, paths: &[String]) -> Result<()> {
    let rows: Vec<_> = paths.iter().map(|path| values![path.as_str()]).collect();
    database.change(&FILES.delete(), &rows).map(drop)
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
/// A day: nobody is still writing such a file, even where the lock of the folder has no effect.
const UNFINISHED_FOR_MS: i64 = 86_400_000;
const DELETE_RESULTS: &str = "DELETE FROM results WHERE number IN ({rows bigint})";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_have_plan_and_day_and_stay_in_the_archive() {
        let path = |plan: &str, day| Part::new(plan, day).expect("a name").path;
        let first = path("../Straße", 20_454);
        assert!(first.starts_with("plan=%2E%2E%2FStra%C3%9Fe/day=2026-01-01/runs-"), "{first}");
        let other = path("trial", u32::MAX);
        assert!(other.starts_with("plan=trial/day=4294967295/runs-"), "{other}");
        assert_ne!(first, path("../Straße", 20_454), "names are not used again");
    }

    #[test]
    fn long_names_of_plans_give_different_directories() {
        let names = ["ä".repeat(64), format!("{}b", "ä".repeat(63))];
        let files = names.map(|name| Part::without_runs(&name, 1).path);
        let folders = files.each_ref().map(|file| file.split('/').next().expect("a folder"));
        assert_ne!(folders[0], folders[1]);
        assert!(folders.iter().all(|folder| folder.len() < 255));
    }
}
