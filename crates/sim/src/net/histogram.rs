//! Durations in bounded memory.

use underload_record::schema::Distribution;

/// A histogram of durations: exact below 128 ns, then 64 buckets per power of two, so that a
/// quantile is at most 1.6 % too large. 60 KiB, whatever is counted.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

const SUB_BITS: u32 = 7;
const SUBS: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS + 1) as usize) << SUB_BITS;

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Counts a duration.
    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Forgets everything counted so far.
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// The quantiles; `None` when nothing was counted.
    pub(crate) fn distribution(&self) -> Option<Distribution> {
        (self.count > 0).then(|| Distribution {
            count: self.count,
            min_ns: self.min,
            p50_ns: self.quantile(500),
            p90_ns: self.quantile(900),
            p95_ns: self.quantile(950),
            p99_ns: self.quantile(990),
            p999_ns: self.quantile(999),
            max_ns: self.max,
            mean_ns: (self.sum / u128::from(self.count)) as u64,
        })
    }

    fn quantile(&self, permille: u64) -> u64 {
        let rank = (self.count * permille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(index).min(self.max);
            }
        }
        self.max
    }
}

fn bucket(nanos: u64) -> usize {
    let exponent = (64 - (nanos | (SUBS - 1)).leading_zeros()) - SUB_BITS;
    ((u64::from(exponent) << SUB_BITS) + ((nanos >> exponent) & (SUBS - 1))) as usize
}

fn upper_end(bucket: usize) -> u64 {
    let (exponent, sub) = (bucket as u64 >> SUB_BITS, bucket as u64 & (SUBS - 1));
    ((sub + 1) << exponent) - 1
}
