//! Ways to end slow start before the first loss.
//!
//! * [`SlowStartExit::HyStart`]: Ha and Rhee 2011 as in Linux `tcp_cubic.c`: a train of closely
//!   spaced acknowledgements that has lasted half the smallest round trip, or eight round trips of
//!   a round that all exceed the smallest by an eighth (4 to 16 ms). Not below 16 segments.
//!   Deviation: time in nanoseconds, while Linux uses microseconds.
//! * [`SlowStartExit::HyStartPlusPlus`]: RFC 9406: the delay criterion compared with the previous
//!   round, then up to five rounds of conservative slow start at a quarter of the growth, resumed
//!   as slow start when the delay falls again. L is infinite only for paced senders; this one
//!   sends bursts per acknowledgement, which delayed acknowledgements keep below L = 8.

use underload_aqm::time::{Span, Time};

use super::{Ack, Window};

/// The condition that ends slow start before the first loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStartExit {
    /// Only a loss or a mark.
    Loss,
    /// HyStart as in Linux, CUBIC's default.
    #[default]
    HyStart,
    /// HyStart++ as in RFC 9406.
    HyStartPlusPlus,
}

#[derive(Debug, Default)]
pub struct HyStart {
    pub(super) exit: SlowStartExit,
    round_started: bool,
    round_start: Time,
    round_end: u32,
    last_ack: Time,
    current: Span,
    previous: Span,
    samples: u32,
    /// Minimum round trip of the round that entered conservative slow start.
    baseline: Span,
    /// Rounds of conservative slow start that have passed; `None` outside it.
    conservative: Option<u32>,
    fraction: u32,
}

impl HyStart {
    pub fn new(exit: SlowStartExit) -> Self {
        Self { exit, current: UNKNOWN, previous: UNKNOWN, baseline: UNKNOWN, ..Self::default() }
    }

    /// Starts over, after a loss.
    pub fn reset(&mut self) {
        *self = Self::new(self.exit);
    }

    /// Returns the number of acknowledged segments by which slow start may grow.
    pub fn share(&mut self, acknowledged: u32) -> u32 {
        if self.conservative.is_none() {
            return acknowledged;
        }
        self.fraction += acknowledged;
        let share = self.fraction / CONSERVATIVE_DIVISOR;
        self.fraction %= CONSERVATIVE_DIVISOR;
        share
    }

    /// Ends slow start by lowering the threshold if the condition is met.
    pub fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if !window.in_slow_start() || self.exit == SlowStartExit::Loss {
            return;
        }
        let Some(rtt) = ack.rtt else { return };
        match self.exit {
            SlowStartExit::HyStart => self.linux(ack, rtt, window),
            _ => self.plus_plus(ack, rtt, window),
        }
    }

    fn begin_round(&mut self, ack: &Ack) {
        self.round_started = true;
        self.round_start = ack.now;
        self.last_ack = ack.now;
        self.round_end = ack.next_sequence;
        self.previous = self.current;
        self.current = UNKNOWN;
        self.samples = 0;
    }

    fn linux(&mut self, ack: &Ack, rtt: Span, window: &mut Window) {
        // Rounds are also tracked in smaller windows: a round that began in the middle of a train
        // would miss the end of the train.
        if !self.round_started || ack.first_outstanding > self.round_end {
            self.begin_round(ack);
        }
        if window.size < LOW_WINDOW {
            return;
        }
        if ack.now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = ack.now;
            if ack.now.since(self.round_start).as_nanos() > ack.min_rtt.as_nanos() / 2 {
                window.threshold = window.size;
            }
        }
        self.current = self.current.min(rtt);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
        } else if self.current > ack.min_rtt + delay_margin(ack.min_rtt) {
            window.threshold = window.size;
        }
    }

    fn plus_plus(&mut self, ack: &Ack, rtt: Span, window: &mut Window) {
        if !self.round_started {
            self.begin_round(ack);
        } else if ack.first_outstanding > self.round_end {
            self.begin_round(ack);
            if let Some(rounds) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    window.threshold = window.size;
                }
            }
        }
        self.current = self.current.min(rtt);
        self.samples += 1;
        if self.samples < MIN_SAMPLES || self.previous == UNKNOWN {
            return;
        }
        if self.conservative.is_some() {
            if self.current < self.baseline {
                self.conservative = None;
            }
        } else if self.current >= self.previous + delay_margin(self.previous) {
            self.baseline = self.current;
            self.conservative = Some(0);
        }
    }
}

fn delay_margin(base: Span) -> Span {
    Span::from_nanos(base.as_nanos() / 8).clamp(MIN_DELAY_MARGIN, MAX_DELAY_MARGIN)
}

const UNKNOWN: Span = Span::from_nanos(u64::MAX);
// Linux `hystart_low_window`.
const LOW_WINDOW: u32 = 16;
// Linux `hystart_ack_delta_us`.
const TRAIN_GAP: Span = Span::from_millis(2);
/// Linux `HYSTART_MIN_SAMPLES`, RFC 9406 `N_RTT_SAMPLE`.
const MIN_SAMPLES: u32 = 8;
/// Linux `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`, RFC 9406 `MIN_RTT_THRESH` and
/// `MAX_RTT_THRESH`.
const MIN_DELAY_MARGIN: Span = Span::from_millis(4);
const MAX_DELAY_MARGIN: Span = Span::from_millis(16);
// RFC 9406 `CSS_GROWTH_DIVISOR`.
const CONSERVATIVE_DIVISOR: u32 = 4;
// RFC 9406 `CSS_ROUNDS`.
const CONSERVATIVE_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::tests::ack;

    /// A window in slow start whose rounds have ten acknowledgements of `rtt_ms` each.
    struct Rounds {
        hystart: HyStart,
        window: Window,
        sequence: u32,
    }

    impl Rounds {
        fn new() -> Self {
            let hystart = HyStart::new(SlowStartExit::HyStartPlusPlus);
            Self { hystart, window: Window::new(40), sequence: 0 }
        }

        fn round(&mut self, rtt_ms: u64) {
            for _ in 0..10 {
                self.sequence += 4;
                let mut step = ack(4);
                step.rtt = Some(Span::from_millis(rtt_ms));
                step.first_outstanding = self.sequence;
                // The acknowledgement of this segment starts the next round.
                step.next_sequence = self.sequence + 36;
                self.hystart.on_ack(&step, &mut self.window);
            }
        }

        fn grows_by_a_quarter(&mut self) -> bool {
            self.hystart.share(400) == 100
        }
    }

    #[test]
    fn a_rising_round_trip_slows_slow_start_and_five_rounds_later_ends_it() {
        let mut rounds = Rounds::new();
        rounds.round(100);
        rounds.round(100);
        assert!(!rounds.grows_by_a_quarter());
        // 100 ms / 8, within 4 to 16 ms.
        rounds.round(112);
        assert!(!rounds.grows_by_a_quarter(), "12 ms are below the threshold");
        rounds.round(126);
        assert!(rounds.grows_by_a_quarter(), "14 ms more than the round before");
        for round in 0..5 {
            assert!(rounds.window.in_slow_start(), "round {round}");
            rounds.round(130);
        }
        rounds.round(130);
        assert!(!rounds.window.in_slow_start(), "five rounds of conservative slow start");
    }

    #[test]
    fn slow_start_resumes_when_the_round_trip_falls_again() {
        let mut rounds = Rounds::new();
        rounds.round(100);
        rounds.round(120);
        assert!(rounds.grows_by_a_quarter());
        rounds.round(110);
        assert!(!rounds.grows_by_a_quarter(), "below the round that slowed it");
        for _ in 0..10 {
            rounds.round(110);
        }
        assert!(rounds.window.in_slow_start());
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start_where_linux_ends_it() {
        // A line of 20 Mbit/s and 40 ms: an acknowledgement of two segments each 1.2 ms.
        let (gap, rtt) = (Span::from_micros(1_200), Span::from_millis(40));
        let mut hystart = HyStart::new(SlowStartExit::HyStart);
        let mut window = Window::new(10);
        let mut acknowledged = 0;
        let mut round_start = Time::from_secs(1);
        while window.in_slow_start() {
            assert!(window.size < 1_000);
            let mut now = round_start;
            for _ in 0..window.size / 2 {
                acknowledged += 2;
                let mut step = ack(2);
                (step.now, step.rtt, step.min_rtt) = (now, Some(rtt), rtt);
                step.first_outstanding = acknowledged;
                // The flight of the window before this acknowledgement is all that was sent.
                step.next_sequence = acknowledged - 2 + window.size;
                hystart.on_ack(&step, &mut window);
                if !window.in_slow_start() {
                    break;
                }
                window.slow_start(2);
                now += gap;
            }
            round_start += rtt;
        }
        // Linux 7.3.4 ended it at 77 or 78 segments in each of five trials.
        assert_eq!(window.size, 74);
    }

    #[test]
    fn hystart_needs_eight_samples_per_round() {
        let mut rounds = Rounds::new();
        rounds.round(100);
        rounds.round(100);
        for number in 0..7 {
            let mut step = ack(1);
            step.rtt = Some(Span::from_millis(200));
            step.first_outstanding = rounds.sequence + 4 + number;
            step.next_sequence = rounds.sequence + 200;
            rounds.hystart.on_ack(&step, &mut rounds.window);
            assert!(!rounds.grows_by_a_quarter(), "sample {number}");
        }
    }
}
