//! Tests of a store in PostgreSQL: durability, races between orchestrators, and sums.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, OnceLock};
use std::thread::{scope, sleep};
use std::time::Duration;

use underload_fleet::message::ServerAddress;
use underload_fleet::retention::Retention;
use underload_fleet::store::conformance;
use underload_fleet::store::{
    Archive as _, Filter, HeldLease, Leases, Memory, Needs, Server, Store as _, StoreError,
    StoredResult,
};

use super::scratch::Scratch;
use crate::store::housekeeping::tests::{PAUSE, answers, run_down_until};
use crate::store::housekeeping::{Did, Work};
use crate::store::testing::{self, Both, START_MS, append, ask, many};
use crate::store::{Keeper, SqlArchive, SqlStore};

/// Creates a separate database on the server that these tests share. Returns its address.
pub(in crate::store) fn database(test: &str) -> Option<String> {
    static SERVER: OnceLock<Option<Mutex<Scratch>>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Scratch::start(test).map(Mutex::new));
    let Some(server) = server else {
        eprintln!("SKIPPED {test}: there is no PostgreSQL");
        return None;
    };
    Some(server.lock().expect("no test fails in here").database(test))
}

fn all(archive: &mut SqlArchive) -> Vec<StoredResult> {
    let mut seen = Vec::new();
    let mut see = |stored: &StoredResult| {
        seen.push(stored.clone());
        true
    };
    archive.visit(&Filter::default(), &mut see).expect("it reads");
    seen
}

/// Folds `expected` results, about `limit` at a time. Folding may have to wait for a transaction of
/// another test, because the server numbers the transactions of all its databases together.
fn puts_together(keeper: &mut Keeper, limit: usize, expected: usize) {
    let mut count = 0;
    for _ in 0..1_000 {
        count += keeper.roll_up(limit).expect("it adds up").results;
        if count >= expected {
            break;
        }
        sleep(PAUSE);
    }
    assert_eq!(count, expected);
}

#[test]
fn store_passes_the_conformance_tests() {
    if database("store_passes_the_conformance_tests").is_none() {
        return;
    }
    let mut made = 0;
    conformance::run(|| {
        made += 1;
        let url = database(&format!("conformance_{made}")).expect("there is a server");
        let store = SqlStore::postgres(&url).expect("it connects");
        let archive = store.archive().expect("an archive");
        let mut keeper = store.keeper().expect("a keeper");
        // Folds a few results before each change and query.
        let then = Box::new(move || assert!(keeper.roll_up(3).is_ok(), "it adds up"));
        Both { store, archive, then }
    });
    let url = database("conformance_race").expect("there is a server");
    conformance::race(|| SqlStore::postgres(&url).expect("it connects"), 4);
}

#[test]
fn committed_results_are_stored_once_for_all_orchestrators() {
    let Some(url) = database("committed_results_are_stored_once_for_all_orchestrators") else {
        return;
    };
    let mut one = SqlStore::postgres(&url).expect("it connects");
    let mut other = SqlStore::postgres(&url).expect("it connects");
    let results = many(10, 3);
    let needs = Needs { devices: (0..10).map(testing::device_id).collect(), ..Needs::default() };
    let mut dropped = one.begin(&needs).expect("it begins");
    dropped.put_device(&testing::device(1)).expect("it is put");
    assert_eq!(dropped.append(&results[..5]).expect("kept"), [true; 5]);
    assert_eq!(dropped.append(&results[4..6]).expect("kept"), [false, true]);
    drop(dropped);
    assert_eq!(append(&mut one, &results[..20]), [true; 20]);
    assert_eq!(append(&mut other, &results), [[false; 20].as_slice(), &[true; 10]].concat());
    let mut again = other.begin(&needs).expect("it begins");
    assert_eq!(again.append(&results).expect("kept"), [false; 30], "known by their devices");
    assert_eq!(again.device(testing::device_id(1)).expect("read"), None, "it was taken back");
    drop(again);
    assert_eq!(all(&mut one.archive().expect("an archive")), results);
}

#[test]
fn one_of_two_concurrent_uploads_of_a_result_must_retry() {
    let Some(url) = database("one_of_two_concurrent_uploads_of_a_result_must_retry") else {
        return;
    };
    let mut one = SqlStore::postgres(&url).expect("it connects");
    let mut other = SqlStore::postgres(&url).expect("it connects");
    for round in 0..2 {
        // Both transactions first add a row that does not exist, then one that does.
        let results = [testing::result(1, round)];
        let mut first = one.begin(&Needs::default()).expect("it begins");
        let mut second = other.begin(&Needs::default()).expect("it begins");
        assert_eq!(first.append(&results).expect("kept"), [true]);
        assert_eq!(second.append(&results).expect("kept"), [true], "it cannot know yet");
        first.commit().expect("it was first");
        let error = second.commit().expect_err("it was second");
        assert!(matches!(error, StoreError::Temporary { .. }), "{error:?}");
        assert_eq!(append(&mut other, &results), [false]);
    }
    assert_eq!(all(&mut one.archive().expect("an archive")).len(), 2);
}

#[test]
fn one_of_many_orchestrators_creates_the_secret() {
    let Some(url) = database("one_of_many_orchestrators_creates_the_secret") else { return };
    let mut one = SqlStore::postgres(&url).expect("it connects");
    let mut other = SqlStore::postgres(&url).expect("it connects");
    let mut first = one.begin(&Needs::default()).expect("it begins");
    let mut second = other.begin(&Needs::default()).expect("it begins");
    for change in [&mut first, &mut second] {
        assert_eq!(change.setting("secret").expect("read"), None);
    }
    first.put_setting("secret", b"first").expect("put");
    second.put_setting("secret", b"second").expect("put");
    first.commit().expect("it was first");
    assert!(matches!(second.commit(), Err(StoreError::Temporary { .. })));
    let mut again = other.begin(&Needs::default()).expect("it begins");
    assert_eq!(again.setting("secret").expect("read"), Some(b"first".to_vec()));
}

#[test]
fn sums_do_not_depend_on_batch_sizes_or_orchestrators() {
    let Some(url) = database("sums_do_not_depend_on_batch_sizes_or_orchestrators") else {
        return;
    };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let mut memory = Memory::new();
    let results = many(40, 30);
    append(&mut memory, &results);
    results.chunks(100).for_each(|results| drop(append(&mut store, results)));
    let mut archive = store.archive().expect("an archive");
    let answers = ask(&mut memory);
    assert_eq!(ask(&mut archive), answers);
    let (mut one, mut other) = (store.keeper().expect("one"), store.keeper().expect("another"));
    // Folds first a part of the transactions, then all of them.
    for results in [30, 70] {
        puts_together(&mut one, 1, results);
        assert_eq!(ask(&mut archive), answers);
    }
    // While a transaction is open, results with higher transaction numbers are not folded.
    let mut slow = SqlStore::postgres(&url).expect("it connects");
    let mut open = slow.begin(&Needs::default()).expect("it begins");
    open.put_setting("x", b"y").expect("put");
    let early = testing::result(50, 1);
    assert_eq!(open.append(std::slice::from_ref(&early)).expect("kept"), [true]);
    puts_together(&mut other, 10_000, 1_100);
    open.commit().expect("it is on disk");
    append(&mut memory, &[early]);
    assert_eq!(ask(&mut archive), ask(&mut memory));
    puts_together(&mut one, 10_000, 1);
    assert_eq!(ask(&mut archive), ask(&mut memory));
    assert_eq!(other.roll_up(10_000).expect("it adds up").results, 0);
}

#[test]
fn a_database_restored_elsewhere_continues_its_transaction_numbers() {
    let name = "a_database_restored_elsewhere_continues_its_transaction_numbers";
    let Some(url) = database(name) else { return };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    append(&mut store, &many(10, 1));
    puts_together(&mut store.keeper().expect("a keeper"), 1, 4);
    let mut archive = store.archive().expect("an archive");
    let (before, results) = (ask(&mut archive), all(&mut archive));
    assert_eq!(results.len(), 10);
    // As if the numbers of transactions came from another server.
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    let sql = "UPDATE results SET change = change + 1000000000000;
        UPDATE progress SET last_change = last_change + 1000000000000";
    client.batch_execute(sql).expect("it is changed");
    let store = SqlStore::postgres(&url).expect("it connects");
    assert_eq!((ask(&mut archive), all(&mut archive)), (before, results));
    puts_together(&mut store.keeper().expect("a keeper"), 1, 6);
}

#[test]
fn tables_are_created_once_although_the_server_is_killed_meanwhile() {
    let test = "tables_are_created_once_although_the_server_is_killed_meanwhile";
    let Some(mut server) = Scratch::start(test) else { return };
    let url = server.database("killed");
    // When the server is killed, all steps of the creation but the commit are done.
    let mut creating = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    let steps = format!("BEGIN; {}", include_str!("tables.sql"));
    creating.batch_execute(&steps).expect("they are created");
    server.kill_and_restart();
    scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| drop(SqlStore::postgres(&url).expect("one of them creates")));
        }
    });
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let results = many(10, 3);
    append(&mut store, &results);
    puts_together(&mut store.keeper().expect("a keeper"), 100, 30);
    assert_eq!(append(&mut store, &results), vec![false; results.len()], "all are known");
}

/// Repeats a change until it does not lose a race against another orchestrator.
fn retried<T>(mut change: impl FnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..10_000 {
        match change() {
            Ok(done) => return done,
            Err(StoreError::Temporary { .. }) => sleep(Duration::from_millis(2)),
            Err(broken) => panic!("{}", broken.in_full()),
        }
    }
    panic!("it never succeeds");
}

/// Runs an orchestrator that stores results, counts them in a setting, and does the housekeeping.
fn orchestrate(url: &str, folder: &Path, results: &[StoredResult], start: &Barrier) {
    start.wait();
    let mut store = SqlStore::postgres(url).expect("it connects");
    let keeper = retried(|| store.housekeeping(Some(folder), RETENTION));
    let mut keeper = keeper.with_parts_of(16);
    for results in results.chunks(7) {
        let done = retried(|| {
            let mut change = store.begin(&Needs::default())?;
            let are_new = change.append(results)?;
            let count = change.setting("count")?.unwrap_or_default();
            let count: u64 = String::from_utf8_lossy(&count).parse().unwrap_or(0);
            let new = are_new.iter().filter(|is_new| **is_new).count() as u64;
            change.put_setting("count", (count + new).to_string().as_bytes())?;
            change.commit().map(|()| new)
        });
        assert_eq!(done, results.len() as u64, "no other test uploaded results");
        keeper.look_again();
        retried(|| keeper.step(START_MS + 5 * DAY_MS));
    }
}

#[test]
fn two_orchestrators_neither_lose_nor_double_count_results() {
    let Some(url) = database("two_orchestrators_at_once") else { return };
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let results = many(12, 24);
    let (even, odd): (Vec<StoredResult>, Vec<StoredResult>) =
        results.iter().cloned().partition(|kept| kept.device.0[0].is_multiple_of(2));
    // Both orchestrators also try to create the tables.
    let start = Barrier::new(2);
    scope(|threads| {
        for own in [&even, &odd] {
            threads.spawn(|| orchestrate(&url, folder.path(), own, &start));
        }
    });
    let mut memory = Memory::new();
    append(&mut memory, &results);
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let mut archive = store.archive().expect("an archive");
    assert_eq!(answers(&mut archive), answers(&mut memory));
    let mut change = store.begin(&Needs::default()).expect("it begins");
    let count = change.setting("count").expect("it is read").expect("it is set");
    assert_eq!(String::from_utf8_lossy(&count), results.len().to_string(), "no update is lost");
}

#[test]
fn orchestrators_that_start_at_once_create_one_archive() {
    let Some(url) = database("orchestrators_that_start_at_once_create_one_archive") else { return };
    let mut stores: Vec<_> =
        (0..4).map(|_| SqlStore::postgres(&url).expect("it connects")).collect();
    let mut archive = stores[0].archive().expect("an archive");
    // Each round starts with the empty archive of the round before.
    let folders = [(); 16].map(|()| underload_disk::faults::private_tempdir().expect("a folder"));
    for folder in &folders {
        let start = Barrier::new(stores.len());
        scope(|threads| {
            for store in &mut stores {
                let start = &start;
                threads.spawn(move || {
                    start.wait();
                    retried(|| store.housekeeping(Some(folder.path()), RETENTION));
                });
            }
        });
        ask(&mut archive);
    }
}

#[test]
fn a_slow_transaction_is_included_in_sums() {
    let Some(url) = database("a_slow_transaction_is_included_in_sums") else { return };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    let mut slow = client.transaction().expect("it begins");
    let body = crate::store::encode::encode(&testing::result(2, 1));
    let sql = "INSERT INTO results (device, day, plan, body) VALUES ($1, 1, 'trial', $2)";
    let device = &testing::device_id(2).0[..];
    slow.execute(sql, &[&device, &body]).expect("it is written, and not committed");
    append(&mut store, &[testing::result(1, 1)]);
    let mut keeper = store.keeper().expect("a keeper");
    assert_eq!(keeper.roll_up(10).expect("it waits").results, 0, "an older change is still open");
    slow.commit().expect("it is over");
    puts_together(&mut keeper, 10, 2);
}

#[test]
fn an_open_transaction_of_another_database_delays_sums_and_loses_nothing() {
    let name = "an_open_transaction_of_another_database_delays_sums_and_loses_nothing";
    let Some(url) = database(name) else { return };
    let elsewhere = database("elsewhere").expect("there is a server");
    let mut client = postgres::Client::connect(&elsewhere, postgres::NoTls).expect("it connects");
    let mut open = client.transaction().expect("it begins");
    open.execute("CREATE TABLE anything (number bigint)", &[]).expect("it has a number now");
    let mut store = SqlStore::postgres(&url).expect("it connects");
    append(&mut store, &[testing::result(1, 1)]);
    let mut keeper = store.keeper().expect("a keeper");
    assert_eq!(keeper.roll_up(10).expect("it waits").results, 0);
    open.commit().expect("it is over");
    puts_together(&mut keeper, 10, 1);
}

/// A `raw_days` that leaves two days in the database.
const RETENTION: Retention = Retention { raw_days: 3, bins_days: 90 };
const DAY_MS: u64 = 86_400_000;

#[test]
fn answers_do_not_change_when_several_orchestrators_move_days() {
    let test = "answers_do_not_change_when_several_orchestrators_move_days";
    let Some(url) = database(test) else { return };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    many(10, 30).chunks(100).for_each(|results| drop(append(&mut store, results)));
    let mut archive = store.archive().expect("an archive");
    let before = answers(&mut archive);
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let keeper = || store.housekeeping(Some(folder.path()), RETENTION).expect("a keeper");
    let mut keepers = [keeper().with_parts_of(40), keeper().with_parts_of(40)];
    let now_ms = START_MS + 5 * DAY_MS;
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    let mut left = || {
        let row = client.query_one("SELECT count(*) FROM results", &[]).expect("a count");
        row.get::<_, i64>(0)
    };
    let mut idle = 0;
    for round in 0..2_000 {
        let keeper = &mut keepers[round % 2];
        let Did { what, .. } = keeper.step(now_ms).expect("it steps");
        idle = if what == Work::Nothing { idle + 1 } else { 0 };
        if idle >= 2 {
            if left() == 2 * 60 {
                break;
            }
            sleep(PAUSE);
            keeper.look_again();
        }
        assert_eq!(answers(&mut archive), before, "after {what:?} of round {round}");
    }
    assert_eq!(left(), 2 * 60, "it ends");
    let late: Vec<_> = (50..60).map(|device| testing::result(device, 1)).collect();
    append(&mut store, &late);
    let with_late = answers(&mut archive);
    run_down_until(&mut keepers[0], now_ms + 3_600_000, &mut |_| left() == 2 * 60);
    assert_eq!(answers(&mut archive), with_late);
    assert_eq!(left(), 2 * 60);
    let error = store.housekeeping(Some(&folder.path().join("other")), RETENTION);
    let error = error.expect_err("it is elsewhere");
    assert!(error.to_string().contains("Name their directory"), "{error}");
}

#[test]
fn a_slow_transaction_is_included_in_moved_days() {
    let Some(url) = database("a_slow_transaction_is_included_in_moved_days") else {
        return;
    };
    let store = SqlStore::postgres(&url).expect("it connects");
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut keeper = store.housekeeping(Some(folder.path()), RETENTION).expect("a keeper");
    let mut slow = SqlStore::postgres(&url).expect("it connects");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    let mut open = client.transaction().expect("it begins");
    // The open transaction has a number and is not committed.
    let body = crate::store::encode::encode(&testing::result(2, 1));
    let sql = "INSERT INTO results (device, day, plan, body) VALUES ($1, $2, 'trial', $3)";
    let (device, day) = (&testing::device_id(2).0[..], i64::from(testing::result(2, 1).day()));
    open.execute(sql, &[&device, &day, &body]).expect("it is written, and not committed");
    append(&mut slow, &[testing::result(1, 1)]);
    let now_ms = START_MS + 9 * DAY_MS;
    for _ in 0..10 {
        let Did { what, .. } = keeper.step(now_ms).expect("it steps");
        assert!(!matches!(what, Work::Moved(_)), "only what is folded is moved");
        keeper.look_again();
    }
    open.commit().expect("it is over");
    let moved = |done: &[Work]| -> usize {
        done.iter().map(|work| if let Work::Moved(count) = work { *count } else { 0 }).sum()
    };
    let done = run_down_until(&mut keeper, now_ms, &mut |done| moved(done) == 2);
    assert_eq!(moved(&done), 2, "{done:?}");
    assert_eq!(all(&mut store.archive().expect("an archive")).len(), 2);
}

#[test]
fn devices_are_found_by_their_attributes_and_settled_by_one_of_them() {
    let Some(url) = database("devices_are_found_by_their_attributes_and_settled_by_one_of_them")
    else {
        return;
    };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    for number in 0..60 {
        change.put_device(&testing::device(number)).expect("it is put");
    }
    change.commit().expect("it is on disk");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    let device = change.device(testing::device_id(7)).expect("it is read");
    assert_eq!(device, Some(testing::device(7)));
    let overdue = change.overdue(START_MS + 5, 2).expect("it is read");
    assert_eq!(overdue, [1, 3].map(testing::device_id), "and none of those that never are");
    let mut other = SqlStore::postgres(&url).expect("it connects");
    let mut beside = other.begin(&Needs::default()).expect("it begins");
    let overdue = beside.overdue(START_MS + 5, 2).expect("it is read");
    assert_eq!(overdue, [testing::device_id(5)], "the others are taken");
    drop((change, beside));
    testing::finds_devices(&mut store.archive().expect("an archive"));
}

fn server(reserved_up_bit_per_s: u64) -> Server {
    let text = "server-1".to_owned();
    Server {
        address: ServerAddress { name: text.clone(), address: text.clone(), fingerprint: text },
        device: testing::device_id(99),
        public_key: [1; 32],
        is_removed: false,
        up_bit_per_s: 10,
        down_bit_per_s: 10,
        reserved_up_bit_per_s,
        reserved_down_bit_per_s: 0,
        carried_up_bit_per_s: 0,
        carried_down_bit_per_s: 0,
        sessions: 0,
        heard_ms: START_MS,
    }
}

fn lease(id: u64) -> HeldLease {
    HeldLease {
        id,
        device: testing::device_id(id),
        server: "server-1".to_owned(),
        segment: Some(format!("segment-{id}")),
        up_bit_per_s: 1,
        down_bit_per_s: 0,
        plan: "trial".to_owned(),
        run: 1,
        given_ms: START_MS,
        expires_ms: START_MS + id,
    }
}

/// Tries to reserve the only place. Returns whether it was free.
fn race(store: &mut SqlStore, id: u64) -> Result<bool, StoreError> {
    let needs = Needs { devices: vec![testing::device_id(id)], leases: vec![], admits: true };
    let mut change = store.begin(&needs)?;
    let reserved = change.servers()?[0].reserved_up_bit_per_s;
    let is_loaded = !change.leases(Leases::LoadedIn(&format!("segment-{id}")), 1)?.is_empty();
    if reserved == 10 || is_loaded {
        return Ok(false);
    }
    change.put_server(&server(reserved + 1))?;
    change.put_lease(&lease(id))?;
    change.commit()?;
    Ok(true)
}

#[test]
fn of_64_concurrent_claims_for_10_sessions_10_succeed() {
    let Some(url) = database("of_64_concurrent_claims_for_10_sessions_10_succeed") else { return };
    let mut store = SqlStore::postgres(&url).expect("it connects");
    let mut change = store.begin(&Needs::default()).expect("it begins");
    change.put_server(&server(0)).expect("put");
    change.commit().expect("on disk");
    let got_in = AtomicU64::new(0);
    scope(|threads| {
        for thread in 0..8 {
            let (url, got_in) = (&url, &got_in);
            threads.spawn(move || {
                let mut store = SqlStore::postgres(url).expect("it connects");
                for id in 0..8 {
                    let is_in = race(&mut store, thread * 8 + id).expect("no error");
                    got_in.fetch_add(u64::from(is_in), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(got_in.into_inner(), 10);
    let needs = Needs { admits: true, ..Needs::default() };
    let mut change = store.begin(&needs).expect("it begins");
    assert_eq!(change.servers().expect("servers"), [server(10)]);
    let held = change.leases(Leases::At("server-1"), 100).expect("leases");
    assert_eq!(held.len(), 10);
    for lease in &held {
        assert_eq!(change.lease(lease.id).expect("read").as_ref(), Some(lease));
        let segment = lease.segment.as_deref().unwrap_or_default();
        for of in [Leases::Of(lease.device), Leases::LoadedIn(segment)] {
            assert_eq!(change.leases(of, 9).expect("read"), std::slice::from_ref(lease));
        }
    }
    change.end_lease(held[3].id).expect("ended");
    assert_eq!(change.leases(Leases::At("server-1"), 100).expect("leases").len(), 9);
    let first = change.leases(Leases::ExpiredAt(START_MS + 64), 4).expect("leases");
    let first: Vec<u64> = first.iter().map(|lease| lease.id).collect();
    let left = held.iter().map(|lease| lease.id).filter(|id| *id != held[3].id);
    assert_eq!(first, left.take(4).collect::<Vec<_>>(), "the oldest first");
}

#[test]
fn a_killed_database_loses_nothing_that_was_acknowledged() {
    let test = "a_killed_database_loses_nothing_that_was_acknowledged";
    let Some(mut server) = Scratch::start(test) else { return };
    let url = server.database("fleet");
    let is_over = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::new());
    scope(|threads| {
        for device in 0..3_u64 {
            let (is_over, acknowledged) = (&is_over, &acknowledged);
            // Connects before the database is killed: on a busy machine that may be before the
            // thread's first step.
            let mut store = SqlStore::postgres(&url).expect("it connects");
            threads.spawn(move || {
                let mut sequence = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // An admission, which takes the lock of admissions and commits before it waits
                    // for the sync.
                    let needs = Needs { admits: device == 0, ..Needs::default() };
                    let results = [testing::result(device, sequence)];
                    let kept = store.begin(&needs).and_then(|mut change| {
                        let are_new = change.append(&results)?;
                        change.commit().map(|()| are_new)
                    });
                    match kept {
                        // The result is a duplicate if the first attempt was stored and only its
                        // answer was lost.
                        Ok(_) => {
                            acknowledged.lock().expect("a list").push((device, sequence));
                            sequence += 1;
                        }
                        Err(StoreError::Temporary { .. }) => sleep(Duration::from_millis(20)),
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        let count = || acknowledged.lock().expect("a list").len();
        for round in 1..=2 {
            while count() < 60 * round {
                sleep(Duration::from_millis(5));
            }
            server.kill_and_restart();
        }
        let before = count();
        while count() < before + 30 {
            sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let store = SqlStore::postgres(&url).expect("it connects");
    let stored = all(&mut store.archive().expect("an archive"));
    let mut stored: Vec<_> = stored.iter().map(|it| (it.device, it.sequence)).collect();
    let all = stored.len();
    stored.sort_unstable();
    stored.dedup();
    assert_eq!(stored.len(), all, "nothing twice");
    for (device, sequence) in acknowledged.into_inner().expect("a list") {
        let key = (testing::device_id(device), sequence);
        assert!(stored.binary_search(&key).is_ok(), "{device} {sequence} is lost");
    }
}

#[test]
fn tables_of_another_version_and_unreachable_databases_are_rejected() {
    let test = "tables_of_another_version_and_unreachable_databases_are_rejected";
    let Some(url) = database(test) else { return };
    drop(SqlStore::postgres(&url).expect("it connects"));
    let mut running = SqlStore::postgres(&url).expect("what is there is left alone");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    client.batch_execute("UPDATE underload_version SET version = 99").expect("it is set");
    let error = SqlStore::postgres(&url).expect_err("of another version");
    assert!(matches!(error, StoreError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains("of version 99, this program reads version 1"), "{error}");
    // A running program checks again within seconds, and continues if the version is known again.
    while running.begin(&Needs::default()).is_ok() {
        std::thread::yield_now();
    }
    let error = running.begin(&Needs::default()).map(drop).expect_err("of another version");
    assert!(error.to_string().contains("install the release that wrote them"), "{error}");
    client.batch_execute("UPDATE underload_version SET version = 1").expect("it is set");
    running.begin(&Needs::default()).expect("it begins");
    let away = "postgres://underload@/x?host=%2Fnone";
    let error = SqlStore::postgres(away).expect_err("no server listens");
    assert!(matches!(error, StoreError::Temporary { .. }), "{error:?}");
}
