//! Checks the queries of a store.

use std::collections::BTreeMap;

use underload_aqm::rng::Rng;

use super::change;
use super::samples::{self, id};
use crate::bins::Bins;
use crate::device::Attributes;
use crate::outcome::{Outcome, RunResult, SeriesResult, StepResult};
use crate::plan::Kind;
use crate::store::{
    Archive, Device, Dimension, Filter, Memory, OutcomeCount, Outcomes, Store, StoredResult, Sum,
};

const DAY_MS: u64 = 86_400_000;

fn one_step(dscp: u8, bin: u16, count: u64, lost: u64) -> StepResult {
    let mut bins = Bins::default();
    bins.add_to(bin, count);
    let series = SeriesResult {
        dscp,
        sent: count + lost,
        lost,
        bins,
        p50_us: None,
        p99_us: None,
        mean_us: None,
        max_us: None,
    };
    StepResult {
        step: "up".to_owned(),
        inside: None,
        kind: Kind::Upload,
        goodput_bit_per_s: None,
        tier_percent: None,
        grade: None,
        series: vec![series],
    }
}

/// A run of the device `number`, `day` days after the 20,000th since 1970.
fn run_of(number: u8, sequence: u64, day: u64, hour: u64, steps: Vec<StepResult>) -> StoredResult {
    let sample = samples::result(&mut Rng::new(1), number, 0, sequence);
    let result = RunResult {
        plan: "trial".to_owned(),
        run: sequence,
        at_ms: (20_000 + day) * DAY_MS + hour * 3_600_000,
        outcome: Outcome::Measured,
        reason: String::new(),
        steps,
        ..sample.result
    };
    let attributes = Attributes {
        model: ["XB6", "XB7"][usize::from(number) % 2].to_owned(),
        tier_up_bit_per_s: 12_500_000,
        tier_down_bit_per_s: 800_000_000,
        ..Attributes::default()
    };
    StoredResult { result, attributes, cohort: "aqm".to_owned(), ..sample }
}

/// Four runs of two devices: three that measured, the second of them without an assignment, so that
/// it is in no sum, and one that was missed.
fn four_runs() -> [StoredResult; 4] {
    let mut missed = run_of(2, 2, 1, 23, Vec::new());
    missed.result.outcome = Outcome::Missed;
    missed.result.reason.replace_range(.., "it was off");
    let mut alone = run_of(1, 2, 0, 23, vec![one_step(0, 11, 4, 0)]);
    alone.result.run = 0;
    let mut two_series = one_step(0, 10, 5, 1);
    two_series.series.extend(one_step(45, 3, 2, 0).series);
    // A repeated step or DSCP is counted once.
    two_series.series.push(two_series.series[0].clone());
    [
        run_of(1, 1, 0, 0, vec![two_series.clone(), two_series]),
        alone,
        run_of(2, 1, 1, 0, vec![one_step(0, 10, 1, 2)]),
        missed,
    ]
}

fn sorted(mut sums: Vec<Sum>) -> Vec<Sum> {
    sums.sort_by(|a, b| a.key.cmp(&b.key));
    sums
}

fn bins(list: &[(u16, u64)]) -> Bins {
    let mut bins = Bins::default();
    for (bin, count) in list {
        bins.add_to(*bin, *count);
    }
    bins
}

fn sum(key: &[&str], list: &[(u16, u64)], lost: u64, tests: u64, devices: u64) -> Sum {
    let bins = bins(list);
    let key = key.iter().map(|part| (*part).to_owned()).collect();
    Sum { key, sent: bins.count() + lost, bins, lost, tests, devices }
}

fn filter(change: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter::default();
    change(&mut filter);
    filter
}

pub(super) fn answers_that_were_worked_out_by_hand<S: Store + Archive>(store: &mut S) {
    let runs = four_runs();
    change(store, |tx| tx.append(&runs));
    let mut sums = |filter: &Filter, by: &[Dimension]| {
        sorted(Archive::sums(store, filter, by).expect("it answers"))
    };
    let all = Filter::default();
    assert_eq!(sums(&all, &[]), [sum(&[], &[(3, 2), (10, 6)], 3, 3, 2)]);
    assert_eq!(
        sums(&all, &[Dimension::Dscp, Dimension::Day]),
        [
            sum(&["0", "20000"], &[(10, 5)], 1, 1, 1),
            sum(&["0", "20001"], &[(10, 1)], 2, 1, 1),
            sum(&["45", "20000"], &[(3, 2)], 0, 1, 1),
        ]
    );
    let model = Dimension::Attribute("model".to_owned());
    assert_eq!(
        sums(&all, &[model, Dimension::Hour, Dimension::Kind]),
        [
            sum(&["XB6", "0", "upload"], &[(10, 1)], 2, 1, 1),
            sum(&["XB7", "0", "upload"], &[(3, 2), (10, 5)], 1, 2, 1),
        ]
    );
    let tier = ("tier".to_owned(), "12.5/800".to_owned());
    let some = filter(|it| {
        it.hour = Some(0);
        it.from_day = Some(20_001);
        it.attributes = BTreeMap::from([tier]);
        it.plan = Some("trial".to_owned());
        it.cohort = Some("aqm".to_owned());
    });
    let by = [Dimension::Plan, Dimension::Cohort, Dimension::Step];
    assert_eq!(sums(&some, &by), [sum(&["trial", "aqm", "up"], &[(10, 1)], 2, 1, 1)]);
    let nobody = [
        filter(|it| it.until_day = Some(20_000)),
        filter(|it| it.plan = Some("Trial".to_owned())),
        filter(|it| it.cohort = Some(String::new())),
        filter(|it| drop(it.attributes.insert("no such".to_owned(), String::new()))),
    ];
    for none in nobody {
        assert_eq!(sums(&none, &[]), [], "{none:?}");
    }
    outcomes_and_results_worked_out_by_hand(store, runs);
}

fn outcomes_and_results_worked_out_by_hand<S: Archive>(store: &mut S, runs: [StoredResult; 4]) {
    let all = Filter::default();
    let outcomes = store.outcomes(&all).expect("it answers");
    let count = |outcome, reason: &str, count, devices| OutcomeCount {
        outcome,
        reason: reason.to_owned(),
        count,
        devices,
    };
    let measured = count(Outcome::Measured, "", 2, 2);
    let missed = count(Outcome::Missed, "it was off", 1, 1);
    assert_eq!(outcomes, Outcomes { counts: vec![measured, missed], devices: 2 });
    let first = filter(|it| it.until_day = Some(20_001));
    let measured = count(Outcome::Measured, "", 1, 1);
    let outcomes = store.outcomes(&first).expect("it answers");
    assert_eq!(outcomes, Outcomes { counts: vec![measured], devices: 1 });
    let [first, second, third, fourth] = runs;
    assert_eq!(store.results_of(id(2), 1).expect("it answers"), std::slice::from_ref(&fourth));
    assert_eq!(store.results_of(id(2), 9).expect("it answers"), [fourth, third]);
    let mut seen = Vec::new();
    let until_two = &mut |it: &StoredResult| {
        seen.push(it.clone());
        seen.len() < 2
    };
    store.visit(&all, until_two).expect("it answers");
    assert_eq!(seen, [first, second], "as they came, until told to stop");
}

/// Compares the answers of a store to those of the reference, after both stored the same rows.
pub(super) fn as_the_reference_answers<S: Store + Archive>(store: &mut S, seed: u64) {
    let mut rng = Rng::new(seed).child("conformance");
    let mut reference = Memory::new();
    let devices: Vec<_> = (0..40).map(|number| samples::device(&mut rng, id(number * 3))).collect();
    let results: Vec<_> = (1..=150)
        .map(|number| {
            let (device, epoch) = (rng.below(8) as u8, rng.below(2));
            samples::result(&mut rng, device, epoch, number)
        })
        .collect();
    for store in [store as &mut dyn Store, &mut reference] {
        for part in results.chunks(40) {
            change(store, |tx| tx.append(part));
        }
        change(store, |tx| devices.iter().try_for_each(|device| tx.put_device(device)));
        change(store, |tx| (0..20).try_for_each(|it| tx.log(&samples::log_entry(it))));
        change(store, |tx| tx.put_setting("name", b"value"));
    }
    for (name, value) in [("name", Some(b"value".to_vec())), ("no such", None)] {
        assert_eq!(Archive::setting(store, name).expect("it answers"), value);
    }
    for _ in 0..25 {
        let filter = any_filter(&mut rng, &results, &devices);
        let by = any_dimensions(&mut rng);
        let answers = [&mut *store as &mut dyn Archive, &mut reference]
            .map(|archive| answers(archive, &filter, &by));
        assert_eq!(answers[0], answers[1], "{filter:?} by {by:?}");
    }
    for name in Attributes::NAMES.into_iter().chain(["no such"]) {
        let [found, right] = [&mut *store as &mut dyn Archive, &mut reference]
            .map(|archive| archive.values(name, 5).expect("it answers"));
        assert_eq!(found, right, "values of {name}");
    }
    let [found, right] = [&mut *store as &mut dyn Archive, &mut reference]
        .map(|archive| archive.log(7).expect("it answers"));
    assert_eq!(found, right);
}

#[derive(Debug, PartialEq)]
struct Answers {
    sums: Vec<Sum>,
    outcomes: Outcomes,
    visited: Vec<StoredResult>,
    devices: Vec<Device>,
    devices_after: Vec<Device>,
    count: u64,
}

fn answers(archive: &mut dyn Archive, filter: &Filter, by: &[Dimension]) -> Answers {
    let mut visited = Vec::new();
    let see = &mut |it: &StoredResult| {
        visited.push(it.clone());
        true
    };
    archive.visit(filter, see).expect("it answers");
    Answers {
        sums: sorted(archive.sums(filter, by).expect("it answers")),
        outcomes: archive.outcomes(filter).expect("it answers"),
        visited,
        devices: archive.devices(filter, None, 1_000).expect("it answers"),
        devices_after: archive.devices(filter, Some(id(30)), 3).expect("it answers"),
        count: archive.count_devices(filter).expect("it answers"),
    }
}

/// A filter that matches at least one of the results or devices.
fn any_filter(rng: &mut Rng, results: &[StoredResult], devices: &[Device]) -> Filter {
    let result = &results[rng.below(results.len() as u32) as usize];
    let device = &devices[rng.below(devices.len() as u32) as usize];
    let lines = [&result.attributes, &device.attributes];
    let attributes = lines[rng.below(2) as usize];
    let mut filter = Filter::default();
    for name in Attributes::NAMES {
        if rng.below(6) == 0 {
            let value = attributes.get(name).expect("it is one of them");
            filter.attributes.insert(name.to_owned(), value);
        }
    }
    let mut some = || rng.below(3) == 0;
    filter.plan = some().then(|| result.result.plan.clone());
    filter.cohort = some().then(|| result.cohort.clone());
    filter.hour = some().then(|| result.hour());
    filter.from_day = some().then(|| result.day());
    filter.until_day = some().then(|| result.day() + 1);
    filter
}

fn any_dimensions(rng: &mut Rng) -> Vec<Dimension> {
    let attributes = Attributes::NAMES.map(|name| Dimension::Attribute(name.to_owned()));
    let others = [
        Dimension::Day,
        Dimension::Hour,
        Dimension::Plan,
        Dimension::Cohort,
        Dimension::Step,
        Dimension::Kind,
        Dimension::Dscp,
    ];
    let all = attributes.into_iter().chain(others);
    all.filter(|_| rng.below(5) == 0).collect()
}
