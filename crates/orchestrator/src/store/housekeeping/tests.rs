//! Days that are moved to files and reduced to sums: queries return the same answers throughout,
//! and after any crash.

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
use crate::store::files::{PlanDay, Sums};
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
        let Did { what, next_ms } = match keeper.step(now_ms) {
            Err(error) if is_left_over(&error) => return done,
            did => did.expect("it steps"),
        };
        let is_over = next_ms > now_ms;
        done.push(what);
        if is_over {
            return done;
        }
    }
    panic!("it never ends: {:?}", done.last());
}

/// Whether the file of a step that failed is still there: it is removed once nobody reads the folder,
/// which the programs of other tests seem to do (see [`run_down_until`]).
fn is_left_over(error: &StoreError) -> bool {
    let StoreError::Temporary { source: Some(cause), .. } = error else { return false };
    let cause = cause.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::AlreadyExists)
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

/// Returns the sums of the runs of one day.
fn added_up(mut runs: Vec<StoredResult>) -> Sums {
    let mut fold = underload_fleet::retention::Fold::default();
    runs.sort_by_key(|kept| kept.pseudonym);
    for kept in &runs {
        fold.add(kept);
    }
    let mut sums = Sums::default();
    sums.add(&fold);
    sums
}

#[test]
fn an_old_day_is_summed_and_its_runs_are_deleted() {
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
    run_down(&mut housekeeping, after_days(4));
    let late = result(50, 1);
    append(&mut store, std::slice::from_ref(&late));
    let mut with_late = cohorts(&mut archive);
    assert_ne!(with_late, before);
    run_down(&mut housekeeping, after_days(4) + ROUND_MS);
    assert_eq!(cohorts(&mut archive), with_late);
    let seen = answers(&mut archive).results;
    assert!(seen.iter().all(|kept| kept.day() == all[0].day() + 1), "of the second day alone");
    assert_eq!(seen.len(), 240);
    let second_day = all[0].day() + 1;
    assert_eq!(summed(&mut archive, None), Summed { days: 1, until_day: second_day });
    assert_eq!(summed(&mut archive, Some(second_day)), Summed::default());
    with_late.clear();

    let manifest = files::manifest(&folder.path().join("archive")).expect("a manifest");
    let day = manifest.day("trial", all[0].day()).expect("the day");
    let path = |part: &Part| part.path(&folder.path().join("archive"));
    let mut sums = Sums::default();
    let of = ("trial", all[0].day());
    for part in &day.parts {
        files::verify(&folder.path().join("archive"), part).expect("it is whole");
        match part.rows_are {
            Rows::Sums => sums.read_sums(&path(part), of).expect("it reads"),
            Rows::Ends => sums.read_ends(&path(part), of).expect("it reads"),
            Rows::Runs => panic!("runs are gone"),
        }
    }
    let first_day = all.iter().filter(|kept| kept.day() == all[0].day());
    let right = added_up(first_day.chain([&late]).cloned().collect());
    let unknown = sums.sums.values().filter(|sum| sum.devices.is_none()).count();
    assert_eq!(unknown, 4, "where the late one was added it is not known of how many devices");
    for (key, sum) in &mut sums.sums {
        let devices = right.sums.get(key).expect("it is there").devices;
        sum.devices = sum.devices.or(devices);
    }
    assert_eq!(sums, right);
}

#[test]
fn files_are_not_deleted_while_a_study_reads_them() {
    let folder = faults::private_tempdir().expect("a folder");
    let store = sqlite(&folder, &many(20, 30));
    let mut housekeeping = keeper(&store, HALF);
    let mut archive = store.archive().expect("an archive");
    let mut count = 0;
    let mut done = Vec::new();
    let mut see = |_: &StoredResult| {
        count += 1;
        if count == 50 {
            done = run_down(&mut housekeeping, after_days(5));
        }
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it shows all");
    assert_eq!(count, 600);
    assert!(done.iter().any(|work| matches!(work, Work::Moved(_))), "{done:?}");
    assert!(!done.iter().any(|work| matches!(work, Work::Deleted(_))), "{done:?}");
    assert_eq!(in_database(&folder), 600);
    let done = run_down(&mut housekeeping, after_days(5) + ROUND_MS);
    assert!(done.iter().any(|work| matches!(work, Work::Deleted(_))), "{done:?}");
    assert_eq!(in_database(&folder), 240);
}

#[test]
fn an_archive_of_another_store_or_in_another_place_is_refused() {
    let (one, other) =
        (faults::private_tempdir().expect("one"), faults::private_tempdir().expect("two"));
    let archive = faults::private_tempdir().expect("a folder");
    let store = sqlite(&one, &many(10, 10));
    let folder = archive.path().join("days");
    let mut housekeeping = store.housekeeping(Some(&folder), HALF).expect("a keeper");
    run_down(&mut housekeeping, after_days(9));
    let stranger = sqlite(&other, &many(10, 10));
    let error = stranger.housekeeping(Some(&folder), HALF).expect_err("it is another's");
    assert!(error.to_string().contains("another store"), "{error}");
    let error = store.housekeeping(None, HALF).expect_err("it is not there");
    assert!(error.to_string().contains("or move the files"), "{error}");
    let moved = archive.path().join("moved");
    std::fs::rename(&folder, &moved).expect("it is moved");
    let mut archive = store.archive().expect("an archive");
    let error = archive.visit(&Filter::default(), &mut |_| true).expect_err("it is away");
    assert!(error.to_string().contains("expected in"), "{error}");
    let error = store.housekeeping(Some(&folder), HALF).expect_err("it is away");
    let said = error.to_string();
    let was = format!("is no longer in {}", folder.display());
    assert!(said.contains(&was) && said.contains("restore it"), "{said}");
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
    let manifest = files::manifest(&archive).expect("a manifest");
    let path = manifest.days[0].parts[0].path(&archive);
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

#[test]
fn a_store_restored_from_a_backup_numbers_results_after_its_archive() {
    let folder = faults::private_tempdir().expect("a folder");
    let mut store = sqlite(&folder, &many(20, 10));
    drop(keeper(&store, HALF));
    let copy = |from: &str, to: &str| {
        std::fs::copy(folder.path().join(from), folder.path().join(to)).expect("it is copied");
    };
    drop(store);
    copy("fleet.sqlite", "copy");
    store = SqlStore::sqlite(folder.path()).expect("it opens");
    let more: Vec<_> = (20..40).map(|device| result(device, 1)).collect();
    append(&mut store, &more);
    run_down(&mut keeper(&store, HALF), after_days(9));
    drop(store);
    copy("copy", "fleet.sqlite");
    store = SqlStore::sqlite(folder.path()).expect("it opens again");
    let mut housekeeping = keeper(&store, HALF);
    let late: Vec<_> = (50..60).map(|device| result(device, 1)).collect();
    append(&mut store, &late);
    run_down(&mut housekeeping, after_days(9));
    let mut archive = store.archive().expect("an archive");
    let results = answers(&mut archive).results;
    assert_eq!(results.len(), 230, "also those that the copy did not have, and the late ones");
}

/// A store, a separate folder for its archive, and its answers before the work.
struct World {
    folder: TempDir,
    before: Answers,
}

/// Moves a day in two parts, which are merged, and reduces it to sums.
fn work_through(keeper: impl Fn(&SqlStore) -> Keeper, root: &Path, world: &World) {
    let store = SqlStore::sqlite(world.folder.path()).expect("it opens");
    let old = Retention { raw_days: 1, bins_days: 3 };
    let Ok(housekeeping) = Housekeeping::new(keeper(&store), Some(&root.join("archive")), HALF)
    else {
        return;
    };
    let mut housekeeping = housekeeping.with_parts_of(8);
    for (day, retention) in [(3, HALF), (4, old)] {
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
    let manifest = files::manifest(&folder).expect("a manifest");
    let is_folded = |day: &PlanDay| day.parts.iter().any(|part| part.rows_are == Rows::Sums);
    let expected =
        if manifest.days.iter().any(is_folded) { &[][..] } else { &world.before.results };
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
    run_down_until(&mut housekeeping.with_parts_of(8), after_days(4), &mut |_| {
        let manifest = files::manifest(&folder).expect("a manifest");
        let unnamed = files::unnamed(&folder, &manifest).expect("it reads");
        in_database(&world.folder) == 0 && unnamed.is_empty()
    });
    drop(store);
    let store = is_sound(world, archive, &format!("{why}, and on"));
    let questions = ask(&mut store.archive().expect("an archive"));
    let pairs = questions.iter().zip(&world.before.questions).enumerate();
    let is_folded = in_files(&folder, Rows::Sums) > 0;
    for (place, (now, before)) in pairs {
        assert!(now == before || is_folded && place == 7, "{why}: question {place}");
    }
    assert_eq!(in_database(&world.folder), 0, "{why}");
    let manifest = files::manifest(&folder).expect("a manifest");
    assert!(files::unnamed(&folder, &manifest).expect("it reads").is_empty(), "{why}");
}

fn in_files(folder: &Path, rows_are: Rows) -> usize {
    let manifest = files::manifest(folder).expect("a manifest");
    let parts = manifest.days.iter().flat_map(|day| &day.parts);
    parts.filter(|part| part.rows_are == rows_are).count()
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
struct Failing {
    database: Box<dyn Database>,
    steps: Arc<AtomicUsize>,
    fails_at: usize,
    is_done_first: bool,
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
    fn settled(&mut self) -> Result<i64, StoreError> {
        self.pass(|database| database.settled())
    }
    fn count_from(&mut self, number: i64) -> Result<(), StoreError> {
        self.pass(|database| database.count_from(number))
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
    fn settled(&mut self) -> Result<i64, StoreError> {
        self.0.settled()
    }
    fn count_from(&mut self, number: i64) -> Result<(), StoreError> {
        self.0.count_from(number)
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
