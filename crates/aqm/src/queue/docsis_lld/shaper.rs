//! Keeps one service flow to its own rates (MULPIv3.1 annex C.2.2.7).

use crate::rate::Rate;
use crate::service_flow::FlowRates;
use crate::time::{Span, Time};
use crate::token_bucket::{MAX_BURST_BYTES, NANOBITS_PER_BYTE};

/// Two token buckets: sustained rate and burst, and peak rate and a largest frame.
///
/// A packet larger than a bucket leaves when the bucket is full, and puts it into debt, so that the
/// rate holds in the long run for all sizes.
#[derive(Clone, Debug)]
pub(super) struct Shaper {
    sustained: Bucket,
    peak: Option<Bucket>,
}

/// Tokens in nanobits, negative while in debt.
#[derive(Clone, Debug)]
struct Bucket {
    rate: Rate,
    capacity: i64,
    tokens: i64,
    updated: Time,
}

impl Shaper {
    /// Returns full buckets; `None` if the flow has no rate.
    pub fn new(rates: FlowRates) -> Option<Self> {
        let sustained = Bucket::new(rates.sustained?, rates.burst_bytes);
        let peak = rates.peak.map(|rate| Bucket::new(rate, FlowRates::PEAK_BURST_BYTES));
        Some(Self { sustained, peak })
    }

    /// Returns how long from `now` on a packet of `len` bytes has to wait.
    pub fn wait(&mut self, now: Time, len: u32) -> Span {
        let sustained = self.sustained.wait(now, len);
        self.peak.as_mut().map_or(sustained, |peak| peak.wait(now, len).max(sustained))
    }

    /// Consumes the tokens of a packet of `len` bytes, which [`Shaper::wait`] allows.
    pub fn take(&mut self, len: u32) {
        self.sustained.take(len);
        if let Some(peak) = &mut self.peak {
            peak.take(len);
        }
    }
}

impl Bucket {
    fn new(rate: Rate, burst_bytes: u64) -> Self {
        let capacity = nanobits(burst_bytes.min(MAX_BURST_BYTES));
        Self { rate, capacity, tokens: capacity, updated: Time::ZERO }
    }

    fn refill(&mut self, now: Time) {
        let elapsed = i128::from(now.since(self.updated).as_nanos());
        let tokens = i128::from(self.tokens) + elapsed * i128::from(self.rate.bits_per_second());
        self.tokens = tokens.min(i128::from(self.capacity)) as i64;
        self.updated = self.updated.max(now);
    }

    fn wait(&mut self, now: Time, len: u32) -> Span {
        self.refill(now);
        let wanted = nanobits(u64::from(len)).min(self.capacity);
        let missing = (i128::from(wanted) - i128::from(self.tokens)).max(0).unsigned_abs();
        let nanos = missing.div_ceil(u128::from(self.rate.bits_per_second().max(1)));
        Span::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }

    fn take(&mut self, len: u32) {
        self.tokens = self.tokens.saturating_sub(nanobits(u64::from(len)));
    }
}

fn nanobits(bytes: u64) -> i64 {
    i64::try_from(bytes.saturating_mul(NANOBITS_PER_BYTE)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shaper(kilobits: u64, peak_kilobits: Option<u64>, burst_bytes: u64) -> Shaper {
        let rate = |kilobits: u64| Rate::from_bits_per_second(kilobits * 1_000);
        let (sustained, peak) = (Some(rate(kilobits)), peak_kilobits.map(rate));
        Shaper::new(FlowRates { sustained, peak, burst_bytes }).expect("it has a rate")
    }

    /// Returns when each of `count` packets leaves if all wait from the start.
    fn departures(shaper: &mut Shaper, len: u32, count: usize) -> alloc::vec::Vec<u64> {
        let mut now = Time::ZERO;
        let mut leave = |_| {
            now += shaper.wait(now, len);
            assert_eq!(shaper.wait(now, len), Span::ZERO, "it may leave when it was told to");
            shaper.take(len);
            now.as_nanos()
        };
        (0..count).map(&mut leave).collect()
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate_to_the_nanosecond() {
        // At 3 Mbit/s, 1000 bytes take 2,666,666.67 ns.
        let times = departures(&mut shaper(3_000, None, 3_044), 1_000, 3_003);
        assert_eq!(times[..3], [0, 0, 0]);
        // 44 bytes of the burst are left, so the next needs 956: 2,549,333.33 ns.
        assert_eq!(times[3], 2_549_334);
        assert_eq!(times[3_002], (3_003 * 1_000 - 3_044) * 8_000_000 / 3_000 + 1, "no drift");
    }

    #[test]
    fn a_peak_rate_spreads_the_burst() {
        let times = departures(&mut shaper(1_000, Some(8_000), 10_000), 1_000, 8);
        // 1522 bytes pass at once, then 1000 bytes per millisecond.
        assert_eq!(
            times,
            [0, 478_000, 1_478_000, 2_478_000, 3_478_000, 4_478_000, 5_478_000, 6_478_000]
        );
    }

    #[test]
    fn a_packet_larger_than_the_burst_pays_for_all_of_itself() {
        // At 8 Mbit/s, 64,000 bytes take 64 ms.
        let times = departures(&mut shaper(8_000, None, 3_000), 64_000, 4);
        assert_eq!(times, [0, 64_000_000, 128_000_000, 192_000_000]);
    }

    #[test]
    fn a_saturated_debt_is_repaid_in_time() {
        let mut shaper = shaper(8_000, None, 3_000);
        (0..9).for_each(|_| shaper.take(u32::MAX));
        assert!(shaper.wait(Time::ZERO, 1) > Span::from_secs(1_000));
        assert_eq!(shaper.wait(Time::MAX, 1_500), Span::ZERO);
    }

    #[test]
    fn a_flow_without_a_rate_is_not_shaped() {
        assert!(Shaper::new(FlowRates::UNLIMITED).is_none());
    }
}
