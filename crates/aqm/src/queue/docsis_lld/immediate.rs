//! The immediate AQM's ramp (MULPIv3.1 annex N).

use crate::queue::control::ONE_Q56;
use crate::queue::docsis_pie::MAX_PACKET_BYTES;
use crate::rate::Rate;
use crate::time::Span;

/// The probability of a mark by low latency delay: 0 below `start`, 1 from `end` on, linear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ramp {
    rate: Rate,
    start: Span,
    /// The delay from which on every packet is marked.
    pub end: Span,
}

/// The largest threshold: 16 bits of microseconds.
const LATEST: Span = Span::from_micros(65_535);

impl Ramp {
    /// Returns the ramp that ends at `threshold` (`MAXTH`) and is `2^range_exponent` ns long. It is
    /// moved up if two largest frames at `rate` (`FLOOR`) take longer than its start.
    pub fn new(rate: Rate, threshold: Span, range_exponent: u8) -> Self {
        let range = Span::from_nanos(1 << range_exponent.min(30));
        let floor = rate.time_for(2 * MAX_PACKET_BYTES).unwrap_or(LATEST).min(LATEST);
        let start = threshold.saturating_sub(range).max(floor);
        Self { rate, start, end: (start + range).min(LATEST) }
    }

    /// Returns the delay of `bytes` (`qdelayCoupledL`, annex O).
    pub fn delay_of(&self, bytes: u64) -> Span {
        self.rate.time_for(bytes).unwrap_or(Span::from_nanos(u64::MAX))
    }

    /// Returns the probability at `delay` (`calcProbNative`).
    pub fn probability_q56(&self, delay: Span) -> u64 {
        if delay >= self.end {
            return ONE_Q56;
        }
        let over = delay.saturating_sub(self.start).as_nanos();
        let range = self.end.saturating_sub(self.start).as_nanos();
        (u128::from(ONE_Q56) * u128::from(over) / u128::from(range.max(1))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(megabits: u64, threshold_us: u64) -> Ramp {
        let rate = Rate::from_megabits_per_second(megabits);
        Ramp::new(rate, Span::from_micros(threshold_us), 19)
    }

    /// The figures that the tests of CableLabs' simulator assert (docsis-ns3,
    /// dual-queue-coupled-aqm-test-suite).
    #[test]
    fn thresholds_are_those_of_the_cablelabs_simulator() {
        // Two largest frames take 640 us at 50 Mbit/s, more than 1000 - 524.
        assert_eq!(ramp(50, 1_000).start, Span::from_micros(640));
        let start = ramp(50, 2_000).start.as_nanos();
        assert!((1_475_000..=1_477_000).contains(&start), "{start}");
        assert_eq!(ramp(50, 2_000).end, Span::from_millis(2));
    }

    #[test]
    fn the_ramp_is_linear_and_ends_at_one() {
        let ramp = ramp(1_000, 1_000);
        assert_eq!(ramp.probability_q56(ramp.start), 0);
        assert_eq!(ramp.probability_q56(ramp.end), ONE_Q56);
        let middle = Span::from_nanos(u64::midpoint(ramp.start.as_nanos(), ramp.end.as_nanos()));
        assert_eq!(ramp.probability_q56(middle), ONE_Q56 / 2);
    }

    #[test]
    fn slow_links_do_not_mark_beyond_65_milliseconds() {
        let ramp = Ramp::new(Rate::from_bits_per_second(1_000), Span::from_millis(1), 19);
        assert_eq!((ramp.start, ramp.end), (LATEST, LATEST));
    }
}
