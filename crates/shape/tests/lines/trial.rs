//! Trials of shapers in virtual time: the random plan, and the effects that a trial of weeks
//! reports.

use underload_aqm::rng::Rng;
use underload_record::comparison::Verdict;
use underload_record::history::Contrast;
use underload_record::schema::PerDirection;
use underload_shape::trial::{Hour, Log, LogError, Plan, Position, SLOT_S, Settings};

const WEEK: u32 = 7 * 24;
const START_S: i64 = 1_790_000_000;

fn plan(seed: u64, slots: u32) -> Plan {
    Plan { start_s: START_S, slots, seed }
}

#[test]
fn each_block_has_an_hour_with_and_one_without_and_seeds_differ() {
    let shaped = |seed: u64| -> Vec<bool> {
        (0..WEEK).map(|slot| plan(seed, WEEK).is_shaped(slot)).collect()
    };
    let mut firsts = 0;
    for seed in 0..200 {
        let hours = shaped(seed);
        assert!(hours.chunks(2).all(|block| block[0] != block[1]), "{seed}: {hours:?}");
        firsts += hours.iter().step_by(2).filter(|is_shaped| **is_shaped).count();
    }
    // 16,800 coins: five standard deviations are 324.
    assert!((8_076..=8_724).contains(&firsts), "{firsts} of 16800 blocks begin shaped");
    assert_eq!(shaped(7), shaped(7));
    assert_ne!(shaped(7), shaped(8));
}

#[test]
fn a_plan_has_a_measurement_in_each_hour_and_knows_a_clock_that_was_set_back() {
    let plan = plan(3, 48);
    assert_eq!(plan.position(START_S - 1), Position::Before);
    assert_eq!(plan.position(i64::MIN), Position::Before);
    assert_eq!(plan.position(START_S), Position::In { slot: 0 });
    assert_eq!(plan.position(START_S + 48 * SLOT_S - 1), Position::In { slot: 47 });
    assert_eq!(plan.position(START_S + 48 * SLOT_S), Position::After);
    assert_eq!(plan.position(i64::MAX), Position::After);
    for slot in 0..48 {
        let at_s = plan.measured_at_s(slot);
        assert_eq!(plan.position(at_s), Position::In { slot });
        assert!(plan.ends_s(slot) - at_s >= SLOT_S / 3, "time to wait for a quiet line");
    }
}

/// How the delays of successive hours depend on each other.
#[derive(Clone, Copy)]
enum Hours {
    /// A daily course of threefold height, and noise whose hours resemble their neighbours.
    Alike,
    /// Noise that is independent in each hour, as the test's formula assumes.
    Independent,
}

/// Simulates the p99 of each hour of a trial. One of fifty is lost, one of twenty is missing. The
/// shaper multiplies the p99 by `factor`.
fn trial(seed: u64, slots: u32, factor: f64, hours: Hours) -> Contrast {
    let plan = plan(seed, slots);
    let mut random = Rng::new(seed).child("values");
    let mut share = || f64::from(random.next_u32()) / 4_294_967_296.0;
    let (mut groups, mut drift) = ([Vec::new(), Vec::new()], 0.0_f64);
    for slot in 0..slots {
        let hour = f64::from(slot % 24) / 24.0 * std::f64::consts::TAU;
        // A sum of uniform numbers is close to normal.
        let noise: f64 = (0..4).map(|_| share() - 0.5).sum();
        let (course, memory) = match hours {
            Hours::Alike => (0.55 * hour.sin(), 0.7),
            Hours::Independent => (0.0, 0.0),
        };
        drift = memory * drift + noise;
        let is_shaped = plan.is_shaped(slot);
        let p99_ms = 60.0 * (course + 0.4 * drift).exp();
        let value = if is_shaped { p99_ms * factor } else { p99_ms };
        let (is_lost, is_missing) = (share() < 0.02, share() < 0.05);
        if !is_missing {
            groups[usize::from(is_shaped)].push(if is_lost { 2_000.0 } else { value });
        }
    }
    let [without, with] = groups;
    Contrast::new(&with, &without).expect("enough hours")
}

/// Trials of two equal sides: 200 seeds of up to three weeks each.
#[test]
fn without_a_difference_at_most_one_trial_in_twenty_reports_an_effect() {
    let calls = |slots: u32, hours: Hours| {
        let contrasts = (0..200).map(|seed| trial(seed, slots, 1.0, hours));
        contrasts.filter(|it| matches!(it.verdict("ms"), Verdict::Lower | Verdict::Higher)).count()
    };
    for slots in [48, WEEK, 3 * WEEK] {
        let (alike, independent) = (calls(slots, Hours::Alike), calls(slots, Hours::Independent));
        assert!(alike <= 10 && independent <= 10, "{slots}: {alike} and {independent} of 200");
        // A test that never reports an effect could not find a real one either.
        assert!(independent > 0, "{slots}");
    }
}

/// The test finds real effects: a shaper that halves the delay, and one that doubles it.
#[test]
fn a_shaper_that_halves_the_delay_is_found_within_a_week() {
    let found = |factor: f64, verdict: Verdict| {
        let is_found =
            |seed: &u64| trial(*seed, WEEK, factor, Hours::Alike).verdict("ms") == verdict;
        (0..200).filter(is_found).count()
    };
    let (halved, doubled) = (found(0.5, Verdict::Lower), found(2.0, Verdict::Higher));
    assert!(halved >= 190 && doubled >= 190, "{halved} and {doubled} of 200");
}

#[test]
fn few_hours_have_no_verdict() {
    assert_eq!(Contrast::new(&[1.0, 2.0], &[5.0, 6.0, 7.0]), None);
    assert_eq!(Contrast::new(&[1.0, 2.0, f64::NAN], &[5.0, 6.0, 7.0]), None);
    // Three hours on each side cannot exclude chance, however large the difference is.
    let contrast = Contrast::new(&[1.0, 2.0, 3.0], &[500.0, 600.0, 700.0]).expect("three each");
    assert_eq!(contrast.verdict("ms"), Verdict::TooFew);
}

#[test]
fn a_log_is_read_back_and_has_each_planned_hour_once() {
    let plan = plan(9, 24);
    let settings = Settings::new(plan, "a.example".to_owned(), "apply".to_owned());
    let hour = |slot: u32, load_p99_ms: f64| Hour {
        slot,
        is_shaped: plan.is_shaped(slot),
        load_p99_ms,
        goodput_mbit_s: PerDirection::new(None, Some(18.5)),
    };
    let mut lines = vec![serde_json::to_string(&settings).expect("a line")];
    let hours = [hour(0, 20.0), hour(1, 200.0), hour(1, 999.0), hour(24, 5.0)];
    lines.extend(hours.iter().map(|hour| serde_json::to_string(hour).expect("a line")));
    let unplanned = Hour { is_shaped: !plan.is_shaped(2), ..hour(2, 7.0) };
    lines.push(serde_json::to_string(&unplanned).expect("a line"));
    lines.push("{\"slot\":3,\"dama".to_owned());
    let bytes = || lines.iter().map(String::as_bytes);
    let log = Log::parse(bytes()).expect("ours").expect("not empty");
    assert_eq!(log.settings, settings);
    assert!(log.has(0) && log.has(1) && !log.has(2) && !log.has(3) && !log.has(24));
    let [mut without, mut with] = log.values(|hour| Some(hour.load_p99_ms));
    without.append(&mut with);
    without.sort_by(f64::total_cmp);
    assert_eq!(without, [20.0, 200.0]);
    assert_eq!(log.values(|hour| hour.goodput_mbit_s.up).concat(), [0.0; 0]);
}

#[test]
fn a_file_other_than_a_log_is_refused() {
    let parse = |text: &str| Log::parse(text.lines().map(str::as_bytes));
    assert!(matches!(parse(""), Ok(None)));
    assert!(matches!(parse("my notes"), Err(LogError::NotOurs(_))));
    let settings = Settings::new(plan(9, 24), String::new(), String::new());
    let text = serde_json::to_string(&settings).expect("a line");
    assert!(matches!(
        parse(&text.replace("\"version\":1", "\"version\":3")),
        Err(LogError::Version(3))
    ));
    let endless = text.replace("\"slots\":24", "\"slots\":4000000000");
    assert!(matches!(parse(&endless), Err(LogError::Slots(4_000_000_000))));
}
