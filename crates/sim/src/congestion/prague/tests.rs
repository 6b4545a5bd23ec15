//! The controller without a transport, acknowledgement by acknowledgement.

use super::*;
use crate::congestion::tests::{ack, setup};

/// A flow that acknowledges its whole window once per round trip.
struct Flow {
    control: Prague,
    window: Window,
    rtt: Span,
    now: Time,
    sequence: u32,
}

impl Flow {
    fn new(initial_window: u32, config: PragueConfig) -> Self {
        let setup = Setup { initial_window, prague: config, ..setup() };
        let mut control = Prague::new(&setup);
        control.fraction.begin_round(1);
        let (rtt, now) = (Span::from_millis(50), Time::from_secs(1));
        Self { control, window: Window::new(initial_window), rtt, now, sequence: 0 }
    }

    /// A flow of 100 segments after slow start, at a round trip of `rtt_ms`.
    fn cruising(rtt_ms: u64, config: PragueConfig) -> Self {
        let mut flow = Self::new(100, config);
        flow.window.threshold = 100;
        flow.rtt = Span::from_millis(rtt_ms);
        flow
    }

    fn report(&self, delivered: u32, marked: u32) -> Ack {
        Ack {
            now: self.now,
            marked,
            smoothed_rtt: self.rtt,
            first_outstanding: self.sequence,
            next_sequence: self.sequence + 100,
            ..ack(delivered)
        }
    }

    /// An acknowledgement within a round.
    fn ack(&mut self, delivered: u32, marked: u32) {
        let mut report = self.report(delivered, marked);
        report.first_outstanding = self.control.fraction_end() - 1;
        self.control.on_ack(&report, &mut self.window);
    }

    /// A round trip later, all of it is acknowledged at once.
    fn round(&mut self, delivered: u32, marked: u32) {
        self.now += self.rtt;
        self.sequence += 100;
        let report = self.report(delivered, marked);
        self.control.on_ack(&report, &mut self.window);
    }

    fn event(&mut self, cause: Cause) {
        let loss = Loss { now: self.now, cause, in_flight: 0, min_rtt: self.rtt };
        self.control.on_loss(&loss, &mut self.window);
    }

    fn exact(&self) -> f64 {
        self.control.exact as f64 / SEGMENT as f64
    }

    fn alpha(&self) -> f64 {
        self.control.fraction.alpha as f64 / MarkFraction::ONE as f64
    }
}

impl Prague {
    fn fraction_end(&self) -> u32 {
        self.fraction.round_end
    }
}

const DEPENDENT: PragueConfig = PragueConfig { rtt_target: Span::ZERO, rtt_transition: 0 };

#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-4, "{value}, not {expected}");
}

#[test]
fn unmarked_segments_alone_let_the_window_grow() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    flow.round(10, 0);
    assert_near(flow.exact(), 100.1);
    flow.control.saw_mark = true;
    flow.ack(10, 4);
    assert_near(flow.exact(), 100.1 + 6.0 / 100.1);
    flow.ack(5, 5);
    flow.ack(5, 6);
    assert_near(flow.exact(), 100.1 + 6.0 / 100.1);
}

#[test]
fn the_window_grows_in_every_state_but_recovery() {
    for (state, grows) in [
        (State::Open, true),
        (State::Reducing, true),
        (State::Timeout, true),
        (State::Recovery, false),
    ] {
        let mut flow = Flow::cruising(50, PragueConfig::default());
        let report = Ack { state, ..flow.report(10, 0) };
        flow.control.on_ack(&report, &mut flow.window);
        assert_eq!(flow.exact() > 100.0, grows, "{state:?}");
    }
    let mut flow = Flow::cruising(50, PragueConfig::default());
    let report = Ack { window_limited: false, ..flow.report(10, 0) };
    flow.control.on_ack(&report, &mut flow.window);
    assert_near(flow.exact(), 100.0);
}

#[test]
fn the_first_mark_halves_and_alpha_starts_from_nothing() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    for _ in 0..10 {
        flow.round(1, 0);
    }
    assert_near(flow.alpha(), 0.0);
    let before = flow.exact();
    flow.event(Cause::Mark);
    assert_near(flow.exact(), before);
    flow.round(4, 1);
    let halved = before / 2.0;
    assert_near(flow.exact(), halved + 3.0 / halved);
    assert_eq!(flow.window.threshold, halved.ceil() as u32, "slow start is over");
    // A quarter of the segments is marked, and counts with weight 1/16.
    assert_near(flow.alpha(), 1.0 / 64.0);
    let before = flow.exact();
    flow.now += flow.rtt;
    flow.event(Cause::Mark);
    assert_near(flow.exact(), before * (1.0 - 1.0 / 128.0));
    flow.round(4, 4);
    assert!(flow.exact() > before * 0.9, "no second halving: {}", flow.exact());
}

#[test]
fn a_mark_ends_slow_start() {
    let mut flow = Flow::new(10, PragueConfig::default());
    flow.ack(10, 0);
    assert_eq!((flow.window.size, flow.window.threshold), (20, u32::MAX));
    flow.event(Cause::Mark);
    assert_eq!(flow.window.threshold, 20);
    flow.ack(2, 1);
    assert_eq!((flow.window.size, flow.window.threshold), (19, 10));
    assert_near(flow.exact(), 10.0 + 1.0 / 10.0);
}

#[test]
fn slow_start_stops_at_the_threshold() {
    let mut flow = Flow::new(10, PragueConfig::default());
    flow.window.threshold = 12;
    flow.ack(8, 0);
    assert_near(flow.exact(), 12.0 + 6.0 / 12.0);
    assert_eq!(flow.window.size, 13, "rounded up");
}

#[test]
fn the_window_follows_by_one_segment_per_acknowledgement() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    flow.event(Cause::Loss);
    assert_near(flow.exact(), 50.0);
    assert_eq!((flow.window.size, flow.window.threshold), (100, 50));
    for size in (50..100).rev() {
        flow.control.on_ack(&Ack { state: State::Recovery, ..flow.report(1, 0) }, &mut flow.window);
        assert_eq!(flow.window.size, size);
    }
    flow.ack(1, 0);
    assert_eq!(flow.window.size, 51, "50.02 rounded up");
    flow.control.exact = 60 * SEGMENT;
    flow.ack(0, 0);
    assert_eq!(flow.window.size, 52);
}

#[test]
fn the_window_has_at_least_two_segments() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    for _ in 0..10 {
        flow.event(Cause::Loss);
    }
    assert_near(flow.exact(), 2.0);
    assert_eq!(flow.window.threshold, 2);
}

#[test]
fn the_transport_bounds_the_window() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    flow.control.exact = u64::from(MAX_WINDOW) * SEGMENT;
    flow.window.size = MAX_WINDOW;
    flow.control.left = MAX_WINDOW;
    flow.ack(60_000, 0);
    assert_near(flow.exact(), f64::from(MAX_WINDOW));
    assert_eq!(flow.window.size, MAX_WINDOW);
}

#[test]
fn changes_by_the_transport_replace_the_window() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    flow.event(Cause::Timeout);
    flow.window.size = 1;
    flow.ack(1, 0);
    assert_eq!((flow.window.size, flow.window.threshold), (2, 50), "slow start to half");
    assert_near(flow.exact(), 2.0);
    // An undo.
    (flow.window.size, flow.window.threshold) = (100, 100);
    flow.event(Cause::Loss);
    assert_near(flow.exact(), 50.0);
}

#[test]
fn short_round_trips_grow_like_the_target_after_four_rounds() {
    let mut flow = Flow::cruising(10, PragueConfig::default());
    let mut grown = |rounds: u32| {
        let before = flow.exact();
        (0..rounds).for_each(|_| flow.round(1, 0));
        flow.exact() - before
    };
    // The acknowledgement that ends the fourth round still grows W by 1/W.
    let full = grown(4);
    assert!((0.0395..0.0401).contains(&full), "{full}");
    // (10 / 25)^2.
    let scaled = grown(1) * 100.04;
    assert_near(scaled, 0.16);
}

#[test]
fn rounds_of_slow_start_do_not_count() {
    let mut flow = Flow::new(10, PragueConfig::default());
    flow.rtt = Span::from_millis(10);
    (0..8).for_each(|_| flow.round(1, 0));
    assert_eq!((flow.control.rounds, flow.control.gain), (0, SEGMENT));
}

#[test]
fn growth_is_scaled_below_the_target_alone() {
    let target = Span::from_millis(25);
    assert_eq!(scaled_gain(target, target), SEGMENT);
    assert_eq!(scaled_gain(Span::from_millis(80), target), SEGMENT);
    assert_eq!(scaled_gain(Span::from_millis(5), target), (SEGMENT + 12) / 25);
    assert_eq!(scaled_gain(Span::ZERO, target), 1);
    assert_eq!(scaled_gain(Span::ZERO, Span::ZERO), SEGMENT);
}

/// Returns how often alpha was averaged and W was reduced in half a second of 10 ms round trips.
fn events(config: PragueConfig, rounds: u32) -> (u32, u32) {
    let mut flow = Flow::cruising(10, config);
    flow.control.saw_mark = true;
    let (mut averages, mut reductions) = (0, 0);
    for _ in 0..rounds {
        let before = (flow.alpha(), flow.exact());
        flow.round(10, 1);
        averages += u32::from((flow.alpha() - before.0).abs() > f64::EPSILON);
        let before = flow.exact();
        flow.event(Cause::Mark);
        reductions += u32::from(flow.exact() < before);
    }
    (averages, reductions)
}

#[test]
fn alpha_and_reductions_come_once_per_virtual_round_trip() {
    // Round trips end at multiples of 10 ms, and the first end after 25 ms is the third.
    let at_once = PragueConfig { rtt_transition: 0, ..PragueConfig::default() };
    assert_eq!(events(at_once, 48), (16, 16));
    assert_eq!(events(DEPENDENT, 48), (48, 48));
    // One average per round of 10 ms until the fourth round ends, then one per three rounds.
    assert_eq!(events(PragueConfig::default(), 4), (4, 3));
    assert_eq!(events(PragueConfig::default(), 34), (14, 13));
}

#[test]
fn a_target_round_trip_of_zero_changes_nothing() {
    let mut flow = Flow::cruising(5, DEPENDENT);
    (0..10).for_each(|_| flow.round(1, 0));
    assert_eq!(flow.control.gain, SEGMENT);
}

#[test]
fn pacing_is_a_window_of_whole_packets_per_round_trip() {
    let mut flow = Flow::cruising(50, PragueConfig::default());
    flow.ack(0, 0);
    assert_eq!(flow.control.pacing(), Some(PacketRate::from_bytes_per_s(100 * 1_500 * 20)));
    let report = Ack { in_flight: 120, ..flow.report(0, 0) };
    flow.control.on_ack(&report, &mut flow.window);
    let in_flight = Some(PacketRate::from_bytes_per_s(120 * 1_500 * 20));
    assert_eq!(flow.control.pacing(), in_flight, "what is in flight, if more");
    let unknown = Ack { smoothed_rtt: Span::ZERO, ..report };
    flow.control.on_ack(&unknown, &mut flow.window);
    assert_eq!(flow.control.pacing(), in_flight, "as before");
}

#[test]
fn pacing_is_double_below_half_the_threshold() {
    let rate = |threshold| {
        let mut flow = Flow::cruising(50, PragueConfig::default());
        flow.window.threshold = threshold;
        assert_eq!(flow.control.pacing(), None, "before the first acknowledgement");
        flow.ack(0, 0);
        flow.control.pacing().unwrap().bytes_per_s() / (1_500 * 20)
    };
    assert_eq!((rate(u32::MAX), rate(202), rate(201), rate(100)), (200, 200, 100, 100));
}
