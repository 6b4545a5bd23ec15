//! The spool after a kill, a power cut, a full disk or a flipped bit.

use std::collections::BTreeSet;

use underload_disk::faults;
use underload_fleet::message::Results;
use underload_fleet::outcome::Outcome;

use super::*;

const NOW_S: u32 = 1_800_000_000;

fn result(run: u64, padding: usize) -> RunResult {
    RunResult {
        plan: "a-plan".to_owned(),
        run,
        at_ms: 1,
        outcome: Outcome::Measured,
        reason: "x".repeat(padding),
        server: String::new(),
        version: String::new(),
        steps: Vec::new(),
    }
}

fn began(run: u64) -> Began {
    Began {
        request: run,
        plan: "a-plan".to_owned(),
        run,
        at_ms: 1,
        lease_id: Some(run),
        server: "east".to_owned(),
    }
}

fn open(directory: &Path) -> Spool {
    Spool::open(directory, BYTES_MIN, NOW_S).expect("it opens")
}

fn read(batch: &Batch) -> Results {
    let results: Results = serde_json::from_str(&batch.body).expect("a message");
    assert_eq!(results.epoch, batch.epoch);
    assert_eq!(results.results.last().map(|last| last.sequence), Some(batch.through));
    results
}

/// Sequence number and run of each waiting result.
fn waiting(spool: &mut Spool) -> Vec<((u32, u64), u64)> {
    let mut found = Vec::new();
    while let Some(batch) = spool.oldest(1) {
        let results = read(&batch);
        let numbered = &results.results[0];
        found.push(((results.epoch, numbered.sequence), numbered.result.run));
        spool.waiting.pop_front();
    }
    found
}

fn runs(spool: &mut Spool) -> Vec<u64> {
    waiting(spool).into_iter().map(|(_, run)| run).collect()
}

#[test]
fn results_wait_until_they_are_stored_and_over_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    assert_eq!((spool.epoch(), spool.oldest(9)), (NOW_S, None));
    (1..=3).for_each(|run| spool.keep(&result(run, 0)).expect("kept"));
    let batch = spool.oldest(2).expect("three wait");
    assert_eq!(read(&batch).results.len(), 2);
    spool.note_stored(batch.epoch, batch.through);
    drop(spool);
    let mut spool = open(directory.path());
    assert_eq!((spool.epoch(), spool.waiting(), spool.dropped()), (NOW_S, 1, 0));
    spool.keep(&result(4, 0)).expect("kept");
    assert_eq!(waiting(&mut spool), [((NOW_S, 3), 3), ((NOW_S, 4), 4)]);
}

#[test]
fn the_started_run_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    spool.note_request(7).expect("noted");
    spool.note_began(&began(7)).expect("noted");
    drop(spool);
    let mut spool = open(directory.path());
    let memory = spool.memory();
    assert_eq!((memory.request, memory.interrupted), (7, Some(began(7))));
    spool.keep(&result(7, 0)).expect("kept");
    drop(spool);
    let memory = open(directory.path()).memory();
    assert_eq!((memory.began, memory.interrupted), (Some(began(7)), None));
}

#[test]
fn the_spool_stays_below_its_limit_and_counts_dropped_results() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    for run in 1..=200 {
        spool.keep(&result(run, 1_500)).expect("kept");
        let on_disk: u64 = fs::read_dir(directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").metadata().expect("its facts").len())
            .sum();
        assert_eq!(on_disk, spool.bytes());
        assert!(on_disk <= BYTES_MIN, "{on_disk}");
    }
    let (dropped, left) = (spool.dropped(), spool.waiting());
    assert_eq!(dropped + left, 200);
    assert!(left > 20, "{left}");
    drop(spool);
    let mut spool = open(directory.path());
    assert_eq!(spool.dropped(), dropped);
    assert_eq!(runs(&mut spool), ((dropped + 1)..=200).collect::<Vec<_>>());
    let error = spool.keep(&result(201, 5_000)).expect_err("too long").kind();
    assert_eq!(error, io::ErrorKind::FileTooLarge);
}

#[test]
fn a_second_agent_cannot_open_the_spool() {
    let directory = tempfile::tempdir().expect("a directory");
    let _first = open(directory.path());
    let error = Spool::open(directory.path(), BYTES_MIN, NOW_S).expect_err("it is in use");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(error.to_string(), "another agent uses it");
}

#[test]
fn a_flipped_bit_loses_one_result_and_its_epoch_and_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    (1..=3).for_each(|run| spool.keep(&result(run, 0)).expect("kept"));
    drop(spool);
    let (path, whole) = {
        let tree = faults::tree(directory.path());
        let (path, bytes) = tree.into_iter().next().expect("one file");
        (path, bytes.expect("a file"))
    };
    for place in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 4;
        let other = tempfile::tempdir().expect("a directory");
        fs::write(other.path().join(&path), &flipped).expect("written");
        let mut spool = Spool::open(other.path(), BYTES_MIN, 5).expect("it opens");
        assert!(spool.epoch() > NOW_S || spool.waiting() == 3, "{place}: {}", spool.epoch());
        assert!(spool.dropped() <= 1, "{place}");
        let left: BTreeSet<u64> = runs(&mut spool).into_iter().collect();
        // A damaged line break joins two lines.
        assert!(left.len() >= 2 || flipped[place] == b'\n' ^ 4, "{place}: {left:?}");
        assert!(left.iter().all(|run| (1..=3).contains(run)), "{place}: {left:?}");
        drop(spool);
        let mut again = Spool::open(other.path(), BYTES_MIN, 5).expect("it opens");
        assert!(again.dropped() <= 1, "{place}: counted once");
        assert_eq!(runs(&mut again).len(), left.len());
    }
}

/// The return values of an action on a faulty disk.
#[derive(Debug, Default)]
struct Progress {
    kept: Vec<u64>,
    tried: u64,
    delivered: BTreeSet<(u32, u64)>,
    delivered_runs: Vec<u64>,
}

/// Stores results of runs from `first` on and acknowledges some.
fn work(root: &Path, count: u64, padding: usize) -> Progress {
    let mut told = Progress::default();
    let Ok(mut spool) = Spool::open(root, BYTES_MIN, NOW_S + 1) else { return told };
    for run in 101..=100 + count {
        let _ = spool.note_request(run);
        if spool.note_began(&began(run)).is_err() {
            continue;
        }
        told.tried += 1;
        if spool.keep(&result(run, padding)).is_ok() {
            told.kept.push(run);
        }
        if run % 3 == 0
            && let Some(batch) = spool.oldest(2)
        {
            for numbered in read(&batch).results {
                told.delivered.insert((batch.epoch, numbered.sequence));
                told.delivered_runs.push(numbered.result.run);
            }
            spool.note_stored(batch.epoch, batch.through);
        }
    }
    told
}

fn holds_after_every_fault(count: u64, padding: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    (1..=2).for_each(|run| spool.keep(&result(run, padding)).expect("kept"));
    drop(spool);
    let before = faults::tree(directory.path());
    let action = |root: &Path| work(root, count, padding);
    faults::at_every_step(&before, action, |fault, root, outcome| {
        let told = &outcome.result;
        let left = faults::tree(root);
        for tree in outcome.after_power_cut.iter().chain([&left]) {
            faults::restore(root, tree);
            let mut spool = Spool::open(root, BYTES_MIN, NOW_S + 2).expect("it opens");
            let dropped = spool.dropped();
            spool.keep(&result(999, 0)).expect("kept");
            let waiting = waiting(&mut spool);
            let (number, _) = waiting.last().expect("it was kept");
            assert!(!told.delivered.contains(number), "{fault:?}: a number was used twice");
            let runs: BTreeSet<u64> = waiting.iter().map(|(_, run)| *run).collect();
            let is_safe = |run: &&u64| runs.contains(run) || told.delivered_runs.contains(run);
            let missing = [1, 2].iter().chain(&told.kept).filter(|run| !is_safe(run)).count();
            assert!(missing as u64 <= dropped, "{fault:?}: {missing} missing, {dropped} counted");
            assert!(dropped <= told.tried + 2, "{fault:?}: {dropped}");
            if padding == 0 {
                assert_eq!(dropped, 0, "{fault:?}: there was room");
            }
        }
    });
}

#[test]
fn no_disk_fault_loses_a_stored_result() {
    holds_after_every_fault(4, 0);
}

#[test]
fn dropped_results_are_counted_after_any_disk_fault() {
    holds_after_every_fault(18, 3_300);
}

#[test]
fn a_clock_far_ahead_leaves_numbers_for_later_epochs() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    let mut last = spool.epoch();
    for now_s in [u32::MAX, 0, u32::MAX, NOW_S, u32::MAX] {
        spool.renew(now_s).expect("renewed");
        assert!(spool.epoch() > last, "{now_s}");
        last = spool.epoch();
    }
    assert!(u32::MAX - last > 100_000_000, "{last}");
}

#[test]
fn a_file_with_the_highest_number_does_not_count_as_a_file_of_the_spool() {
    let directory = tempfile::tempdir().expect("a directory");
    let last = directory.path().join(format!("spool-{}", u64::MAX));
    fs::write(&last, "mine").expect("a file");
    let mut spool = open(directory.path());
    spool.keep(&result(1, 0)).expect("stored");
    drop(spool);
    assert_eq!(runs(&mut open(directory.path())), [1]);
    assert_eq!(fs::read(&last).expect("a file"), b"mine");
}

#[test]
fn counts_of_runs_and_traffic_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut spool = open(directory.path());
    let usage: Usage = serde_json::from_str(
        r#"{"hour_ms":5,"hours":3,"by_hour":[[2,700],[0,0],[1,20]],"by_day":[720]}"#,
    )
    .expect("a usage");
    spool.note_usage(&usage).expect("written");
    drop(spool);
    assert_eq!(open(directory.path()).memory().usage, usage);
    // The next line contains the usage, too.
    let mut spool = open(directory.path());
    spool.set_usage(&Usage::default());
    spool.note_request(1).expect("written");
    drop(spool);
    assert_eq!(open(directory.path()).memory().usage, Usage::default());
}
