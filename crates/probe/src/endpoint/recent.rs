//! The latest measurements of a running prober, for a live view.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Round trips of one class since the last read. The receiving thread writes and must never wait;
/// any thread may read.
#[derive(Debug)]
pub(super) struct RecentDelays {
    /// Counts per range of delays, sixteen ranges per doubling, each at most 6 % wide.
    buckets: Vec<AtomicU32>,
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

    /// Returns the median round trip since the last call, within 6 %, ns; `None` without any.
    pub(super) fn take_median(&self) -> Option<u64> {
        let counts: Vec<u64> =
            self.buckets.iter().map(|count| u64::from(count.swap(0, Ordering::Relaxed))).collect();
        let rank = counts.iter().sum::<u64>().div_ceil(2).max(1);
        let mut up_to = 0;
        let index = counts.iter().position(|in_bucket| {
            up_to += in_bucket;
            up_to >= rank
        })?;
        Some(middle_ns(index))
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
    fn the_median_is_within_its_range_and_resets_when_read() {
        let recent = RecentDelays::default();
        assert_eq!(recent.take_median(), None);
        for delay_ns in 1..=1_000_u64 {
            recent.note(delay_ns * 1_000);
        }
        let median = recent.take_median().unwrap();
        assert!(median.abs_diff(500_000) < 32_000, "{median}");
        assert_eq!(recent.take_median(), None);
        recent.note(u64::MAX);
        assert_eq!(recent.take_median(), Some(middle_ns(BUCKETS - 1)));
    }

    #[test]
    fn every_delay_lies_in_the_range_that_it_is_counted_in() {
        for delay_ns in (0..200_000_u64).step_by(7).chain((0..36).map(|power| 1 << power)) {
            let shown = middle_ns(index(delay_ns));
            assert!(shown.abs_diff(delay_ns) <= delay_ns / 16, "{delay_ns} shown as {shown}");
        }
    }
}
