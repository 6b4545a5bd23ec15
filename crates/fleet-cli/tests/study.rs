//! Tests of `fleet study`: it reads a store, and writes sentences, a page and JSON.

use std::path::Path;
use std::process::{Command, Output};

use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::{Kind, Plan};
use underload_fleet::store::{Needs, PlanRow, Store as _, StoredResult};
use underload_orchestrator::store::SqlStore;

fn result(line: u8) -> StoredResult {
    let is_treated = line.is_multiple_of(2);
    let ms = if is_treated { 20.0 } else { 160.0 } + f64::from(line % 7);
    let mut bins = Bins::default();
    (0..10).for_each(|_| bins.add(ms * 1e3));
    let series = SeriesResult {
        dscp: 0,
        sent: 10,
        lost: 0,
        bins,
        p50_us: Some((ms * 1e3) as u64),
        p99_us: Some((ms * 1e3) as u64),
        mean_us: Some((ms * 1e3) as u64),
        max_us: Some((ms * 2e3) as u64),
    };
    let step = StepResult {
        step: "up".to_owned(),
        inside: None,
        kind: Kind::Upload,
        goodput_bit_per_s: Some(35_000_000),
        tier_percent: Some(100.0),
        grade: None,
        series: vec![series],
    };
    StoredResult {
        device: DeviceId([line; 16]),
        epoch: 1,
        sequence: 1,
        stored_ms: 1_600_000_000_000,
        pseudonym: Pseudonym([line; 16]),
        cohort: if is_treated { "treated" } else { "control" }.to_owned(),
        attributes: Attributes { region: "north".to_owned(), ..Attributes::default() },
        result: RunResult {
            plan: "comcast-study".to_owned(),
            run: 1,
            at_ms: 1_600_000_000_000,
            outcome: Outcome::Measured,
            reason: String::new(),
            server: String::new(),
            version: String::new(),
            steps: vec![step],
        },
    }
}

fn fill(directory: &Path) {
    let mut store = SqlStore::sqlite(directory).expect("a new store");
    let mut tx = store.begin(&Needs::default()).expect("a transaction");
    let text = Plan::built_in("comcast-study").expect("it is built in").to_owned();
    let name = "comcast-study".to_owned();
    tx.put_plan(&PlanRow { name, text, applied_ms: 0, stopped_ms: None }).expect("it is kept");
    let mut results: Vec<StoredResult> = (0..60).map(result).collect();
    for (place, reason) in ["no answer", "late\u{1b}[31m", "no answer"].into_iter().enumerate() {
        let mut failed = result(place as u8);
        failed.sequence = 2;
        failed.result.run = 2;
        failed.result.outcome = Outcome::Failed;
        reason.clone_into(&mut failed.result.reason);
        failed.result.steps.clear();
        results.push(failed);
    }
    tx.append(&results).expect("they are kept");
    tx.commit().expect("it is on disk");
}

fn study(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_underload-fleet"));
    command.arg("study").args(arguments).current_dir(folder);
    command.output().expect("the program starts")
}

#[test]
fn a_study_is_written_as_sentences_page_and_json() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(&folder.path().join("fleet"));
    let of_store = ["comcast-study", "--store", "sqlite:fleet"];
    let with = |more: &[&str]| study(&[&of_store, more].concat(), folder.path());
    let told = with(&["--by", "region", "--html", "study.html"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{told:?}");
    assert!(text.contains("treated has 7.") && text.contains("times less latency under upload"));
    assert!(text.contains("over 30 and 30 devices") && text.contains("within the same region"));
    let reasons = text.split_once("why runs did not measure\n").expect("reasons").1;
    let reasons: Vec<&str> = reasons.lines().map(str::trim).collect();
    assert_eq!(reasons.first(), Some(&"2  failed: no answer"));
    assert!(reasons.len() == 2 && !text.contains('\u{1b}'), "what a device wrote is text");
    let page = std::fs::read_to_string(folder.path().join("study.html")).expect("a page");
    assert!(page.contains("treated has 7.") && page.contains("<svg class=\"plot\""));
    let json = with(&["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("a document");
    assert_eq!(json["cohorts"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["reference"], "control");
    let turned = with(&["--against", "treated"]);
    assert!(String::from_utf8_lossy(&turned.stdout).contains("times more latency"));
    for (arguments, words) in [
        (&["--by", "colour"][..], "known: model"),
        (&["--against", "nobody"], "there are:"),
        (&["--where", "region=south"], "no results of plan"),
        (&["--where", "region"], "expected NAME=VALUE"),
        (&["--where", "model=A", "--where", "model=B"], "`model` is given twice"),
    ] {
        let refused = with(arguments);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && error.contains(words), "{error}");
    }
    let unknown = study(&["x", "--store", "sqlite:fleet"], folder.path());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("known: comcast-study"));
    let missing = study(&["x", "--store", "sqlite:nowhere"], folder.path());
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(!folder.path().join("nowhere").exists(), "asking makes no store");
    let strange = study(&["x", "--store", "fleet"], folder.path());
    assert_eq!(strange.status.code(), Some(2), "{strange:?}");
}
