//! The rules of RFC 8034 appendix A, one by one.

use super::*;

fn backlog(bytes: u64) -> Backlog {
    Backlog { packets: (bytes / 1_000) as u32, bytes }
}

fn active(probability_q56: u64) -> Controller {
    let mut controller = Controller::new(Span::from_millis(10), 300_000, Rng::new(2));
    controller.state = State {
        probability_q56,
        old_delay: Span::from_millis(20),
        burst_left: Span::ZERO,
        activity: Activity::Active,
    };
    controller
}

#[test]
fn the_controller_is_inactive_until_a_third_of_the_buffer_is_full() {
    let mut controller = active(ONE_Q56);
    controller.state.activity = Activity::Inactive;
    assert!(!(0..100).any(|_| controller.drops(1_500, backlog(99_999))));
    assert_eq!(controller.state.activity, Activity::Inactive);
    assert!((0..100).any(|_| controller.drops(1_500, backlog(100_000))));
    assert!(matches!(controller.state.activity, Activity::Quiescent { .. }));
}

#[test]
fn the_first_drop_starts_a_burst_allowance_of_nine_updates() {
    let mut controller = active(ONE_Q56);
    controller.state.activity = Activity::Quiescent { quiet_updates: 0 };
    while controller.judge(1_500, backlog(200_000)) == Verdict::Pass {}
    assert_eq!(controller.state.activity, Activity::Active);
    assert_eq!(controller.state.burst_left, MAX_BURST);
    let mut updates = 0;
    while controller.state.burst_left > Span::ZERO {
        controller.update(Span::from_millis(100));
        updates += 1;
        assert_eq!(controller.state.probability_q56, 0);
    }
    assert_eq!(updates, 9);
}

#[test]
fn a_quiet_second_deactivates_the_controller() {
    let mut controller = active(0);
    controller.state.old_delay = Span::ZERO;
    controller.update(Span::ZERO);
    assert_eq!(controller.state.activity, Activity::Quiescent { quiet_updates: 0 });
    for _ in 0..62 {
        controller.update(Span::ZERO);
        assert!(matches!(controller.state.activity, Activity::Quiescent { .. }));
    }
    controller.update(Span::ZERO);
    assert_eq!(controller.state.activity, Activity::Inactive, "63 updates of 16 ms are 1.008 s");
}

#[test]
fn the_probability_is_bounded_by_13_point_6_and_steps_by_4_per_cent() {
    let mut controller = active(TEN_PERCENT_Q56);
    for _ in 0..2_000 {
        let before = controller.state.probability_q56;
        controller.update(Span::from_secs(100));
        assert!(controller.state.probability_q56 <= before + 2 * TWO_PERCENT_Q56);
    }
    assert!((q56_to_f64(controller.state.probability_q56) - 13.6).abs() < 1e-9);
}

#[test]
fn a_delay_above_200_ms_adds_to_a_probability_that_the_step_takes_below_zero() {
    // The delay falls from 300 ms to 250 ms: 0.25 * 0.24 s - 2.5 * 0.05 s = -0.065, halved below 1
    // %, and then 2 % more. If the step were bounded first, the sum would be 2 %.
    let mut controller = active(ratio_q56(5, 1_000));
    controller.state.old_delay = Span::from_millis(300);
    controller.update(Span::from_millis(250));
    let shift = low_probability_shift(ratio_q56(5, 1_000));
    let expected = 0.005 - 0.065 / f64::from(1 << shift) + 0.02;
    let probability = q56_to_f64(controller.state.probability_q56);
    assert!((probability - expected).abs() < 1e-9, "{probability}, not {expected}");
    assert!(probability < 0.02, "the premise");
}

#[test]
fn a_packet_is_dropped_in_proportion_to_its_size() {
    let p = ratio_q56(2, 10);
    let of = |len| q56_to_f64(packet_probability_q56(p, len));
    assert!((of(1_024) - 0.2).abs() < 1e-9);
    assert!((of(64) - 0.0125).abs() < 1e-9);
    assert!((q56_to_f64(packet_probability_q56(8 * ONE_Q56, 64)) - 0.5).abs() < 1e-9);
    assert!((q56_to_f64(packet_probability_q56(LIMIT_Q56, u32::MAX)) - 0.85).abs() < 1e-9);
}

/// Returns the probability after one update, from `probability` and with the given delays.
fn after_update(probability: f64, old_delay_us: u64, delay_us: u64) -> f64 {
    let mut controller = active((probability * ONE_Q56 as f64) as u64);
    controller.state.old_delay = Span::from_micros(old_delay_us);
    controller.update(Span::from_micros(delay_us));
    q56_to_f64(controller.state.probability_q56)
}

/// Appendix A.2: the step of 0.25 * 10 ms - 2.5 * 4 ms is divided by 2048, 512, ... 2 below
/// 0.000001, 0.00001, ... 0.1 and multiplied by 2, 8 and 32 below 1, 10 and above.
#[test]
fn the_step_is_scaled_by_the_probability() {
    for (probability, scale) in [
        (0.000_009, 1.0 / 512.0),
        (0.000_09, 1.0 / 128.0),
        (0.000_9, 1.0 / 32.0),
        (0.009, 1.0 / 8.0),
        (0.05, 0.5),
        (0.5, 2.0),
        (1.0, 8.0),
        (5.0, 8.0),
        (10.0, 32.0),
        (12.0, 32.0),
    ] {
        let expected = f64::max(probability - 0.0075 * scale, 0.0);
        let reached = after_update(probability, 24_000, 20_000);
        assert!((reached - expected).abs() < 1e-9, "{probability}: {reached}, not {expected}");
    }
    let mut controller = active(TEN_PERCENT_Q56);
    controller.state.old_delay = Span::from_millis(24);
    controller.update(Span::from_millis(20));
    let reached = q56_to_f64(controller.state.probability_q56);
    assert!((reached - 0.085).abs() < 1e-9, "one tenth is not below one tenth: {reached}");
}

/// After two delays below 5 ms the probability falls by 2 % after the step. Above 200 ms it grows
/// by 0.02 in addition to the step, which is at most 0.02.
#[test]
fn low_and_high_delays_have_separate_rules() {
    for (old_delay_us, delay_us, expected) in [
        // -0.00125, doubled.
        (5_000, 5_000, 0.4975),
        // 0.25 * -5.001 ms - 2.5 * 0.001 ms, doubled, and the other way round.
        (5_000, 4_999, 0.5 - 0.002_500_5 - 0.000_005),
        (4_999, 5_000, 0.5 - 0.0025 + 0.000_005),
        (4_999, 4_999, (0.5 - 0.002_500_5) * 0.98),
        (200_000, 200_000, 0.52),
        (200_001, 200_001, 0.54),
    ] {
        let reached = after_update(0.5, old_delay_us, delay_us);
        assert!((reached - expected).abs() < 1e-9, "{delay_us} us: {reached}, not {expected}");
    }
}

/// Quiet is a delay below half the target, 5 ms, now and before, nothing to drop and no burst.
#[test]
fn an_update_is_quiet_if_all_four_conditions_hold() {
    for (old_delay_us, delay_us, probability_q56, burst_ms, quiet) in [
        (4_999, 4_999, 0, 0, true),
        (4_999, 4_999, 0, 16, true),
        (4_999, 4_999, 0, 17, false),
        (4_999, 5_000, 0, 0, false),
        (5_000, 4_999, 0, 0, false),
        (4_999, 4_999, ONE_Q56 / 2, 0, false),
    ] {
        let mut controller = active(probability_q56);
        controller.state.old_delay = Span::from_micros(old_delay_us);
        controller.state.burst_left = Span::from_millis(burst_ms);
        controller.update(Span::from_micros(delay_us));
        let is_active = controller.state.activity == Activity::Active;
        assert_eq!(!is_active, quiet, "{old_delay_us} {delay_us} {burst_ms}");
    }
    let waiting = Activity::Quiescent { quiet_updates: 5 };
    assert_eq!(waiting.after_update(false), Activity::Quiescent { quiet_updates: 0 });
    assert_eq!(Activity::Inactive.after_update(false), Activity::Inactive);
}

/// Returns whether any of many arrivals of mean size is dropped in a state.
fn ever_drops(probability_q56: u64, old_delay_us: u64, bytes: u64, burst_us: u64) -> bool {
    let mut controller = active(probability_q56);
    controller.state.old_delay = Span::from_micros(old_delay_us);
    controller.state.burst_left = Span::from_micros(burst_us);
    (0..1_000).any(|_| controller.drops(1_024, backlog(bytes)))
}

/// `drop_early` drops nothing while a burst is allowed, while delay and probability are below half
/// the target and 20 %, and while the backlog is below two packets.
#[test]
fn exempt_arrivals_are_never_dropped() {
    let (most, fifth) = (TWENTY_PERCENT_Q56 - 1, TWENTY_PERCENT_Q56);
    assert!(ever_drops(most, 5_000, 2_049, 0));
    assert!(ever_drops(fifth, 4_999, 2_049, 0));
    assert!(!ever_drops(most, 4_999, 2_049, 0));
    assert!(!ever_drops(fifth, 5_000, 2_048, 0));
    assert!(!ever_drops(fifth, 5_000, 2_049, 1));
}

/// Probabilities add up from packet to packet: below 0.85 nothing is dropped, from 8.5 on
/// everything, and between by chance.
#[test]
fn the_accumulated_probability_bounds_drops() {
    let drops = |probability_q56, accumulated_q56, seed| {
        let mut controller = active(probability_q56);
        (controller.accumulated_q56, controller.rng) = (accumulated_q56, Rng::new(seed));
        controller.drops(1_024, backlog(100_000))
    };
    let p = ONE_Q56 / 64;
    let count = |p, accumulated| (0..10_000).filter(|&seed| drops(p, accumulated, seed)).count();
    assert_eq!(count(p, LOW_Q56 - p - 1), 0);
    // Expects one in 64, within three standard deviations.
    assert!(count(p, LOW_Q56 - p).abs_diff(156) < 38, "{}", count(p, LOW_Q56 - p));
    assert!(count(p, HIGH_Q56 - p - 1).abs_diff(156) < 38);
    assert_eq!(count(p, HIGH_Q56 - p), 10_000);
    // A packet with the highest probability, 0.85, and the first of its kind.
    assert!(count(8 * ONE_Q56, 0).abs_diff(8_500) < 110);
}

#[test]
fn probability_does_not_accumulate_while_no_packet_may_be_dropped() {
    let mut controller = active(ONE_Q56 / 2);
    for _ in 0..50 {
        controller.state.probability_q56 = ONE_Q56 / 2;
        assert!(!controller.drops(1_024, backlog(100_000)), "one half is less than 0.85");
        controller.state.probability_q56 = 0;
        assert!(!controller.drops(1_024, backlog(100_000)));
    }
}

#[test]
fn gauges_show_the_state_of_the_controller() {
    let mut controller = active(ONE_Q56 / 4);
    controller.state.burst_left = Span::from_millis(142);
    let mut shown = alloc::vec::Vec::new();
    controller.gauges(&mut |name, value| shown.push((name, value)));
    let expected = [
        ("docsis-pie.probability", 0.25),
        ("docsis-pie.delay_ns", 2e7),
        ("docsis-pie.burst_left_ns", 1.42e8),
        ("docsis-pie.activity", 2.0),
    ];
    assert_eq!(shown, expected);
}
