//! LEDBAT (RFC 6817), for transfers in the background. While the queuing delay is below the target of
//! 100 ms, the window grows in proportion to the distance from the target; above the target it shrinks
//! in proportion to the excess. If other flows hold the delay above the target, the window falls to
//! its minimum.
//!
//! The queuing delay is the smallest of the latest four delays minus the base delay, which is the
//! smallest of the latest ten minutes. Differences from the RFC:
//! - A delay is a round trip, as in LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus) and in Apple's TCP,
//!   because TCP does not report one-way delays; queues of acknowledgements therefore count, too.
//! - The pseudo code has no slow start. Here a flow doubles its window, from the initial window of
//!   every flow (the RFC's is 2), until three quarters of the target wait, as in LEDBAT++. Then the
//!   window is halved, to that of the round trip before, which the delay shows. Without this the
//!   queue would need a minute to fall to the target.
//! - The transport finds losses and has its own timeout in place of CTO.

use underload_aqm::time::Span;

use super::{Ack, CongestionControl, Loss, MAX_WINDOW, State, Window};

#[derive(Debug)]
pub struct Ledbat {
    /// Smallest delay of each of the latest minutes, oldest first (`base_delays`).
    base: [Span; BASE_HISTORY],
    /// The minute of the last of them.
    minute: u64,
    /// Latest delays, oldest first (`current_delays`).
    current: [Span; CURRENT_FILTER],
    /// Change of the window, in segments, that is not yet a whole segment.
    credit: f64,
}

impl Default for Ledbat {
    fn default() -> Self {
        let unknown = Span::from_nanos(u64::MAX);
        Self {
            base: [unknown; BASE_HISTORY],
            minute: 0,
            current: [unknown; CURRENT_FILTER],
            credit: 0.0,
        }
    }
}

impl Ledbat {
    fn on_delay(&mut self, ack: &Ack, delay: Span) {
        let minute = ack.now.as_nanos() / MINUTE.as_nanos();
        if minute != self.minute {
            self.minute = minute;
            self.base.rotate_left(1);
            self.base[BASE_HISTORY - 1] = delay;
        }
        self.base[BASE_HISTORY - 1] = delay.min(self.base[BASE_HISTORY - 1]);
        self.current.rotate_left(1);
        self.current[CURRENT_FILTER - 1] = delay;
    }

    /// Returns the time that packets of the path wait in queues.
    fn queuing_delay(&self) -> Span {
        let least = |delays: &[Span]| delays.iter().copied().min().unwrap_or_default();
        least(&self.current).saturating_sub(least(&self.base))
    }
}

impl CongestionControl for Ledbat {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if let Some(delay) = ack.rtt {
            self.on_delay(ack, delay);
        }
        if ack.acknowledged == 0 || !matches!(ack.state, State::Open | State::Timeout) {
            return;
        }
        let queuing_delay = self.queuing_delay();
        if window.in_slow_start() {
            if queuing_delay >= SLOW_START_END {
                window.size = (window.size / 2).max(MIN_WINDOW);
                window.threshold = window.size;
            } else if ack.may_grow() {
                window.slow_start(ack.acknowledged);
            }
            return;
        }
        let off_target = 1.0 - queuing_delay.as_secs_f64() / TARGET.as_secs_f64();
        self.credit += GAIN * off_target * f64::from(ack.acknowledged) / f64::from(window.size);
        let whole = libm::trunc(self.credit);
        self.credit -= whole;
        let allowed = f64::from(ack.prior_in_flight.saturating_add(ALLOWED_INCREASE));
        let size = (f64::from(window.size) + whole).min(allowed) as u32;
        window.size = size.clamp(MIN_WINDOW, MAX_WINDOW);
        window.threshold = window.threshold.min(window.size);
    }

    fn on_loss(&mut self, _loss: &Loss, window: &mut Window) {
        self.credit = 0.0;
        window.threshold = (window.size / 2).max(MIN_WINDOW);
    }
}

/// Queuing delay that the flow adds; the RFC allows at most 100 ms.
const TARGET: Span = Span::from_millis(100);
/// Segments per round trip by which the window grows while nothing waits; the RFC allows at most 1.
const GAIN: f64 = 1.0;
const BASE_HISTORY: usize = 10;
const CURRENT_FILTER: usize = 4;
const MINUTE: Span = Span::from_secs(60);
/// Segments by which the window may exceed what is in flight.
const ALLOWED_INCREASE: u32 = 1;
const MIN_WINDOW: u32 = 2;
const SLOW_START_END: Span = Span::from_millis(75);

#[cfg(test)]
mod tests {
    use underload_aqm::time::Time;

    use super::*;
    use crate::congestion::Cause;
    use crate::congestion::tests::ack;

    /// Acknowledges two segments of a full window `count` times, with this round trip.
    fn acks(ledbat: &mut Ledbat, window: &mut Window, count: u32, round_trip_ms: u64, at: Time) {
        for _ in 0..count {
            let rtt = Some(Span::from_millis(round_trip_ms));
            let prior_in_flight = window.size;
            ledbat.on_ack(&Ack { now: at, rtt, prior_in_flight, ..ack(2) }, window);
        }
    }

    /// A window of 20 segments after slow start, on a path of 40 ms.
    fn settled() -> (Ledbat, Window) {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(20));
        window.threshold = 20;
        let first = Ack { rtt: Some(Span::from_millis(40)), ..ack(0) };
        ledbat.on_ack(&first, &mut window);
        (ledbat, window)
    }

    /// By the pseudo code of section 2.4.2, `cwnd += GAIN * off_target * acked / cwnd` in segments.
    #[test]
    fn the_window_moves_as_the_pseudo_code_by_hand() {
        let (mut ledbat, mut window) = settled();
        let at = Time::from_secs(1);
        // The smallest of four delays counts: 40 ms until the first is gone. Three times 1 * 2 / 20.
        acks(&mut ledbat, &mut window, 3, 65, at);
        assert!((ledbat.credit - 0.3).abs() < 1e-9, "{}", ledbat.credit);
        // 25 of 100 ms wait: 0.75 * 2 / 20 = 0.075; nine of them are 0.675, the tenth makes 1.05.
        acks(&mut ledbat, &mut window, 9, 65, at);
        assert_eq!(window.size, 20);
        acks(&mut ledbat, &mut window, 1, 65, at);
        assert_eq!(window.size, 21);
        assert!((ledbat.credit - 0.05).abs() < 1e-9, "{}", ledbat.credit);
        // At the target nothing changes, and 50 ms above it -0.5 * 2 / 21 for each.
        acks(&mut ledbat, &mut window, 50, 140, at);
        let before = ledbat.credit + f64::from(window.size);
        acks(&mut ledbat, &mut window, 3, 190, at);
        assert!((ledbat.credit + f64::from(window.size) - before).abs() < 1e-9);
        acks(&mut ledbat, &mut window, 4, 190, at);
        let moved = ledbat.credit + f64::from(window.size) - before;
        assert!((moved + 4.0 / f64::from(window.size)).abs() < 0.01, "{moved}");
        acks(&mut ledbat, &mut window, 1_000, 900, at);
        assert_eq!(window.size, 2, "the smallest window");
    }

    #[test]
    fn the_window_exceeds_what_is_in_flight_by_a_segment() {
        let (mut ledbat, mut window) = settled();
        let unused = Ack { prior_in_flight: 4, ..ack(2) };
        ledbat.on_ack(&unused, &mut window);
        assert_eq!(window.size, 5);
    }

    #[test]
    fn slow_start_ends_when_three_quarters_of_the_target_wait() {
        let (mut ledbat, mut window) = (Ledbat::default(), Window::new(10));
        let at = Time::from_secs(1);
        acks(&mut ledbat, &mut window, 5, 40, at);
        acks(&mut ledbat, &mut window, 4, 114, at);
        assert_eq!(window.size, 28, "nine times two");
        acks(&mut ledbat, &mut window, 4, 115, at);
        assert!(!window.in_slow_start() && window.size == 17, "{window:?}");
        let cause = Cause::Loss;
        let loss = Loss { now: at, cause, in_flight: 17, min_rtt: Span::from_millis(40) };
        ledbat.on_loss(&loss, &mut window);
        assert_eq!(window.threshold, 8, "half");
    }

    #[test]
    fn a_longer_path_is_the_base_after_ten_minutes() {
        let (mut ledbat, mut window) = settled();
        for minute in 1..=9 {
            acks(&mut ledbat, &mut window, 4, 90, Time::from_secs(60 * minute));
            assert_eq!(ledbat.queuing_delay(), Span::from_millis(50), "minute {minute}");
        }
        acks(&mut ledbat, &mut window, 4, 90, Time::from_secs(600));
        assert_eq!(ledbat.queuing_delay(), Span::ZERO);
        acks(&mut ledbat, &mut window, 1, 30, Time::from_secs(601));
        assert_eq!(ledbat.queuing_delay(), Span::ZERO, "a shorter one at once");
        acks(&mut ledbat, &mut window, 4, 90, Time::from_secs(602));
        assert_eq!(ledbat.queuing_delay(), Span::from_millis(60));
    }
}
