//! Run directories after faults: kills, full disks, flipped bits.

use std::error::Error;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use underload_record::schema::{Phase, Verdict, World};
use underload_store::{
    RunData, RunDir, StoreError, parse_run_json, write_samples_csv, write_series_csv,
};

use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Trial};

const QUEUES: [synthetic::Queue; 2] = [BUFFER_CONTROL, DOCSIS_PIE];
const INTERVAL_NS: u64 = 50_000_000;

fn write(path: &Path, trials: &[Trial]) -> Result<RunDir, StoreError> {
    let mut run = RunDir::create(path, synthetic::record(World::Live, &QUEUES))?;
    for trial in trials {
        run.append_trial(&trial.record, &trial.samples, &trial.series)?;
    }
    Ok(run)
}

fn expect_equal(data: &RunData, trials: &[Trial]) {
    let records: Vec<_> = trials.iter().map(|trial| trial.record.clone()).collect();
    assert_eq!(data.record.trials, records);
    let samples: Vec<_> = trials.iter().flat_map(|trial| trial.samples.clone()).collect();
    assert!(data.samples == samples, "samples differ");
    let series: Vec<_> = trials.iter().flat_map(|trial| trial.series.clone()).collect();
    assert!(data.series == series, "series differ");
}

#[test]
fn a_finished_run_reads_back_as_written() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("new/run");
    let trials = synthetic::trials(&QUEUES, 3, INTERVAL_NS);
    let written = write(&path, &trials)?.finish(12.5)?;
    let data = RunDir::read(&path)?;
    expect_equal(&data, &trials);
    assert_eq!(data.record, written);
    assert!(data.record.complete);
    assert_eq!(RunDir::read_record(&path)?, written);
    let mut names: Vec<_> =
        fs::read_dir(&path)?.map(|entry| entry.map(|e| e.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    assert_eq!(names, ["run.json", "samples.parquet", "series.parquet", "trials.parquet"]);
    Ok(())
}

#[test]
fn a_copied_run_is_written_unchanged() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    write(&at("whole"), &trials)?.finish(12.5)?;
    // Dropped before the end, so the run is incomplete.
    write(&at("part"), &trials[..3])?.sync()?;
    for name in ["whole", "part"] {
        let run = RunDir::read(at(name))?;
        let copy = at(&format!("{name}-copy"));
        RunDir::write(&copy, &run)?;
        assert_eq!(RunDir::read(&copy)?, run, "{name}");
        assert!(RunDir::write(&copy, &run).is_err_and(|error| error.is_occupied()));
    }
    // Summaries remain even without the samples that they were computed from.
    let mut bare = RunDir::read(at("whole"))?;
    bare.samples.clear();
    RunDir::write(at("bare"), &bare)?;
    assert_eq!(RunDir::read(at("bare"))?.record.summaries, bare.record.summaries);
    // A sample of a flow that the trial does not have.
    let mut wrong = RunDir::read(at("whole"))?;
    wrong.samples.last_mut().ok_or("samples")?.flow = u16::MAX;
    assert!(RunDir::write(at("wrong"), &wrong).is_err());
    assert!(!at("wrong").exists());
    Ok(())
}

#[test]
fn summaries_pool_samples_and_judge_expectations() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut trials = synthetic::trials(&QUEUES, 3, INTERVAL_NS);
    trials[0].record.validity = synthetic::late();
    let record = write(directory.path(), &trials)?.finish(1.0)?;

    let summary = &record.summaries[0];
    assert_eq!((summary.trials_valid, summary.trials_invalid), (2, 1));
    let load = summary.headline(Phase::Load).ok_or("no headline")?;
    let mut rtts: Vec<u64> = trials[1..3]
        .iter()
        .flat_map(|trial| &trial.samples)
        .filter(|sample| sample.phase == Phase::Load)
        .filter_map(|sample| sample.rtt_ns)
        .collect();
    let pooled = underload_record::stats::distribution(&mut rtts);
    assert_eq!(load.pooled, pooled);
    assert_eq!(load.sent, 2 * 140);
    assert_eq!(load.sent - load.lost, rtts.len() as u64);
    assert_eq!(load.window_ns, 14_000_000_000);

    let verdicts: Vec<Verdict> = record.expectations.iter().map(|e| e.verdict).collect();
    assert_eq!(verdicts[0], Verdict::Met);
    assert_eq!(verdicts[3], Verdict::NotMeasured);
    assert!(matches!(verdicts[2], Verdict::Missed { by } if by > 0.0), "{:?}", verdicts[2]);
    Ok(())
}

#[test]
fn a_killed_run_keeps_every_finished_trial() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    drop(write(directory.path(), &trials)?);
    let journal = directory.path().join("trials.jsonl");
    let text = fs::read(&journal)?;
    // Killed while it writes the last trial's line; the trial's parts exist.
    fs::write(&journal, &text[..text.len() - 20])?;
    let data = RunDir::read(directory.path())?;
    expect_equal(&data, &trials[..3]);
    assert!(!data.record.complete);
    assert!(data.record.summaries[0].headline(Phase::Load).is_some());
    Ok(())
}

#[test]
fn a_number_that_was_changed_on_disk_costs_its_trial() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    drop(write(directory.path(), &trials)?);
    let journal = directory.path().join("trials.jsonl");
    let text = fs::read_to_string(&journal)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines[3].find("\"p50_ns\":").ok_or("no median")? + "\"p50_ns\":".len();
    let changed = format!("{}9{}", &lines[3][..at], &lines[3][at + 1..]);
    assert_ne!(changed, lines[3], "the premise");
    lines[3] = &changed;
    fs::write(&journal, lines.join("\n") + "\n")?;
    let data = RunDir::read(directory.path())?;
    expect_equal(&data, &trials[..3]);
    assert!(
        data.left_out[0].contains("trials.jsonl:4: its checksum differs"),
        "{:?}",
        data.left_out
    );
    Ok(())
}

#[test]
fn a_kill_while_finishing_loses_nothing() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    drop(write(directory.path(), &trials)?);
    // As if a process was killed while it merged tables, after renaming one of them.
    fs::write(directory.path().join(".samples.parquet.new"), b"PAR1")?;
    fs::write(directory.path().join("series.parquet"), b"PAR1")?;
    expect_equal(&RunDir::read(directory.path())?, &trials);
    Ok(())
}

#[test]
fn a_failed_write_leaves_earlier_trials_readable() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    let mut run = write(directory.path(), &trials[..2])?;
    let blocked = directory.path().join("parts/0000002-samples.parquet");
    fs::create_dir(&blocked)?;
    let third = &trials[2];
    let error = run.append_trial(&third.record, &third.samples, &third.series).err();
    let message = error.ok_or("the write succeeded")?.to_string();
    assert!(message.contains("0000002-samples.parquet"), "{message}");
    expect_equal(&RunDir::read(directory.path())?, &trials[..2]);
    // The trial can be appended again once the disk has space.
    fs::remove_dir(&blocked)?;
    run.append_trial(&third.record, &third.samples, &third.series)?;
    run.finish(1.0)?;
    expect_equal(&RunDir::read(directory.path())?, &trials[..3]);
    Ok(())
}

#[test]
fn a_run_is_never_overwritten() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 1, INTERVAL_NS);
    write(directory.path(), &trials)?.finish(1.0)?;
    let again = RunDir::create(directory.path(), synthetic::record(World::Sim, &QUEUES));
    assert!(matches!(again, Err(StoreError::Exists { .. })));
    expect_equal(&RunDir::read(directory.path())?, &trials);
    Ok(())
}

#[test]
fn unexpected_trials_are_refused_by_name() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    let mut run = write(directory.path(), &[])?;
    let Trial { record, samples, series } = &trials[0];
    let mut refused = |change: &dyn Fn(&mut underload_record::schema::TrialRecord), words: &str| {
        let mut changed = record.clone();
        change(&mut changed);
        let error = run.append_trial(&changed, samples, series).map_err(|e| e.to_string());
        assert!(error.as_ref().is_err_and(|e| e.contains(words)), "{words}: {error:?}");
    };
    refused(&|trial| trial.index = 1, "trial 1; expected trial 0");
    refused(&|trial| trial.variant = "nobody".to_owned(), "variant \"nobody\"");
    refused(&|trial| trial.flows.truncate(1), "a sample of the unknown flow 1");
    refused(&|trial| trial.flows[0].name = "probe".to_owned(), "two flows with equal names");
    let foreign = run.append_trial(record, &trials[1].samples, series);
    assert!(matches!(foreign, Err(StoreError::Inconsistent { .. })));
    assert!(RunDir::read(directory.path())?.record.trials.is_empty());
    Ok(())
}

#[test]
fn trials_can_be_read_one_by_one() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    write(directory.path(), &trials)?.finish(1.0)?;
    let data = RunDir::read_trials(directory.path(), |trial| trial.index == 2)?;
    assert_eq!(data.record.trials.len(), 4);
    assert!(data.samples == trials[2].samples && data.series == trials[2].series);
    Ok(())
}

#[test]
fn a_study_keeps_summaries_without_samples() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let trials = synthetic::trials(&QUEUES, 2, INTERVAL_NS);
    let (whole, study) = (directory.path().join("whole"), directory.path().join("study"));
    let whole = write(&whole, &trials)?.finish(1.0)?;
    let mut run = RunDir::create(&study, synthetic::record(World::Live, &QUEUES))?.summaries_only();
    for trial in &trials {
        run.append_trial(&trial.record, &trial.samples, &trial.series)?;
    }
    assert_eq!(run.finish(1.0)?, whole);
    let data = RunDir::read(&study)?;
    assert_eq!(data.record, whole);
    assert!(data.samples.is_empty() && data.series.is_empty());
    Ok(())
}

#[test]
fn a_newer_format_is_refused_by_its_version() -> Result<(), Box<dyn Error>> {
    let error = parse_run_json(br#"{"format_version": 3, "renamed": []}"#).err().ok_or("read")?;
    let told = error.to_string();
    assert!(told.contains("format version 3; this program reads version 1"), "{told}");
    Ok(())
}

#[test]
fn csv_has_one_line_per_row_and_quotes_names() -> Result<(), Box<dyn Error>> {
    let mut trial = synthetic::trials(&QUEUES, 1, INTERVAL_NS).swap_remove(0);
    trial.record.flows[1].name = "probe, \"fast\"".to_owned();
    let directory = tempfile::tempdir()?;
    write(directory.path(), &[trial])?.finish(1.0)?;
    let data = RunDir::read(directory.path())?;
    let (mut samples, mut series) = (Vec::new(), Vec::new());
    write_samples_csv(&mut samples, &data)?;
    write_series_csv(&mut series, &data)?;
    let samples = String::from_utf8(samples)?;
    assert_eq!(samples.lines().count(), 1 + data.samples.len());
    assert_eq!(
        samples.lines().nth(1),
        Some(
            "0,buffer-control,\"probe, \"\"fast\"\"\",0,idle,false,0,0,17100000,,,\
             45,ect1,45,ce,45,ect1"
        )
    );
    let series = String::from_utf8(series)?;
    assert_eq!(series.lines().next(), Some("trial,variant,name,unit,time_ns,value"));
    assert_eq!(series.lines().count(), 1 + 6 * 700);
    Ok(())
}

/// A finished run in memory, for tests that damage it.
fn files() -> Result<[Vec<u8>; 3], Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    write(directory.path(), &synthetic::trials(&QUEUES, 1, INTERVAL_NS))?.finish(1.0)?;
    let read = |name| fs::read(directory.path().join(name));
    Ok([read("run.json")?, read("samples.parquet")?, read("series.parquet")?])
}

#[test]
fn every_truncated_table_is_an_error_that_names_it() -> Result<(), Box<dyn Error>> {
    let [json, samples, series] = files()?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("run.json"), json)?;
    fs::write(directory.path().join("series.parquet"), series)?;
    let path = directory.path().join("samples.parquet");
    for length in (0..samples.len()).step_by(97).chain([samples.len() - 1]) {
        fs::write(&path, &samples[..length])?;
        let error = RunDir::read(directory.path()).err().ok_or("read a truncated table")?;
        assert!(error.to_string().contains("samples.parquet"), "{error}");
    }
    fs::remove_file(&path)?;
    let missing = RunDir::read(directory.path()).err().ok_or("read a missing table")?;
    assert!(missing.to_string().contains("samples.parquet"), "{missing}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_bytes_never_panic(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        static FILES: std::sync::OnceLock<[Vec<u8>; 3]> = std::sync::OnceLock::new();
        let [json, samples, series] = FILES.get_or_init(|| files().expect("a finished run"));
        let damage = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            for (place, value) in &places {
                let position = place.index(bytes.len());
                bytes[position] = *value;
            }
            bytes
        };
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, bytes: &[u8]| {
            fs::write(directory.path().join(name), bytes).expect("space for a test");
        };
        put("run.json", json);
        put("samples.parquet", &damage(samples));
        put("series.parquet", &damage(series));
        // An error and a valid record are both correct: a flipped bit may form another valid value.
        if let Err(error) = RunDir::read(directory.path()) {
            prop_assert!(error.to_string().contains(".parquet"), "{}", error);
        }
        if let Ok(record) = parse_run_json(&damage(json)) {
            let again = serde_json::to_vec(&record).expect("a record is JSON");
            prop_assert_eq!(parse_run_json(&again).expect("what was just written"), record);
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(parse_run_json(&bytes).is_err());
    }
}
