//! The state of a run directory and of the files around it after every fault at every step.

use std::fs;
use std::io::Write as _;

use underload_disk::faults::{self, Fault, Tree};
use underload_record::schema::{
    FORMAT_VERSION, FlowRecord, HostFacts, LatencySummary, ScenarioRecord, VariantRecord, World,
};

use super::*;
use crate::Resumed;
use crate::files::SWEEP;

pub(crate) const SAMPLES_EACH: usize = 3;

pub(crate) fn record() -> RunRecord {
    RunRecord {
        format_version: FORMAT_VERSION,
        tool_version: String::new(),
        commit: String::new(),
        scenario: ScenarioRecord::default(),
        seed: 0,
        world: World::Sim,
        complete: false,
        variants: vec![VariantRecord {
            name: "pie".to_owned(),
            label: String::new(),
            ..VariantRecord::default()
        }],
        trials: Vec::new(),
        summaries: Vec::new(),
        comparisons: Vec::new(),
        modes: Vec::new(),
        overloads: Vec::new(),
        study: None,
        expectations: Vec::new(),
        judgement: None,
        verdict: Vec::new(),
        label: String::new(),
        host: HostFacts::default(),
    }
}

pub(crate) fn trial(index: u32) -> (TrialRecord, Vec<Sample>) {
    let flow = FlowRecord { name: "probe".to_owned(), ..FlowRecord::default() };
    let latency =
        LatencySummary { probe: "probe".to_owned(), sent: 3, ..LatencySummary::default() };
    let (flows, latencies) = (vec![flow], vec![latency]);
    let variant = "pie".to_owned();
    let record = TrialRecord { index, variant, flows, latencies, ..TrialRecord::default() };
    (record, vec![Sample { trial: index, ..Sample::default() }; SAMPLES_EACH])
}

/// How much of a run was done before a fault.
#[derive(Debug, Default)]
struct Progress {
    appended: usize,
    synced: usize,
    is_finished: bool,
}

/// Writes a run of two trials with a capture. After an error it stops as the
/// program does.
fn run(path: &Path) -> Progress {
    let mut progress = Progress::default();
    let Ok(mut run) = RunDir::create(path, record()) else { return progress };
    let mut trials = || -> Result<(), StoreError> {
        for index in 0..2 {
            let mut file = run.begin_file("captures", &format!("{index}.pcapng"))?;
            file.write_all(b"packets").map_err(StoreError::io(path, "write"))?;
            let (record, samples) = trial(index);
            run.append_trial(&record, &samples, &[])?;
            progress.appended += 1;
            run.sync()?;
            progress.synced += 1;
        }
        Ok(())
    };
    match trials() {
        Ok(()) => progress.is_finished = run.finish(1.0).is_ok(),
        Err(_) if progress.appended == 0 => drop(run.abandon()),
        Err(_) => {}
    }
    progress
}

/// Files of the user in the directory that contains the run.
fn users_own() -> Tree {
    [("thesis/chapter.txt", "important"), ("report.html", "mine"), ("parts/0000000", "mine too")]
        .into_iter()
        .flat_map(|(name, text)| {
            let path = PathBuf::from(name);
            let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
            let folder = folder.map(|folder| (folder.to_owned(), None));
            folder.into_iter().chain([(path.clone(), Some(text.as_bytes().to_vec()))])
        })
        .collect()
}

fn without_run(tree: &Tree) -> Tree {
    let outside = tree.iter().filter(|(path, _)| !path.starts_with("run"));
    outside.map(|(path, content)| (path.clone(), content.clone())).collect()
}

#[test]
fn after_any_fault_foreign_files_stay_and_stored_trials_are_read() {
    let before = users_own();
    let action = |root: &Path| run(&root.join("run"));
    let mut finished_at_last = 0;
    faults::at_every_step(&before, action, |fault, root, outcome| {
        let progress = &outcome.result;
        finished_at_last += usize::from(!outcome.is_hit && progress.is_finished);
        let left = faults::tree(root);
        if progress.appended == 0 && !matches!(fault, Fault::Kill(_)) {
            assert_eq!(left, before, "{fault:?}: something is left of a run without a trial");
        }
        let killed = std::iter::once((&left, progress.appended));
        let cut = outcome.after_power_cut.iter().map(|tree| (tree, progress.synced));
        for (tree, least) in killed.chain(cut) {
            assert_eq!(without_run(tree), before, "{fault:?}: what is not ours changed");
            faults::restore(root, tree);
            match RunDir::read(root.join("run")) {
                Ok(data) => {
                    let trials = data.record.trials.len();
                    assert!(trials >= least, "{fault:?}: {trials} of {least}, {tree:?}");
                    assert!(data.left_out.is_empty(), "{fault:?}: {:?}", data.left_out);
                    assert_eq!(data.samples.len(), trials * SAMPLES_EACH, "{fault:?}");
                    assert!(data.record.complete || !progress.is_finished, "{fault:?}");
                }
                Err(error) => assert_eq!(least, 0, "{fault:?}: {error}: {tree:?}"),
            }
        }
    });
    assert_eq!(finished_at_last, 3, "the premise: without a fault it is complete");
}

#[test]
fn a_run_begins_in_an_empty_directory_only() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    faults::restore(root, &users_own());
    for path in [root.to_owned(), root.join("thesis"), root.join("thesis/../parts")] {
        let error = RunDir::create(&path, record()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert!(error.is_occupied() && RunDir::check_vacant(&path).is_err());
    }
    assert_eq!(faults::tree(root), users_own());
    assert!(RunDir::check_vacant(root.join("report.html")).is_err(), "a file is no directory");
    let empty = root.join("empty");
    fs::create_dir(&empty).unwrap();
    let run = RunDir::create(&empty, record()).unwrap();
    assert!(matches!(RunDir::create(&empty, record()), Err(StoreError::Exists { .. })));
    run.abandon().unwrap();
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "it is empty again, and there");
}

#[test]
fn an_abandoned_run_deletes_only_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/run");
    let run = RunDir::create(&path, record()).unwrap();
    drop(run.begin_file("captures", "0.pcapng").unwrap());
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::write(path.join("captures/mine.pcapng"), "mine").unwrap();
    run.abandon().unwrap();
    let left: Vec<PathBuf> = faults::tree(&path).into_keys().collect();
    assert_eq!(left, ["captures", "captures/mine.pcapng", "notes.txt"].map(PathBuf::from));
    // A file of another program is not overwritten, even if it has one of our names.
    let path = directory.path().join("second");
    let mut run = RunDir::create(&path, record()).unwrap();
    fs::write(path.join("parts/0000000-samples.parquet"), "mine").unwrap();
    let (first, samples) = trial(0);
    assert!(run.append_trial(&first, &samples, &[]).is_err());
    run.abandon().unwrap();
    let kept = faults::tree(&path);
    assert_eq!(kept[Path::new("parts/0000000-samples.parquet")].as_deref(), Some(&b"mine"[..]));
}

#[test]
fn runs_started_in_the_same_second_have_separate_directories() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs/comcast-20261121T013500Z");
    let start = || RunDir::create_unused(&path, &record()).unwrap().path().to_owned();
    let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 8, "{paths:?}");
    assert!(paths.iter().all(|path| RunDir::read(path).is_ok()));
    assert_eq!(start().file_name().unwrap(), "comcast-20261121T013500Z-9");
}

#[test]
fn many_parts_are_synced_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(directory.path().join("run"), record()).unwrap();
    for index in 0..40 {
        let (record, samples) = trial(index);
        run.append_trial(&record, &samples, &[]).unwrap();
    }
    assert_eq!(run.unsynced.len(), 40);
    run.sync().unwrap();
    assert!(run.unsynced.is_empty());
    let missing = (0..40).map(|number| directory.path().join(number.to_string()));
    assert!(disk::sync_files(&missing.collect::<Vec<_>>()).is_err());
}

/// Writes an incomplete run of `count` trials.
fn cut_short(path: &Path, count: u32) {
    let mut run = RunDir::create(path, record()).unwrap();
    for index in 0..count {
        let (record, samples) = trial(index);
        run.append_trial(&record, &samples, &[]).unwrap();
    }
}

#[test]
fn a_truncated_run_is_read_without_damaged_trials_and_warns() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    cut_short(root, 6);
    let part = |index: u32| root.join(format!("parts/{index:07}-samples.parquet"));
    fs::write(part(1), b"PAR1").unwrap();
    let mut bytes = fs::read(part(2)).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(part(2), bytes).unwrap();
    fs::remove_file(part(3)).unwrap();
    let journal = fs::read_to_string(root.join("trials.jsonl")).unwrap();
    let mut lines: Vec<&str> = journal.lines().collect();
    lines[4] = "\0\0\0\0";
    fs::write(root.join("trials.jsonl"), lines.join("\n") + "\n{\"ind").unwrap();
    let data = RunDir::read(root).unwrap();
    let kept: Vec<u32> = data.record.trials.iter().map(|trial| trial.index).collect();
    assert_eq!(kept, [0, 5]);
    let of: Vec<u32> = data.samples.iter().map(|sample| sample.trial).collect();
    assert_eq!(of, [0, 0, 0, 5, 5, 5]);
    assert_eq!(data.samples_of(5).len(), SAMPLES_EACH);
    assert_eq!(data.left_out.len(), 4, "{:?}", data.left_out);
    for word in ["0000001-samples", "0000002-samples", "it is missing", "trials.jsonl:5"] {
        assert!(data.left_out.iter().any(|line| line.contains(word)), "{:?}", data.left_out);
    }
    // A run that was interrupted before its first trial has no journal.
    fs::remove_file(root.join("trials.jsonl")).unwrap();
    assert!(RunDir::read(root).unwrap().record.trials.is_empty());
}

/// Resumes a run of three trials, of which at least two are finished.
fn go_on(path: &Path) -> Progress {
    let mut progress = Progress { appended: 2, synced: 2, is_finished: false };
    let Ok(Resumed { mut directory, .. }) = RunDir::resume(path, &record()) else {
        return progress;
    };
    for index in directory.record().trials.len()..3 {
        let (record, samples) = trial(index as u32);
        if directory.append_trial(&record, &samples, &[]).is_err() {
            return progress;
        }
    }
    progress.appended = 3;
    progress.is_finished = directory.finish(1.0).is_ok();
    progress
}

/// Returns the content of a run directory without the facts about the host, which have the time of
/// the resumption.
fn timeless(root: &Path) -> (RunData, Vec<u8>) {
    let mut data = RunDir::read(root).unwrap();
    data.record.host = HostFacts::default();
    (data, fs::read(root.join("samples.parquet")).unwrap())
}

#[test]
fn a_resumed_directory_equals_that_of_an_uninterrupted_run() {
    let directory = tempfile::tempdir().unwrap();
    let [broken, whole] = ["broken", "whole"].map(|name| directory.path().join(name));
    cut_short(&broken, 2);
    // Files of an unfinished trial, and of a write that was interrupted.
    fs::write(broken.join("parts/0000002-samples.parquet"), b"PAR1").unwrap();
    fs::create_dir(broken.join("flows")).unwrap();
    fs::write(broken.join("flows/0000002-upload.txt"), b"half").unwrap();
    fs::write(broken.join("flows/0000001-upload.txt"), b"whole").unwrap();
    fs::write(broken.join("samples.parquet"), b"PAR1").unwrap();
    fs::write(broken.join("notes.txt"), b"mine").unwrap();
    let mut journal = fs::read(broken.join("trials.jsonl")).unwrap();
    journal.extend(b"{\"index\":2");
    fs::write(broken.join("trials.jsonl"), journal).unwrap();
    assert!(go_on(&broken).is_finished);
    let mut run = RunDir::create(&whole, record()).unwrap();
    for index in 0..3 {
        let (record, samples) = trial(index);
        run.append_trial(&record, &samples, &[]).unwrap();
    }
    run.finish(1.0).unwrap();
    assert_eq!(timeless(&broken), timeless(&whole));
    let read = |name: &str| fs::read(broken.join(name)).ok();
    assert_eq!(read("notes.txt").as_deref(), Some(&b"mine"[..]));
    assert_eq!(read("flows/0000001-upload.txt").as_deref(), Some(&b"whole"[..]));
    assert_eq!(read("flows/0000002-upload.txt"), None, "it is done again");
    assert!(!broken.join("parts").exists() && !broken.join("trials.jsonl").exists());
}

#[test]
fn no_link_of_a_run_that_is_resumed_leads_to_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let [broken, other] = ["broken", "other"].map(|name| directory.path().join(name));
    for name in ["trials.jsonl", "parts", "flows", "run.json"] {
        cut_short(&broken, 2);
        fs::create_dir_all(broken.join("flows")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::rename(broken.join(name), other.join(name)).unwrap();
        fs::write(other.join("0000002-upload.txt"), b"mine").unwrap();
        std::os::unix::fs::symlink(other.join(name), broken.join(name)).unwrap();
        let before = faults::tree(&other);
        let error = RunDir::resume(&broken, &record()).expect_err("a link");
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("is a link"), "{name}: {error}: {source}");
        assert_eq!(faults::tree(&other), before, "{name}");
        fs::remove_dir_all(&broken).unwrap();
        fs::remove_dir_all(&other).unwrap();
    }
    let run = RunDir::create(&broken, record()).unwrap();
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, broken.join("captures")).unwrap();
    assert!(run.begin_file("captures", "0.pcapng").is_err(), "a folder of another");
    assert_eq!(faults::tree(&other).len(), 0);
}

#[test]
fn after_any_fault_a_resumed_run_keeps_its_trials_and_can_be_resumed() {
    let start = tempfile::tempdir().unwrap();
    cut_short(&start.path().join("run"), 2);
    let mut before = users_own();
    before.extend(faults::tree(start.path()));
    let action = |root: &Path| go_on(&root.join("run"));
    let mut finished_at_last = 0;
    faults::at_every_step(&before, action, |fault, root, outcome| {
        let progress = &outcome.result;
        finished_at_last += usize::from(!outcome.is_hit && progress.is_finished);
        let left = faults::tree(root);
        for tree in std::iter::once(&left).chain(&outcome.after_power_cut) {
            assert_eq!(without_run(tree), without_run(&before), "{fault:?}");
            faults::restore(root, tree);
            let run = root.join("run");
            let data = RunDir::read(&run).unwrap();
            assert!(data.record.trials.len() >= 2, "{fault:?}");
            assert!(data.record.complete || go_on(&run).is_finished, "{fault:?}");
            let data = RunDir::read(&run).unwrap();
            assert_eq!((data.record.trials.len(), data.samples.len()), (3, 3 * SAMPLES_EACH));
        }
    });
    assert_eq!(finished_at_last, 3, "the premise: without a fault it is complete");
}

#[test]
fn only_the_same_run_is_resumed_and_only_by_one_program() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let reason = |wanted: &RunRecord, path: &Path| {
        let error = RunDir::resume(path, wanted).unwrap_err();
        assert!(error.is_occupied(), "{error}");
        error.to_string()
    };
    assert!(reason(&record(), root).contains("there is no run in it"));
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    let path = root.join("run");
    cut_short(&path, 1);
    let before = faults::tree(root);
    let mut other = record();
    other.seed = 7;
    assert!(reason(&other, &path).contains("another seed"));
    let mut other = record();
    "new".clone_into(&mut other.commit);
    assert!(reason(&other, &path).contains("another version of this program"));
    let mut other = record();
    "rtt = 1".clone_into(&mut other.scenario.text);
    assert!(reason(&other, &path).contains("scenario or its options"));
    let mut other = record();
    other.world = World::Live;
    assert!(reason(&other, &path).contains("another world"));
    let mut other = record();
    other.variants.push(VariantRecord { name: "codel".to_owned(), ..VariantRecord::default() });
    assert!(reason(&other, &path).contains("variants"));
    assert_eq!(faults::tree(root), before, "what is refused changes nothing");
    let first = RunDir::resume(&path, &record()).unwrap();
    assert!(reason(&record(), &path).contains("another program is writing it"));
    drop(first);
    let mut run = RunDir::resume(&path, &record()).unwrap().directory;
    let (next, samples) = trial(1);
    run.append_trial(&next, &samples, &[]).unwrap();
    run.finish(1.0).unwrap();
    assert!(reason(&record(), &path).contains("complete"));
    fs::write(path.join("run.json"), "{").unwrap();
    assert!(reason(&record(), &path).contains("not a run record"));
    let of_kernel = |kernel: &str| {
        let mut made = record();
        made.world = World::Kernel;
        kernel.clone_into(&mut made.host.kernel);
        made
    };
    let guest = root.join("guest");
    let mut run = RunDir::create(&guest, of_kernel("Linux 7.2")).unwrap();
    let (first, samples) = trial(0);
    run.append_trial(&first, &samples, &[]).unwrap();
    drop(run);
    assert!(reason(&of_kernel("Linux 7.3"), &guest).contains("another kernel"));
    drop(RunDir::resume(&guest, &of_kernel("Linux 7.2")).unwrap());
    let under_way = RunDir::create(root.join("other"), record()).unwrap();
    assert!(reason(&record(), &root.join("other")).contains("another program is writing it"));
    drop(under_way);
}

#[test]
fn a_run_does_not_begin_in_a_directory_that_another_program_has_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    fs::create_dir(&path).unwrap();
    let lock = crate::folder::lock(&path).unwrap();
    let error = RunDir::create(&path, record()).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }) && error.is_occupied(), "{error}");
    assert!(faults::tree(&path).is_empty());
    drop(lock);
    RunDir::create(&path, record()).unwrap();
}

/// A summary would contain the samples of the later trials only.
#[test]
fn a_run_that_keeps_no_samples_is_not_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut run = RunDir::create(&path, record()).unwrap().summaries_only();
    let (first, samples) = trial(0);
    run.append_trial(&first, &samples, &[]).unwrap();
    drop(run);
    let before = faults::tree(&path);
    let error = RunDir::resume(&path, &record()).unwrap_err().to_string();
    assert!(error.contains("has no samples"), "{error}");
    assert_eq!(faults::tree(&path), before);
}

#[test]
fn trials_from_the_first_damaged_one_are_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    cut_short(root, 4);
    fs::write(root.join("parts/0000001-samples.parquet"), b"PAR1").unwrap();
    let Resumed { directory: run, again } = RunDir::resume(root, &record()).unwrap();
    assert_eq!(run.record().trials.len(), 1);
    assert!(again.len() == 2 && again[0].contains("0000001-samples"), "{again:?}");
    assert!(again[1].contains("2 trials after the damage"), "{again:?}");
    assert!(!root.join("parts/0000003-samples.parquet").exists());
    // Nothing was added since, so the run still exists and can be resumed again.
    run.abandon().unwrap();
    let again = RunDir::resume(root, &record()).unwrap();
    assert_eq!(again.directory.record().trials.len(), 1);
    assert_eq!(again.directory.record().host.resumed.len(), 2);
}

#[test]
fn a_directory_without_a_run_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let told = || RunDir::read(path).unwrap_err().to_string();
    assert!(told().ends_with("not a run directory: it has no run.json"), "{}", told());
    fs::write(path.join(SWEEP), "{}").unwrap();
    assert!(told().contains("a sweep and not a run"), "{}", told());
    let error = RunDir::read(path.join("nowhere")).unwrap_err().to_string();
    assert!(error.ends_with("nowhere: there is no such file or directory"), "{error}");
}
