//! Studies of made-up results in a store in memory.

use underload_aqm::rng::Rng;
use underload_fleet::bins::Bins;
use underload_fleet::device::{Attributes, DeviceId, Pseudonym};
use underload_fleet::line::{AttributeChange, Line};
use underload_fleet::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use underload_fleet::plan::Kind;
use underload_fleet::store::Memory;
use underload_fleet::store::{Needs, PlanRow, Store as _, StoredResult};

use super::*;
use underload_record::comparison::Verdict;

const PLAN: &str = r#"
title = "two classes"
runs_per_day = 2
[lines]
count = 100
[[tier]]
up = "35mbit"
down = "800mbit"
[[step]]
name = "idle"
kind = "latency"
duration = "5s"
classes = [0, 45]
[[step]]
name = "up"
kind = "upload"
duration = "7s"
classes = [0, 45]
[servers]
count = 2
capacity = "10gbit"
"#;

const DAY_MS: u64 = 86_400_000;

fn series(dscp: u8, delays_ms: &[f64], lost: u64) -> SeriesResult {
    let mut bins = Bins::default();
    for ms in delays_ms {
        bins.add(ms * 1e3);
    }
    let max = delays_ms.iter().copied().fold(0.0, f64::max);
    let mean = delays_ms.iter().sum::<f64>() / delays_ms.len() as f64;
    SeriesResult {
        dscp,
        sent: delays_ms.len() as u64 + lost,
        lost,
        bins,
        p50_us: None,
        p99_us: None,
        mean_us: Some((mean * 1e3) as u64),
        max_us: Some((max * 1e3) as u64),
    }
}

/// A run of a line with an upload of `moved` Mbit/s and the given loaded delays of both classes.
fn run(line: u8, at_ms: u64, moved: u64, low: &[f64], bulk: &[f64]) -> StoredResult {
    let step = |name: &str, kind, goodput: Option<u64>, series| StepResult {
        step: name.to_owned(),
        inside: None,
        kind,
        goodput_bit_per_s: goodput,
        tier_percent: goodput.map(|moved| moved as f64 / 35e6 * 100.0),
        grade: None,
        series,
    };
    let idle = vec![series(0, &[10.0; 10], 0), series(45, &[10.0; 10], 0)];
    let loaded = vec![series(0, bulk, 0), series(45, low, 0)];
    StoredResult {
        device: DeviceId([line; 16]),
        epoch: 1,
        sequence: at_ms + moved,
        stored_ms: at_ms,
        pseudonym: Pseudonym([line; 16]),
        cohort: if line.is_multiple_of(2) { "aqm" } else { "control" }.to_owned(),
        attributes: Attributes { region: "north".to_owned(), ..Attributes::default() },
        result: RunResult {
            plan: "trial".to_owned(),
            run: 1,
            at_ms,
            outcome: Outcome::Measured,
            reason: String::new(),
            server: "east".to_owned(),
            version: String::new(),
            steps: vec![
                step("idle", Kind::Latency, None, idle),
                step("up", Kind::Upload, Some(moved * 1_000_000), loaded),
            ],
        },
    }
}

#[test]
fn round_trips_inside_the_load_are_a_separate_series() {
    let results: Vec<StoredResult> = (1..=4)
        .map(|line| {
            let mut stored = run(line, 0, 35, &[20.0; 50], &[21.0; 50]);
            let delay_ms = if line % 2 == 0 { 40.0 } else { 120.0 };
            stored.result.steps[1].inside = Some(series(0, &[delay_ms; 700], 0));
            stored
        })
        .collect();
    let study = study_of(&results);
    let headline = study.headline().expect("a series");
    assert!(!headline.is_inside && headline.step == "up");
    let inside = study.series.iter().find(|it| it.is_inside).expect("round trips inside the load");
    assert_eq!((inside.step.as_str(), inside.load.as_str(), inside.dscp), ("up", "upload", 0));
    for (cohort, p99_ms) in [("control", 120.0), ("aqm", 40.0)] {
        let own = inside.cohorts.iter().find(|it| it.cohort == cohort).expect("a cohort");
        // Quantiles are interpolated within bins of 2 %.
        let ms = own.quantiles.last().and_then(|it| it.ms).expect("a p99");
        assert!((ms / p99_ms - 1.0).abs() < 0.02, "{ms} is not {p99_ms}");
        assert_eq!((own.devices, own.sent), (2, 1_400));
    }
    assert!(study.classes.iter().all(|class| class.against == 0), "{:?}", study.classes);
}

#[test]
fn quality_of_outcome_follows_from_the_numbers_that_are_stored() {
    let with_p99 = |delay_ms: f64, count: usize| SeriesResult {
        p99_us: Some((delay_ms * 1e3) as u64),
        ..series(0, &vec![delay_ms; count], 0)
    };
    let results: Vec<StoredResult> = (1..=8)
        .map(|line| {
            let mut stored = run(line, 0, 35, &[20.0; 50], &[21.0; 50]);
            let step = &mut stored.result.steps[1];
            step.series[0] = with_p99(if line % 2 == 0 { 100.0 } else { 325.0 }, 700);
            step.inside = Some(with_p99(150.0, 700));
            stored
        })
        .collect();
    let study = study_of(&results);
    let of = |cohort: &str| study.qualities.iter().find(|it| it.cohort == cohort).expect("a row");
    let (own, reference) = (of("aqm"), of("control"));
    // A game is optimal at 100 ms and unacceptable at 400 ms.
    near(own.percent.as_ref().map(|it| it.mean), 100.0);
    near(reference.percent.as_ref().map(|it| it.mean), 25.0);
    near(own.gain.as_ref().map(|it| it.value), 75.0);
    assert_eq!((own.devices, own.step.as_str(), reference.gain.as_ref()), (4, "up", None));
    let few = study_of(&[run(2, 0, 35, &[20.0; 50], &[21.0; 50])]);
    assert!(few.qualities.is_empty(), "50 probes have no 99th percentile");
}

fn archive(results: &[StoredResult]) -> Memory {
    let mut store = Memory::new();
    let mut tx = store.begin(&Needs::default()).expect("memory");
    let row = PlanRow {
        name: "trial".to_owned(),
        text: PLAN.to_owned(),
        applied_ms: 0,
        stopped_ms: None,
    };
    tx.put_plan(&row).expect("memory");
    tx.append(results).expect("memory");
    tx.commit().expect("memory");
    store
}

fn study_of(results: &[StoredResult]) -> CohortStudy {
    study(&mut archive(results), "trial", &Question::default()).expect("a study")
}

fn of_class(study: &CohortStudy, dscp: u8) -> &underload_record::schema::ClassStudy {
    study.classes.iter().find(|class| class.dscp == dscp).expect("it was measured")
}

fn near(found: Option<f64>, want: f64) {
    let found = found.expect("a value");
    assert!((found / want - 1.0).abs() < 0.011, "{found} is not {want}");
}

#[test]
fn a_days_round_trips_are_pooled_and_days_averaged_by_line() {
    // Day 0 has two runs: 10 to 109 ms of DSCP 0, p99 108. The average of the p99 of both would be
    // 84.
    let first: Vec<f64> = (10..60).map(f64::from).collect();
    let second: Vec<f64> = (60..110).map(f64::from).collect();
    let results = [
        run(2, 0, 35, &[20.0; 50], &first),
        run(2, 1_000, 35, &[20.0; 50], &second),
        run(2, DAY_MS, 35, &[34.0; 50], &[58.0; 50]),
    ];
    let study = study_of(&results);
    let bulk = of_class(&study, 0);
    assert_eq!((bulk.devices, bulk.days, bulk.against), (1, 2, 0));
    let mean = |interval: &Option<underload_record::schema::Interval>| {
        interval.as_ref().map(|interval| interval.mean)
    };
    near(mean(&bulk.idle_p50_ms), 10.0);
    near(mean(&bulk.loaded_p99_ms), f64::midpoint(108.0, 58.0));
    assert!(bulk.cut_percent.is_none());
    // Day 0: lags of 10 and 98 ms; day 1: of 24 and 48.
    let cut = mean(&of_class(&study, 45).cut_percent).expect("both classes");
    let want = f64::midpoint(1.0 - 10.0 / 98.0, 0.5) * 100.0;
    assert!((cut - want).abs() < 1.5, "{cut} is not {want}");
    assert_eq!((study.cohorts[0].devices, study.cohorts[0].tests), (1, 3));
}

#[test]
fn a_run_that_does_not_fill_its_own_line_has_no_lag() {
    let results = [
        run(2, 0, 35, &[20.0; 50], &[110.0; 50]),
        run(2, 1, 33, &[500.0; 50], &[500.0; 50]),
        run(2, DAY_MS, 34, &[20.0; 50], &[110.0; 50]),
    ];
    let study = study_of(&results);
    near(of_class(&study, 0).loaded_p99_ms.map(|interval| interval.mean), 110.0);
    assert_eq!(of_class(&study, 0).days, 2);
    let used = study.uses[0].percent.expect("a tier");
    assert!((used.mean - (35.0 + 33.0 + 34.0) / 3.0 / 0.35).abs() < 1e-6, "{used:?}");
}

#[test]
fn results_up_to_two_days_late_count_and_later_ones_are_reported() {
    let day = |day: u64, ms: f64| run(2, day * DAY_MS, 35, &[ms; 50], &[ms; 50]);
    let orderly = study_of(&[day(0, 20.0), day(1, 40.0), day(2, 60.0), day(9, 80.0)]);
    let late = study_of(&[day(2, 60.0), day(1, 40.0), day(0, 20.0), day(9, 80.0)]);
    assert_eq!(orderly.classes, late.classes);
    assert_eq!((orderly.late_runs, late.late_runs), (0, 0));
    let too_late = study_of(&[day(9, 80.0), day(2, 60.0)]);
    assert_eq!((too_late.late_runs, of_class(&too_late, 0).days), (1, 1));
    assert_eq!(too_late.cohorts[0].tests, 2, "it counts everywhere else");
}

#[test]
fn lost_probes_count_as_longer_than_all_answers() {
    let mut lossy = run(2, 0, 35, &[20.0; 50], &[20.0; 50]);
    let up = &mut lossy.result.steps[1].series[0];
    (up.lost, up.sent) = (2, 52);
    let study = study_of(&[lossy]);
    let bulk = of_class(&study, 0);
    assert_eq!((bulk.days, bulk.days_lost, bulk.loaded_p99_ms), (0, 1, None), "its p99 was lost");
    assert_eq!((of_class(&study, 45).days, of_class(&study, 45).days_lost), (1, 0));
    let up = study.headline().expect("an upload");
    assert_eq!((up.cohorts[0].lost, up.cohorts[0].quantiles[3].ms), (2, None));
}

#[test]
fn cohorts_are_compared_with_the_one_that_is_named() {
    let mut rng = Rng::new(1);
    let results: Vec<StoredResult> = (0..100_u8)
        .map(|line| {
            let factor = if line.is_multiple_of(2) { 1.0 } else { 8.0 };
            let ms = factor * (15.0 + f64::from(rng.below(1_000)) / 200.0);
            run(line, u64::from(line), 35, &[ms; 5], &[ms; 5])
        })
        .collect();
    let study = study_of(&results);
    assert_eq!(study.reference, "control");
    let found = study.headline().expect("an upload").comparisons[0].mean.clone().expect("both");
    let ratio = found.ratio.expect("positive");
    assert!(ratio.low.unwrap() < 8.0 && ratio.high.unwrap() > 8.0, "{ratio:?}");
    assert_eq!(study, study_of(&results), "the same seed");
    let mut store = archive(&results);
    let mut ask = |question: Question| super::study(&mut store, "trial", &question);
    let turned = ask(Question { against: Some("aqm".to_owned()), ..Question::default() });
    assert_eq!(turned.expect("a study").reference, "aqm");
    let by = vec!["region".to_owned(), "hour".to_owned()];
    let strata = ask(Question { by, ..Question::default() }).expect("a study").series[2].clone();
    assert_eq!(strata.stratified.len(), 2);
    assert_eq!(strata.stratified[0].strata[0].value, "north");
    let unknown = ask(Question { against: Some("x".to_owned()), ..Question::default() });
    assert!(unknown.is_err_and(|error| error.to_string().contains("aqm, control")));
    let by = vec!["colour".to_owned()];
    let unknown = ask(Question { by, ..Question::default() });
    assert!(unknown.is_err_and(|error| error.to_string().contains("model, firmware")));
    let none = super::study(&mut store, "other", &Question::default());
    assert!(none.is_err_and(|error| error.to_string().contains("known: trial")));
    let nothing = super::study(&mut archive(&[]), "trial", &Question::default());
    let told = nothing.expect_err("nothing was handed in").to_string();
    assert!(told.starts_with("no results of plan `trial` yet; its runs are due about "), "{told}");
}

#[test]
fn runs_before_an_attribute_change_belong_to_the_old_attributes() {
    // The latency of `aqm` is an eighth with the old firmware, and equal with the new one.
    let results: Vec<StoredResult> = (0..24_u8)
        .flat_map(|line| (0..6_u64).map(move |test| (line, test)))
        .map(|(line, test)| {
            let is_old = test < 5;
            let factor = if is_old && !line.is_multiple_of(2) { 8.0 } else { 1.0 };
            let ms = factor * (20.0 + f64::from(line) / 10.0);
            let mut kept = run(line, test * DAY_MS, 35, &[ms; 5], &[ms; 5]);
            kept.attributes.firmware = if is_old { "1.0" } else { "2.0" }.to_owned();
            kept
        })
        .collect();
    let mut store = archive(&results);
    let by = vec!["firmware".to_owned()];
    let of = Question { by, ..Question::default() };
    let study = super::study(&mut store, "trial", &of).expect("a study");
    let up = study.headline().expect("an upload");
    assert_eq!((up.cohorts[0].devices, up.cohorts[0].tests), (12, 72), "each line counts once");
    let [old, new] = up.stratified[0].strata.as_slice() else { panic!("{:?}", up.stratified) };
    assert_eq!((old.value.as_str(), old.devices), ("1.0", [12, 12]));
    assert_eq!((new.value.as_str(), new.devices), ("2.0", [12, 12]));
    assert!((old.ratio.value / 8.0 - 1.0).abs() < 0.05, "{old:?}");
    assert!((new.ratio.value - 1.0).abs() < 0.05, "{new:?}");
}

/// A roll-out that reaches all lines of a cohort in the second of three months.
#[test]
fn a_roll_out_shows_in_the_months_of_a_study() {
    let results: Vec<StoredResult> = (0..24_u8)
        .flat_map(|line| (0..3_u64).map(move |month| (line, month)))
        .map(|(line, month)| {
            let factor = if month == 0 || !line.is_multiple_of(2) { 8.0 } else { 1.0 };
            let ms = factor * (20.0 + f64::from(line) / 10.0);
            // 2020-10-01, and 31 and 62 days later.
            run(line, 1_601_510_400_000 + month * 31 * DAY_MS, 35, &[ms; 5], &[ms; 5])
        })
        .collect();
    let of = Question { by: vec!["month".to_owned()], ..Question::default() };
    let study = super::study(&mut archive(&results), "trial", &of).expect("a study");
    let months = &study.headline().expect("an upload").stratified[0].strata;
    let shown: Vec<(&str, bool)> =
        months.iter().map(|month| (month.value.as_str(), month.ratio.value > 5.0)).collect();
    assert_eq!(shown, [("2020-10", false), ("2020-11", true), ("2020-12", true)]);
}

#[test]
fn every_line_counts_whether_results_are_sorted_in_memory_or_in_a_file() {
    let plan = Plan::parse(PLAN).expect("a plan");
    let mut rng = Rng::new(2);
    let lines: Vec<Pseudonym> =
        (0..1_500).map(|_| Pseudonym(std::array::from_fn(|_| rng.below(256) as u8))).collect();
    let by = vec!["month".to_owned()];
    let [in_memory, in_file] = [usize::MAX, 10_000].map(|bytes| {
        let mut collector = Collector::new(&plan, &by, false).with_room_for(bytes);
        for day in 0..3 {
            for (number, pseudonym) in lines.iter().enumerate() {
                let ms = 20.0 + (number * 7 % 31 + day) as f64;
                let mut result =
                    run(number as u8, day as u64 * 31 * DAY_MS, 35, &[ms; 5], &[2.0 * ms; 5]);
                result.pseudonym = *pseudonym;
                collector.see(&result).expect("sorted");
            }
        }
        let collected = collector.finish().expect("sorted");
        (collected.results, cohorts::study(&collected.lines, 1))
    });
    assert_eq!(in_memory, in_file);
    let (results, study) = in_file;
    let counted: Vec<(u64, u64)> =
        study.cohorts.iter().map(|cohort| (cohort.devices, cohort.tests)).collect();
    assert_eq!((results, counted), (4_500, vec![(750, 2_250), (750, 2_250)]));
    let sent: Vec<u64> =
        study.series.iter().flat_map(|it| &it.cohorts).map(|own| own.sent).collect();
    assert_eq!(
        sent,
        [750 * 3 * 10, 750 * 3 * 10, 750 * 3 * 10, 750 * 3 * 10, 11_250, 11_250, 11_250, 11_250]
    );
}

#[test]
fn unscheduled_and_unplanned_results_are_not_counted() {
    let mut alone = run(2, 0, 35, &[20.0; 5], &[20.0; 5]);
    alone.result.run = 0;
    alone.result.steps.truncate(1);
    let mut strange = run(2, 1, 35, &[20.0; 5], &[20.0; 5]);
    strange.result.steps[1].step = "down".to_owned();
    let mut refused = run(2, 2, 35, &[], &[]);
    refused.result.outcome = Outcome::Refused;
    refused.result.steps.clear();
    let study = study_of(&[alone, strange, refused]);
    let counted: Vec<(&str, u64)> =
        study.outcomes.iter().map(|row| (row.outcome.as_str(), row.runs)).collect();
    assert_eq!(counted, [("measured", 1), ("refused", 1)]);
    assert!(study.series.iter().all(|series| series.step == "idle"));
    assert!(study.uses.is_empty() && study.classes.is_empty());
}

#[test]
fn an_unscheduled_run_counts_for_its_device_and_not_in_pooled_numbers() {
    let at = |day: u64| (20_000 + day) * DAY_MS;
    let mut results: Vec<_> =
        (1..=6).map(|line| run(line, at(0), 30, &[20.0; 10], &[20.0; 10])).collect();
    for sequence in 0..50 {
        let mut own = run(2, at(1) + sequence, 30, &[900.0; 10], &[900.0; 10]);
        own.result.run = 0;
        results.push(own);
    }
    let study = study_of(&results);
    let upload = study.headline().expect("it was measured");
    let aqm = upload.cohorts.iter().find(|own| own.cohort == "aqm").expect("it has lines");
    assert_eq!((aqm.devices, aqm.sent), (3, 30));
    let p99 = aqm.quantiles.iter().find(|it| it.share > 0.98).and_then(|it| it.ms);
    assert!(p99.is_some_and(|ms| ms < 21.0), "{p99:?}");
    near(Some(aqm.mean.median), 20.0);
    // One of the device's 51 tests measured 20 ms.
    near(aqm.mean.curve.last().map(|(ms, _)| *ms), (20.0 + 50.0 * 900.0) / 51.0);
}

#[test]
fn unplanned_steps_are_left_out_and_repeated_steps_have_no_weight() {
    let mut one = run(1, 20_000 * DAY_MS, 30, &[20.0; 10], &[20.0; 10]);
    let alone = study_of(std::slice::from_ref(&one));
    let (step, series) = (one.result.steps[1].clone(), one.result.steps[1].series.clone());
    let invented = |it: u32| StepResult { step: format!("invented {it}"), ..step.clone() };
    let latency = StepResult { kind: Kind::Latency, ..step.clone() };
    one.result.steps.extend((0..64).map(invented).chain([latency]));
    assert_eq!(study_of(std::slice::from_ref(&one)), alone);
    let often = StepResult { series: [series.clone(), series].concat(), ..step };
    one.result.steps = vec![often; 64];
    let study = study_of(&[one]);
    let sent: u64 = study.series.iter().flat_map(|it| &it.cohorts).map(|own| own.sent).sum();
    assert_eq!(sent, 2 * 10);
}

#[test]
fn a_few_busy_devices_can_shift_the_pooled_median() {
    let at = |run: u64| 20_000 * DAY_MS + run;
    let mut results: Vec<_> =
        (0..20).map(|line| run(2 * line, at(0), 30, &[20.0; 10], &[20.0; 10])).collect();
    let upload = |results: &[StoredResult]| {
        study_of(results).headline().expect("it was measured").cohorts[0].clone()
    };
    let equal = upload(&results);
    let (low, high) = equal.device_medians.expect("there are twenty");
    near(Some(low), 20.0);
    assert_eq!((low, equal.disagreeing_median()), (high, None));
    // One device of each line is measured thirty times as often as the others.
    results.extend((1..30).map(|turn| run(2, at(turn), 30, &[900.0; 10], &[900.0; 10])));
    near(upload(&results).disagreeing_median(), 900.0);
}

#[test]
fn a_cohort_with_only_unscheduled_runs_has_no_pooled_quantiles() {
    let mut results: Vec<_> =
        (0..10).map(|line| run(line, 20_000 * DAY_MS, 30, &[20.0; 10], &[20.0; 10])).collect();
    for kept in &mut results {
        kept.result.run = 0;
    }
    let study = study_of(&results);
    let own = &study.headline().expect("it was measured").cohorts[0];
    assert_eq!((own.devices, own.sent, own.device_medians), (5, 0, None));
    assert!(own.quantiles.iter().all(|quantile| quantile.ms.is_none()), "{:?}", own.quantiles);
}

/// Puts a line of each changed device into the store.
fn record_lines(store: &mut Memory, changes: impl Iterator<Item = (u8, Vec<(u64, &'static str)>)>) {
    let mut tx = store.begin(&Needs::default()).expect("memory");
    for (line, values) in changes {
        let change = |(from_ms, value): (u64, &str)| {
            let (attribute, value) = ("configured".to_owned(), value.to_owned());
            AttributeChange { from_ms, attribute, value }
        };
        let (external_id, device) = (format!("ACC-{line}"), Some(DeviceId([line; 16])));
        let changes = values.into_iter().map(change).collect();
        tx.put_line(&Line { external_id, device, changes, ..Line::default() }).expect("memory");
    }
    tx.commit().expect("memory");
}

/// Number of lines that change; another 40 do not, and three change twice.
const CHANGED: u8 = 20;

fn change_day(line: u8) -> u64 {
    [8, 10, 12][usize::from(line) % 3]
}

/// In everybody a season adds 20 % from the tenth day on; 20 of 60 lines change on one of three
/// days, which takes 30 % off.
fn delay_ms(line: u8, day: u64) -> f64 {
    let season = if day < 10 { 1.0 } else { 1.2 };
    let is_changed = line < CHANGED && day >= change_day(line);
    (40.0 + f64::from(line)) * season * if is_changed { 0.7 } else { 1.0 }
}

fn changed_lines() -> Memory {
    let mut results = Vec::new();
    for line in 0..60_u8 {
        for day in 0..20 {
            let ms = delay_ms(line, day);
            let mut kept = run(line, day * DAY_MS, 35, &[ms; 20], &[ms; 20]);
            // The lot by which other lines are split at these days.
            kept.pseudonym.0[15] = line.wrapping_mul(67);
            results.push(kept);
        }
    }
    // Two values in a row are one change; these lines changed twice, and are excluded.
    results.extend((60..63).map(|line| run(line, 0, 35, &[900.0; 20], &[900.0; 20])));
    let mut store = archive(&results);
    let lines = (0..63_u8).map(|line| {
        let at_ms = if line < CHANGED { change_day(line) * DAY_MS } else { 5 * DAY_MS };
        match line {
            0..CHANGED => (line, vec![(0, "fifo"), (1, "fifo"), (at_ms, "pie")]),
            CHANGED..60 => (line, vec![(0, "fifo")]),
            _ => (line, vec![(0, "fifo"), (at_ms, "pie"), (at_ms + 1, "fifo")]),
        }
    });
    record_lines(&mut store, lines);
    store
}

fn study_of_change(
    store: &mut Memory,
    attribute: &str,
    between_ms: Option<(u64, u64)>,
) -> Result<CohortStudy, StudyError> {
    let change = Some(ChangeQuestion { attribute: attribute.to_owned(), between_ms });
    super::study(store, "trial", &Question { change, ..Question::default() })
}

/// The expected numbers are computed from the delays of the lines.
#[test]
fn a_change_is_compared_with_lines_that_did_not_change_on_the_same_days() {
    let study = study_of_change(&mut changed_lines(), "configured", None).expect("a study");
    let found = study.change.as_ref().expect("a change");
    assert_eq!((found.excluded, found.attribute.as_str()), (3, "configured"));
    let up = found.series.iter().find(|it| it.load == "upload" && it.dscp == 0).expect("uploads");
    assert_eq!(up.mean.lines, [20, 40]);
    // By hand: the mean of each line's days after and before, and the median over the lines.
    let mean = |line: u8, days: std::ops::Range<u64>| {
        let count = (days.end - days.start) as f64;
        days.map(|day| delay_ms(line, day)).sum::<f64>() / count
    };
    let mut ratios: Vec<f64> = (0..CHANGED)
        .map(|line| mean(line, change_day(line)..20) / mean(line, 0..change_day(line)))
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!((up.mean.medians[0] - ratios[9]).abs() < 0.001, "{:?} {ratios:?}", up.mean);
    assert!((up.mean.medians[0] - 0.84).abs() < 0.03, "before and after alone: not the effect");
    for (found, tolerance) in [(&up.mean, 0.01), (&up.p99, 0.02)] {
        let effect = found.effect.expect("enough lines");
        assert!((effect.middle.expect("a middle") - 0.7).abs() < tolerance, "{found:?}");
        // Without chance the interval is a point, and percentiles are in bins of 2 %.
        let ends = [0.7 - effect.low, effect.high.expect("a bound") - 0.7];
        assert!(ends.iter().all(|end| *end > -tolerance), "{found:?}");
        assert_eq!(found.verdict, Verdict::Lower);
    }
    assert!(study.unhealthy.is_empty() && study.reference.is_empty(), "{study:?}");
}

/// The days are the same for all lines, so the numbers are exactly the effect.
#[test]
fn a_change_is_compared_between_fixed_days() {
    let mut store = changed_lines();
    let between = Some((8 * DAY_MS, 12 * DAY_MS));
    let study = study_of_change(&mut store, "configured", between).expect("a study");
    let up = &study.change.as_ref().expect("a change").series[2].mean;
    assert!((up.medians[0] - 0.84).abs() < 1e-3 && (up.medians[1] - 1.2).abs() < 1e-3, "{up:?}");
    assert!((up.effect.and_then(|it| it.middle).expect("enough") - 0.7).abs() < 1e-3, "{up:?}");
    let (before, after) = ("changed, before", "changed, after");
    assert!([before, after].iter().all(|side| study.cohorts.iter().any(|it| it.name == *side)));
    for (attribute, between) in [("region", None), ("configured", Some((0, DAY_MS)))] {
        let told = study_of_change(&mut store, attribute, between);
        let told = told.expect_err("no line changed then").to_string();
        assert!(told.starts_with("no line has a single change of"), "{told}");
    }
}
