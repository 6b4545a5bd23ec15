//! The runs of a series: removes old ones and stores their numbers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use underload_disk as disk;
use underload_probe::control::in_full;
use underload_store::RunDir;
use underload_store::series::{Member, Series};

use super::{Notice, SeriesError, Show};
use crate::history::removed::{self, RunNumbers};

/// The highest number of runs that are removed at a time, so that a clock that is wrong for an hour
/// does not remove a year of runs.
const MOST_AT_ONCE: usize = 16;
/// How far in the future a run may begin, by the present clock.
const AHEAD_MAX_S: i64 = 86_400;
/// Runs are kept for at least this time.
pub const SHORTEST_AGE: Duration = Duration::from_hours(24);

/// The directory of a series.
#[derive(Debug)]
pub struct Keeper {
    series: Series,
    /// Runs that started longer ago are removed.
    keep: Option<Duration>,
    /// The newest run of this process.
    latest: RefCell<Option<PathBuf>>,
    /// Bytes that measurements moved since [`Keeper::take_moved`].
    moved: Cell<u64>,
    /// Directories about which a warning was printed.
    warned: RefCell<BTreeSet<PathBuf>>,
    show: Show,
}

impl Keeper {
    /// Opens or creates the series in a directory. A new series has `name`, which must be unique.
    pub fn open(
        directory: &Path,
        name: &str,
        keep: Option<Duration>,
        show: Show,
    ) -> Result<Self, SeriesError> {
        let series = Series::open(directory, name)?;
        let (latest, moved, warned) = Default::default();
        Ok(Self { series, keep, latest, moved, warned, show })
    }

    pub fn is_series(directory: &Path) -> bool {
        Series::find(directory).is_ok_and(|series| series.is_some())
    }

    pub fn path(&self) -> &Path {
        self.series.path()
    }

    /// Adds a finished run to the series.
    pub fn adopt(&self, run: &Path, started: &str) {
        *self.latest.borrow_mut() = Some(run.to_owned());
        if let Err(error) = self.series.adopt(run, started) {
            let error = in_full(&error);
            self.warn(format!("{}: will not be removed: {error}", run.display()));
        }
    }

    /// Adds bytes that a measurement moved.
    pub fn add_moved(&self, bytes: u64) {
        self.moved.set(self.moved.get().saturating_add(bytes));
    }

    /// Returns the bytes that were added, and begins again at 0.
    pub fn take_moved(&self) -> u64 {
        self.moved.take()
    }

    /// Removes the runs that are too old. Errors are warnings, so that the series continues.
    pub fn prune(&self) {
        let Some(keep) = self.keep else { return };
        if let Err(error) = self.try_prune(keep) {
            self.warn(format!("old runs could not be removed: {}", in_full(&error)));
        }
    }

    fn try_prune(&self, keep: Duration) -> Result<(), SeriesError> {
        let directory = self.path();
        // Another process with the same series is removing runs.
        let Ok(_lock) = disk::lock_directory(directory, Duration::ZERO) else { return Ok(()) };
        let members = self.series.members()?;
        for (path, reason) in &members.others {
            self.skip(path, reason);
        }
        let removed = self.removed()?;
        // The entry is found by name and start, because an earlier run may have had the name.
        let is_stored = |run: &&Member| {
            removed.iter().any(|numbers| numbers.run == run.name && numbers.started == run.started)
        };
        let (headless, runs): (Vec<Member>, Vec<Member>) =
            members.runs.into_iter().partition(|run| run.is_headless);
        // If the numbers are stored, an earlier removal was interrupted.
        let (begun, lost): (Vec<&Member>, Vec<&Member>) = headless.iter().partition(is_stored);
        for run in lost {
            self.skip(&run.path, "its run.json is missing");
        }
        for run in begun {
            self.series.remove(run, || Ok(()))?;
            self.note(format!("removed the rest of {}", run.path.display()));
        }
        let latest = self.latest.borrow().clone();
        let now_s = jiff::Timestamp::now().as_second();
        let reason = format!("older than {} d", keep.as_secs() / 86_400);
        for run in due(&runs, keep, latest.as_deref(), now_s) {
            self.remove(run, &reason)?;
        }
        Ok(())
    }

    fn remove(&self, run: &Member, reason: &str) -> Result<(), SeriesError> {
        let numbers = match numbers(&run.path) {
            Ok(numbers) => numbers,
            Err(reason) => {
                self.skip(&run.path, &reason);
                return Ok(());
            }
        };
        let directory = self.path();
        // An interrupted removal has stored them already.
        let is_stored = self.removed()?.contains(&numbers);
        self.series
            .remove(run, || if is_stored { Ok(()) } else { removed::add(directory, &numbers) })?;
        let path = run.path.display();
        self.note(format!("removed {path}: {reason}; `underload history` has its numbers"));
        Ok(())
    }

    /// Warns once that a directory is not removed.
    fn skip(&self, path: &Path, reason: &str) {
        if self.warned.borrow_mut().insert(path.to_owned()) {
            self.warn(format!("{}: not removed: {reason}", path.display()));
        }
    }

    /// Reads the numbers of removed runs.
    fn removed(&self) -> Result<Vec<RunNumbers>, SeriesError> {
        removed::read(self.path())
            .map_err(|source| SeriesError::File { path: self.path().to_owned(), source })
    }

    fn note(&self, text: String) {
        (self.show)(Notice::Note(text));
    }

    fn warn(&self, text: String) {
        (self.show)(Notice::Warning(text));
    }
}

fn numbers(run: &Path) -> Result<RunNumbers, String> {
    let record = RunDir::read_record(run).map_err(|error| in_full(&error))?;
    if !record.complete {
        return Err("the run is incomplete".to_owned());
    }
    RunNumbers::from_record(run, &record).map_err(str::to_owned)
}

/// Returns the runs to remove, oldest first. The newest run and `made`, the newest of this process,
/// stay even if a clock is wrong.
fn due<'a>(runs: &'a [Member], keep: Duration, made: Option<&Path>, now_s: i64) -> Vec<&'a Member> {
    let Some((_, older)) = runs.split_last() else { return Vec::new() };
    let most_s = keep.as_secs() as i64;
    // Ages count from the newest run; runs in the future are from a time when the clock was ahead.
    let mut ages =
        runs.iter().rev().filter_map(|run| age_s(run, now_s)).filter(|it| *it > -AHEAD_MAX_S);
    if let (Some(newest_s), Some(before_s)) = (ages.next(), ages.next())
        && before_s - newest_s > most_s
    {
        // The newest run alone makes all others old, so its clock may be wrong; the next run shows that.
        return Vec::new();
    }
    let is_due = |run: &&Member| {
        Some(run.path.as_path()) != made && age_s(run, now_s).is_some_and(|age_s| age_s > most_s)
    };
    older.iter().filter(is_due).take(MOST_AT_ONCE).collect()
}

fn age_s(run: &Member, now_s: i64) -> Option<i64> {
    let started: jiff::Timestamp = run.started.parse().ok()?;
    Some(now_s.saturating_sub(started.as_second()))
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{FORMAT_VERSION, HostFacts, RunRecord, ScenarioRecord, World};

    use super::*;

    fn record(started: &str) -> RunRecord {
        RunRecord {
            format_version: FORMAT_VERSION,
            scenario: ScenarioRecord { name: "measure/quick".to_owned(), ..Default::default() },
            world: World::Measured,
            host: HostFacts { started: started.to_owned(), ..HostFacts::default() },
            ..RunRecord::default()
        }
    }

    /// A series that keeps runs for a day, with a run on each of `days` of a month.
    fn series(directory: &Path, days: &[u32]) -> Keeper {
        let keeper = Keeper::open(directory, "s-1", Some(SHORTEST_AGE), |_| {}).unwrap();
        for day in days {
            add(&keeper, &format!("day-{day:02}"), &format!("2026-01-{day:02}T00:00:00Z"));
        }
        keeper
    }

    fn add(keeper: &Keeper, name: &str, started: &str) {
        let run = keeper.path().join(name);
        RunDir::create(&run, record(started)).unwrap().finish(1.0).unwrap();
        keeper.adopt(&run, started);
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let folders = entries.filter(|it| it.path().is_dir());
        let mut names: Vec<String> =
            folders.map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_runs_are_removed_and_their_numbers_remain() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2, 3, 4]);
        add(&keeper, "new", &jiff::Timestamp::now().to_string());
        add(&keeper, "newer", &jiff::Timestamp::now().to_string());
        std::fs::create_dir(directory.path().join("mine")).unwrap();
        keeper.prune();
        assert_eq!(names(directory.path()), ["mine", "new", "newer"]);
        let removed: Vec<String> =
            removed::read(directory.path()).unwrap().into_iter().map(|run| run.run).collect();
        assert_eq!(removed, ["day-01", "day-02", "day-03", "day-04"]);
        // The warning concerns `mine`.
        assert_eq!(keeper.warned.borrow().len(), 1);
        keeper.prune();
        assert_eq!(names(directory.path()), ["mine", "new", "newer"]);
    }

    #[test]
    fn the_newest_run_is_never_removed() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2, 3]);
        keeper.prune();
        assert_eq!(names(directory.path()), ["day-03"]);
        // A clock that went back: the new run looks like the oldest.
        add(&keeper, "day-00", "1970-01-01T00:00:00Z");
        keeper.prune();
        assert_eq!(names(directory.path()), ["day-00", "day-03"]);
        // The newest run is from a time when the clock was two years ahead; the clock is right
        // again.
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2, 3]);
        for (name, started) in
            [("ahead", "2999-01-01T00:00:00Z"), ("ahead-2", "2999-01-02T00:00:00Z")]
        {
            add(&keeper, name, started);
        }
        let members = keeper.series.members().unwrap().runs;
        let at = |time: &str| time.parse::<jiff::Timestamp>().unwrap().as_second();
        let due = |members, now: &str| due(members, SHORTEST_AGE, None, at(now)).len();
        assert_eq!(due(&members[..4], "2999-01-01T00:00:09Z"), 0, "that clock may be wrong");
        assert_eq!(due(&members, "2999-01-02T00:00:09Z"), 4, "the next run agrees");
        assert_eq!(
            due(&members, "2026-01-03T12:00:00Z"),
            2,
            "runs that are to come count for nothing"
        );
        // A clock that is far ahead removes only a few runs at a time.
        let directory = tempfile::tempdir().unwrap();
        let days: Vec<u32> = (1..=28).collect();
        series(directory.path(), &days).prune();
        assert_eq!(names(directory.path()).len(), 28 - MOST_AT_ONCE);
    }

    #[test]
    fn a_removal_that_was_cut_short_is_finished_and_a_lost_head_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2, 3]);
        for day in ["day-01", "day-02"] {
            std::fs::remove_file(directory.path().join(day).join("run.json")).unwrap();
        }
        // An earlier run had the name day-02.
        for (name, started) in
            [("day-01", "2026-01-01T00:00:00Z"), ("day-02", "2025-01-02T00:00:00Z")]
        {
            let numbers = RunNumbers::from_record(Path::new(name), &record(started)).unwrap();
            removed::add(directory.path(), &numbers).unwrap();
        }
        keeper.prune();
        assert_eq!(names(directory.path()), ["day-02", "day-03"]);
    }

    /// A clock without a battery starts at the same time at each boot.
    #[test]
    fn a_new_run_with_the_name_of_a_removed_one_is_separate() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2]);
        keeper.prune();
        let started = "2026-01-01T00:00:00Z";
        let mut other = record(started);
        "measure/ull".clone_into(&mut other.scenario.name);
        let run = directory.path().join("day-01");
        RunDir::create(&run, other).unwrap().finish(1.0).unwrap();
        keeper.adopt(&run, started);
        add(&keeper, "day-03", "2026-01-03T00:00:00Z");
        keeper.prune();
        assert_eq!(names(directory.path()), ["day-03"]);
        let removed = removed::read(directory.path()).unwrap();
        let same_name = removed.iter().filter(|run| run.run == "day-01").count();
        assert_eq!((same_name, removed.len()), (2, 3));
    }

    #[test]
    fn a_run_whose_numbers_cannot_be_stored_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = series(directory.path(), &[1, 2]);
        std::fs::write(directory.path().join("removed-runs.jsonl"), "my notes\n").unwrap();
        keeper.prune();
        assert_eq!(names(directory.path()), ["day-01", "day-02"]);
    }
}
