//! Pages with few results, without results, and with deleted results.

use std::time::Duration;

use underload_fleet::device::Attributes;
use underload_fleet::outcome::Outcome;
use underload_fleet::retention::Retention;
use underload_fleet::store::{Archive as _, Filter, Memory, Needs, PlanRow, Store, StoredResult};
use underload_orchestrator::store::SqlStore;
use underload_orchestrator::study::{Question, StudyError, study};

use super::synthetic::served::{Served, serve};
use super::synthetic::{self, NOW_MS, PLAN};
use super::{SIZE, Session, column};

fn append(store: &mut dyn Store, results: &[StoredResult]) {
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    assert!(tx.append(results).expect("it is kept").iter().all(|is_new| *is_new));
    tx.commit().expect("it is kept");
}

/// Returns a further result of a device.
fn besides(number: u32) -> StoredResult {
    let (_, mut result) = synthetic::measured(number, SIZE);
    (result.epoch, result.result.plan) = (9, PLAN.to_owned());
    result
}

fn failed(number: u32, plan: &str, reason: &str) -> StoredResult {
    let mut result = besides(number);
    result.result.steps.clear();
    (result.result.outcome, result.result.reason) = (Outcome::Failed, reason.to_owned());
    plan.clone_into(&mut result.result.plan);
    result
}

/// Results of two devices, which also measured another marking and lost some of its probes.
fn lossy(number: u32) -> StoredResult {
    let mut result = besides(number);
    for series in result.result.steps.iter_mut().flat_map(|step| &mut step.series) {
        (series.dscp, series.lost) = (9, series.bins.count());
        series.sent = series.lost * 2;
    }
    result
}

fn served() -> Served {
    let mut store = Memory::new();
    synthetic::fill(&mut store, SIZE).expect("memory keeps it");
    let mut tx = store.begin(&Needs::default()).expect("memory does");
    let text = underload_fleet::plan::Plan::built_in(PLAN).expect("it is built in").to_owned();
    let solo = PlanRow { name: "solo".to_owned(), text, applied_ms: 1, stopped_ms: None };
    tx.put_plan(&solo).expect("memory keeps it");
    tx.commit().expect("memory keeps it");
    append(&mut store, &[failed(0, "solo", "the cat sat on it")]);
    append(&mut store, &[failed(1, PLAN, "a fuse of Ms Jones"), lossy(2), lossy(3)]);
    let archives = (0..2).map(|_| Box::new(store.clone()) as _).collect();
    serve(store, archives, 0).expect("memory keeps it")
}

fn says(session: &Session<'_>, path: &str) -> String {
    let page = session.json(path);
    page["says"].as_array().expect("sentences")[0].as_str().expect("a sentence").to_owned()
}

#[test]
fn a_viewer_sees_no_name_of_a_home_without_results() {
    let served = served();
    let (viewer, operator) =
        (Session::new(&served, &served.viewer), Session::new(&served, &served.operator));
    for path in ["/overview.json?plan=solo", "/study.json?plan=solo", "/overview?plan=solo"] {
        let answer = viewer.get(path);
        assert_eq!((answer.status, operator.get(path).status), (403, 200), "{path}");
        assert!(!answer.body.contains("the cat"), "{path}: {}", answer.body);
    }
    let path = format!("/overview.json?plan={PLAN}");
    let (all, seen) = (operator.get(&path).body, viewer.get(&path).body);
    assert!(all.contains("Ms Jones") && !seen.contains("Ms Jones"), "{seen}");
    let runs = |session: &Session<'_>| -> u64 {
        let rows = column(&session.json(&path), "reasons", "runs");
        rows.iter().filter_map(|(_, runs)| runs.as_u64()).sum()
    };
    assert_eq!(runs(&operator), runs(&viewer), "it is among all others");
    assert!(seen.contains("all others"), "{seen}");
}

#[test]
fn no_data_and_withheld_data_have_different_sentences() {
    let served = served();
    let (viewer, operator) =
        (Session::new(&served, &served.viewer), Session::new(&served, &served.operator));
    for page in ["overview", "study"] {
        let of = |dscp: u8| format!("/{page}.json?plan={PLAN}&load=upload&dscp={dscp}");
        let nothing = "Nothing was measured with the upstream full since ";
        for session in [&viewer, &operator] {
            let said = says(session, &of(10));
            assert!(said.starts_with(nothing), "{said}");
        }
        let hidden = says(&viewer, &of(9));
        assert!(hidden.contains("have fewer than 5 devices"), "{hidden}");
        let lost = says(&operator, &format!("{}&by=dscp", of(9)));
        // With markings as groups, cohorts are not pooled.
        let want = "With the upstream full, more than 1 of 100 probes was lost (classic, DSCP 9)";
        assert!(lost.starts_with(want), "{lost}");
        let both = says(&operator, &format!("/{page}.json?plan={PLAN}&load=upload&by=dscp"));
        let lost = ", and more than 1 of 100 probes was lost (classic, DSCP 9) ";
        assert!(both.contains(lost), "{both}");
    }
}

#[test]
fn data_retained_only_as_sums_is_marked() {
    let folder = underload_disk::faults::private_tempdir().expect("a folder");
    let mut store = SqlStore::sqlite(folder.path()).expect("it opens");
    synthetic::fill(&mut store, SIZE).expect("it is kept");
    let retention = Retention { raw_days: 1, bins_days: 2 };
    let mut housekeeping = store.housekeeping(None, retention).expect("a keeper");
    let later_ms = NOW_MS + 30 * 86_400_000;
    let mut archive = store.archive().expect("an archive");
    let left = |archive: &mut underload_orchestrator::store::SqlArchive| {
        let mut left = 0;
        let see = &mut |_: &StoredResult| {
            left += 1;
            true
        };
        archive.visit(&Filter::default(), see).expect("it answers");
        left
    };
    // A round skips a locked file; the next round does its work.
    for now_ms in (0..1_000).map(|round| later_ms + round * 3_600_000) {
        while housekeeping.step(now_ms).expect("it steps").next_ms <= now_ms {}
        if left(&mut archive) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(&mut archive), 0, "the premise: every day is added up");
    let ask = |archive: &mut dyn underload_fleet::store::Archive| {
        study(archive, PLAN, &Question::default())
    };
    let error = ask(&mut archive).expect_err("no run is left");
    assert!(matches!(error, StudyError::OnlySums { .. }), "{error}");
    assert!(error.to_string().ends_with("only sums of 4 days before 2026-11-23"));
    let mut new = besides(0);
    (new.result.at_ms, new.attributes) = (NOW_MS + 86_400_000, Attributes::default());
    append(&mut store, &[new]);
    let found = ask(&mut archive).expect("one run is there");
    assert_eq!((found.results, found.summed_days), (1, 4));
    assert_eq!(found.summed_until_ms, Some(NOW_MS / 86_400_000 * 86_400_000 + 86_400_000));

    let archives = (0..2).map(|_| Box::new(store.archive().expect("one")) as _).collect();
    let served = serve(store, archives, 0).expect("it is served");
    let operator = Session::new(&served, &served.operator);
    let study_of = |rest: &str| {
        let path = format!("/study.json?plan={PLAN}&load=upload&{rest}");
        operator.json(&path)["says"].to_string()
    };
    let told = "4 days before 2026-11-23 are stored as sums only and missing here.";
    assert!(study_of("by=segment").contains(told), "{}", study_of("by=segment"));
    assert!(!study_of("by=cohort").contains("sums only"), "sums answer that");
    let before = study_of("by=segment&until=2026-11-22");
    assert!(
        before.contains("cannot be grouped or filtered like this: only sums of 4 days before"),
        "{before}"
    );
}
