//! Fixed bins for bar charts, and a histogram for quantiles in bounded memory.

use std::collections::BTreeMap;

use crate::schema::{Distribution, Quantile};

use super::durations::{Histogram, rank_at};
use super::quantile::{nanos, of_sent_by_rank};

/// A histogram of positive and negative delays, with the precision of [`Histogram`].
#[derive(Debug, Default)]
pub struct SignedHistogram {
    /// Magnitudes of the negative delays; allocated with the first one.
    negative: Option<Histogram>,
    positive: Histogram,
    sum: i128,
}

impl SignedHistogram {
    pub fn record(&mut self, ns: i64) {
        self.sum += i128::from(ns);
        if ns < 0 {
            self.negative.get_or_insert_default().record(ns.unsigned_abs());
        } else {
            self.positive.record(ns.unsigned_abs());
        }
    }

    fn below_zero(&self) -> u64 {
        self.negative.as_ref().map_or(0, Histogram::count)
    }

    fn count(&self) -> u64 {
        self.below_zero() + self.positive.count()
    }

    /// Returns the delay of a rank, from 1 to the count.
    fn at_rank(&self, rank: u64) -> i64 {
        let below_zero = self.below_zero();
        match &self.negative {
            // The smallest delay has the largest magnitude.
            Some(negative) if rank <= below_zero => {
                -nanos(negative.at_ranks([below_zero - rank + 1])[0])
            }
            _ => nanos(self.positive.at_ranks([rank - below_zero])[0]),
        }
    }

    /// Returns quantiles of all probes `sent`, where the recorded delays are those of the answered
    /// probes; see [`super::of_sent`].
    pub fn of_sent(&self, sent: u64) -> BTreeMap<Quantile, Option<i64>> {
        of_sent_by_rank(self.count(), sent, |rank| self.at_rank(rank))
    }

    /// Returns the distribution; `None` without a delay.
    pub fn distribution(&self) -> Option<Distribution> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let negative_max = self.negative.as_ref().and_then(Histogram::max).map(|ns| -nanos(ns));
        let negative_min = self.negative.as_ref().and_then(Histogram::min).map(|ns| -nanos(ns));
        let min_ns = negative_max.or(self.positive.min().map(nanos))?;
        let max_ns = self.positive.max().map(nanos).or(negative_min)?;
        let mean_ns = nanos(self.sum.div_euclid(count.into()));
        let at = |permille| self.at_rank(rank_at(count, permille));
        Some(Distribution::new(count, [min_ns, max_ns, mean_ns], at))
    }
}

/// Equal bins from zero, as in the bar charts of Comcast 2021, Figures 5 and 6 (15 ms wide).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedBins {
    pub width_ns: u64,
    /// Bin i counts values `i * width <= v < (i + 1) * width`.
    pub counts: Vec<u64>,
    pub beyond: u64,
}

impl FixedBins {
    /// Counts the values in `bins` bins of `width_ns` (at least 1).
    pub fn count(values: impl IntoIterator<Item = u64>, width_ns: u64, bins: usize) -> FixedBins {
        let mut result = FixedBins { width_ns: width_ns.max(1), counts: vec![0; bins], beyond: 0 };
        for value in values {
            let bin = usize::try_from(value / result.width_ns).unwrap_or(usize::MAX);
            match result.counts.get_mut(bin) {
                Some(count) => *count += 1,
                None => result.beyond += 1,
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::distribution;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_signed_histogram_is_within_a_thousandth_of_the_sorted_delays(
            mut delays in prop::collection::vec((-1_i64 << 40)..(1 << 40), 1..400),
            shift in (-1_i64 << 40)..(1 << 40),
        ) {
            for delay in &mut delays {
                *delay += shift;
            }
            let mut counted = SignedHistogram::default();
            for delay in &delays {
                counted.record(*delay);
            }
            let counted = counted.distribution().expect("delays");
            let exact = distribution(&mut delays).expect("delays");
            prop_assert_eq!(
                (counted.count, counted.min_ns, counted.max_ns, counted.mean_ns),
                (exact.count, exact.min_ns, exact.max_ns, exact.mean_ns)
            );
            for quantile in crate::schema::Quantile::ALL {
                let (near, at) = (quantile.of(&counted), quantile.of(&exact));
                prop_assert!(near.abs_diff(at) * 1_024 <= at.unsigned_abs(), "{near} for {at}");
            }
        }
    }

    #[test]
    fn bins_are_closed_below_and_open_above() {
        let bins = FixedBins::count([0, 14_999_999, 15_000_000, 45_000_000], 15_000_000, 3);
        assert_eq!((bins.counts, bins.beyond), (vec![2, 1, 0], 1));
    }
}
