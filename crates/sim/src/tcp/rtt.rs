//! Round trip time and the retransmission timeout (RFC 6298, with Linux's bounds).

use underload_aqm::time::{Span, Time};

/// Smoothed round trip time, its variation, and the minimum of the last five minutes.
///
/// The variation is Linux's: the largest deviation of a round trip counts, it falls by at most a
/// quarter per round trip, and a falling round trip time hardly raises it. RFC 6298 would forget a
/// deviation within a few of the many samples of one round trip.
#[derive(Debug)]
pub(super) struct RttEstimator {
    pub(super) smoothed: Option<Span>,
    /// Four times the mean deviation, ns.
    deviation: u64,
    /// Largest `deviation` of this round trip.
    deviation_max: u64,
    /// The part of the timeout above the smoothed round trip, ns.
    variation: u64,
    /// The round trip ends when this segment is acknowledged.
    round_end: u32,
    /// `u64::MAX` ns before the first sample.
    pub(super) min: Span,
    min_at: Time,
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        Self {
            smoothed: None,
            deviation: 0,
            deviation_max: MIN_MARGIN_NS,
            variation: MIN_MARGIN_NS,
            round_end: 0,
            min: Span::from_nanos(u64::MAX),
            min_at: Time::ZERO,
        }
    }

    pub(super) fn on_min_sample(&mut self, now: Time, rtt: Span) {
        if rtt <= self.min || now.since(self.min_at) > MIN_WINDOW {
            (self.min, self.min_at) = (rtt, now);
        }
    }

    /// Updates average and variation. `first` is the cumulative number of the acknowledgement,
    /// `next` the next new segment.
    pub(super) fn on_sample(&mut self, rtt: Span, first: u32, next: u32) {
        let rtt_ns = rtt.as_nanos();
        let Some(smoothed) = self.smoothed.map(Span::as_nanos) else {
            self.smoothed = Some(rtt);
            self.deviation = rtt_ns * 2;
            self.variation = self.deviation.max(MIN_MARGIN_NS);
            self.deviation_max = self.variation;
            self.round_end = next;
            return;
        };
        self.smoothed = Some(Span::from_nanos(smoothed - smoothed / 8 + rtt_ns / 8));
        let error = smoothed.abs_diff(rtt_ns);
        let mean = self.deviation / 4;
        // A falling round trip time raises the deviation by an eighth of the usual step.
        let raise = error.saturating_sub(mean) / if rtt_ns < smoothed { 8 } else { 1 };
        self.deviation = self.deviation + raise - mean.saturating_sub(error);
        self.deviation_max = self.deviation_max.max(self.deviation);
        self.variation = self.variation.max(self.deviation_max);
        if first > self.round_end {
            self.variation -= (self.variation - self.deviation_max) / 4;
            self.round_end = next;
            self.deviation_max = MIN_MARGIN_NS;
        }
    }

    /// Returns the timeout without backoff. Linux bounds the variation below by 200 ms.
    pub(super) fn timeout(&self) -> Span {
        match self.smoothed {
            None => INITIAL_TIMEOUT,
            Some(smoothed) => smoothed + Span::from_nanos(self.variation),
        }
    }
}

/// RFC 6298 section 2.1.
pub(super) const INITIAL_TIMEOUT: Span = Span::from_secs(1);
// Linux `TCP_RTO_MAX`.
pub(super) const MAX_TIMEOUT: Span = Span::from_secs(120);
/// Linux `TCP_RTO_MIN`, applied to the variation.
const MIN_MARGIN_NS: u64 = 200_000_000;
// Linux `tcp_min_rtt_wlen`.
const MIN_WINDOW: Span = Span::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_three_times_and_linux_margin_remains() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.timeout(), Span::from_secs(1));
        rtt.on_sample(Span::from_millis(100), 1, 10);
        assert_eq!(rtt.timeout(), Span::from_millis(300), "srtt + 4 * srtt/2");
        for first in 2..100 {
            rtt.on_sample(Span::from_millis(100), first, first + 10);
        }
        assert_eq!(rtt.timeout(), Span::from_millis(300), "srtt + 200 ms");
        rtt.on_sample(Span::from_millis(180), 100, 110);
        assert_eq!(rtt.smoothed, Some(Span::from_millis(110)), "7/8 and 1/8");
    }

    #[test]
    fn a_longer_round_trip_is_remembered_by_the_round_not_by_the_sample() {
        let mut rtt = RttEstimator::new();
        for first in 0..2_000 {
            rtt.on_sample(Span::from_secs(1), first, first + 100);
        }
        let settled = rtt.timeout();
        // A sample of 3 s: four times the mean deviation, near 0 before, grows by 2 s.
        rtt.on_sample(Span::from_secs(3), 2_001, 2_101);
        let raised = rtt.timeout();
        assert!(raised >= settled + Span::from_millis(1_800), "{settled:?} {raised:?}");
        // The smoothed value falls back within the same round trip, and the variation does not.
        for first in 2_002..2_100 {
            rtt.on_sample(Span::from_secs(1), first, first + 100);
        }
        assert!(rtt.timeout() > Span::from_millis(2_900), "{:?}", rtt.timeout());
        for round in 11..70 {
            rtt.on_sample(Span::from_secs(1), round * 200, round * 200 + 100);
        }
        assert!(rtt.timeout() < Span::from_millis(1_300), "{:?}", rtt.timeout());
    }

    #[test]
    fn the_smallest_round_trip_is_kept_for_five_minutes_since_it_was_seen_last() {
        let mut rtt = RttEstimator::new();
        let mut min_after = |at_ns, sample_ms| {
            rtt.on_min_sample(Time::from_nanos(at_ns), Span::from_millis(sample_ms));
            rtt.min.as_millis()
        };
        let second = 1_000_000_000;
        assert_eq!(min_after(0, 50), 50);
        assert_eq!(min_after(second, 60), 50);
        assert_eq!(min_after(100 * second, 50), 50, "seen again");
        assert_eq!(min_after(400 * second, 60), 50);
        assert_eq!(min_after(400 * second + 1, 60), 60);
        assert_eq!(min_after(401 * second, 40), 40);
    }

    /// Expected values computed by hand after `tcp_rtt_estimator` of Linux.
    #[test]
    fn the_variation_follows_the_rounds_of_linux() {
        let mut rtt = RttEstimator::new();
        let mut timeout_after = |sample_ms, first, next| {
            rtt.on_sample(Span::from_millis(sample_ms), first, next);
            rtt.timeout().as_nanos()
        };
        // A deviation of 800 ms falls by a quarter with each sample: 600, 450, 337.5.
        for first in [1, 5, 10, 11] {
            assert_eq!(timeout_after(400, first, 20.min(first + 9)), 1_200_000_000, "{first}");
        }
        // Within the round the variation falls to 253.125 at most; at the end of the round it moves
        // a quarter of the way to that.
        assert_eq!(timeout_after(400, 12, 25), 1_200_000_000);
        assert_eq!(timeout_after(400, 21, 30), 1_063_281_250);
        assert_eq!(timeout_after(400, 22, 31), 1_063_281_250);
    }

    #[test]
    fn a_falling_round_trip_raises_the_variation_by_an_eighth_of_what_a_rising_one_does() {
        let timeout_after = |sample_ms| {
            let mut rtt = RttEstimator::new();
            rtt.on_sample(Span::from_millis(400), 1, 10);
            rtt.on_sample(Span::from_millis(sample_ms), 2, 11);
            (rtt.smoothed.map(Span::as_millis), rtt.timeout().as_millis())
        };
        assert_eq!(timeout_after(800), (Some(450), 450 + 800 + 200));
        assert_eq!(timeout_after(40), (Some(355), 355 + 800 + 20));
    }
}
