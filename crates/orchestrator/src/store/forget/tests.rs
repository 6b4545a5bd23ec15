//! Lines that are forgotten: no byte of them is left, and nothing else is lost, whatever fails.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use underload_disk::faults;
use underload_fleet::line::{Line, LineUpdate};
use underload_fleet::message::{Numbered, Results};
use underload_fleet::orchestrator::{Kind, Orchestrator, Settings};
use underload_fleet::store::{
    Archive as _, CodeFor, Filter, HeldLease, LogEntry, Server, Store, StoreError, StoredResult,
};

use super::*;
use crate::store::SqlStore;
use crate::store::files::RunsReader;
use crate::store::housekeeping::Housekeeping;
use crate::store::housekeeping::tests::{Failing, answers, run_down_until};
use crate::store::testing::{START_MS, append, device, device_id, result};

const DAY_MS: u64 = 86_400_000;
const NOW_MS: u64 = START_MS + 6 * DAY_MS;
/// The device of the line that is forgotten.
const GONE: u64 = 3;
const NAME: &str = "Mrs. Miller of Elm Street";
const RECEIPT: &str = "0123456789abcdef";

fn line_of(number: u64) -> Line {
    let mut line = Line { external_id: format!("ACC%_{number:04}\\"), ..Line::default() };
    line.device = Some(device_id(number));
    let mut update = LineUpdate::default();
    update.set("region", &format!("region-{}", number % 5)).expect("a region");
    update.name = (number == GONE).then(|| NAME.to_owned());
    line.update(&update, None, START_MS).expect("an update");
    line
}

/// Fills a store with ten lines, their devices and all rows that name them.
fn fill(store: &mut dyn Store, numbers: &[u64], days: u64) {
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() }).expect("it begins");
    let address = underload_fleet::message::ServerAddress {
        name: "east".to_owned(),
        address: "east:1".to_owned(),
        fingerprint: String::new(),
    };
    let mut server = Server::new(address, device_id(999), [9; 32]);
    for number in numbers.iter().copied() {
        let line = line_of(number);
        let id = device_id(number);
        let mut device = device(number);
        (device.is_removed, device.settle_ms) = (false, u64::MAX);
        device.public_key = [200 + number as u8; 32];
        line.external_id.clone_into(&mut device.line);
        tx.put_device(&device).expect("put");
        tx.put_line(&line).expect("put");
        tx.put_code(&Code {
            hash: [number as u8; 32],
            makes: CodeFor::Device,
            attributes: device.attributes.clone(),
            line: line.external_id.clone(),
            expires_ms: START_MS,
            used_by: Some(id),
        })
        .expect("put");
        tx.put_setting(&line_setting(id), b"{}").expect("put");
        tx.put_lease(&HeldLease {
            id: number,
            device: id,
            server: "east".to_owned(),
            segment: None,
            up_bit_per_s: 1_000,
            down_bit_per_s: 2_000,
            plan: "trial".to_owned(),
            run: 1,
            given_ms: START_MS,
            expires_ms: NOW_MS + DAY_MS,
        })
        .expect("put");
        server.reserved_up_bit_per_s += 1_000;
        server.reserved_down_bit_per_s += 2_000;
        let row = format!("{{\"devices\":[\"{id}\",\"{id}\"]}}");
        tx.put_setting(&format!("rollout/pie/{number}"), row.as_bytes()).expect("put");
        for what in [format!("set the line `{}`", line.external_id), format!("removed {id}")] {
            tx.log(&LogEntry { at_ms: START_MS, who: "ana".to_owned(), what }).expect("put");
        }
    }
    tx.put_server(&server).expect("put");
    tx.commit().expect("it is kept");
    let results = (0..days * 6).flat_map(|run| numbers.iter().map(move |it| result(*it, run)));
    append(store, &results.collect::<Vec<_>>());
}

/// Moves days to files in small parts, and deletes the runs of days before `bins_days`.
fn archived(store: &SqlStore, bins_days: u32) -> Housekeeping {
    let retention = Retention { raw_days: 3, bins_days };
    let housekeeping = store.housekeeping(None, retention).expect("a keeper");
    let mut housekeeping = housekeeping.with_parts_of(50);
    let mut rounds = 0;
    run_down_until(&mut housekeeping, NOW_MS, &mut |_| {
        rounds += 1;
        rounds > 5
    });
    housekeeping
}

/// The bytes of the line that no file may have after it is forgotten.
fn needles() -> Vec<Vec<u8>> {
    let id = device_id(GONE);
    vec![
        NAME.as_bytes().to_vec(),
        b"ACC%_0003".to_vec(),
        id.0.to_vec(),
        id.to_string().into_bytes(),
        result(GONE, 0).pseudonym.0.to_vec(),
        vec![200 + GONE as u8; 32],
    ]
}

/// Returns the places of the needles in the files of a store. Files of runs are compressed: their
/// results are read.
fn found(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (path, bytes) in faults::tree(folder) {
        let Some(bytes) = bytes else { continue };
        if path.display().to_string().contains(underload_disk::UNFINISHED) {
            found.push(format!("{}: unfinished", path.display()));
        }
        for needle in needles() {
            if has(&bytes, &needle) {
                found.push(format!("{}: {}", path.display(), needle.escape_ascii()));
            }
        }
        if path.extension().is_some_and(|it| it == "parquet") {
            let mut reader = RunsReader::open(&folder.join(&path), "trial").expect("it opens");
            while let Some(kept) = reader.next().expect("it reads") {
                if kept.result.device == device_id(GONE) {
                    found.push(format!("{}: a result", path.display()));
                }
            }
        }
    }
    found
}

/// Returns whether `needle` occurs in `bytes`.
fn has(mut bytes: &[u8], needle: &[u8]) -> bool {
    while bytes.skip_until(needle[0]).expect("it is in memory") > 0 {
        if bytes.starts_with(&needle[1..]) {
            return true;
        }
    }
    false
}

fn forget(folder: &Path, name: &str) -> Result<Option<Forgotten>> {
    let mut forgetting = Forgetting::open(&Place::Sqlite(folder.to_owned()))?;
    if !forgetting.add(name)? {
        return Ok(None);
    }
    forgetting.run(RECEIPT, NOW_MS).map(Some)
}

fn private() -> TempDir {
    faults::private_tempdir().expect("a folder")
}

#[test]
fn no_byte_of_a_forgotten_line_is_left_and_all_others_are() {
    let (with, without) = (private(), private());
    let mut store = SqlStore::sqlite(with.path()).expect("it opens");
    fill(&mut store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 6);
    let mut housekeeping = archived(&store, 90);
    // The database has pages that are free, and an old version of the line.
    let before = found(with.path());
    for needle in needles() {
        let shown = format!("{}", needle.escape_ascii());
        assert!(before.iter().any(|it| it.ends_with(&shown)), "the premise: {shown}, {before:?}");
    }
    assert!(before.iter().any(|it| it.ends_with("a result")), "the premise: {before:?}");
    let done = forget(with.path(), &line_of(GONE).external_id).expect("it is done");
    let done = done.expect("it is known");
    assert_eq!(done.results, 36);
    assert!(done.files > 0);
    assert_eq!(found(with.path()), Vec::<String>::new());
    // The orchestrator goes on, and adds nothing of the line.
    housekeeping.look_again();
    housekeeping.step(NOW_MS).expect("it steps");
    assert_eq!(found(with.path()), Vec::<String>::new());
    // All answers are those of a store that never had the line.
    let mut twin = SqlStore::sqlite(without.path()).expect("it opens");
    fill(&mut twin, &[0, 1, 2, 4, 5, 6, 7, 8, 9], 6);
    let _housekeeping = archived(&twin, 90);
    let [mut own, mut other] = [&store, &twin].map(|it| it.archive().expect("an archive"));
    assert_eq!(answers(&mut own), answers(&mut other));
    assert_eq!(own.servers().expect("servers"), other.servers().expect("servers"));
    assert_eq!(own.lines_after("", 99).expect("lines"), other.lines_after("", 99).expect("lines"));
    // The receipt is in the log, and the entries about the line have no name.
    let log = own.log(99).expect("the log");
    let text = format!("{RECEIPT} {}", line_of(GONE).external_id);
    let hash = HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref());
    assert!(log[0].what.ends_with(&hash) && log[0].what.contains("36 results"), "{:?}", log[0]);
    assert_eq!(log.iter().filter(|entry| entry.what.contains(NOBODY)).count(), 2);
    let row = own.setting("rollout/pie/3").expect("read").expect("its row stays");
    let row: BTreeMap<String, Vec<DeviceId>> = serde_json::from_slice(&row).expect("it is whole");
    assert_eq!(row["devices"].len(), 2, "the count stays");
    assert!(forget(with.path(), &line_of(GONE).external_id).expect("it asks").is_none());
}

#[test]
fn a_forgotten_device_is_refused_until_it_enrols_again() {
    let folder = private();
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    fill(&mut store, &[0, 1, 2, 3], 1);
    let key = ring::signature::Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("a key");
    let rules = Orchestrator::new(Settings::default(), key, [2; 32]);
    let upload = |store: &mut SqlStore| {
        let numbered = Numbered { sequence: 9, result: result(GONE, 9).result };
        let request = Results { epoch: 1, results: vec![numbered] };
        let mut tx = store.begin(&Needs::default()).expect("it begins");
        rules.results(&mut *tx, NOW_MS, device_id(GONE), &request).expect("it answers")
    };
    assert!(upload(&mut store).is_ok(), "the premise");
    forget(folder.path(), &device_id(GONE).to_string()).expect("it is done").expect("known");
    let refused = upload(&mut store).expect_err("it is refused");
    assert_eq!(refused.kind, Kind::Gone);
    assert!(refused.message.contains("was forgotten"), "{refused}");
    let removed = refused.removed.expect("the device stops by a signed removal");
    assert_eq!((removed.device, removed.enrolled_ms), (device_id(GONE), START_MS));
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    tx.put_device(&device(GONE)).expect("it enrols again");
    tx.commit().expect("it is kept");
    assert!(upload(&mut store).is_ok(), "with a new code");
}

#[test]
fn of_days_without_single_runs_the_sums_of_other_lines_stay() {
    let folder = private();
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    fill(&mut store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 6);
    let _housekeeping = archived(&store, 4);
    let mut archive = store.archive().expect("an archive");
    let expired = Filter { until_day: Some(result(0, 0).day() + 1), ..Filter::default() };
    let sum = |archive: &mut crate::store::SqlArchive| {
        let sums = archive.sums(&expired, &[]).expect("sums").remove(0);
        (sums.tests, sums.devices)
    };
    let before = sum(&mut archive);
    forget(folder.path(), &line_of(GONE).external_id).expect("it is done").expect("known");
    assert_eq!(sum(&mut archive), (before.0, before.1 - 1));
    assert_eq!(found(folder.path()), Vec::<String>::new());
    let database = rusqlite::Connection::open(folder.path().join("fleet.sqlite")).expect("opens");
    let alone =
        "SELECT count(*) FROM keys WHERE body LIKE '%model-1\",\"1.0\",\"10/100\",\"region-3%'";
    let alone: i64 = database.query_row(alone, [], |row| row.get(0)).expect("a count");
    assert_eq!(alone, 0, "nobody else has these attributes");
}

/// A database that runs `between` once, after it has read a batch of results to fold.
struct Paused(Box<dyn Database>, Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Database for Paused {
    fn begin(&mut self, kind: Begin) -> Result<()> {
        self.0.begin(kind)
    }
    fn commit(&mut self) -> Result<()> {
        self.0.commit()
    }
    fn roll_back(&mut self) {
        self.0.roll_back();
    }
    fn query(
        &mut self,
        sql: &str,
        rows: &[Vec<Value>],
    ) -> Result<Vec<crate::store::database::Row>> {
        let found = self.0.query(sql, rows);
        if sql.contains("{over}")
            && let Some(between) = self.1.get_mut().expect("no thread failed").take()
        {
            between();
        }
        found
    }
    fn change(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        self.0.change(sql, rows)
    }
    fn copy(&mut self, path: &Path) -> Result<()> {
        self.0.copy(path)
    }
    fn connect(&self, access: crate::store::database::Access) -> Result<Box<dyn Database>> {
        self.0.connect(access)
    }
}

#[test]
fn a_batch_that_is_being_folded_adds_nothing_of_a_forgotten_line() {
    let folder = private();
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    fill(&mut store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 2);
    let database = store.database.connect(crate::store::database::Access::Write).expect("one");
    let path = folder.path().to_owned();
    let forgets: Box<dyn FnOnce() + Send> = Box::new(move || {
        forget(&path, &line_of(GONE).external_id).expect("it is done").expect("it is known");
    });
    let between = Mutex::new(Some(forgets));
    let mut keeper = Keeper::new(Box::new(Paused(database, between)));
    let error = keeper.roll_up(1_000).expect_err("its batch is of another time");
    assert!(matches!(error, StoreError::Temporary { .. }), "{error}");
    while keeper.roll_up(1_000).expect("it folds").has_more {}
    keeper.database.checkpoint().expect("it is written");
    assert_eq!(found(folder.path()), Vec::<String>::new());
    let devices = store.archive().expect("an archive").sums(&Filter::default(), &[]);
    assert_eq!(devices.expect("sums")[0].devices, 9);
}

#[test]
fn a_line_is_forgotten_in_postgresql() {
    let Some(url) = crate::store::postgres::tests::database("a_line_is_forgotten_in_postgresql")
    else {
        return;
    };
    let archive = private();
    let mut store = SqlStore::postgres(&url).expect("it connects");
    fill(&mut store, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 6);
    let retention = Retention { raw_days: 3, bins_days: 90 };
    let folder = archive.path().join("days");
    let mut housekeeping = store.housekeeping(Some(&folder), retention).expect("a keeper");
    // Transactions of other tests may delay the folding.
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("it connects");
    run_down_until(&mut housekeeping, NOW_MS, &mut |_| {
        let left = client.query_one("SELECT count(*) FROM results", &[]).expect("a count");
        left.get::<_, i64>(0) == 3 * 60
    });
    let mut found = |folder: &Path| {
        let mut found = found(folder);
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
        for table in client.query(tables, &[]).expect("tables") {
            let table: String = table.get(0);
            let rows = client.query(&format!("SELECT t::text FROM {table} t"), &[]);
            for row in rows.expect("rows") {
                let text: String = row.get(0);
                let is_found = |needle: &Vec<u8>| {
                    let hex = HEXLOWER.encode(needle);
                    text.contains(&hex) || text.contains(&*String::from_utf8_lossy(needle))
                };
                found.extend(needles().iter().any(is_found).then(|| format!("{table}: {text}")));
            }
        }
        found
    };
    let before = found(&folder);
    assert!(before.len() > 30, "the premise: {before:?}");
    let place: Place = url.parse().expect("a place");
    let mut forgetting = Forgetting::open(&place).expect("it opens");
    assert!(forgetting.add(&line_of(GONE).external_id).expect("it asks"));
    let done = forgetting.run(RECEIPT, NOW_MS).expect("it is done");
    assert_eq!(done.results, 36);
    assert_eq!(found(&folder), Vec::<String>::new());
    let without = private();
    let mut twin = SqlStore::sqlite(without.path()).expect("it opens");
    fill(&mut twin, &[0, 1, 2, 4, 5, 6, 7, 8, 9], 6);
    let [mut own, mut other] = [&store, &twin].map(|it| it.archive().expect("an archive"));
    assert_eq!(answers(&mut own), answers(&mut other));
}

/// All results but those of the line.
fn others(days: u64) -> Vec<StoredResult> {
    (0..days * 6).map(|run| result(2, run)).collect()
}

/// Checks after a fault that nothing else is lost, and that a second call finishes.
fn finishes(folder: &Path, why: &str) {
    let results = |folder: &Path| {
        let store = SqlStore::sqlite(folder).unwrap_or_else(|error| panic!("{why}: {error}"));
        let mut seen = Vec::new();
        let mut archive = store.archive().expect("an archive");
        let mut see = |kept: &StoredResult| {
            seen.push(kept.clone());
            true
        };
        archive.visit(&Filter::default(), &mut see).unwrap_or_else(|it| panic!("{why}: {it}"));
        seen.sort_by_key(|kept| (kept.device, kept.sequence));
        let whole = seen.len() == 2 * 24;
        seen.retain(|kept| kept.device != device_id(GONE));
        assert_eq!(seen, others(4), "{why}");
        whole
    };
    results(folder);
    forget(folder, &line_of(GONE).external_id).unwrap_or_else(|error| panic!("{why}: {error}"));
    assert!(!results(folder), "{why}");
    assert_eq!(found(folder), Vec::<String>::new(), "{why}");
}

fn world() -> TempDir {
    let folder = faults::tempdir_in_memory().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    fill(&mut store, &[2, 3], 4);
    let _housekeeping = archived(&store, 90);
    folder
}

#[test]
fn a_second_call_finishes_after_any_fault_of_the_database() {
    let fresh = faults::tree(world().path());
    for is_done_first in [false, true] {
        for fails_at in 0.. {
            let folder = faults::tempdir_in_memory().expect("a folder");
            faults::restore(folder.path(), &fresh);
            let steps = Arc::new(AtomicUsize::new(0));
            let store = SqlStore::beside(folder.path()).expect("it opens");
            let database =
                store.database.connect(crate::store::database::Access::Write).expect("one");
            let counted = Arc::clone(&steps);
            let failing = Failing { database, steps: counted, fails_at, is_done_first };
            let keeper = Keeper::new(Box::new(failing));
            let mut forgetting = Forgetting::new(keeper);
            let known = forgetting.add(&line_of(GONE).external_id);
            if known.is_ok() {
                let _ = forgetting.run(RECEIPT, NOW_MS);
            }
            drop((forgetting, store));
            finishes(folder.path(), &format!("step {fails_at}, {is_done_first}"));
            if steps.load(Ordering::Relaxed) <= fails_at {
                assert!(fails_at > 30, "the premise: an action of many steps, {fails_at}");
                break;
            }
        }
    }
}

#[test]
fn a_second_call_finishes_after_any_fault_of_the_disk() {
    let fresh = faults::tree(world().path());
    let action = |root: &Path| {
        // SQLite writes to the disk itself: its faults have their own test.
        let _ = forget(root, &line_of(GONE).external_id);
    };
    let hits = std::cell::Cell::new(0);
    faults::at_every_step(&fresh, action, |fault, root, _| {
        hits.set(hits.get() + 1);
        finishes(root, &format!("{fault:?}"));
    });
    assert!(hits.get() > 20, "the premise: an action of many steps, {}", hits.get());
}
