//! The follower of varying lines: its laws, its faults, and its courses in virtual time.

#[path = "../examples/followed_lines/course.rs"]
#[expect(dead_code, reason = "the example needs more rules and results")]
mod course;
#[path = "lines/suggest.rs"]
mod suggest;
#[path = "lines/trial.rs"]
mod trial;

use proptest::prelude::*;
use underload_aqm::rate::Rate;
use underload_record::schema::Direction;
use underload_shape::auto::{Answer, Bounds, Cause, Decision, Follower, Reading, Reason};

use course::{Line, Rule, simulate};

const MBIT: u64 = 1_000_000;
const BASE_US: i64 = 20_000;

fn bounds(min: u64, max: u64) -> Bounds {
    let rate = Rate::from_bits_per_second;
    Bounds::new(rate(min), rate(max)).expect("bounds in their order")
}

/// A follower with a clock and a counter, whose inputs the test chooses.
struct Course {
    follower: Follower,
    time_ms: u64,
    sent_bytes: u64,
}

impl Course {
    fn new() -> Self {
        let follower = Follower::new(Direction::Down, bounds(5 * MBIT, 80 * MBIT));
        Self { follower, time_ms: 1_000, sent_bytes: 0 }
    }

    /// Lets 100 ms pass, in which a share of the rate is carried and two probes are answered.
    fn step(&mut self, carried_percent: u64, round_trips_us: [i64; 2]) -> Decision {
        self.time_ms += 100;
        self.sent_bytes += self.rate() / 80 * carried_percent / 100;
        let sent_us = self.time_ms.saturating_mul(1_000).saturating_sub(100_000);
        let [first, second] = round_trips_us;
        let answers = [
            Answer { sent_us, round_trip_us: first },
            Answer { sent_us: sent_us + 50_000, round_trip_us: second },
        ];
        self.read(&answers)
    }

    fn read(&mut self, answers: &[Answer]) -> Decision {
        let Self { time_ms, sent_bytes, .. } = *self;
        self.follower.decide(&Reading { time_ms, answers, sent_bytes })
    }

    fn steps(&mut self, count: usize, carried_percent: u64, round_trip_us: i64) -> Decision {
        for _ in 1..count {
            self.step(carried_percent, [round_trip_us; 2]);
        }
        self.step(carried_percent, [round_trip_us; 2])
    }

    fn rate(&self) -> u64 {
        self.follower.rate().bits_per_second()
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let round_trip = prop_oneof![any::<i64>(), 1_000_i64..400_000];
    (any::<u64>(), round_trip)
        .prop_map(|(sent_us, round_trip_us)| Answer { sent_us, round_trip_us })
}

fn line(loaded: Direction, link: &str, bounds: (u64, u64), seed: u64) -> Line {
    let (way, other) = (loaded as usize, 1 - loaded as usize);
    let mut line = Line {
        name: String::new(),
        loaded,
        links: [String::new(), String::new()],
        buffers: [500_000; 2],
        bounds: [bounds; 2],
        seed,
    };
    line.links[way] = format!("{link},delay=5ms");
    "50mbit:delay=2ms".clone_into(&mut line.links[other]);
    line.bounds[other] = (20, 50);
    line
}

/// The time since the previous reading, its answers, and the bytes that were sent.
fn reading() -> impl Strategy<Value = (i64, Vec<Answer>, u64)> {
    let step = prop_oneof![8 => 50_i64..200, 1 => any::<i64>()];
    let bytes = prop_oneof![8 => 0_u64..2_000_000, 1 => any::<u64>()];
    (step, prop::collection::vec(answer(), 0..4), bytes)
}

proptest! {
    #[test]
    fn for_any_readings_the_rate_stays_in_bounds_and_at_most_doubles(
        min in 1_u64..1_000_000_000,
        factor in 1_u64..10_000,
        up in any::<bool>(),
        readings in prop::collection::vec(reading(), 1..200),
    ) {
        let max = min * factor;
        let way = if up { Direction::Up } else { Direction::Down };
        let mut follower = Follower::new(way, bounds(min, max));
        let (mut time_ms, mut sent_bytes) = (0_u64, 0_u64);
        for (step, answers, bytes) in readings {
            let before = follower.rate().bits_per_second();
            time_ms = time_ms.wrapping_add_signed(step);
            sent_bytes = sent_bytes.wrapping_add(bytes);
            let decision = follower.decide(&Reading { time_ms, answers: &answers, sent_bytes });
            let rate = decision.rate.bits_per_second();
            prop_assert!((min..=max).contains(&rate));
            prop_assert!(rate <= before.saturating_mul(2).max(min) && rate >= before / 2);
            prop_assert_eq!(rate, follower.rate().bits_per_second());
        }
    }

    #[test]
    fn the_rate_settles_under_constant_input(
        carried_percent in 0_u64..=100,
        round_trip_us in 1_i64..9_000_000,
    ) {
        let mut course = Course::new();
        course.steps(3_000, carried_percent, round_trip_us);
        let before = course.rate();
        for _ in 0..300 {
            course.step(carried_percent, [round_trip_us; 2]);
            prop_assert_eq!(course.rate(), before);
        }
    }
}

#[test]
fn bounds_out_of_order_are_refused() {
    let rate = Rate::from_bits_per_second;
    assert_eq!(Bounds::new(rate(0), rate(5)), None);
    assert_eq!(Bounds::new(rate(6), rate(5)), None);
    assert_eq!(bounds(5 * MBIT, 80 * MBIT).base(), rate(20 * MBIT));
}

#[test]
fn under_load_without_delay_the_rate_grows_to_its_bound() {
    let mut course = Course::new();
    let first = course.step(100, [BASE_US; 2]);
    assert_eq!((first.reason, course.rate()), (Reason::Learning, 20 * MBIT));
    course.steps(3, 100, BASE_US);
    assert!(course.rate() > 20 * MBIT);
    course.steps(120, 100, BASE_US);
    assert_eq!(course.rate(), 80 * MBIT);
}

#[test]
fn an_idle_direction_returns_to_its_base_rate() {
    let mut course = Course::new();
    course.steps(120, 100, BASE_US);
    // The end of the load does not change the rate, because an idle line does not show its rate.
    course.steps(90, 1, BASE_US);
    assert_eq!(course.rate(), 80 * MBIT);
    let last = course.steps(2_000, 1, BASE_US);
    assert_eq!((last.reason, course.rate()), (Reason::Idle, 20 * MBIT));
}

#[test]
fn a_queue_under_load_lowers_the_rate_below_what_the_line_carries() {
    let mut course = Course::new();
    course.steps(20, 100, BASE_US);
    let before = course.rate();
    // The line carries 70 % now, and 60 ms wait in front of it.
    course.steps(3, 70, BASE_US);
    let last = course.step(70, [BASE_US + 60_000; 2]);
    assert_eq!(last.reason, Reason::Empties);
    assert!(course.rate() < before * 70 / 100 && course.rate() > before / 2);
    let emptied = course.rate();
    course.step(100, [BASE_US; 2]);
    let last = course.step(100, [BASE_US; 2]);
    assert_eq!(last.reason, Reason::Fits);
    assert!(course.rate() > emptied && course.rate() < before * 70 / 100, "{}", course.rate());
}

#[test]
fn a_delay_without_load_does_not_lower_the_shapers_rate() {
    let mut course = Course::new();
    course.steps(40, 20, BASE_US);
    course.steps(20, 20, BASE_US + 60_000);
    assert_eq!(course.rate(), 20 * MBIT);
}

#[test]
fn a_longer_path_is_not_taken_for_a_queue() {
    let mut course = Course::new();
    course.steps(20, 100, BASE_US);
    let before = course.rate();
    course.steps(20, 100, BASE_US + 30_000);
    let last = course.steps(15, 100, BASE_US + 30_000);
    assert_eq!(last.reason, Reason::Grows);
    assert!(course.rate() > before * 9 / 10, "{} of {before}", course.rate());
}

#[test]
fn fewer_than_three_answers_decide_nothing() {
    let mut course = Course::new();
    for step in 0..50 {
        course.time_ms += 100;
        course.sent_bytes += 250_000;
        let one = Answer { sent_us: 10, round_trip_us: if step < 25 { 20_000 } else { 900_000 } };
        // The second answer is a duplicate of the first.
        let decision = course.read(&[one, one]);
        assert_eq!(decision.reason, Reason::Learning);
        assert_eq!(course.rate(), 20 * MBIT);
    }
}

#[test]
fn a_clock_that_jumps_changes_no_rate() {
    for jump_ms in [-3_600_000_i64, -1, 0, 5_000, 86_400_000] {
        let mut course = Course::new();
        course.steps(20, 100, BASE_US);
        let before = course.rate();
        course.time_ms = course.time_ms.saturating_add_signed(jump_ms - 100);
        let decision = course.step(100, [BASE_US + 90_000; 2]);
        assert_eq!((decision.reason, course.rate()), (Reason::Learning, before), "{jump_ms}");
        let last = course.steps(10, 100, BASE_US + 90_000);
        assert_ne!(last.reason, Reason::Learning, "{jump_ms}: it continues");
    }
}

#[test]
fn a_reset_of_the_shapers_counter_changes_no_rate() {
    let mut course = Course::new();
    course.steps(20, 100, BASE_US);
    let before = course.rate();
    course.sent_bytes = 0;
    let decision = course.step(0, [BASE_US; 2]);
    assert_eq!((decision.reason, course.rate()), (Reason::Learning, before));
}

#[test]
fn a_reflector_that_lies_or_is_silent_fixes_the_rate() {
    let of = |round_trips: [i64; 2]| {
        let mut course = Course::new();
        course.steps(60, 100, BASE_US);
        let last = (0..1_500).map(|_| course.step(100, round_trips)).last().expect("steps");
        (last.reason, course.rate())
    };
    let nonsense = (Reason::Unfollowable(Cause::Nonsense), 20 * MBIT);
    assert_eq!(of([-5, 0]), nonsense);
    assert_eq!(of([i64::MIN, i64::MAX]), nonsense);
    let mut course = Course::new();
    course.steps(60, 100, BASE_US);
    let mut before = course.rate();
    for step in 0..1_500 {
        if step == 5 {
            before = course.rate();
        }
        course.time_ms += 100;
        course.sent_bytes += course.rate() / 80;
        let decision = course.read(&[]);
        if (10..99).contains(&step) {
            assert_eq!((decision.reason, course.rate()), (Reason::Learning, before), "{step}");
        }
    }
    let last = course.read(&[]);
    assert_eq!(course.rate(), 20 * MBIT, "{last:?}");
}

#[test]
fn a_line_whose_delay_does_not_follow_its_load_is_not_followed() {
    let mut course = Course::new();
    for _ in 0..400 {
        course.step(5, [BASE_US, BASE_US + 80_000]);
    }
    assert_eq!(course.follower.rate(), Rate::from_bits_per_second(20 * MBIT));
    let noisy = [BASE_US, BASE_US + 80_000];
    let last = (0..250).map(|_| course.step(90, noisy)).last().expect("steps");
    assert_eq!(last.reason, Reason::Unfollowable(Cause::Noise));
}

/// Three falls by up to 42 % within a minute: what waits until they are noticed is in the answers.
#[test]
fn simulated_lines_are_followed_in_both_directions() {
    let steps = "steps:0s=20mbit,25s=13mbit,35s=19mbit,45s=11mbit,55s=17mbit,65s=20mbit";
    for (loaded, seed) in [(Direction::Down, 11), (Direction::Up, 12)] {
        let line = line(loaded, steps, (4, 25), seed);
        let [unshaped, oracle, followed] =
            [Rule::Unshaped, Rule::Oracle, Rule::Follower].map(|rule| simulate(&line, rule, 60));
        assert!(unshaped.p99_ms > 150.0, "the premise: full buffers: {}", unshaped.p99_ms);
        let part = followed.goodput / oracle.goodput;
        assert!(part >= 0.9, "{loaded:?}: {part:.3} of the oracle's rate");
        assert!(followed.p99_ms <= 70.0, "{loaded:?}: {} ms", followed.p99_ms);
    }
}

#[test]
fn a_line_that_becomes_four_times_as_fast_is_used_within_ten_seconds() {
    for loaded in [Direction::Down, Direction::Up] {
        let line = line(loaded, "steps:0s=10mbit,40s=40mbit", (4, 50), 21);
        let course = simulate(&line, Rule::Follower, 60).seconds;
        let used = course[40..].iter().position(|rate| *rate >= 32.0);
        assert!(used.is_some_and(|seconds| seconds <= 10), "{loaded:?}: {:?}", &course[38..]);
        assert!(course[30..40].iter().all(|rate| *rate < 11.0), "the premise: {course:?}");
    }
}

/// A constant line: what following costs where a fixed rate would do.
#[test]
fn a_constant_line_is_used_without_a_queue() {
    let line = line(Direction::Down, "steps:0s=20mbit", (5, 40), 31);
    let oracle = simulate(&line, Rule::Oracle, 60);
    let followed = simulate(&line, Rule::Follower, 60);
    let part = followed.goodput / oracle.goodput;
    assert!(part >= 0.93, "{part:.3} of the oracle's rate");
    assert!(followed.p99_ms <= 30.0, "{} ms", followed.p99_ms);
}
