//! Tests of a store in SQLite: durability, rejected stores, and sums.

use underload_fleet::retention::Retention;
use underload_fleet::store::conformance;
use underload_fleet::store::{
    Archive as _, Filter, Memory, Needs, Store as _, StoreError, StoredResult, Sum,
};

use super::{Connection, FILE, Path, TO_VERSION_2, VERSION};
use crate::store::testing::{self, Both, START_MS, append, ask, many, with_invented_steps};
use crate::store::{Keeper, RolledUp, SqlArchive, SqlStore, Work};

/// Opens the database file of a store directly, without the checks of [`SqlStore`].
fn file(folder: &Path) -> Connection {
    Connection::open(folder.join(FILE)).expect("it opens")
}

#[test]
fn it_does_what_every_store_does() {
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
fn what_is_committed_is_there_once_and_what_is_not_is_gone() {
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
fn a_newer_version_and_a_damaged_file_are_told() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let store = SqlStore::sqlite(folder.path()).expect("it opens");
    file(folder.path()).pragma_update(None, "user_version", VERSION + 1).expect("it is set");
    drop(store);
    let error = SqlStore::sqlite(folder.path()).expect_err("it is newer");
    assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains("start the newer program"), "{error}");
    std::fs::write(folder.path().join(FILE), [0x55; 8_192]).expect("it is damaged");
    let error = SqlStore::sqlite(folder.path()).expect_err("it is damaged");
    assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains(".recover"), "{error}");
}

#[test]
fn stores_of_earlier_versions_become_those_of_this_one_and_lose_nothing() {
    for (version, back) in [(2, ""), (1, "DROP INDEX results_by_day;")] {
        let folder = underload_disk::faults::private_tempdir().expect("a folder");
        let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
        let results = many(10, 3);
        append(&mut store, &results);
        let mut keeper = store.keeper().expect("a keeper");
        let folded = keeper.roll_up(13).expect("it adds up").results;
        assert!(0 < folded && folded < results.len(), "{folded}");
        let before = ask(&mut store.archive().expect("an archive"));
        let tables = tables(&file(folder.path()));
        let batch = |sql: &str| file(folder.path()).execute_batch(sql).expect("it is changed");
        // Writes rows as earlier versions did, without checksums.
        batch("UPDATE results SET body = CAST(x'01' || substr(body, 2, length(body) - 5) AS BLOB)");
        batch("UPDATE sums SET devices = substr(devices, 6)");
        batch(&format!("{back} PRAGMA user_version = {version}"));
        // A migration that is interrupted before its commit leaves the older version.
        let killed = file(folder.path());
        let change = format!("BEGIN IMMEDIATE; {TO_VERSION_2} PRAGMA user_version = {VERSION}");
        killed.execute_batch(&change).expect("it is changed");
        drop((killed, keeper, store));
        let mut store = SqlStore::sqlite(folder.path()).expect("it is brought to this version");
        assert_eq!(self::tables(&file(folder.path())), tables);
        let mut archive = store.archive().expect("an archive");
        assert_eq!(ask(&mut archive), before);
        assert_eq!(fold_all(&mut store.keeper().expect("a keeper")), results.len() - folded);
        assert_eq!(ask(&mut archive), before);
        assert_eq!(append(&mut store, &results), vec![false; results.len()], "all are known");
    }
}

/// The tables and indices as SQL.
fn tables(connection: &Connection) -> Vec<String> {
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut read = connection.prepare(sql).expect("it reads");
    let rows = read.query_map([], |row| row.get::<_, String>(0)).expect("it reads");
    rows.map(|row| row.expect("a row").replace("IF NOT EXISTS ", "")).collect()
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
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
fn sums_are_the_same_however_much_was_put_together() {
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

#[test]
fn series_that_the_plan_does_not_have_are_not_in_sums() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    let invented = [with_invented_steps(1, 5), with_invented_steps(1, 6)];
    append(&mut store, &many(3, 4));
    append(&mut store, &invented[..1]);
    let mut keeper = store.keeper().expect("a keeper");
    assert_eq!(fold_all(&mut keeper), 13);
    let mut archive = store.archive().expect("an archive");
    let mut sums = || {
        let by = [underload_fleet::store::Dimension::Step];
        let sums = archive.sums(&Filter::default(), &by).expect("sums");
        sums.into_iter().map(|sum| (sum.key[0].clone(), sum.tests)).collect::<Vec<_>>()
    };
    assert_eq!(sums().len(), 2 + 64, "the premise: earlier versions folded all of them");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    change.put_plan(&testing::plan()).expect("it is put");
    change.commit().expect("it is on disk");
    // Three devices have four runs each, of which one is unscheduled.
    let expected = [("idle".to_owned(), 18), ("up".to_owned(), 18)];
    assert_eq!(sums(), expected, "what was folded");
    append(&mut store, &invented[1..]);
    assert_eq!(sums(), expected, "before it is folded");
    let keys = count(folder.path(), "keys");
    assert_eq!(fold_all(&mut keeper), 1);
    assert_eq!((sums(), count(folder.path(), "keys")), (expected.to_vec(), keys), "and after");
}

#[test]
fn sums_of_series_that_no_plan_has_are_deleted_a_page_at_a_time() {
    const MANY: u64 = 147_456;
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    change.put_plan(&testing::plan()).expect("it is put");
    change.commit().expect("it is on disk");
    append(&mut store, &many(3, 4));
    fold_all(&mut store.keeper().expect("a keeper"));
    let counts = || ["keys", "sums"].map(|table| count(folder.path(), table));
    let (planned, answers) = (counts(), ask(&mut store.archive().expect("an archive")));
    let sql = format!(
        "INSERT INTO keys (body) WITH RECURSIVE n (n) AS
                (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY})
            SELECT replace(body, '\"idle\"', '\"' || n || '\"')
            FROM n, (SELECT body FROM keys WHERE body LIKE '%\"idle\"%' LIMIT 1);
        INSERT INTO sums SELECT level, kind, day, hour, number, tests, sent, lost, bins, devices
            FROM keys, (SELECT * FROM sums WHERE kind = 0 LIMIT 1) WHERE number > {}",
        planned[0]
    );
    file(folder.path()).execute_batch(&sql).expect("it is changed");
    assert_eq!(counts(), planned.map(|rows| rows + MANY), "the premise");
    let retention = Retention { raw_days: 7, bins_days: 90 };
    let mut housekeeping = store.housekeeping(None, retention).expect("a keeper");
    let mut deleted = Vec::new();
    while let Work::DeletedSums(rows) = housekeeping.step(START_MS).expect("it steps").what {
        deleted.push(rows as u64);
        // Results are added while the sums are deleted.
        if deleted.len() == 50 {
            append(&mut store, &many(3, 5));
        }
    }
    assert!(deleted.iter().all(|rows| *rows <= 4_096), "{deleted:?}");
    assert_eq!(deleted.iter().sum::<u64>(), 2 * MANY);
    let mut memory = Memory::new();
    append(&mut memory, &many(3, 5));
    let mut archive = store.archive().expect("an archive");
    assert_eq!(ask(&mut archive), ask(&mut memory));
    assert_ne!(ask(&mut archive), answers, "the premise");
    assert!(count(folder.path(), "keys") < 2 * planned[0]);
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
fn a_flipped_bit_in_a_row_is_an_error_for_whoever_reads_it() {
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
