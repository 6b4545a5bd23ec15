//! Days that are moved to files, and whose runs are deleted: queries return the same answers
//! throughout, and after any crash.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;

use tempfile::TempDir;
use underload_disk::faults::{self, Fault, Tree};
use underload_fleet::device::DeviceId;
use underload_fleet::store::{Archive as _, Filter, Outcomes, StoredResult, Sum, Summed};

use super::*;
use crate::store::database::{Access, Begin, Database, Row, Value};
use crate::store::files::Part;
use crate::store::testing::{START_MS, append, ask, many, result};
use crate::store::{SqlArchive, SqlStore};

const DAY_MS: u64 = 86_400_000;

/// All answers of a store to the queries of these tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Answers {
    questions: Vec<(Vec<Sum>, Outcomes)>,
    results: Vec<StoredResult>,
    newest: Vec<Vec<StoredResult>>,
}

/// Runs all queries, and sorts the results so that their order does not depend on where they are
/// stored.
pub(crate) fn answers(archive: &mut dyn underload_fleet::store::Archive) -> Answers {
    let questions = ask(archive);
    let mut results = Vec::new();
    let mut see = |kept: &StoredResult| {
        results.push(kept.clone());
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it shows all");
    results.sort_by_key(|kept| (kept.device, kept.sequence));
    let newest = (0..3).map(|device| {
        archive.results_of(crate::store::testing::device_id(device), 7).expect("it answers")
    });
    let newest = newest.collect();
    Answers { questions, results, newest }
}

/// Runs all steps of a round.
fn round(keeper: &mut Housekeeping, now_ms: u64) -> Vec<Work> {
    let mut done = Vec::new();
    for _ in 0..10_000 {
        let Did { what, next_ms } = keeper.step(now_ms).expect("it steps");
        let is_over = next_ms > now_ms;
        done.push(what);
        if is_over {
            return done;
        }
    }
    panic!("it never ends: {:?}", done.last());
}

/// Runs rounds until `is_done` returns true, for some seconds at most. A round skips locked data,
/// which a later round processes. Locks of other tests are possible: a program that another test
/// starts has inherited our locks until it executes, and PostgreSQL numbers the transactions of all
/// databases of a server together, so that another test's transaction delays ours.
pub(crate) fn run_down_until(
    keeper: &mut Housekeeping,
    now_ms: u64,
    is_done: &mut dyn FnMut(&[Work]) -> bool,
) -> Vec<Work> {
    let mut done = round(keeper, now_ms);
    for _ in 0..1_000 {
        if is_done(&done) {
            break;
        }
        sleep(PAUSE);
        keeper.look_again();
        done.extend(round(keeper, now_ms));
    }
    done
}

/// Runs rounds until several consecutive ones found no work.
fn run_down(keeper: &mut Housekeeping, now_ms: u64) -> Vec<Work> {
    let mut rounds = 0;
    run_down_until(keeper, now_ms, &mut |_| {
        rounds += 1;
        rounds > 5
    })
}

pub(crate) const PAUSE: Duration = Duration::from_millis(20);

fn sqlite(folder: &TempDir, results: &[StoredResult]) -> SqlStore {
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, results);
    store
}

fn keeper(store: &SqlStore, retention: Retention) -> Housekeeping {
    store.housekeeping(None, retention).expect("a keeper").with_parts_of(100)
}

fn in_database(folder: &TempDir) -> i64 {
    let file = rusqlite::Connection::open(folder.path().join("fleet.sqlite")).expect("it opens");
    file.query_row("SELECT count(*) FROM results", [], |row| row.get(0)).expect("a count")
}

/// Recent days remain in the database; older days are files with all columns.
const HALF: Retention = Retention { raw_days: 3, bins_days: 90 };

fn after_days(days: u64) -> u64 {
    START_MS + days * DAY_MS
}

#[test]
fn answers_do_not_change_when_days_are_moved() {
    let folder = faults::private_tempdir().expect("a folder");
    // Thirty runs of each device, six per day: five days.
    let mut store = sqlite(&folder, &many(40, 30));
    let mut archive = store.archive().expect("an archive");
    let before = answers(&mut archive);
    let mut housekeeping = keeper(&store, HALF);
    let done = run_down(&mut housekeeping, after_days(5));
    assert_eq!(in_database(&folder), 2 * 240, "the last two days: {done:?}");
    let moved = done.iter().map(|work| if let Work::Moved(count) = work { *count } else { 0 });
    assert_eq!(moved.sum::<usize>(), 3 * 240);
    assert!(done.contains(&Work::Merged(3)), "parts of 100 became one: {done:?}");
    assert_eq!(answers(&mut archive), before);
    let (live, all) = (parts(&store).len(), all_files(&folder.path().join("archive")).len());
    assert_eq!((live, all), (3, 3), "parts that were merged are deleted");
    // Some results of a day that was already moved arrive late.
    let late: Vec<_> = (50..60).map(|device| result(device, 1)).collect();
    append(&mut store, &late);
    let with_late = answers(&mut archive);
    assert_eq!(with_late.results.len(), before.results.len() + 10);
    let done = run_down(&mut housekeeping, after_days(5) + ROUND_MS);
    assert!(done.contains(&Work::Moved(10)), "{done:?}");
    assert_eq!(answers(&mut archive), with_late);
    assert_eq!(in_database(&folder), 2 * 240);
    // Acknowledged results are recognised as duplicates for ever.
    assert_eq!(append(&mut store, &late), [false; 10]);
    let again = SqlArchive::sqlite(folder.path());
    assert_eq!(answers(&mut again.expect("by another program")), with_late);
}

/// The files of the archive, by the database.
fn parts(store: &SqlStore) -> Vec<Part> {
    let mut database = store.database.connect(Access::Read).expect("a connection");
    files::parts(&mut *database).expect("it reads")
}

/// The paths of all files in the folder of an archive, by the disk.
fn all_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let tree = faults::tree(folder).into_iter();
    let files = tree.filter_map(|(path, content)| content.map(|_| path));
    files.filter(|path| !path.ends_with("readers.lock")).collect()
}

#[test]
fn the_runs_of_an_old_day_are_deleted_and_its_sums_remain() {
    let folder = faults::private_tempdir().expect("a folder");
    let all = many(40, 12);
    let mut store = sqlite(&folder, &all);
    let mut archive = store.archive().expect("an archive");
    let cohorts = |archive: &mut SqlArchive| {
        let questions = ask(archive).into_iter().enumerate();
        // Question 7 selects a segment, which days without single results no longer have.
        questions.filter(|(place, _)| *place != 7).map(|it| it.1).collect::<Vec<_>>()
    };
    let before = cohorts(&mut archive);
    let summed = |archive: &mut SqlArchive, from_day: Option<u32>| {
        let filter = Filter { from_day, ..Filter::default() };
        archive.summed(&filter).expect("it answers")
    };
    assert_eq!(summed(&mut archive, None), Summed::default());
    let old = Retention { raw_days: 1, bins_days: 4 };
    let mut housekeeping = keeper(&store, old);
    run_down(&mut housekeeping, after_days(3));
    assert_eq!(parts(&store)[0].results, 240, "the premise: the day is in a file");
    let done = run_down(&mut housekeeping, after_days(4));
    assert!(done.contains(&Work::Expired(240)), "{done:?}");
    let late = result(50, 1);
    append(&mut store, std::slice::from_ref(&late));
    let with_late = cohorts(&mut archive);
    assert_ne!(with_late, before);
    run_down(&mut housekeeping, after_days(4) + ROUND_MS);
    assert_eq!(cohorts(&mut archive), with_late);
    let seen = answers(&mut archive).results;
    assert!(seen.iter().all(|kept| kept.day() == all[0].day() + 1), "of the second day alone");
    assert_eq!(seen.len(), 240);
    let second_day = all[0].day() + 1;
    assert_eq!(summed(&mut archive, None), Summed { days: 1, until_day: second_day });
    assert_eq!(summed(&mut archive, Some(second_day)), Summed::default());

    assert!(done.contains(&Work::Removed(1)), "{done:?}");
    let first = Part::without_runs("trial", all[0].day());
    assert_eq!(parts(&store)[0], first);
    let archive = folder.path().join("archive");
    let of_first = |path: &std::path::PathBuf| path.starts_with(&first.path);
    assert!(!all_files(&archive).iter().any(of_first), "{:?}", all_files(&archive));
}

#[test]
fn a_study_sees_each_result_once_although_days_are_moved_meanwhile() {
    // Moves the days while results of the database, or of files, are read.
    for (moved_at, days) in [(0, 5), (50, 5), (400, 5), (50, 4), (599, 5)] {
        let folder = faults::private_tempdir().expect("a folder");
        let store = sqlite(&folder, &many(20, 30));
        let mut housekeeping = keeper(&store, HALF);
        run_down(&mut housekeeping, after_days(days - 1));
        let mut archive = store.archive().expect("an archive");
        let mut seen = Vec::new();
        let mut done = Vec::new();
        let mut see = |kept: &StoredResult| {
            if seen.len() == moved_at {
                done = run_down(&mut housekeeping, after_days(days));
            }
            seen.push((kept.device, kept.sequence));
            true
        };
        archive.visit(&Filter::default(), &mut see).expect("it shows all");
        assert!(done.iter().any(|work| matches!(work, Work::Moved(_))), "{done:?}");
        // No file is deleted after the first of them was opened.
        let is_removed = done.iter().any(|work| matches!(work, Work::Removed(_)));
        assert!(moved_at < 400 || !is_removed, "{done:?}");
        assert_eq!(seen.len(), 600, "{moved_at}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 600, "{moved_at}");
    }
}

#[test]
fn an_archive_in_another_place_is_reported_and_two_stores_may_share_a_folder() {
    let (one, other) =
        (faults::private_tempdir().expect("one"), faults::private_tempdir().expect("two"));
    let archive = faults::private_tempdir().expect("a folder");
    let store = sqlite(&one, &many(10, 10));
    let folder = archive.path().join("days");
    let before = answers(&mut store.archive().expect("an archive"));
    let mut housekeeping = store.housekeeping(Some(&folder), HALF).expect("a keeper");
    run_down(&mut housekeeping, after_days(9));
    let stranger = sqlite(&other, &many(10, 10));
    let mut strangers = stranger.housekeeping(Some(&folder), HALF).expect("a keeper");
    for days in [9, 12, 15] {
        run_down(&mut strangers, after_days(days));
        run_down(&mut housekeeping, after_days(days));
    }
    assert_eq!(all_files(&folder).len(), parts(&store).len() + parts(&stranger).len());
    for store in [&store, &stranger] {
        assert_eq!(answers(&mut store.archive().expect("an archive")), before);
    }
    let error = store.housekeeping(None, HALF).expect_err("it is not there").to_string();
    let was = format!("its files were in {}", folder.display());
    assert!(error.contains(&was) && error.contains("--archive"), "{error}");
    assert!(!one.path().join("archive").exists(), "no folder is left behind");
    let moved = archive.path().join("moved");
    std::fs::rename(&folder, &moved).expect("it is moved");
    let mut archive = store.archive().expect("an archive");
    let error = archive.visit(&Filter::default(), &mut |_| true).expect_err("it is away");
    assert!(error.to_string().contains("it is missing; restore it"), "{error}");
    store.housekeeping(Some(&folder), HALF).expect_err("it is away");
    store.housekeeping(Some(&moved), HALF).expect("it is found");
    archive.visit(&Filter::default(), &mut |_| true).expect("it is there again");
}

#[test]
fn a_damaged_file_is_reported_and_neither_read_nor_merged() {
    let folder = faults::private_tempdir().expect("a folder");
    let mut store = sqlite(&folder, &many(10, 10));
    let mut housekeeping = keeper(&store, HALF);
    run_down(&mut housekeeping, after_days(9));
    let archive = folder.path().join("archive");
    let path = parts(&store)[0].in_folder(&archive);
    let mut bytes = std::fs::read(&path).expect("it reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, &bytes).expect("it is damaged");
    let late: Vec<_> = (50..70).map(|device| result(device, 1)).collect();
    append(&mut store, &late);
    let mut step = || {
        for _ in 0..1_000 {
            match housekeeping.step(after_days(9) + ROUND_MS) {
                Ok(Did { what: Work::Nothing, .. }) => {
                    sleep(PAUSE);
                    housekeeping.look_again();
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
        panic!("it was not noticed");
    };
    let error = step();
    assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains("runs-"), "{error}");
    std::fs::remove_file(&path).expect("it is gone");
    let mut archive = store.archive().expect("an archive");
    let error = archive.visit(&Filter::default(), &mut |_| true).expect_err("it is gone");
    assert!(error.to_string().contains("restore it"), "{error}");
}

/// A store, a separate folder for its archive, and its answers before the work.
struct World {
    folder: TempDir,
    before: Answers,
}

/// Moves a day in two parts, which are merged, and deletes its runs, and then the files.
fn work_through(keeper: impl Fn(&SqlStore) -> Keeper, root: &Path, world: &World) {
    let store = SqlStore::sqlite(world.folder.path()).expect("it opens");
    let old = Retention { raw_days: 1, bins_days: 3 };
    let Ok(housekeeping) = Housekeeping::new(keeper(&store), Some(&root.join("archive")), HALF)
    else {
        return;
    };
    let mut housekeeping = housekeeping.with_parts_of(8);
    for (day, retention) in [(3, HALF), (4, old), (6, old)] {
        housekeeping.retention = retention;
        housekeeping.due_ms = 0;
        let mut failures = 0;
        loop {
            match housekeeping.step(after_days(day)) {
                Ok(did) if did.next_ms > after_days(day) => break,
                Ok(_) => {}
                Err(StoreError::Temporary { .. }) if failures < 2 => failures += 1,
                Err(StoreError::Temporary { .. }) => return,
                Err(error) => panic!("nothing is broken: {error}"),
            }
        }
    }
}

fn world() -> World {
    let folder = faults::tempdir_in_memory();
    let folder = folder.expect("a folder");
    let store = sqlite(&folder, &many(4, 3));
    while store.keeper().expect("a keeper").roll_up(1_000).expect("it adds up").has_more {}
    let before = answers(&mut store.archive().expect("an archive"));
    World { folder, before }
}

/// Checks a store after a fault, with the archive in `archive`: each result is in one place, and
/// all answers are as before.
fn is_sound(world: &World, archive: &Path, why: &str) -> SqlStore {
    let store = SqlStore::sqlite(world.folder.path()).expect("it opens");
    let folder = archive.join("archive");
    // In this test a power cut restores the archive into another folder.
    store.housekeeping(Some(&folder), HALF).unwrap_or_else(|error| panic!("{why}: {error}"));
    let is_expired = parts(&store).iter().any(|part| !part.has_runs());
    let expected = if is_expired { &[][..] } else { &world.before.results };
    let mut seen = Vec::new();
    let mut see = |kept: &StoredResult| {
        seen.push(kept.clone());
        true
    };
    let mut archive = store.archive().expect("an archive");
    archive.visit(&Filter::default(), &mut see).unwrap_or_else(|error| panic!("{why}: {error}"));
    seen.sort_by_key(|kept| (kept.device, kept.sequence));
    assert_eq!(seen, expected, "{why}");
    store
}

/// Checks what `is_sound` checks, and that the interrupted work can be continued.
fn goes_on(world: &World, archive: &Path, why: &str) {
    let store = is_sound(world, archive, why);
    let folder = archive.join("archive");
    let housekeeping = store.housekeeping(Some(&folder), HALF).expect("a keeper");
    let mut housekeeping = housekeeping.with_parts_of(8);
    run_down_until(&mut housekeeping, after_days(4), &mut |_| in_database(&world.folder) == 0);
    let of_store = |store: &SqlStore| {
        let of_runs = parts(store).into_iter().filter(Part::has_runs);
        of_runs.map(|part| part.path.into()).collect::<Vec<std::path::PathBuf>>()
    };
    // Files that were not finished disappear after a day.
    run_down_until(&mut housekeeping, after_days(8), &mut |_| {
        all_files(&folder).len() == of_store(&store).len()
    });
    drop(store);
    let store = is_sound(world, archive, &format!("{why}, and on"));
    let questions = ask(&mut store.archive().expect("an archive"));
    let pairs = questions.iter().zip(&world.before.questions).enumerate();
    let is_expired = of_store(&store).is_empty();
    for (place, (now, before)) in pairs {
        assert!(now == before || is_expired && place == 7, "{why}: question {place}");
    }
    assert_eq!(in_database(&world.folder), 0, "{why}");
    assert_eq!(all_files(&folder), of_store(&store), "{why}");
}

#[test]
fn a_day_is_in_one_place_after_any_fault_of_the_disk() {
    let hits = Cell::new(0);
    let fresh = world();
    let action = |root: &Path| {
        let world = copy_of(&fresh);
        let keeper = |store: &SqlStore| store.keeper().expect("a keeper");
        work_through(keeper, root, &world);
        Rc::new(world)
    };
    faults::at_every_step(&Tree::new(), action, |fault, root, outcome| {
        hits.set(hits.get() + 1);
        let world = &outcome.result;
        if matches!(fault, Fault::Kill(_)) {
            // Each state that a power cut may leave must be as good as the state on disk now.
            for (place, tree) in outcome.after_power_cut.iter().enumerate() {
                let left = faults::tempdir_in_memory();
                let left = left.expect("a folder");
                faults::restore(&left.path().join("root"), tree);
                let copy = copy_of(world);
                is_sound(&copy, &left.path().join("root"), &format!("{fault:?}, cut {place}"));
            }
        }
        goes_on(world, root, &format!("{fault:?}"));
    });
    assert!(hits.get() > 60, "the premise: an action of many steps, {}", hits.get());
}

fn copy_of(world: &World) -> World {
    let folder = faults::tempdir_in_memory();
    let folder = folder.expect("a folder");
    for (name, content) in faults::tree(world.folder.path()) {
        if let Some(content) = content {
            std::fs::write(folder.path().join(name), content).expect("it is copied");
        }
    }
    let Answers { questions, results, newest } = &world.before;
    let before =
        Answers { questions: questions.clone(), results: results.clone(), newest: newest.clone() };
    World { folder, before }
}

/// A database that fails at its step number `fails_at`, before or after it executed the step.
pub(crate) struct Failing {
    pub(crate) database: Box<dyn Database>,
    pub(crate) steps: Arc<AtomicUsize>,
    pub(crate) fails_at: usize,
    pub(crate) is_done_first: bool,
}

impl Failing {
    fn pass<T>(
        &mut self,
        step: impl FnOnce(&mut dyn Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        let failed = || StoreError::temporary("the database is away");
        match (number == self.fails_at, self.is_done_first) {
            (true, false) => Err(failed()),
            (true, true) => {
                step(&mut *self.database)?;
                Err(failed())
            }
            (false, _) => step(&mut *self.database),
        }
    }
}

impl Database for Failing {
    fn begin(&mut self, kind: Begin) -> Result<(), StoreError> {
        self.pass(|database| database.begin(kind))
    }
    fn commit(&mut self) -> Result<(), StoreError> {
        self.pass(|database| database.commit())
    }
    fn roll_back(&mut self) {
        self.database.roll_back();
    }
    fn query(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Row>, StoreError> {
        self.pass(|database| database.query(sql, rows))
    }
    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64, StoreError> {
        self.pass(|database| database.change(sql, rows))
    }
    fn copy(&mut self, path: &Path) -> Result<(), StoreError> {
        self.database.copy(path)
    }
    fn scrub(&mut self) -> Result<(), StoreError> {
        self.pass(|database| database.scrub())
    }
    fn folder(&self) -> Option<&Path> {
        self.database.folder()
    }
    fn connect(&self, access: Access) -> Result<Box<dyn Database>, StoreError> {
        self.database.connect(access)
    }
}

#[test]
fn a_day_is_in_one_place_after_any_fault_of_the_database() {
    let fresh = world();
    for is_done_first in [false, true] {
        for fails_at in 0.. {
            let world = copy_of(&fresh);
            let archive = faults::private_tempdir().expect("a folder");
            let steps = Arc::new(AtomicUsize::new(0));
            let failing = |store: &SqlStore| {
                let database = store.database.connect(Access::Write).expect("a connection");
                let steps = Arc::clone(&steps);
                Keeper::new(Box::new(Failing { database, steps, fails_at, is_done_first }))
            };
            work_through(failing, archive.path(), &world);
            goes_on(&world, archive.path(), &format!("step {fails_at}, {is_done_first}"));
            if steps.load(Ordering::Relaxed) <= fails_at {
                assert!(fails_at > 20, "the premise: an action of many steps");
                break;
            }
        }
    }
}

#[test]
fn batches_are_halved_after_a_process_died_folding() {
    let folder = faults::private_tempdir().expect("a folder");
    let store = sqlite(&folder, &many(40, 3));
    // A process that is killed while it folds has already stored the batch size of its successor.
    let mut sizes = Vec::new();
    for _ in 0..14 {
        let mut housekeeping = keeper(&store, HALF);
        let database = store.database.connect(Access::Write).expect("a connection");
        housekeeping.keeper = Keeper::new(Box::new(Killed(database)));
        let step = std::panic::AssertUnwindSafe(|| housekeeping.step(after_days(1)));
        let killed = std::panic::catch_unwind(step).expect_err("it dies");
        sizes.push(*killed.downcast::<Value>().expect("the size of its batch"));
    }
    let halves = std::iter::successors(Some(4_096_usize), |size| Some((size / 2).max(1)));
    assert_eq!(sizes, halves.take(14).map(Value::from).collect::<Vec<_>>());
    // The next process begins with one result, and takes more as long as batches succeed.
    let mut housekeeping = keeper(&store, HALF);
    let mut done = Vec::new();
    while done.iter().sum::<usize>() < 120 {
        let Did { what: Work::PutTogether(count), .. } =
            housekeeping.step(after_days(1)).expect("it steps")
        else {
            panic!("results wait");
        };
        done.push(count);
    }
    assert_eq!(done[0], 1);
    assert!(done.iter().max() > Some(&8), "{done:?}");
}

/// A database whose process is killed as it reads a batch of results.
struct Killed(Box<dyn Database>);

impl Database for Killed {
    fn begin(&mut self, kind: Begin) -> Result<(), StoreError> {
        self.0.begin(kind)
    }
    fn commit(&mut self) -> Result<(), StoreError> {
        self.0.commit()
    }
    fn roll_back(&mut self) {
        self.0.roll_back();
    }
    fn query(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<Vec<Row>, StoreError> {
        match (sql.contains("{over}"), rows) {
            // Unwinds without the panic message, which would be in the log.
            (true, [values]) => std::panic::resume_unwind(Box::new(values[2].clone())),
            _ => self.0.query(sql, rows),
        }
    }
    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64, StoreError> {
        self.0.change(sql, rows)
    }
    fn copy(&mut self, path: &Path) -> Result<(), StoreError> {
        self.0.copy(path)
    }
    fn connect(&self, access: Access) -> Result<Box<dyn Database>, StoreError> {
        self.0.connect(access)
    }
}

#[test]
fn stop_flag_ends_folding_and_moving() {
    let folder = faults::private_tempdir().expect("a folder");
    let store = sqlite(&folder, &many(40, 30));
    let mut housekeeping = keeper(&store, HALF);
    housekeeping.stop_flag().store(true, Ordering::Relaxed);
    let did = housekeeping.step(after_days(5)).expect("it steps");
    assert_eq!(did.what, Work::PutTogether(0));
    // Once all results are folded, the next step would be to move a day.
    while store.keeper().expect("a keeper").roll_up(1_000).expect("it adds up").has_more {}
    let stopped = housekeeping.step(after_days(5)).expect_err("a part is not written");
    assert!(stopped.to_string().contains("stopped"), "{stopped}");
    let mut archive = store.archive().expect("an archive");
    let before = answers(&mut archive);
    run_down(&mut keeper(&store, HALF), after_days(5));
    assert_eq!((in_database(&folder), answers(&mut archive)), (2 * 240, before));
}

#[test]
fn archived_results_are_found_by_the_devices_newest_attributes() {
    let folder = faults::private_tempdir().expect("a folder");
    let mut store = sqlite(&folder, &many(5, 30));
    // The result that arrived last belongs to the oldest day.
    let newest = StoredResult { epoch: 2, ..result(1, 2) };
    append(&mut store, std::slice::from_ref(&newest));
    let mut archive = store.archive().expect("an archive");
    let device: DeviceId = newest.device;
    let counts = [1, 2, 9, 1_000];
    let ask = |archive: &mut SqlArchive| {
        let of = counts.map(|count| archive.results_of(device, count).expect("it answers"));
        counts.into_iter().zip(of).collect::<BTreeMap<_, _>>()
    };
    let before = ask(&mut archive);
    assert_eq!(before[&1], [newest]);
    assert_eq!(before[&1_000].len(), 31);
    run_down(&mut keeper(&store, HALF), after_days(30));
    assert_eq!(in_database(&folder), 0);
    assert_eq!(ask(&mut archive), before);
}
