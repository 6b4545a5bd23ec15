//! Sweeps as a program sees them: rows that follow from the sweep alone, whatever ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use underload_record::metric;
use underload_record::schema::TrialRecord;
use underload_run::sweep::{Sweep, SweepProgress, SweepSettings, run};
use underload_run::{Settings, run as run_scenario};
use underload_scenario::source::Source;
use underload_scenario::{Options, Scenario, ScenarioErrors, builtin};
use underload_store::sweep::{SweepCell, SweepDir, SweepRow};
use underload_store::table::Cell;

const SCENARIO: &str = r#"
    repeats = 2
    seed = 5
    [path]
    up = "5mbit"
    rtt = "10ms"
    [phases]
    idle = "0s"
    ramp = "50ms"
    load = "200ms"
    drain = "0s"
    [[flow]]
    name = "upload"
    kind = "udp"
    direction = "up"
    rate = "6mbit"
    start_jitter = "5ms"
    [[flow]]
    kind = "probe"
    interval = "5ms"
    [[variant]]
    name = "fifo"
    path.up_queue = "fifo:limit=64KiB"
    [[variant]]
    name = "codel"
    path.up_queue = "codel:profile=linux"
"#;

const GRID: &str = r#"
    metrics = ["load.rtt.p99", "utilisation.up"]
    [[axis]]
    key = "path.up"
    values = ["4mbit", "8mbit"]
    [[axis]]
    key = "path.rtt"
    from = "5ms"
    to = "50ms"
    steps = 4
    scale = "log"
"#;

const MILLIONS: &str = r#"
    design = "random"
    samples = 1000000
    [[axis]]
    key = "path.up"
    from = "1mbit"
    to = "100mbit"
    scale = "log"
    [[axis]]
    key = "path.rtt"
    from = "2ms"
    to = "80ms"
"#;

fn source(text: &str) -> Source {
    Source { name: "scenario.toml".to_owned(), text: text.to_owned() }
}

fn sweep_of(text: &str, scenario: &str) -> Sweep {
    parse(text, Some(source(scenario))).expect("a sweep")
}

fn parse(text: &str, scenario: Option<Source>) -> Result<Sweep, ScenarioErrors> {
    Sweep::parse(text, "sweep.toml", scenario, "0.1.0 test", BTreeMap::new())
}

fn settings(path: &Path, workers: usize) -> SweepSettings {
    SweepSettings {
        directory: path.to_owned(),
        workers: NonZeroUsize::new(workers),
        stop: Arc::default(),
    }
}

/// Runs it to its end in a directory and gives its tables and cells.
fn whole(sweep: &Sweep, path: &Path, workers: usize) -> ([Vec<u8>; 2], Vec<SweepCell>) {
    let mut cells = Vec::new();
    let end = run(sweep, &settings(path, workers), &mut (), &mut |cell| cells.push(cell));
    assert!(end.expect("it ends"));
    let table = |name: &str| fs::read(path.join(name)).expect("a table");
    (["trials.parquet", "cells.parquet"].map(table), cells)
}

static GO_ON: AtomicBool = AtomicBool::new(false);

/// The rows of some trials.
fn rows(sweep: &Sweep, trials: Range<u64>) -> Vec<SweepRow> {
    sweep.compute(trials, &GO_ON).collect()
}

/// A text of a column of `trials.parquet`.
fn trial_text(row: &SweepRow, column: &str) -> String {
    let Some(Cell::Text(text)) = row.column(column) else { panic!("no text {column}") };
    text.to_string()
}

#[test]
fn a_cell_is_what_a_run_of_the_same_settings_computes() {
    let sweep = sweep_of(GRID, SCENARIO);
    let manifest = &sweep.manifest;
    assert_eq!((manifest.cells, manifest.repeats, manifest.trials()), (16, 2, 32));
    let rows = rows(&sweep, 0..32);
    assert_eq!(rows.len(), 32);
    for (up, rtt, cell) in [("4mbit", "5ms", 0), ("8mbit", "23208us", 12)] {
        assert_eq!(sweep.values(cell)[1].text, rtt);
        let set = vec![format!("path.up={up}"), format!("path.rtt={rtt}")];
        let options = Options { set, ..Options::default() };
        let load = &mut builtin::load_file;
        let scenario = Scenario::parse_with(SCENARIO, "scenario.toml", &options, load);
        let record = run_scenario(&scenario.expect("right"), &Settings::default(), &mut ());
        let record = record.expect("a run").record;
        for (variant, summary) in record.summaries.iter().enumerate() {
            let first = (cell as usize + variant) * 2;
            for repeat in 0..2 {
                let of_run = |trial: &&TrialRecord| {
                    trial.variant == summary.variant && trial.repeat as usize == repeat
                };
                let trial = record.trials.iter().find(of_run).expect("a trial");
                let row = &rows[first + repeat];
                assert_eq!(trial_text(row, "seed"), trial.seed.to_string());
                assert_eq!(trial_text(row, "variant"), trial.variant);
            }
            // `utilisation.up` is the second metric of the sweep.
            let own: f64 = (0..2).map(|repeat| rows[first + repeat].metrics[1].expect("one")).sum();
            let wanted = metric(summary, "utilisation.up").expect("it has one");
            assert!((own / 2.0 - wanted).abs() < 1e-9, "{own} {wanted}");
        }
    }
}

#[test]
fn the_tables_do_not_depend_on_workers_pieces_and_interruptions() {
    let text = format!("repeats = 6\n{}", GRID.replace("metrics", "title = \"x\"\nmetrics"));
    let sweep = sweep_of(&text, SCENARIO);
    let folder = tempfile::tempdir().expect("a folder");
    let (tables, cells) = whole(&sweep, &folder.path().join("one"), 1);
    assert_eq!(cells.len(), 16);
    assert!(cells.iter().all(|cell| cell.trials == 6));
    assert_eq!(whole(&sweep, &folder.path().join("four"), 4), (tables.clone(), cells.clone()));

    let path = folder.path().join("pieces");
    let mut times = 0;
    loop {
        times += 1;
        let settings = settings(&path, 2);
        let mut listener = StopsAfter { left: 3, stop: Arc::clone(&settings.stop) };
        let mut kept = 0;
        let end = run(&sweep, &settings, &mut listener, &mut |_| kept += 1).expect("an end");
        if end {
            break;
        }
        assert!(kept > 0);
    }
    assert!(times > 1, "the premise: it was interrupted");
    assert_eq!(whole(&sweep, &path, 3), (tables, cells));
}

/// Stops after a few pieces.
struct StopsAfter {
    left: u32,
    stop: Arc<AtomicBool>,
}

impl SweepProgress for StopsAfter {
    fn computed(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_remote_worker_computes_equal_rows() {
    let sweep = sweep_of(GRID, SCENARIO);
    let folder = tempfile::tempdir().expect("a folder");
    let (tables, cells) = whole(&sweep, &folder.path().join("here"), 2);
    let path = folder.path().join("there");
    // Computes as another process does: from the texts of the sweep, with rows as bytes.
    let mut parcels: Vec<Vec<u8>> = Vec::new();
    for start in (0..sweep.manifest.trials()).rev().filter(|trial| trial % 5 == 0) {
        let worker = sweep_of(GRID, SCENARIO);
        let rows: Vec<SweepRow> = worker.compute(start..start + 5, &GO_ON).collect();
        parcels.push(serde_json::to_vec(&rows).expect("bytes"));
    }
    let (mut directory, _) = SweepDir::open(&path, &sweep.manifest).expect("a directory");
    for parcel in parcels {
        let rows: Vec<SweepRow> = serde_json::from_slice(&parcel).expect("rows");
        rows.iter().try_for_each(|row| directory.append(row)).expect("stored");
    }
    assert!(directory.finish(&GO_ON).expect("tables"));
    drop(directory);
    assert_eq!(whole(&sweep, &path, 1), (tables, cells));
}

#[test]
fn a_remote_worker_needs_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml").display().to_string();
    let times: Vec<String> = (1..=50).map(|ms| ms.to_string()).collect();
    let trace = times.join("\n");
    fs::write(folder.path().join("up.trace"), &trace).expect("a trace");
    let text = SCENARIO.replace("up = \"5mbit\"", "up = \"trace:up.trace\"");
    assert_ne!(text, SCENARIO);
    let axis = "[[axis]]\nkey = \"path.rtt\"\nvalues = [\"5ms\", \"9ms\"]\n";
    let parse = |files| {
        let source = Source { name: path.clone(), text: text.clone() };
        Sweep::parse(axis, "sweep.toml", Some(source), "0.1.0 test", files)
    };
    let here = parse(BTreeMap::new()).expect("with its file");
    let files = here.files();
    assert_eq!(files.values().map(Vec::as_slice).collect::<Vec<_>>(), [trace.as_bytes()]);
    fs::remove_file(folder.path().join("up.trace")).expect("removed");
    parse(BTreeMap::new()).expect_err("the file is gone");
    let there = parse(files).expect("with what was sent");
    assert_eq!(there.manifest, here.manifest);
    let computed = rows(&there, 0..8);
    assert_eq!(computed.len(), 8);
    assert_eq!(computed, rows(&here, 0..8));
    // Another file of the same name is another sweep.
    let other = BTreeMap::from([("up.trace".to_owned(), b"1\n".to_vec())]);
    assert_ne!(parse(other).expect("a sweep").manifest, here.manifest);
}

#[test]
fn a_cohort_draws_as_in_a_run() {
    let cohort = r#"
        [cohort]
        per = "trial"
        [[cohort.draw]]
        name = "rtt"
        uniform = { low = "5ms", high = "60ms" }
    "#;
    let text = SCENARIO.replace("rtt = \"10ms\"", "rtt = \"{rtt}\"") + cohort;
    let sweep = sweep_of("repeats = 3", &text);
    assert_eq!((sweep.manifest.cells, sweep.manifest.trials()), (2, 6));
    let rows = rows(&sweep, 0..6);
    let scenario = Scenario::parse(&text, "scenario.toml").expect("right");
    let record = run_scenario(&scenario, &Settings::default(), &mut ()).expect("a run").record;
    let conditions: Vec<String> = rows.iter().map(|row| trial_text(row, "conditions")).collect();
    assert_eq!(conditions.iter().collect::<BTreeSet<_>>().len(), 6, "each draws its own");
    for trial in &record.trials {
        let variant = usize::from(trial.variant == "codel");
        let wanted = serde_json::to_string(&trial.conditions).expect("JSON");
        assert_eq!(conditions[variant * 3 + trial.repeat as usize], wanted);
    }
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), 2);
}

#[test]
fn a_cell_that_fails_is_listed_and_the_others_kept() {
    // Each second value is valid with the first value of the other axis; the two second values
    // together are not a valid path.
    let text = r#"
        [[axis]]
        name = "delays"
        point = [
            { name = "none", phases = { drain = "10ms" } },
            { name = "each", path = { up_delay = "5ms", down_delay = "5ms" } },
        ]
        [[axis]]
        name = "round"
        point = [
            { name = "none", phases = { idle = "10ms" } },
            { name = "both", path = { rtt = "10ms" } },
        ]
    "#;
    let scenario = SCENARIO.replace("rtt = \"10ms\"\n", "");
    let sweep = sweep_of(text, &scenario);
    let folder = tempfile::tempdir().expect("a folder");
    let (_, cells) = whole(&sweep, &folder.path().join("sweep"), 2);
    let failed: Vec<u64> = cells.iter().filter(|it| it.failed > 0).map(|it| it.cell).collect();
    assert_eq!(failed, [6, 7], "both variants of the last point");
    let error = cells[6].error.as_deref().expect("why");
    assert!(error.contains("path.rtt"), "{error}");
    assert_eq!((cells[6].trials, cells[6].failed), (2, 2));
    assert!(cells[..6].iter().all(|cell| cell.metrics[0].is_some()));
    assert!(cells[6].metrics.iter().all(Option::is_none));
}

#[test]
fn a_directory_of_another_sweep_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sweep");
    whole(&sweep_of("repeats = 1", SCENARIO), &path, 1);
    for (text, scenario) in
        [("repeats = 2", SCENARIO), ("repeats = 1", &SCENARIO.replace("8m", "9m"))]
    {
        let other = sweep_of(text, &format!("{scenario}\n"));
        let error = run(&other, &settings(&path, 1), &mut (), &mut |_| {}).expect_err("another");
        assert!(error.is_occupied(), "{error}");
    }
}

#[test]
fn a_million_cells_cost_nothing_until_they_are_computed() {
    let sweep = sweep_of(MILLIONS, SCENARIO);
    assert_eq!((sweep.manifest.cells, sweep.manifest.trials()), (2_000_000, 4_000_000));
    let one = rows(&sweep, 3_999_996..3_999_997);
    assert_eq!(one[0].error, None);
    assert_eq!(one[0].values, sweep.values(1_999_998));
}

#[test]
fn absent_keys_have_defaults() {
    let axis = "repeats = 3\n[[axis]]\nkey = \"path.rtt\"\nvalues = [\"5ms\", \"7ms\"]";
    let sweep = sweep_of(axis, SCENARIO);
    assert_eq!((sweep.manifest.cells, sweep.manifest.repeats), (4, 3));
    assert_eq!(sweep.file.metrics[1], "load.rtt.p99");
}

#[test]
fn mistakes_of_a_sweep_name_their_place() {
    let fault = |text: &str| {
        let error = parse(text, Some(source(SCENARIO)));
        let error = error.map(|_| ()).expect_err(text);
        (error.0.first().and_then(|error| error.line), error.to_string())
    };
    let axis = "[[axis]]\nkey = \"path.rtt\"\n";
    for (text, line, words) in [
        ("repeets = 3", Some(1), "repeets: unknown key"),
        ("repeats = 0", Some(1), "repeats: 0 is out of range; expected 1 to 4294967295"),
        ("repeats = \"3\"", Some(1), "repeats"),
        ("scenario", Some(1), ""),
        ("samples = 3", Some(1), "samples: is not a key of a grid"),
        ("design = \"random\"", None, "samples: is missing"),
        ("design = \"round\"", Some(1), "expected grid or random"),
        (&format!("{axis}values = [\"5ms\", \"fast\"]"), Some(3), "with `fast`: path.rtt"),
        (&format!("{axis}values = [5]"), Some(3), "path.rtt"),
        (&format!("{axis}from = \"1ms\"\nto = \"2ms\""), Some(1), "steps: is missing"),
        (&format!("{axis}values = [\"5ms\"]\n{axis}values = [\"6ms\"]"), Some(4), "path.rtt, too"),
        ("[[axis]]\nkey = \"path.rtd\"\nvalues = [\"5ms\"]", Some(2), "path.rtd"),
        (
            "[[axis]]\nkey = \"path.up_queue\"\nvalues = [\"pie\"]",
            Some(2),
            "overrides this key itself",
        ),
        (
            "[[axis]]\nname = \"variant\"\nkey = \"path.rtt\"\nvalues = [\"5ms\"]",
            Some(1),
            "the column `variant`",
        ),
        (
            "metrics = [\"load.loss\", \"load.loss\"]",
            Some(1),
            "the column `load.loss` exists already",
        ),
        ("metrics = [\"lod.rtt.p99\"]", Some(1), "did you mean `load.rtt.p99`?"),
        ("metrics = [\"bulkk/load.rtt.p99\"]", Some(1), "no flow is named `bulkk`"),
        ("variants = [\"pie\"]", Some(1), "no variant is named `pie`"),
        ("set = [\"path.up=fast\"]", Some(1), "path.up"),
        ("short = true", Some(1), "short: the scenario has no table [short]"),
        ("[best]\nmetric = \"lod.loss\"", Some(2), "did you mean `load.loss`?"),
        ("repeats = 4000000000", None, "more than 4294967295 trials"),
    ] {
        let (found, message) = fault(text);
        assert!(message.contains(words), "{text}: {message}");
        assert!(line.is_none() || found == line, "{text}: line {found:?}: {message}");
    }
    let missing = parse("repeats = 1", None).expect_err("no scenario");
    assert!(missing.to_string().contains("scenario: is missing"), "{missing}");
    let unknown = parse("scenario = \"comcast/upsteam\"", None);
    let unknown = unknown.expect_err("no such scenario").to_string();
    assert!(unknown.contains("did you mean `comcast/upstream`?"), "{unknown}");
}

/// Errors show lines of the scenario.
#[test]
fn a_sweep_names_no_scenario_outside_its_folder() {
    for outside in ["/etc/shadow", "../../etc/shadow", "./a/../../b.toml"] {
        let said =
            parse(&format!("scenario = \"{outside}\""), None).expect_err(outside).to_string();
        assert!(said.contains("expected a file in the folder of this one"), "{said}");
    }
}

#[test]
fn settings_of_a_sweep_have_its_axes() {
    let text = "repeats = 2\n[[axis]]\nkey = \"path.rtt\"\nfrom = \"5ms\"\nto = \"40ms\"\n\
                steps = 4\nscale = \"log\"\n";
    let sweep = parse(text, Some(source(SCENARIO)));
    let settings = sweep.expect("a sweep").settings();
    let of = |key: &str| {
        let found = settings.iter().find(|setting| setting.key == key).expect(key);
        (found.values[0].value.as_deref(), found.values[0].origin.as_str())
    };
    let words = Some("5ms to 40ms in 4 steps (log)");
    assert_eq!(of("sweep.repeats"), (Some("2"), "line 1"));
    assert_eq!(of("sweep.design"), (Some("grid"), "default"));
    assert_eq!(of("sweep.axis.path.rtt"), (words, "line 2"));
    assert_eq!(of("path.rtt"), (words, "axis path.rtt"));
    assert_eq!(of("path.up").0, Some("5mbit"));
}

/// Keys of a wrong type and faults in the scenario do not hide other faults.
#[test]
fn all_faults_of_a_sweep_file_are_reported_at_once() {
    let text = "repeats = \"3\"\nset = [\"path.up=fast\"]\nvariants = [\"pie\"]\n[[axis]]\nkey = 7\n\
         [[axis]]\nkey = \"path.rtt\"\nvalues = []";
    let all = parse(text, Some(source(SCENARIO)));
    let all = all.expect_err("five faults").0;
    let places: Vec<_> = all.iter().map(|fault| (fault.line, fault.key.as_str())).collect();
    let expected = [
        (Some(1), "repeats"),
        (Some(2), "set[0]"),
        (Some(3), "variants[0]"),
        (Some(5), "axis[0].key"),
        (Some(8), "axis[1].values"),
    ];
    assert_eq!(places, expected);

    let axis = "[[axis]]\nkey = \"path.rtt\"\n";
    let text = format!("{axis}values = [\"5ms\"]\n{axis}values = []\n[best]\nmetric = \"m\"");
    let all = parse(&text, Some(source(SCENARIO)));
    let all = all.expect_err("two faults").0;
    let keys: Vec<&str> = all.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["axis[1].values", "best.metric"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A sweep file in which a random piece is replaced by another text.
    #[test]
    fn any_text_is_read_or_refused(
        at in 0_usize..400,
        length in 0_usize..40,
        piece in prop::sample::select(PIECES.to_vec()),
    ) {
        let whole = format!("{GRID}{LATIN}");
        let (start, end) = (at.min(whole.len()), (at + length).min(whole.len()));
        let text = format!("{}{piece}{}", &whole[..start], &whole[end..]);
        match parse(&text, Some(source(SCENARIO))) {
            Ok(sweep) => {
                let values = sweep.values(sweep.manifest.cells - 1);
                prop_assert_eq!(values.len(), sweep.manifest.columns.axes.len());
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

const LATIN: &str = r#"
    [[axis]]
    name = "load"
    [[axis.point]]
    name = "much"
    flow.upload.rate = "9mbit"
    [best]
    metric = "load.rtt.p99"
"#;

const PIECES: [&str; 12] = [
    "",
    "\"",
    "\n",
    "= 0\n",
    "-1",
    "1e308",
    "99999999999",
    "[[axis]]\n",
    "design = \"random\"\nsamples = 5\n",
    "steps = 2\n",
    "\u{e9}",
    "{",
];

/// Removes the directory as soon as a trial is computed.
struct Vandal<'a> {
    path: &'a Path,
    /// The number of stored units that was reported at the end.
    stored: Option<u64>,
}

impl SweepProgress for Vandal<'_> {
    fn computed(&mut self) {
        if self.path.exists() {
            fs::remove_dir_all(self.path).expect("removed");
        }
    }

    fn end(&mut self, stored: u64) {
        self.stored = Some(stored);
    }
}

#[test]
fn a_disk_that_fails_ends_a_sweep_of_millions_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sweep");
    let sweep = sweep_of(MILLIONS, SCENARIO);
    let mut vandal = Vandal { path: &path, stored: None };
    let error = run(&sweep, &settings(&path, 2), &mut vandal, &mut |_| {});
    let error = error.expect_err("it cannot be written");
    assert_eq!(vandal.stored, Some(0));
    assert!(!error.is_occupied(), "{error}");
    assert!(error.to_string().contains("sweep"), "{error}");
}
