//! Tests of runs whose trials are in a table: after any fault the run is equal, and files of other
//! programs are not touched.

use std::fs;

use underload_disk::faults;
use underload_record::schema::FORMAT_VERSION;

use super::*;
use crate::files::JOURNAL;
use crate::run_dir::MOST_IN_RECORD;
use crate::run_dir::tests::{SAMPLES_EACH, record, trial};
use crate::{RunDir, parse_run_json};

/// Writes a run of `count` trials, of which `run.json` contains at most `most`.
fn run(path: &Path, count: u32, most: usize) -> Result<RunRecord, StoreError> {
    let mut run = RunDir::create(path, record())?;
    run.most_in_record = most;
    for index in 0..count {
        let (record, samples) = trial(index);
        run.append_trial(&record, &samples, &[])?;
    }
    run.finish(1.0)
}

/// Writes the table of these trials.
fn write(path: &Path, trials: &[TrialRecord]) -> Result<(), StoreError> {
    let mut table = NewRecords::begin(path)?;
    trials.iter().try_for_each(|trial| table.push(trial))?;
    table.claim()
}

/// Changes `run.json` of a run.
fn change(root: &Path, change: impl Fn(&mut serde_json::Value)) {
    let path = root.join(RECORD);
    let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

fn refused(root: &Path) -> String {
    RunDir::read(root).map(|data| data.record.trials.len()).unwrap_err().to_string()
}

#[test]
fn a_run_is_the_same_wherever_its_trials_are() {
    let directory = tempfile::tempdir().unwrap();
    let [inside, apart, copy] = ["inside", "apart", "copy"].map(|it| directory.path().join(it));
    let written = run(&inside, 5, 5).unwrap();
    let summarised = run(&apart, 5, 4).unwrap();
    assert_eq!(summarised, RunRecord { trials: Vec::new(), ..written.clone() });
    let whole = RunDir::read(&inside).unwrap();
    assert_eq!((whole.record.trials.len(), whole.samples.len()), (5, 5 * SAMPLES_EACH));
    assert_eq!(RunDir::read(&apart).unwrap(), whole);
    assert_eq!(RunDir::read_record(&apart).unwrap(), written);
    let some = RunDir::read_trials(&apart, |trial| trial.index == 3).unwrap();
    assert_eq!((some.record.trials.len(), some.samples.len()), (5, SAMPLES_EACH));
    // Converts a run with a table to one without, by reading and writing it.
    RunDir::write(&copy, &RunDir::read(&apart).unwrap()).unwrap();
    assert_eq!(fs::read(copy.join(RECORD)).unwrap(), fs::read(inside.join(RECORD)).unwrap());
    let text = fs::read(apart.join(RECORD)).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["format_version"], FORMAT_VERSION);
    assert_eq!(json["trials"], serde_json::json!([]));
    assert_eq!(json["trials_in"], serde_json::json!({ "file": "trials.parquet", "count": 5 }));
    let told = parse_run_json(&text).unwrap_err().to_string();
    assert!(told.contains("expected the directory"), "{told}");
}

#[test]
fn run_json_has_trials_up_to_the_limit_and_the_table_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let mut run = RunDir::create(&path, record()).unwrap().summaries_only();
    // Several row groups, the last of them not full.
    let count = MOST_IN_RECORD + GROUP_ROWS;
    for index in 0..count {
        let (mut record, samples) = trial(index as u32);
        // Numbers that exceed the range of a column.
        record.seed = u64::MAX - index as u64;
        run.append_trial(&record, &samples, &[]).unwrap();
    }
    assert_eq!((run.trials(), run.record().trials.len()), (count, 0), "they are on the disk");
    let written = run.finish(1.0).unwrap();
    let read = RunDir::read_record(&path).unwrap();
    assert_eq!(read.trials.len(), count);
    assert_eq!(RunRecord { trials: Vec::new(), ..read }, written);
    let length = fs::metadata(path.join(RECORD)).unwrap().len();
    assert!(length < 10_000, "{length}");
}

#[test]
fn a_modified_journal_does_not_end_a_run() {
    type Change = fn(&[u8]) -> Vec<u8>;
    let directory = tempfile::tempdir().unwrap();
    let changes: [(&str, Change); 4] = [
        ("line 5: its checksum", |text| text[..text.len() - 9].to_vec()),
        ("line 2: its checksum", |text| {
            String::from_utf8_lossy(text).replace("\"index\":1", "\"index\":x").into_bytes()
        }),
        ("line 1: trial 1; expected trial 0", |text| {
            let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            [&text[first..], &text[..first]].concat()
        }),
        ("its checksum differs", |text| {
            String::from_utf8_lossy(text).replace("\"pie\"", "\"nie\"").into_bytes()
        }),
    ];
    for (number, (reason, change)) in changes.into_iter().enumerate() {
        let root = directory.path().join(number.to_string());
        let mut run = RunDir::create(&root, record()).unwrap();
        run.most_in_record = 2;
        for index in 0..5 {
            let (record, samples) = trial(index);
            run.append_trial(&record, &samples, &[]).unwrap();
        }
        let journal = root.join(JOURNAL);
        let whole = fs::read(&journal).unwrap();
        fs::write(&journal, change(&whole)).unwrap();
        let told = run.finish(1.0).unwrap_err().to_string();
        assert!(told.contains("trials.jsonl") && told.contains(reason), "{told}");
        // The journal remains, and the table is gone.
        assert!(!RunDir::read(&root).unwrap().record.complete);
        assert!(!root.join(TRIALS).exists());
        fs::write(&journal, whole).unwrap();
        assert_eq!(RunDir::read(&root).unwrap().record.trials.len(), 5);
    }
}

#[test]
fn after_any_fault_each_trial_is_in_the_journal_or_the_table() {
    // The number of trials that are on disk, and whether the run was completed.
    let action = |root: &Path| {
        let mut synced = 0;
        let mut all = || -> Result<(), StoreError> {
            let mut run = RunDir::create(root.join("run"), record())?;
            run.most_in_record = 2;
            for index in 0..3 {
                let (record, samples) = trial(index);
                run.append_trial(&record, &samples, &[])?;
                run.sync()?;
                synced += 1;
            }
            run.finish(1.0).map(drop)
        };
        let is_finished = all().is_ok();
        (synced, is_finished)
    };
    let mut finished_at_last = 0;
    faults::at_every_step(&faults::Tree::new(), action, |fault, root, outcome| {
        let (synced, is_finished) = outcome.result;
        finished_at_last += usize::from(!outcome.is_hit && is_finished);
        let left = faults::tree(root);
        for tree in std::iter::once(&left).chain(&outcome.after_power_cut) {
            faults::restore(root, tree);
            match RunDir::read(root.join("run")) {
                Ok(data) => {
                    let (trials, complete) = (data.record.trials.len(), data.record.complete);
                    assert!(trials >= synced && (complete || !is_finished), "{fault:?}: {tree:?}");
                    assert!(trials == 3 || !complete, "{fault:?}: {tree:?}");
                    assert_eq!(data.samples.len(), trials * SAMPLES_EACH, "{fault:?}");
                    assert!(data.left_out.is_empty(), "{fault:?}: {:?}", data.left_out);
                }
                Err(error) => assert_eq!(synced, 0, "{fault:?}: {error}: {tree:?}"),
            }
        }
    });
    assert_eq!(finished_at_last, 3, "the premise: without a fault it is complete");
}

#[test]
fn a_damaged_table_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("run");
    run(&root, 3, 2).unwrap();
    let table = root.join(TRIALS);
    let whole = fs::read(&table).unwrap();
    for length in 0..whole.len() {
        fs::write(&table, &whole[..length]).unwrap();
        assert!(refused(&root).contains(TRIALS), "{length}");
    }
    fs::write(&table, &whole).unwrap();
    change(&root, |json| json["trials_in"]["count"] = 4.into());
    assert!(refused(&root).contains("3 trials; run.json has 4"));
    change(&root, |json| json["trials_in"]["count"] = 2.into());
    assert!(refused(&root).contains("more than 2 trials"));
    change(&root, |json| json["trials_in"]["count"] = 3.into());
    assert_eq!(RunDir::read(&root).unwrap().record.trials.len(), 3);
    // First a table without the column of records, then one with the variants of another run.
    fs::remove_file(&table).unwrap();
    assert!(refused(&root).contains(TRIALS));
    let trials: Vec<TrialRecord> = (0..3).map(|index| trial(index).0).collect();
    crate::trials::write(&table, &trials).unwrap();
    assert!(refused(&root).contains("it has no column `record`"));
    fs::remove_file(&table).unwrap();
    let others = trials.iter().map(|it| TrialRecord { variant: "codel".to_owned(), ..it.clone() });
    write(&table, &others.collect::<Vec<_>>()).unwrap();
    assert!(refused(&root).contains("the unknown variant \"codel\""));
    fs::remove_file(&table).unwrap();
    write(&table, &[&trials[1..], &trials[..1]].concat()).unwrap();
    assert!(refused(&root).contains("trial 1 is at position 0"));
}

#[test]
fn a_record_names_no_file_but_the_one_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let [root, other] = ["run", "other"].map(|name| directory.path().join(name));
    run(&root, 3, 2).unwrap();
    run(&other, 3, 2).unwrap();
    let absolute = other.join(TRIALS).to_string_lossy().into_owned();
    for file in ["../other/trials.parquet", absolute.as_str(), "", "samples.parquet"] {
        change(&root, |json| json["trials_in"]["file"] = file.into());
        let told = refused(&root);
        assert!(
            told.contains("run.json") && told.contains("expected \"trials.parquet\""),
            "{told}"
        );
    }
    change(&root, |json| json["trials_in"] = serde_json::json!([]));
    assert!(refused(&root).contains("not a run record"));
    change(&root, |json| json["trials"] = serde_json::json!([trial(0).0]));
    change(&root, |json| json["trials_in"] = serde_json::json!({ "file": TRIALS, "count": 3 }));
    assert!(refused(&root).contains("has trials, and names a table of trials"));
}

#[test]
fn the_pages_on_the_format_describe_runs_of_many_trials() {
    let page = include_str!("../../../../docs/run-format.md");
    for name in ["`trials_in`", "`file`", "`count`", "`record`"] {
        assert!(page.contains(name), "{name}");
    }
    let fields = include_str!("../../../../docs/reference/run-json.md");
    assert!(fields.contains("\n## TrialsIn\n"));
    let (column, _) = layout().pop().expect("a column");
    assert!(page.contains(&format!("\n| `{column}` | text |")), "{column}");
    assert!(page.contains(&format!("`format_version` is {FORMAT_VERSION}.")));
    let most = in_words(MOST_IN_RECORD);
    assert!(page.contains(&format!("A `run.json` has at most {most} trials")));
}

/// Writes a number as `2,000`.
fn in_words(number: usize) -> String {
    format!("{},{:03}", number / 1_000, number % 1_000)
}
