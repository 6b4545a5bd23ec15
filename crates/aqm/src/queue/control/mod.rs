//! Common parts of controllers: the proportional integral step of PIE's variants, the update timer,
//! evenly spaced signals, and probabilities as fixed-point numbers.

mod exponential;
mod recur;

pub(crate) use exponential::{exp_of_minus_q32, ln_q48};
pub(crate) use recur::Recur;

use crate::time::{Span, Time};

/// Probability one as a fixed-point number with 56 fractional bits.
pub(crate) const ONE_Q56: u64 = 1 << 56;

/// Returns `numerator / denominator` in Q56.
pub(crate) const fn ratio_q56(numerator: u64, denominator: u64) -> u64 {
    (numerator as u128 * ONE_Q56 as u128 / denominator as u128) as u64
}

/// Converts a Q56 number for display.
pub(crate) fn q56_to_f64(value_q56: u64) -> f64 {
    value_q56 as f64 / ONE_Q56 as f64
}

/// The gains of the controller, in millionths of a hertz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gains {
    pub alpha_microhertz: u64,
    pub beta_microhertz: u64,
}

/// Longer delays (18 minutes) count as this long, which keeps the arithmetic in range.
const DELAY_CAP_NS: u64 = 1 << 40;

/// Gains above a million hertz have no effect and would overflow the arithmetic.
const GAIN_CAP_MICROHERTZ: u64 = 1 << 40;

impl Gains {
    /// Returns the change of probability in Q56 (RFC 8033 section 4.2), before any scaling: `alpha
    /// * (delay - target) + beta * (delay - old_delay)`.
    pub fn step_q56(self, delay: Span, old_delay: Span, target: Span) -> i128 {
        let nanos = |span: Span| i128::from(span.as_nanos().min(DELAY_CAP_NS));
        let gain = |microhertz: u64| i128::from(microhertz.min(GAIN_CAP_MICROHERTZ));
        let proportional = gain(self.alpha_microhertz) * (nanos(delay) - nanos(target));
        let integral = gain(self.beta_microhertz) * (nanos(delay) - nanos(old_delay));
        // Hertz times seconds: a millionth of a hertz times a nanosecond is 1e-15.
        let steps = proportional + integral;
        let whole = steps / STEPS_PER_ONE;
        whole * i128::from(ONE_Q56) + (steps % STEPS_PER_ONE) * i128::from(ONE_Q56) / STEPS_PER_ONE
    }
}

const STEPS_PER_ONE: i128 = 1_000_000_000_000_000;

/// Returns the divisor of a step at a low probability, as a power of two (RFC 8033 section 4.2 and
/// appendix A): from 2048 below a millionth down to 2 below a tenth, and 1 above.
pub(crate) fn low_probability_shift(probability_q56: u64) -> u32 {
    LEVELS_Q56.iter().find(|(below_q56, _)| probability_q56 < *below_q56).map_or(0, |level| level.1)
}

const LEVELS_Q56: [(u64, u32); 6] = [
    (ratio_q56(1, 1_000_000), 11),
    (ratio_q56(1, 100_000), 9),
    (ratio_q56(1, 10_000), 7),
    (ratio_q56(1, 1_000), 5),
    (ratio_q56(1, 100), 3),
    (ratio_q56(1, 10), 1),
];

/// Returns `probability + step`, clamped to zero and `limit_q56`.
pub(crate) fn add_clamped_q56(probability_q56: u64, step_q56: i128, limit_q56: u64) -> u64 {
    (i128::from(probability_q56) + step_q56).clamp(0, i128::from(limit_q56)) as u64
}

/// A periodic timer without a caller: due updates are replayed when the queue is next used.
#[derive(Clone, Debug)]
pub(crate) struct UpdateTimer {
    next: Time,
    interval: Span,
}

impl UpdateTimer {
    /// Schedules the timer at `first` and every `interval` (not zero) after it.
    pub fn new(first: Time, interval: Span) -> Self {
        assert!(interval > Span::ZERO, "configuration refuses an update interval of zero");
        Self { next: first, interval }
    }

    /// Returns the time of an update that is due at `now`, and schedules the next one. No update is
    /// due at [`Time::MAX`], where updates would be due for ever.
    pub fn take_due(&mut self, now: Time) -> Option<Time> {
        if self.next > now || self.next == Time::MAX {
            return None;
        }
        let due = self.next;
        self.next += self.interval;
        Some(due)
    }

    /// Skips due updates of a state that they cannot change. Returns the time of the last one.
    pub fn skip_due(&mut self, now: Time) -> Option<Time> {
        if self.next > now || self.next == Time::MAX {
            return None;
        }
        let missed = now.since(self.next).as_nanos() / self.interval.as_nanos();
        let last = self.next + self.interval * missed;
        self.next = last + self.interval;
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_updates_equals_stepping_through_them() {
        for now_ms in [0, 14, 15, 16, 29, 30, 1_000] {
            let now = Time::from_millis(now_ms);
            let mut stepped = UpdateTimer::new(Time::from_millis(15), Span::from_millis(15));
            let mut skipped = stepped.clone();
            while stepped.take_due(now).is_some() {}
            skipped.skip_due(now);
            assert_eq!(stepped.next, skipped.next);
        }
    }

    #[test]
    fn no_update_is_due_after_the_end_of_time() {
        let first = Time::from_nanos(u64::MAX - 20_000_000);
        let mut timer = UpdateTimer::new(first, Span::from_millis(15));
        let mut skipped = timer.clone();
        let due = [(); 3].map(|()| timer.take_due(Time::MAX));
        let last = first + Span::from_millis(15);
        assert_eq!(due, [Some(first), Some(last), None]);
        assert_eq!(timer.skip_due(Time::MAX), None);
        assert_eq!(skipped.skip_due(Time::MAX), Some(last));
        assert_eq!(skipped.take_due(Time::MAX), None);
    }

    #[test]
    fn a_step_is_exact_to_its_last_bit() {
        // 15 ms over target at 0.125 Hz, 5 ms up at 1.25 Hz: 0.001875 + 0.00625 = 0.008125.
        let gains = Gains { alpha_microhertz: 125_000, beta_microhertz: 1_250_000 };
        let step =
            gains.step_q56(Span::from_millis(30), Span::from_millis(25), Span::from_millis(15));
        assert_eq!(step, i128::from(ratio_q56(8_125, 1_000_000)));
    }

    #[test]
    fn extreme_delays_do_not_overflow() {
        let gains = Gains { alpha_microhertz: u64::MAX, beta_microhertz: u64::MAX };
        let most = Span::from_nanos(u64::MAX);
        assert_eq!(
            add_clamped_q56(0, gains.step_q56(most, Span::ZERO, Span::ZERO), ONE_Q56),
            ONE_Q56
        );
        assert_eq!(add_clamped_q56(ONE_Q56, gains.step_q56(Span::ZERO, most, most), ONE_Q56), 0);
    }

    #[test]
    fn scaling_follows_the_seven_levels() {
        let shifts: alloc::vec::Vec<u32> = [0, 2, 20, 200, 2_000, 20_000, 200_000]
            .map(|tenth_millionths| low_probability_shift(ratio_q56(tenth_millionths, 1_000_000)))
            .into();
        assert_eq!(shifts, [11, 9, 7, 5, 3, 1, 0]);
    }
}
