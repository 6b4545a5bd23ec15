//! Backups of a store that is written meanwhile, damaged ones, full disks and kills.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use underload_aqm::rng::Rng;
use underload_disk::faults::{private_tempdir, tree};
use underload_fleet::retention::Retention;
use underload_fleet::store::{Archive, Filter, Store as _};
use underload_orchestrator::store::{Place, SqlStore};

#[path = "../../orchestrator/tests/support/results.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod results;
#[path = "../../orchestrator/tests/support/postgres.rs"]
#[expect(
    dead_code,
    clippy::print_stderr,
    reason = "other tests kill the server; skips are printed"
)]
mod scratch;

use results::{START_MS, append, many, result};

const NOW_MS: u64 = START_MS + 10 * 86_400_000;

fn program(home: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload-fleet"));
    command.current_dir(home).env("XDG_DATA_HOME", home).stdin(Stdio::null());
    command.args(words.split_whitespace());
    command
}

fn good(home: &Path, words: &str) -> Output {
    let output = program(home, words).output().expect("it runs");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn refused(home: &Path, words: &str) -> String {
    let output = program(home, words).output().expect("it runs");
    assert!(!output.status.success(), "{words}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the results of a store, each by its device and number.
fn stored(archive: &mut dyn Archive) -> BTreeSet<(String, u64)> {
    let (mut found, mut count) = (BTreeSet::new(), 0);
    let seen = archive.visit(&Filter::default(), &mut |kept| {
        found.insert((kept.device.to_string(), kept.sequence));
        count += 1;
        true
    });
    seen.expect("it reads");
    assert_eq!(found.len(), count, "nothing twice");
    found
}

fn of(home: &Path, name: &str) -> BTreeSet<(String, u64)> {
    let place = Place::Sqlite(home.join(name));
    stored(&mut *place.archive().expect("it opens"))
}

/// Creates a store in `store` with three devices, whose old days are in files.
fn store(home: &Path) -> SqlStore {
    let mut store = SqlStore::sqlite(&home.join("store")).expect("it opens");
    append(&mut store, &many(3, 30));
    let retention = Retention { raw_days: 7, bins_days: 90 };
    let mut work = store.housekeeping(None, retention).expect("it opens");
    while work.step(NOW_MS).expect("it works").next_ms <= NOW_MS {}
    assert!(home.join("store/archive/plan=trial").is_dir(), "the premise");
    store
}

#[test]
fn a_backup_of_a_store_in_use_has_all_results_that_were_acknowledged_before() {
    let home = private_tempdir().expect("a folder");
    let home = home.path();
    let mut store = store(home);
    let is_over = AtomicBool::new(false);
    let acknowledged = std::sync::Mutex::new(of(home, "store"));
    let work = store.housekeeping(None, Retention { raw_days: 1, bins_days: 90 });
    let mut work = work.expect("it opens");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Uploads of recent and of old days, which are moved to files meanwhile.
            for sequence in 100.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let new = [result(7, sequence % 50), result(8, sequence)];
                append(&mut store, &new);
                let names = new.map(|it| (it.device.to_string(), it.sequence));
                acknowledged.lock().expect("no thread failed").extend(names);
                let _ = work.step(NOW_MS + sequence * 3_600_000);
            }
        });
        for number in 0..4 {
            let count = || acknowledged.lock().expect("no thread failed").len();
            let least = count() + 20;
            while count() < least {
                std::thread::yield_now();
            }
            let before = acknowledged.lock().expect("no thread failed").clone();
            good(home, &format!("backup backup-{number} --store sqlite:store"));
            let after = acknowledged.lock().expect("no thread failed").clone();
            good(home, &format!("restore backup-{number} --store sqlite:restored-{number}"));
            let restored = of(home, &format!("restored-{number}"));
            assert!(before.is_subset(&restored), "an acknowledged result is lost");
            // The last upload may be in the copy before it is acknowledged.
            assert!(restored.difference(&after).count() <= 2, "{number}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // An orchestrator continues in the restored folder, whose archive it finds.
    let mut restored = SqlStore::sqlite(&home.join("restored-3")).expect("it opens");
    restored.housekeeping(None, Retention::default()).expect("its archive is there");
    assert_eq!(append(&mut restored, &many(3, 1)), [false; 3], "known by their numbers");
}

#[test]
fn damaged_and_incomplete_backups_and_used_folders_are_refused() {
    let home = private_tempdir().expect("a folder");
    let home = home.path();
    drop(store(home));
    good(home, "backup whole --store sqlite:store");
    let said = refused(home, "backup whole --store sqlite:store");
    assert!(said.contains("whole: expected an empty folder"), "{said}");
    let said = refused(home, "restore whole --store sqlite:store");
    assert!(said.contains("store: expected an empty folder"), "{said}");
    let whole = tree(&home.join("whole"));
    let files: Vec<_> = whole.iter().filter_map(|(path, it)| Some((path, it.as_ref()?))).collect();
    assert!(files.len() > 2, "{files:?}");
    for (path, bytes) in files {
        let at = home.join("whole").join(path);
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        for content in [Some(&damaged[..]), Some(&bytes[..bytes.len() - 1]), None] {
            match content {
                Some(content) => std::fs::write(&at, content).expect("written"),
                None => std::fs::remove_file(&at).expect("removed"),
            }
            let said = refused(home, "restore whole --store sqlite:new");
            let name = path.file_name().expect("a name").to_string_lossy();
            assert!(said.contains(&*name) || said.contains("damaged"), "{name}: {said}");
            assert!(!home.join("new").exists(), "{name}: nothing is left");
        }
        std::fs::write(&at, bytes).expect("written");
    }
    // A manifest may not lead out of the folder.
    for path in ["../stolen", "/etc/passwd", "", "archive/../../x"] {
        let manifest = format!(
            "{{\"format\":1,\"version\":\"x\",\"files\":[{{\"path\":\"{path}\",\"sha256\":\"\"}}]}}"
        );
        std::fs::write(home.join("whole/backup.json"), manifest).expect("written");
        let said = refused(home, "restore whole --store sqlite:new");
        assert!(said.contains("the path"), "{said}");
    }
    std::fs::write(home.join("whole/backup.json"), "{\"format\":2,\"version\":\"9\",\"files\":[]}")
        .expect("written");
    let said = refused(home, "restore whole --store sqlite:new");
    assert!(said.contains("format 2") && said.contains("use 9"), "{said}");
}

#[test]
fn a_full_disk_leaves_no_backup_and_no_store() {
    let home = private_tempdir().expect("a folder");
    let home = home.path();
    drop(store(home));
    good(home, "backup whole --store sqlite:store");
    // Files of more than some kilobytes cannot be written.
    let full = |blocks: u32, words: &str| {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" {words}");
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_underload-fleet")]);
        command.current_dir(home).env("XDG_DATA_HOME", home);
        command.output().expect("it runs")
    };
    for blocks in [0, 4, 16, 40] {
        let output = full(blocks, "backup partial --store sqlite:store");
        assert!(!output.status.success(), "the premise: {blocks}");
        assert!(!home.join("partial").exists(), "{blocks}: {output:?}");
        let output = full(blocks, "restore whole --store sqlite:partial");
        assert!(!output.status.success(), "the premise: {blocks}");
        assert!(!home.join("partial").exists(), "{blocks}: {output:?}");
    }
    good(home, "restore whole --store sqlite:again");
    assert_eq!(of(home, "again"), of(home, "store"));
}

/// Counts the files in a folder, which may change meanwhile.
fn entries(folder: &Path) -> usize {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|it| if it.path().is_dir() { entries(&it.path()) } else { 1 }).sum()
}

#[test]
fn a_killed_backup_or_restore_is_not_taken_for_a_whole_one() {
    let home = private_tempdir().expect("a folder");
    let home = home.path();
    drop(store(home));
    let expected = of(home, "store");
    good(home, "backup whole --store sqlite:store");
    let mut rng = Rng::new(1);
    let mut kills = 0;
    for number in 0..40 {
        for words in ["backup new --store sqlite:store", "restore whole --store sqlite:new"] {
            let mut child = program(home, words).stderr(Stdio::null()).spawn().expect("it starts");
            // Once it has written some of its files.
            let (folder, files) = (home.join("new"), rng.below(8) as usize);
            let written = || entries(&folder) >= files;
            while !written() && child.try_wait().expect("it runs").is_none() {
                std::thread::yield_now();
            }
            child.kill().expect("it is killed");
            kills += u32::from(!child.wait().expect("it is over").success());
            if words.starts_with("backup") {
                if program(home, "restore new --store sqlite:next")
                    .output()
                    .expect("it runs")
                    .status
                    .success()
                {
                    assert_eq!(of(home, "next"), expected, "{number}");
                    std::fs::remove_dir_all(home.join("next")).expect("removed");
                }
            } else if let Ok(store) = SqlStore::sqlite(&folder) {
                // Only an empty folder becomes a new store.
                let found = stored(&mut store.archive().expect("an archive"));
                assert!(found.is_empty() || found == expected, "{number}");
            }
            if folder.exists() {
                std::fs::remove_dir_all(&folder).expect("removed");
            }
        }
    }
    assert!(kills > 10, "the premise: {kills}");
}

#[test]
fn a_store_in_postgresql_is_dumped_and_restored() {
    let test = "a_store_in_postgresql_is_dumped_and_restored";
    let Some(server) = scratch::Scratch::start(test) else { return };
    let home = private_tempdir().expect("a folder");
    let home = home.path();
    let url = server.database("fleet");
    let mut store = SqlStore::postgres(&url).expect("it connects");
    append(&mut store, &many(3, 30));
    let folder = home.join("days");
    let retention = Retention { raw_days: 7, bins_days: 90 };
    let mut work = store.housekeeping(Some(&folder), retention).expect("it opens");
    while work.step(NOW_MS).expect("it works").next_ms <= NOW_MS {}
    let expected = stored(&mut store.archive().expect("an archive"));
    good(home, &format!("backup dump --store {url}"));
    let other = server.database("other");
    let said = refused(home, &format!("restore dump --store {other}"));
    assert!(said.contains("pg_restore --dbname DATABASE dump/fleet.pgdump"), "{said}");
    let restored = Command::new("pg_restore")
        .args(["--dbname", &other])
        .arg("dump/fleet.pgdump")
        .current_dir(home)
        .output()
        .expect("it runs");
    assert!(restored.status.success(), "{restored:?}");
    drop((work, store));
    std::fs::remove_dir_all(&folder).expect("removed");
    let store = SqlStore::postgres(&other).expect("it connects");
    let archive = home.join("dump/archive");
    let _work = store.housekeeping(Some(&archive), retention).expect("its files are there");
    assert_eq!(stored(&mut store.archive().expect("an archive")), expected);
}

#[test]
fn a_line_is_forgotten_by_its_identifier_after_a_question() {
    use underload_fleet::line::Line;
    use underload_fleet::store::Needs;

    let home = private_tempdir().expect("a folder");
    let home = home.path();
    let mut store = store(home);
    let mut tx = store.begin(&Needs { admits: true, ..Needs::default() }).expect("it begins");
    let mut device = results::device(1);
    "ACC-1".clone_into(&mut device.line);
    tx.put_device(&device).expect("put");
    let line = Line { external_id: "ACC-1".to_owned(), device: Some(device.id), ..Line::default() };
    tx.put_line(&line).expect("put");
    tx.commit().expect("it is kept");
    let said = refused(home, "lines forget ACC-1 --store sqlite:store");
    assert!(
        said.contains("1 line with 1 device and all results") && said.contains("--yes"),
        "{said}"
    );
    let said = refused(home, "lines forget ACC-1 ACC-2 --yes --store sqlite:store");
    assert!(said.contains("no line or device `ACC-2`"), "{said}");
    assert_eq!(of(home, "store").len(), 90, "nothing was deleted");
    let output = good(home, "lines forget ACC-1 --yes --store sqlite:store");
    let out = String::from_utf8(output.stdout).expect("a text");
    let receipt = out.trim().strip_prefix("receipt ").expect("a receipt");
    let said = String::from_utf8(output.stderr).expect("a text");
    assert!(said.contains("30 results; "), "{said}");
    assert_eq!(of(home, "store").len(), 60);
    // The documentation's command finds the entry.
    let hash = Command::new("sh")
        .args(["-c", &format!("printf %s '{receipt} ACC-1' | sha256sum | cut -c1-64")])
        .output()
        .expect("it runs");
    let hash = String::from_utf8(hash.stdout).expect("a text");
    let audit = good(home, "audit --json --since 2026-01-01 --store sqlite:store");
    let audit = String::from_utf8(audit.stdout).expect("a text");
    let last: serde_json::Value =
        serde_json::from_str(audit.lines().last().expect("an entry")).expect("JSON");
    assert_eq!(last["who"], "the store's owner");
    let what = last["what"].as_str().expect("a text");
    assert!(what.ends_with(hash.trim()) && !audit.contains("ACC-1"), "{audit}");
    let later = good(home, "audit --json --since 2999-01-01 --store sqlite:store");
    assert!(later.stdout.is_empty());
}
