//! Durations of an unbounded stream in bounded memory, and their quantiles.

/// A histogram of durations in nanoseconds.
///
/// Count, smallest, largest and mean are exact. A quantile is never too small, and too large by
/// less than one part in 1024: every nanosecond below 2048 has its own bucket, and 1024 buckets
/// share each power of two above. From 73 minutes (2^42 ns) on durations share the last bucket,
/// whose quantile is the largest. It takes 264 KiB, and counting does not allocate.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 10;
/// Durations from 2^42 ns on share one bucket.
const LONGEST_BITS: u32 = 42;
const BUCKETS: usize = ((LONGEST_BITS - SUB_BITS + 1) as usize) << SUB_BITS;
const LAST: usize = BUCKETS - 1;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub fn new() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice();
        let counts = counts.try_into().expect("a slice of that many");
        Self { counts, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let used = bucket(other.min)..=bucket(other.max);
        for (count, more) in self.counts[used.clone()].iter_mut().zip(&other.counts[used]) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub const fn count(&self) -> u64 {
        self.count
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Returns the mean, rounded down; `None` if empty.
    pub fn mean(&self) -> Option<u64> {
        (!self.is_empty()).then(|| (self.sum / u128::from(self.count)) as u64)
    }

    /// Returns the nearest-rank quantile at `permille` thousandths; 0 if empty.
    pub fn quantile(&self, permille: u32) -> u64 {
        self.quantiles([permille])[0]
    }

    /// Returns several quantiles at once. `permilles` must not decrease.
    pub fn quantiles<const N: usize>(&self, permilles: [u32; N]) -> [u64; N] {
        self.at_ranks(permilles.map(|permille| rank_at(self.count, permille)))
    }

    /// Returns the durations of these ranks, from 1 for the smallest, not decreasing; 0 if empty.
    pub fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> [u64; N] {
        debug_assert!(ranks.is_sorted(), "{ranks:?}");
        let mut seen = 0;
        let mut next = if self.is_empty() { 0 } else { bucket(self.min) };
        ranks.map(|rank| {
            while next < BUCKETS && seen < rank.max(1) {
                seen += self.counts[next];
                next += 1;
            }
            upper_end(next.saturating_sub(1)).min(self.max)
        })
    }
}

/// Returns the nearest rank of a quantile of `count` values, from 1 for the smallest.
pub(super) fn rank_at(count: u64, permille: u32) -> u64 {
    let rank = (u128::from(count) * u128::from(permille)).div_ceil(1_000) as u64;
    rank.max(1)
}

#[inline]
fn bucket(nanos: u64) -> usize {
    // Bits beyond the first eleven; zero up to 2047.
    let exponent = (u64::BITS - SUB_BITS - 1) - (nanos | ((2 << SUB_BITS) - 1)).leading_zeros();
    let bucket = ((exponent as usize) << SUB_BITS) + (nanos >> exponent) as usize;
    bucket.min(LAST)
}

/// Returns the longest duration that is counted in `bucket`.
const fn upper_end(bucket: usize) -> u64 {
    if bucket >= LAST {
        return u64::MAX;
    }
    if bucket < 2 << SUB_BITS {
        return bucket as u64;
    }
    let exponent = (bucket >> SUB_BITS) - 1;
    let start = bucket - (exponent << SUB_BITS);
    ((start as u64 + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The nearest-rank quantile of sorted values.
    fn exact(sorted: &[u64], permille: u32) -> u64 {
        let rank = (sorted.len() * permille as usize).div_ceil(1_000).max(1);
        sorted[rank - 1]
    }

    #[test]
    fn an_empty_histogram_has_no_minimum_mean_or_maximum() {
        let empty = Histogram::new();
        assert!(empty.is_empty());
        assert_eq!((empty.min(), empty.mean(), empty.max()), (None, None, None));
        assert_eq!(empty.quantiles([0, 500, 1_000]), [0; 3]);
    }

    #[test]
    fn buckets_follow_each_other_without_gap_and_are_as_narrow_as_stated() {
        let mut before = None;
        for index in 0..LAST {
            let end = upper_end(index);
            let start = before.map_or(0, |before| before + 1);
            assert_eq!((bucket(start), bucket(end)), (index, index), "{start} to {end}");
            assert!((end - start) * 1_024 < start.max(1), "{start} to {end}");
            before = Some(end);
        }
        let longest = 1 << LONGEST_BITS;
        assert_eq!(before, Some(longest - (longest >> 11) - 1), "the last bucket");
        assert_eq!((bucket(longest), bucket(u64::MAX)), (LAST, LAST));
    }

    #[test]
    fn overlong_durations_count_in_the_largest_bucket() {
        let mut histogram = Histogram::new();
        histogram.record(0);
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantiles([500, 501, 1_000]), [0, u64::MAX, u64::MAX]);
        assert_eq!(histogram.mean(), Some(u64::MAX / 2));
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let duration = (0_u32..LONGEST_BITS - 1).prop_flat_map(|bits| 0..(2_u64 << bits));
        prop::collection::vec(duration, 1..300)
    }

    proptest! {
        #[test]
        fn quantiles_are_too_large_by_less_than_a_thousandth(
            durations in durations(),
            split in 0_usize..300,
            permille in 0_u32..=1_000,
        ) {
            let split = split.min(durations.len());
            let (mut first, mut second) = (Histogram::new(), Histogram::new());
            durations[..split].iter().for_each(|nanos| first.record(*nanos));
            durations[split..].iter().for_each(|nanos| second.record(*nanos));
            first.merge(&second);
            let mut sorted = durations.clone();
            sorted.sort_unstable();
            let sum: u128 = durations.iter().map(|nanos| u128::from(*nanos)).sum();
            prop_assert_eq!(first.count(), durations.len() as u64);
            prop_assert_eq!(first.min(), sorted.first().copied());
            prop_assert_eq!(first.max(), sorted.last().copied());
            prop_assert_eq!(first.mean(), Some((sum / durations.len() as u128) as u64));
            let wanted = exact(&sorted, permille);
            let found = first.quantile(permille);
            prop_assert!(found >= wanted, "{found} is below {wanted}");
            prop_assert!((found - wanted) * 1_024 < wanted.max(1), "{found} is far above {wanted}");
        }
    }
}
