//! The directory of a sweep: after interruptions and faults its tables are equal.

use std::sync::atomic::AtomicBool;

use underload_disk::faults;
use underload_record::schema::{TrialRecord, Validity};

use super::*;

const CELLS_OF_IT: u64 = 40;
const REPEATS: u64 = 3;

fn manifest() -> SweepManifest {
    let axis = |name: &str, is_amount| AxisColumn { name: name.to_owned(), is_amount };
    let axes = vec![axis("path.up", true), axis("queue", false)];
    SweepManifest {
        format_version: SWEEP_VERSION,
        program: "0.1.0 test".to_owned(),
        name: "sweep.toml".to_owned(),
        text: "scenario = \"a\"".to_owned(),
        content: "a".to_owned(),
        scenario: "a".to_owned(),
        scenario_text: "[path]".to_owned(),
        files: BTreeMap::new(),
        seed: 7,
        cells: CELLS_OF_IT,
        repeats: REPEATS,
        columns: SweepColumns { axes, metrics: vec!["load.rtt.p99".to_owned()] },
    }
}

fn row(trial: u64) -> SweepRow {
    let (cell, repeat) = (trial / REPEATS, trial % REPEATS);
    let values = [
        AxisValue { text: format!("{cell}mbit"), amount: Some(cell as f64 * 1e6) },
        AxisValue { text: "codel".to_owned(), amount: None },
    ];
    let record = TrialRecord {
        index: trial as u32,
        variant: "fifo".to_owned(),
        repeat: repeat as u32,
        seed: u64::MAX - repeat,
        validity: Validity::Valid,
        ..TrialRecord::default()
    };
    let has_failed = trial % 17 == 5;
    let metrics = vec![(!has_failed).then_some(cell as f64 + repeat as f64 / 10.0)];
    let error = has_failed.then(|| "it would not".to_owned());
    SweepRow::new((cell, &format!("{cell:08x}")), &values, &record, metrics, error)
}

fn open(path: &Path, manifest: &SweepManifest) -> (SweepDir, Option<String>) {
    SweepDir::open(path, manifest).expect("it opens")
}

fn append(sweep: &mut SweepDir, numbers: Range<u64>) {
    numbers.map(row).try_for_each(|row| sweep.append(&row)).expect("rows of the sweep");
}

static GO_ON: AtomicBool = AtomicBool::new(false);

/// Computes what is missing, some trials at a time, and finishes.
fn complete(path: &Path, manifest: &SweepManifest, some: u64) -> Result<u64, StoreError> {
    let (mut directory, _) = SweepDir::open(path, manifest)?;
    let mut computed = 0;
    while let Some(gap) = directory.missing().first() {
        let end = gap.end.min(gap.start + some);
        computed += end - gap.start;
        (gap.start..end).map(row).try_for_each(|row| directory.append(&row))?;
        directory.flush()?;
    }
    assert!(directory.finish(&GO_ON)?);
    Ok(computed)
}

fn tables(path: &Path) -> [Vec<u8>; 2] {
    [TRIALS, CELLS].map(|name| fs::read(path.join(name)).expect("a table"))
}

fn names(path: &Path) -> Vec<String> {
    faults::tree(path).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn tables_do_not_depend_on_the_order_of_rows() {
    let manifest = manifest();
    let (plain, mixed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    complete(plain.path(), &manifest, 1_000).unwrap();
    assert_eq!(names(plain.path()), [CELLS, SWEEP, TRIALS]);

    let count = manifest.trials();
    let (mut directory, _) = open(mixed.path(), &manifest);
    // Trials in reverse order, first the even ones, some of them twice, in several sessions.
    for start in (0..count).rev().filter(|trial| trial % 2 == 0) {
        append(&mut directory, start..start + 1);
        if start % 10 == 0 {
            directory.flush().unwrap();
        }
    }
    drop(directory);
    let (mut directory, notes) = open(mixed.path(), &manifest);
    assert_eq!(notes, None);
    // Rows that were not flushed are lost, as after a kill.
    assert!(directory.stored() <= count / 2);
    append(&mut directory, 3..9);
    append(&mut directory, 7..12);
    append(&mut directory, 7..8);
    drop(directory.flush());
    drop(directory);
    complete(mixed.path(), &manifest, 7).unwrap();
    assert_eq!(tables(plain.path()), tables(mixed.path()));
    assert_eq!(names(mixed.path()), [CELLS, SWEEP, TRIALS]);
}

#[test]
fn cells_summarise_their_trials() {
    let manifest = manifest();
    let directory = tempfile::tempdir().unwrap();
    let cells = |sweep: &SweepDir| {
        let mut cells = Vec::new();
        sweep.cells(&mut |cell| cells.push(cell)).unwrap();
        cells
    };
    let (mut sweep, _) = open(directory.path(), &manifest);
    append(&mut sweep, 0..manifest.trials());
    assert_eq!(cells(&sweep), [], "nothing is on the disk yet");
    sweep.flush().unwrap();
    let before = cells(&sweep);
    assert!(sweep.finish(&GO_ON).unwrap());
    assert_eq!(cells(&sweep), before, "the journal and the table have the same cells");
    assert_eq!(before.len() as u64, CELLS_OF_IT);
    let cell = &before[1];
    // Trials 3, 4 and 5, of which the last failed: 1.0 and 1.1.
    assert_eq!((cell.cell, cell.trials, cell.failed), (1, 3, 1));
    assert_eq!(cell.error.as_deref(), Some("it would not"));
    assert_eq!((cell.values[0].text.as_str(), cell.values[0].amount), ("1mbit", Some(1e6)));
    assert_eq!((cell.variant.as_str(), cell.id.as_str()), ("fifo", "00000001"));
    let interval = cell.metrics[0].expect("two values");
    assert!((interval.mean - 1.05).abs() < 1e-12);
    assert_eq!(interval.repeats, 2);
    assert_eq!(interval.high, None, "two values have no interval");
    let (sweep, _) = {
        drop(sweep);
        open(directory.path(), &manifest)
    };
    assert!(sweep.is_complete() && sweep.missing().is_empty());
}

#[test]
fn another_sweep_is_refused_and_named() {
    let manifest = manifest();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sweep");
    let (first, _) = open(&path, &manifest);
    let refused = |manifest: &SweepManifest| {
        let error = SweepDir::open(&path, manifest).expect_err("refused");
        assert!(error.is_occupied(), "{error}");
        error.to_string()
    };
    assert!(refused(&manifest).contains("another program is writing"));
    drop(first);
    let mut other = manifest.clone();
    other.content.push('b');
    assert!(refused(&other).contains("the sweep file differs"));
    let mut other = manifest.clone();
    other.columns.metrics.push("goodput.up".to_owned());
    assert!(refused(&other).contains("its columns have other metrics"));
    // Comments in the sweep file, on which no row depends.
    let mut other = manifest.clone();
    other.text.push('\n');
    assert_eq!(open(&path, &other).0.manifest().text, manifest.text);
    let other = SweepManifest { program: "0.2.0".to_owned(), ..manifest.clone() };
    assert!(refused(&other).contains("another version of the program"));
    let other = SweepManifest { cells: 41, ..manifest.clone() };
    assert!(refused(&other).contains("it has other cells"));
    for name in [TRIALS, CELLS] {
        let mine = directory.path().join("mine");
        std::os::unix::fs::symlink(&mine, path.join(name)).unwrap();
        let error = SweepDir::open(&path, &manifest).expect_err("a link");
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("is a link"), "{error}: {source}");
        fs::remove_file(path.join(name)).unwrap();
    }
    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("mine.txt"), "stays").unwrap();
    let error = SweepDir::open(&foreign, &manifest).expect_err("refused");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(names(&foreign), ["mine.txt"]);
    fs::write(path.join(SWEEP), "{\"format_version\": 99}").unwrap();
    assert!(refused(&manifest).contains("format"));
    fs::write(path.join(SWEEP), "{").unwrap();
    let error = SweepDir::open(&path, &manifest).expect_err("damaged");
    assert!(error.to_string().contains("sweep.json: damaged"), "{error}");
}

#[test]
fn rows_of_another_sweep_are_refused() {
    let manifest = manifest();
    let directory = tempfile::tempdir().unwrap();
    let (mut sweep, _) = open(directory.path(), &manifest);
    let mut refused = |row: SweepRow| {
        assert!(matches!(sweep.append(&row), Err(StoreError::Inconsistent { .. })));
    };
    refused(row(manifest.trials()));
    let mut foreign = row(4);
    foreign.metrics.clear();
    refused(foreign);
    assert!(matches!(sweep.finish(&GO_ON), Err(StoreError::Inconsistent { .. })));
}

/// Changes one byte in each of these lines of the journal.
fn damage(path: &Path, lines: &[usize]) {
    let journal = path.join(JOURNAL);
    let text = fs::read_to_string(&journal).unwrap();
    let mut all: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    for line in lines {
        all[*line][40] ^= 1;
    }
    fs::write(&journal, [all.join(&b'\n'), b"\n".to_vec()].concat()).unwrap();
}

#[test]
fn damaged_lines_are_reported_and_computed_again() {
    let manifest = manifest();
    let (whole, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    complete(whole.path(), &manifest, 1_000).unwrap();
    let (mut sweep, _) = open(directory.path(), &manifest);
    append(&mut sweep, 0..50);
    sweep.flush().unwrap();
    drop(sweep);
    damage(directory.path(), &[3, 4, 20]);
    let journal = directory.path().join(JOURNAL);
    let length = fs::metadata(&journal).unwrap().len();
    // An incomplete last line is what a kill leaves, so it is not reported as damage.
    fs::File::options().write(true).open(&journal).unwrap().set_len(length - 9).unwrap();
    let (sweep, note) = open(directory.path(), &manifest);
    let note = note.expect("a note");
    assert!(note.contains("rows.jsonl: 3 damaged lines"), "{note}");
    assert_eq!((sweep.stored(), sweep.missing()), (46, vec![3..5, 20..21, 49..manifest.trials()]));
    drop(sweep);
    assert_eq!(complete(directory.path(), &manifest, 8).unwrap(), manifest.trials() - 46);
    assert_eq!(tables(whole.path()), tables(directory.path()));
}

#[test]
fn a_line_that_is_damaged_later_ends_the_merge_and_is_found() {
    let manifest = manifest();
    let directory = tempfile::tempdir().unwrap();
    let (mut sweep, _) = open(directory.path(), &manifest);
    append(&mut sweep, 0..manifest.trials());
    sweep.flush().unwrap();
    damage(directory.path(), &[7]);
    assert!(matches!(sweep.finish(&GO_ON), Err(StoreError::Damaged { .. })));
    drop(sweep);
    assert_eq!(complete(directory.path(), &manifest, 50).unwrap(), 1);
}

#[test]
fn a_stopped_merge_leaves_the_journal_and_can_be_called_again() {
    let manifest = manifest();
    let directory = tempfile::tempdir().unwrap();
    let (mut sweep, _) = open(directory.path(), &manifest);
    append(&mut sweep, 0..manifest.trials());
    assert!(!sweep.finish(&AtomicBool::new(true)).unwrap());
    assert_eq!(names(directory.path()), [JOURNAL, SWEEP]);
    assert!(sweep.finish(&GO_ON).unwrap());
    assert!(sweep.finish(&GO_ON).unwrap(), "nothing is left to be done");
}

#[test]
fn after_any_fault_a_resumed_merge_gives_the_same_tables() {
    let manifest = manifest();
    let whole = tempfile::tempdir().unwrap();
    complete(whole.path(), &manifest, 1_000).unwrap();
    let wanted = tables(whole.path());
    let action = |root: &Path| complete(&root.join("sweep"), &manifest, 50);
    let mut finished = 0;
    faults::at_every_step(&faults::Tree::new(), action, |fault, root, outcome| {
        finished += usize::from(outcome.result.is_ok());
        let left = faults::tree(root);
        for tree in outcome.after_power_cut.iter().chain([&left]) {
            faults::restore(root, tree);
            let path = root.join("sweep");
            complete(&path, &manifest, 50).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert_eq!(tables(&path), wanted, "{fault:?}");
            assert_eq!(names(&path), [CELLS, SWEEP, TRIALS], "{fault:?}");
        }
    });
    assert!(finished >= 3, "the premise: without a fault it is complete");
}

#[test]
fn a_row_has_the_columns_of_the_table() {
    let manifest = manifest();
    let layout = manifest.columns.layout();
    let names: Vec<&str> = layout.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..6], ["trial", "cell", "cell_id", "path.up", "path.up.amount", "queue"]);
    assert_eq!(names[names.len() - 2..], ["load.rtt.p99", "error"]);
    let own = row(5);
    assert_eq!(own.cells(&manifest.columns).count(), layout.len());
    let json = serde_json::to_string(&own).unwrap();
    assert_eq!(serde_json::from_str::<SweepRow>(&json).unwrap(), own);
}
