//! The latest measurements of a running prober, for a live view.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Round trips of one class since the last read. The receiving thread writes and must never wait;
/// any thread may read.
#[derive(Debug)]
pub(super) struct RecentDelays {
    /// Counts per range of delays, sixteen ranges per doubling, each at most 6 % wide.
    buckets: Vec<AtomicU32>,
}

/// Round trips of one class since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentLatency {
    pub count: u64,
    /// Median round trip, within 6 %, ns.
    pub p50_ns: u64,
    /// 99th percentile, within 6 %, ns; the largest if `count` is below 100.
    pub p99_ns: u64,
}

/// Ranges up to 2^36 ns, about a minute.
const BUCKETS: usize = 34 * 16;

impl Default for RecentDelays {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl RecentDelays {
    pub(super) fn note(&self, delay_ns: u64) {
        if let Some(bucket) = self.buckets.get(index(delay_ns).min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the round trips since the last call; `None` without any.
    pub(super) fn take(&self) -> Option<RecentLatency> {
        let counts: Vec<u64> =
            self.buckets.iter().map(|count| u64::from(count.swap(0, Ordering::Relaxed))).collect();
        let count: u64 = counts.iter().sum();
        let quantile = |rank: u64| {
            let mut below = 0;
            let reaches_rank = |(_, in_bucket): &(usize, &u64)| {
                below += **in_bucket;
                below >= rank
            };
            counts.iter().enumerate().find(reaches_rank).map_or(0, |(index, _)| middle_ns(index))
        };
        let p50_ns = quantile(count.div_ceil(2));
        let p99_ns = quantile((count * 99).div_ceil(100));
        (count > 0).then_some(RecentLatency { count, p50_ns, p99_ns })
    }
}

/// The largest value since the last read.
#[derive(Debug, Default)]
pub(super) struct RecentMaximum(AtomicU64);

impl RecentMaximum {
    pub(super) fn note(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn index(delay_ns: u64) -> usize {
    match delay_ns.checked_ilog2() {
        None | Some(0..4) => delay_ns as usize,
        Some(power) => (power as usize - 3) * 16 + (delay_ns >> (power - 4) & 15) as usize,
    }
}

fn middle_ns(index: usize) -> u64 {
    let (power, part) = (index as u64 / 16, index as u64 % 16);
    match power.checked_sub(1) {
        None => part,
        Some(shift) => ((16 + part) << shift) + (1 << shift) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_their_range_and_reset_when_read() {
        let recent = RecentDelays::default();
        assert_eq!(recent.take(), None);
        for delay_ns in 1..=1_000_u64 {
            recent.note(delay_ns * 1_000);
        }
        let seen = recent.take().unwrap();
        assert_eq!(seen.count, 1_000);
        assert!(seen.p50_ns.abs_diff(500_000) < 32_000, "{seen:?}");
        assert!(seen.p99_ns.abs_diff(990_000) < 62_000, "{seen:?}");
        assert_eq!(recent.take(), None);
        recent.note(u64::MAX);
        assert_eq!(recent.take().unwrap().count, 1);
    }

    #[test]
    fn every_delay_lies_in_the_range_that_it_is_counted_in() {
        for delay_ns in (0..200_000_u64).step_by(7).chain((0..36).map(|power| 1 << power)) {
            let shown = middle_ns(index(delay_ns));
            assert!(shown.abs_diff(delay_ns) <= delay_ns / 16, "{delay_ns} shown as {shown}");
        }
    }
}
