//! Tests of the parts of a result that are stored, and of the weight of one device.

use super::*;
use crate::bins::{Bins, bin_of};
use crate::outcome::{SeriesResult, StepResult};
use crate::plan::Kind as LoadKind;

/// A series of `sent` probes that all took `us`.
fn series(dscp: u8, us: u64, sent: u64) -> SeriesResult {
    let bins = Bins::try_from(vec![(bin_of(us as f64), sent)]).expect("they are bins");
    let us = Some(us);
    let (p50_us, p99_us, mean_us, max_us) = (us, us, us, us);
    SeriesResult { dscp, sent, lost: 0, bins, p50_us, p99_us, mean_us, max_us }
}

fn step(name: &str, kind: LoadKind, series: Vec<SeriesResult>) -> StepResult {
    let (goodput_bit_per_s, tier_percent) = (Some(1), Some(1.0));
    StepResult {
        step: name.to_owned(),
        kind,
        goodput_bit_per_s,
        tier_percent,
        grade: None,
        series,
        inside: None,
    }
}

impl Fleet {
    /// Sends one result with these steps, and returns the stored one.
    fn stored(&mut self, id: DeviceId, it: Numbered) -> RunResult {
        let results = Results { epoch: 0, results: vec![it] };
        let stored = self.change(|by, tx, now, _| by.results(tx, now, id, &results));
        assert_eq!(stored, Ok(Stored { new: 1, known: 0, refused: 0 }));
        self.store.results().pop().expect("it is there").result
    }

    /// All probes in pooled numbers, by bin.
    fn pooled(&mut self) -> Bins {
        let mut bins = Bins::default();
        let sums = self.store.sums(&Filter::default(), &[]).expect("memory");
        for sum in sums {
            bins.merge(&sum.bins);
        }
        bins
    }
}

#[test]
fn only_what_the_plan_measures_is_stored_and_each_series_once() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device).run;
    let mut it = numbered(1, run);
    // The plan sends 351 and 101 probes; a series of more than twice as many is dropped.
    let loaded = vec![series(0, 9_000, 702), series(0, 9_000, 703), series(7, 9_000, 5)];
    it.result.steps = vec![
        step("idle", LoadKind::Latency, vec![series(0, 9_000, 203), series(0, 9_000, 9)]),
        step("idle", LoadKind::Latency, vec![series(0, 9_000, 100)]),
        step("idle", LoadKind::Upload, vec![series(0, 9_000, 100)]),
        step("invented", LoadKind::Latency, vec![series(0, 9_000, 100)]),
        step("loaded", LoadKind::Upload, [loaded.clone(), loaded].concat()),
    ];
    it.result.steps[0].inside = Some(series(0, 9_000, 50));
    it.result.steps[4].inside = Some(series(0, 9_000, 50));
    let stored = fleet.stored(device, it);
    assert!(stored.steps[0].inside.is_none() && stored.steps[1].inside.is_some(), "{stored:?}");
    let shown = |step: &StepResult| {
        let sent: Vec<u64> = step.series.iter().map(|series| series.sent).collect();
        (step.step.clone(), step.goodput_bit_per_s, step.tier_percent, sent)
    };
    let shown: Vec<_> = stored.steps.iter().map(shown).collect();
    let idle = ("idle".to_owned(), None, None, vec![9]);
    assert_eq!(shown, [idle, ("loaded".to_owned(), Some(1), Some(1.0), vec![702])]);
}

#[test]
fn more_round_trips_inside_a_load_than_the_plan_has_are_dropped() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device).run;
    let mut it = numbered(1, run);
    it.result.steps = vec![step("loaded", LoadKind::Upload, Vec::new())];
    it.result.steps[0].inside = Some(series(0, 9_000, 1 << 20));
    assert!(fleet.stored(device, it).steps[0].inside.is_none());
}

#[test]
fn a_device_does_not_choose_the_day_of_a_scheduled_run() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device).run;
    let given_ms = fleet.now;
    fleet.now += 5 * 24 * 60 * MINUTE;
    let mut it = numbered(1, run);
    it.result.at_ms = fleet.now;
    // The run begins within 30 s and lasts 18 s.
    assert_eq!(fleet.stored(device, it).at_ms, given_ms + 48_000);
}

/// Sends `count` runs without an assignment, and returns how many were stored.
fn own_runs(fleet: &mut Fleet, device: DeviceId, from: u64, count: u64) -> u64 {
    (from..from + count).map(|it| u64::from(fleet.hand_in(device, it, 0).expect("ok").new)).sum()
}

#[test]
fn unscheduled_runs_are_limited_to_the_plans_rate_and_kept_after_absence() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    assert_eq!(own_runs(&mut fleet, device, 1, 5), 0, "it takes part in no plan yet");
    fleet.next(device);
    assert_eq!(own_runs(&mut fleet, device, 1_000, 100), 16, "at once");
    let know = fleet.hand_in(device, 1_000, 0).expect("ok");
    assert_eq!((know.new, know.refused), (0, 1), "nothing is left of the rate");
    // A week allows twice the plan's 24 runs a day; an honest device makes 168 on average.
    fleet.now += 7 * 24 * 60 * MINUTE;
    assert_eq!(own_runs(&mut fleet, device, 2_000, 500), 336);
    // After two years the limit of a burst applies, which is more than a spool holds.
    fleet.now += 730 * 24 * 60 * MINUTE;
    assert_eq!(own_runs(&mut fleet, device, 10_000, 9_000), 8_192 + 16);
    // After the clock is set back, the rate continues from there.
    fleet.now -= 700 * 24 * 60 * MINUTE;
    assert_eq!(own_runs(&mut fleet, device, 20_000, 50), 16);
    fleet.now += 24 * 60 * MINUTE;
    assert_eq!(own_runs(&mut fleet, device, 30_000, 100), 48);
}

/// Plays a day of `count` devices. Every tenth reports 900 ms as often as it may, the others report
/// 20 ms according to the plan. Returns all probes in pooled numbers.
fn day_with_one_hostile_in_ten(count: u8) -> Bins {
    let mut fleet = Fleet::ready();
    for seed in 1..=count {
        let device = fleet.enrol(seed, "");
        fleet.next(device);
        let is_hostile = seed.is_multiple_of(10);
        for turn in 0..12 {
            let run = fleet.given(device);
            let mut it = numbered(1 + turn, run.run);
            let idle = |us, sent| step("idle", LoadKind::Latency, vec![series(0, us, sent)]);
            it.result.steps = vec![idle(20_000, 101)];
            if is_hostile {
                // The largest result, once for the assigned run and once without an assignment.
                let series = vec![series(0, 900_000, 202); 64];
                it.result.steps = vec![step("idle", LoadKind::Latency, series); 64];
                let mut own = it.clone();
                (own.sequence, own.result.run) = (1_000 + turn, 0);
                fleet.stored(device, own);
            }
            fleet.stored(device, it);
            fleet.release(device, run.lease_id).expect("ok");
        }
    }
    fleet.pooled()
}

#[test]
fn a_tenth_of_the_devices_has_at_most_two_elevenths_of_the_weight() {
    let pooled = day_with_one_hostile_in_ten(20);
    // 18 devices with 12 runs of 101 probes, and two devices with 12 runs of twice as many probes.
    let weights: Vec<u64> = pooled.iter().map(|(_, count)| count).collect();
    assert_eq!(weights, [18 * 12 * 101, 2 * 12 * 202]);
    let ms = [0.5, 0.81, 0.82, 0.99].map(|share| pooled.quantile(share).expect("some") / 1e3);
    assert!(ms[..2].iter().all(|ms| (*ms / 20.0 - 1.0).abs() < 0.02), "{ms:?}");
    assert!(ms[2..].iter().all(|ms| (*ms / 900.0 - 1.0).abs() < 0.02), "{ms:?}");
}

#[test]
fn uploads_of_a_device_are_bounded_and_only_for_its_runs() {
    let mut fleet = Fleet::ready();
    let device = fleet.enrol(1, "");
    let run = fleet.given(device);
    let given = fleet.now;
    let stranger = fleet.enrol(2, "");
    let refused = Stored { new: 0, known: 0, refused: 1 };
    assert_eq!(fleet.hand_in(stranger, 1, run.run), Ok(refused), "another's run");
    let hand_in = |fleet: &mut Fleet, epoch, results| {
        let it = Results { epoch, results };
        fleet.change(|by, tx, now, _| by.results(tx, now, device, &it))
    };
    let statuses = [
        hand_in(&mut fleet, MADE_EPOCH, Vec::new()),
        hand_in(&mut fleet, 0, vec![numbered(0, 1)]),
        hand_in(&mut fleet, 0, vec![numbered(u64::MAX, 1)]),
        hand_in(&mut fleet, 0, vec![numbered(1, 1); crate::message::RESULTS_MAX + 1]),
    ]
    .map(|done| done.expect_err("it may not").kind.status());
    assert_eq!(statuses, [400, 400, 400, 413]);
    let mut shorter = numbered(9, run.run);
    shorter.result.steps = vec![step("loaded", LoadKind::Upload, vec![series(0, 20_000, 5)])];
    shorter.result.steps[0].series[0].mean_us = Some(0);
    let fault = hand_in(&mut fleet, 0, vec![shorter]).expect_err("its mean is not of its bins");
    assert!(fault.message.contains("not within the bins"), "{}", fault.message);
    // The device's clock is years ahead or behind.
    let mut future = numbered(1, run.run);
    future.result.at_ms = u64::MAX;
    let mut long = numbered(9, run.run);
    long.result.version = "\u{20000}".repeat(65);
    let fault = hand_in(&mut fleet, 0, vec![long]).expect_err("65 characters of 4 bytes");
    assert!(fault.message.contains("256 bytes"), "{}", fault.message);
    let mut alone = numbered(2, 0);
    alone.result.at_ms = 5;
    assert_eq!(hand_in(&mut fleet, 0, vec![future, alone]).map(|stored| stored.new), Ok(2));
    let kept = fleet.store.results();
    assert_eq!([kept[0].result.at_ms, kept[1].result.at_ms], [given, START]);
    let key = crate::device::Pseudonym::of(&[3; 32], device);
    assert!(kept.iter().all(|it| it.pseudonym == key && it.stored_ms == given));
    fleet.change(|it, tx, now, rng| it.remove_device(tx, now, rng, "me", device)).expect("ok");
    assert_eq!(fleet.hand_in(device, 3, 1).expect_err("removed").kind.status(), 410);
}
