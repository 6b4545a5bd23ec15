//! Tests of a store in SQLite: durability, rejected stores, and sums.

use std::cell::Cell;

use rusqlite::{Statement, StatementStatus};
use underload_fleet::retention::Retention;
use underload_fleet::store::conformance;
use underload_fleet::store::{
    Archive as _, Filter, Memory, Needs, Store as _, StoreError, StoredResult, Sum,
};

use super::{Connection, FILE, Path, VERSION};
use crate::store::files::replace;
use crate::store::testing::{self, Both, append, ask, many, with_invented_steps};
use crate::store::{Keeper, RolledUp, SqlArchive, SqlStore};

/// Opens the database file of a store directly, without the checks of [`SqlStore`].
fn file(folder: &Path) -> Connection {
    Connection::open(folder.join(FILE)).expect("it opens")
}

#[test]
fn store_passes_the_conformance_tests() {
    let folders = underload_disk::faults::private_tempdir().expect("a folder");
    let mut made = 0;
    conformance::run(|| {
        made += 1;
        let store = SqlStore::sqlite(&folders.path().join(format!("{made}"))).expect("it opens");
        let archive = store.archive().expect("an archive");
        let mut keeper = store.keeper().expect("a keeper");
        // Folds a few results before each change and query.
        let then = Box::new(move || assert!(keeper.roll_up(3).is_ok(), "it adds up"));
        Both { store, archive, then }
    });
}

#[test]
fn committed_results_exist_once_and_others_do_not_exist() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    let results = many(10, 3);
    let mut dropped = store.begin(&Needs::default()).expect("it begins");
    assert_eq!(dropped.append(&results[..5]).expect("kept"), [true; 5]);
    assert_eq!(dropped.append(&results[4..6]).expect("kept"), [false, true]);
    drop(dropped);
    assert_eq!(append(&mut store, &results[..20]), [true; 20]);
    drop(store);
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens again");
    assert_eq!(append(&mut store, &results), [[false; 20].as_slice(), &[true; 10]].concat());
    let mut seen = Vec::new();
    let mut archive = store.archive().expect("an archive");
    let mut see = |stored: &StoredResult| {
        seen.push(stored.clone());
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it reads");
    assert_eq!(seen, results);
}

#[test]
fn a_second_orchestrator_is_refused_and_an_archive_is_not() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let store = SqlStore::sqlite(folder.path()).expect("it opens");
    let error = SqlStore::sqlite(folder.path()).expect_err("it is in use");
    assert!(error.to_string().contains("in use by another orchestrator"), "{error}");
    SqlArchive::sqlite(folder.path()).expect("it may look");
    drop(store);
    SqlStore::sqlite(folder.path()).expect("it is free");
}

#[test]
fn stores_of_another_version_and_damaged_files_are_rejected() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    drop(SqlStore::sqlite(folder.path()).expect("it opens"));
    for version in [VERSION + 1, -1] {
        file(folder.path()).pragma_update(None, "user_version", version).expect("it is set");
        let opened = [
            SqlStore::sqlite(folder.path()).map(drop),
            SqlStore::beside(folder.path()).map(drop),
            SqlArchive::sqlite(folder.path()).map(drop),
        ];
        for opened in opened {
            let error = opened.expect_err("of another version");
            assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
            let expected = format!("of version {version}, this program reads version {VERSION}");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
    std::fs::write(folder.path().join(FILE), [0x55; 8_192]).expect("it is damaged");
    let error = SqlStore::sqlite(folder.path()).expect_err("it is damaged");
    assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains(".recover"), "{error}");
}

#[test]
fn tables_that_a_newer_program_changed_are_refused_at_the_next_transaction() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(3, 3));
    let (mut archive, mut keeper) = (store.archive().expect("one"), store.keeper().expect("one"));
    let set = |version: i64| {
        file(folder.path()).pragma_update(None, "user_version", version).expect("it is set");
    };
    set(VERSION + 1);
    let errors = [
        store.begin(&Needs::default()).map(drop).expect_err("it does not write"),
        archive.sums(&Filter::default(), &[]).map(drop).expect_err("it does not read"),
        keeper.roll_up(9).map(drop).expect_err("it does not fold"),
    ];
    for error in errors {
        assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
        assert!(error.to_string().contains("install the release that wrote them"), "{error}");
    }
    set(VERSION);
    assert_eq!(append(&mut store, &many(3, 4)).into_iter().filter(|new| *new).count(), 3);
}

#[test]
fn a_part_of_a_store_is_refused() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(10, 3));
    let mut work = store.housekeeping(None, Retention::default()).expect("it opens");
    work.step(testing::START_MS).expect("it works");
    // A copy of the database alone, while it is in use.
    let copy = underload_disk::faults::private_tempdir().expect("a folder");
    std::fs::copy(path(FILE), copy.path().join(FILE)).expect("copied");
    drop((work, store));
    let mut copied = SqlStore::sqlite(copy.path()).expect("it opens");
    assert_eq!(append(&mut copied, &many(10, 3)), [false; 30], "all are in the copy");
    let refused = |what: &str| {
        let error = SqlStore::sqlite(folder.path()).expect_err(what).to_string();
        assert!(error.contains(what) && error.contains("restore it from a copy"), "{error}");
    };
    // The first page of a database whose tables are in a log that was not copied.
    std::fs::remove_file(path(FILE)).expect("removed");
    file(folder.path()).execute_batch("PRAGMA journal_mode = WAL").expect("an empty database");
    assert!(std::fs::metadata(path(FILE)).expect("a file").len() > 0, "the premise");
    refused("has no tables");
    // A database of another program, without a version and with ours.
    for version in [0, VERSION] {
        std::fs::remove_file(path(FILE)).expect("removed");
        let foreign = "CREATE TABLE contacts (name); PRAGMA user_version =";
        file(folder.path()).execute_batch(&format!("{foreign} {version}")).expect("a database");
        let before = std::fs::read(path(FILE)).expect("a file");
        refused("has no tables of underload");
        SqlStore::beside(folder.path()).expect_err("another program's");
        SqlArchive::sqlite(folder.path()).map(drop).expect_err("another program's");
        assert!(std::fs::read(path(FILE)).expect("a file") == before, "it is unchanged");
    }
    std::fs::remove_file(path(FILE)).expect("removed");
    refused("is missing or empty beside archive");
    std::fs::remove_dir_all(path("archive")).expect("removed");
    std::fs::write(path("admin.token"), "token").expect("written");
    refused("is missing or empty beside admin.token");
    std::fs::remove_file(path("admin.token")).expect("removed");
    SqlStore::sqlite(folder.path()).expect("a new store");
}

#[test]
fn a_damaged_page_is_found_at_the_start() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(40, 30));
    drop(store);
    let path = folder.path().join(FILE);
    let mut bytes = std::fs::read(&path).expect("a file");
    let page = bytes.len() / 4096 / 2 * 4096;
    bytes[page..page + 20].fill(0xff);
    std::fs::write(&path, bytes).expect("written");
    let error = SqlStore::sqlite(folder.path()).expect_err("damaged");
    assert!(matches!(error, StoreError::Broken { .. }) && error.to_string().contains(".recover"));
}

#[test]
fn full_disks_are_errors_and_lose_no_acknowledged_result() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(10, 2));
    // A limit on the size of the file has the same error as a full disk.
    let pragma = |store: &mut SqlStore, text: &str| {
        let row =
            store.database.query(&format!("PRAGMA {text}"), &[vec![]]).expect("it is set").pop();
        row.expect("a row").long().expect("a number")
    };
    let pages = pragma(&mut store, "page_count");
    pragma(&mut store, &format!("max_page_count = {pages}"));
    let results = many(10, 60);
    let mut change = store.begin(&Needs::default()).expect("it begins");
    let failed = change.append(&results).err().or_else(|| change.commit().err());
    let failed = failed.expect("it does not fit");
    assert!(matches!(failed, StoreError::Temporary { .. }), "{failed:?}");
    assert!(failed.in_full().contains("full"), "{failed}");
    pragma(&mut store, &format!("max_page_count = {}", i32::MAX));
    let new = append(&mut store, &results).into_iter().filter(|is_new| *is_new).count();
    assert_eq!(new, 580, "the first 20 are there, and nothing of what failed");
}

#[test]
fn sums_do_not_depend_on_batch_sizes() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(40, 30));
    let mut memory = Memory::new();
    let mut change = memory.begin(&Needs::default()).expect("it begins");
    change.append(&many(40, 30)).expect("they are kept");
    change.commit().expect("they are kept");
    let mut archive = store.archive().expect("an archive");
    let from_results = ask(&mut archive);
    assert_eq!(from_results, ask(&mut memory));
    let day_and_dscp = &from_results[1].0;
    assert_eq!(day_and_dscp.len(), 10, "five days, two markings");
    assert_eq!(day_and_dscp[0].devices, 40, "each device once");
    let tests = |sums: &[Sum]| sums.iter().map(|sum| sum.tests).sum::<u64>();
    // Each device has 30 runs, of which one was unscheduled and three were refused.
    assert_eq!(tests(day_and_dscp), 40 * 26 * 4);
    assert!(from_results.iter().any(|(sums, _)| sums.is_empty()), "of another plan is nothing");
    let mut keeper = store.keeper().expect("a keeper");
    let mut folded = 0;
    for limit in [1, 500, 10_000, 10_000, 10_000, 10_000] {
        let done = keeper.roll_up(limit).expect("it adds up");
        folded += done.results;
        assert!(done.results <= limit && done.has_more == (folded < 1_200), "{limit}: {done:?}");
        assert_eq!(ask(&mut archive), from_results, "after {folded}");
    }
    assert_eq!(folded, 1_200);
    let mut keeper = store.keeper().expect("another keeper");
    append(&mut store, &many(41, 31));
    assert_eq!(fold_all(&mut keeper), 41 * 31 - 40 * 30);
}

/// Rows of a table.
fn count(folder: &Path, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    file(folder).query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("a count") as u64
}

#[test]
fn results_of_many_series_are_folded_in_small_batches() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    let invented: Vec<_> = (1..5).map(|sequence| with_invented_steps(1, sequence)).collect();
    append(&mut store, &invented);
    let mut keeper = store.keeper().expect("a keeper");
    let done = keeper.roll_up(1_000).expect("it adds up");
    assert_eq!(done, RolledUp { results: 1, has_more: true }, "one has more cells than a batch");
    let keys = count(folder.path(), "keys");
    assert_eq!(keys, 2 * (64 * 64 + 1), "of lines and of cohorts, of series and of runs");
    assert_eq!(fold_all(&mut keeper), 3);
}

/// Folds all results, and returns their number.
fn fold_all(keeper: &mut Keeper) -> usize {
    let mut folded = 0;
    loop {
        let done = keeper.roll_up(10_000).expect("it adds up");
        folded += done.results;
        if !done.has_more {
            return folded;
        }
    }
}

#[test]
fn reading_a_row_with_a_flipped_bit_is_an_error() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &many(10, 3));
    let connection = file(folder.path());
    let change = |sql: &str| connection.execute(sql, []).expect("it is changed");
    let body = "SELECT body FROM results WHERE number = 17";
    let good: Vec<u8> =
        connection.query_row(body, [], |row| row.get(0)).expect("a row with that number");
    let put = |body: &[u8]| {
        let sql = "UPDATE results SET body = ? WHERE number = 17";
        connection.execute(sql, [body]).expect("it is changed");
    };
    let (mut archive, mut keeper) =
        (store.archive().expect("an archive"), store.keeper().expect("a keeper"));
    let mut bad = good.clone();
    // A byte of the bins, where any number is valid.
    let place = bad.len() - 20;
    bad[place] ^= 1;
    put(&bad);
    let device = many(10, 3)[16].device;
    let told = |error: StoreError| {
        let said = error.to_string();
        assert!(said.contains("DELETE FROM results WHERE number = 17"), "{said}");
    };
    told(archive.visit(&Filter::default(), &mut |_| true).expect_err("visited"));
    told(archive.results_of(device, 10).expect_err("its device's"));
    told(archive.sums(&Filter::default(), &[]).expect_err("not yet put together"));
    told(keeper.roll_up(1_000).expect_err("to be put together"));
    put(&good);
    keeper.roll_up(1_000).expect("it adds up");
    let sums = archive.sums(&Filter::default(), &[]).expect("sums");
    let runs = archive.outcomes(&Filter::default()).expect("outcomes");
    for (column, flipped) in [("sent", "sent + 1"), ("lost", "lost + 1"), ("tests", "tests - 1")] {
        change(&format!("UPDATE sums SET {column} = {flipped}"));
        let error = archive.sums(&Filter::default(), &[]).expect_err("a sum").to_string();
        assert!(error.contains("a stored sum is damaged: restore"), "{column}: {error}");
        assert!(archive.outcomes(&Filter::default()).is_err(), "{column}");
        let back = flipped.replace('+', "~").replace('-', "+").replace('~', "-");
        change(&format!("UPDATE sums SET {column} = {back}"));
    }
    assert_eq!(archive.sums(&Filter::default(), &[]).expect("sums"), sums);
    assert_eq!(archive.outcomes(&Filter::default()).expect("outcomes"), runs);
}

thread_local! {
    /// Instructions of SQLite's virtual machine that the statements of this thread took.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn count_steps(statement: &Statement<'_>) {
    let steps = statement.reset_status(StatementStatus::VmStep);
    STEPS.set(STEPS.get() + u64::from(steps.unsigned_abs()));
}

fn steps_of(run: impl FnOnce()) -> u64 {
    STEPS.set(0);
    run();
    STEPS.get()
}

/// Returns the steps in which each way of reading page by page reads `count` results.
fn steps_of_reading(count: usize) -> Vec<(&'static str, u64)> {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    append(&mut store, &[testing::result(1, 9)]);
    let of = (testing::plan().name, testing::result(1, 9).day());
    // A result that differs from the first in its number alone.
    let copies = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO results (device, day, plan, body) SELECT device, day, plan, body FROM results, n";
    assert_eq!(file(folder.path()).execute(copies, [count as i64]).expect("added"), count - 1);
    let mut archive = store.archive().expect("an archive");
    let mut seen = 0;
    let mut visit = |filter: &Filter| {
        let mut see = |_: &StoredResult| {
            seen += 1;
            true
        };
        archive.visit(filter, &mut see).expect("it reads");
    };
    let all = steps_of(|| visit(&Filter::default()));
    let of_plan = steps_of(|| visit(&Filter { plan: Some(of.0.clone()), ..Filter::default() }));
    assert_eq!(seen, 2 * count);
    let of_sums = steps_of(|| drop(archive.sums(&Filter::default(), &[]).expect("sums")));
    let mut keeper = store.keeper().expect("a keeper");
    let folding = steps_of(|| assert_eq!(fold_all(&mut keeper), count));
    let moving = steps_of(|| {
        loop {
            let page = keeper.folded((&of.0, of.1), 1_000).expect("it reads");
            let numbers: Vec<_> = page.iter().map(|row| vec![row.number.into()]).collect();
            if numbers.is_empty() {
                break;
            }
            replace(&mut *keeper.database, (&[], &[]), &numbers, 1).expect("deleted");
        }
    });
    assert_eq!(self::count(folder.path(), "results"), 0);
    vec![
        ("visit", all),
        ("visit a plan", of_plan),
        ("sums of late results", of_sums),
        ("fold", folding),
        ("move", moving),
    ]
}

#[test]
fn reading_four_times_the_results_takes_four_times_the_steps() {
    let (few, many) = (steps_of_reading(10_000), steps_of_reading(40_000));
    for ((what, few), (_, many)) in few.into_iter().zip(many) {
        let ratio = many as f64 / few as f64;
        assert!((3.5..4.1).contains(&ratio), "{what}: {few} and {many} steps");
    }
}

#[test]
fn devices_are_found_by_their_attributes() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    for number in 0..60 {
        change.put_device(&testing::device(number)).expect("it is put");
    }
    let device = change.device(testing::device_id(7)).expect("it is read");
    assert_eq!(device, Some(testing::device(7)));
    let at = testing::START_MS + 5;
    let overdue = change.overdue(at, 10).expect("it is read");
    assert_eq!(overdue, [1, 3, 5].map(testing::device_id), "and none of those that never are");
    change.commit().expect("it is on disk");
    testing::finds_devices(&mut store.archive().expect("an archive"));
}
