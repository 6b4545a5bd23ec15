//! Intervals of values in clusters, such as the tests of one line.
//!
//! Tests of one line are similar: treated as independent, 61 % of comparisons of a cohort with
//! itself found a difference at the 5 % level. So this module resamples, or counts, whole clusters.

use underload_aqm::rng::Rng;

use super::tails::{normal_above, normal_quantile};

/// Values in logarithmic bins, by cluster: bin `b` has those above `ratio^(b-1)` up to `ratio^b`.
#[derive(Debug, Clone, Default)]
pub struct BinnedClusters {
    ratio: f64,
    /// Number of the first bin.
    first: i64,
    /// Columns of a cluster: the bins, then the values beyond all bins.
    width: usize,
    counts: Vec<u64>,
}

/// A quantile over all clusters, with an interval by resampling clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterQuantile {
    /// `None` if the quantile is beyond all bins.
    pub estimate: Option<f64>,
    /// `None` if the lower end is beyond all bins, or if too few clusters are beyond the quantile.
    pub low: Option<f64>,
    /// `None` if the upper end is beyond all bins, or if too few clusters are beyond the quantile.
    pub high: Option<f64>,
}

/// Ratio of the bins in [`BinnedClusters::of_values`].
const FINE_RATIO: f64 = 1.005;
/// Maximum number of counts in [`BinnedClusters::of_values`]: a gigabyte.
const MOST_COUNTS: usize = 1 << 27;
/// Number of resamples for an interval.
const DRAWS: usize = 400;
/// Minimum number of clusters beyond a quantile, if all clusters were equally large. With fewer,
/// the interval is too narrow: with 150 lines it contained the p99 in 81 of 100 studies.
const BEYOND_LEAST: f64 = 9.99;

impl BinnedClusters {
    /// Creates empty bins for `clusters`.
    pub fn new(ratio: f64, bins: usize, clusters: usize) -> Self {
        let width = bins + 1;
        Self { ratio, first: 0, width, counts: vec![0; width * clusters] }
    }

    /// Creates bins of half a percent from values, each with the number of its cluster from 0.
    ///
    /// `None` if a value is not finite and above zero, if the slices differ in length, or if the
    /// bins would use more than a gigabyte.
    pub fn of_values(values: &[f64], clusters: &[usize]) -> Option<Self> {
        let all_good = values.iter().all(|value| value.is_finite() && *value > 0.0);
        if values.is_empty() || values.len() != clusters.len() || !all_good {
            return None;
        }
        let bin_of = |value: f64| (value.ln() / FINE_RATIO.ln()).ceil() as i64;
        let least = bin_of(values.iter().copied().fold(f64::INFINITY, f64::min));
        let most = bin_of(values.iter().copied().fold(0.0, f64::max));
        let bins = usize::try_from(most - least).ok()?.checked_add(1)?;
        let count = clusters.iter().max()?.checked_add(1)?;
        if bins.checked_add(1)?.checked_mul(count)? > MOST_COUNTS {
            return None;
        }
        let mut binned = Self { first: least, ..Self::new(FINE_RATIO, bins, count) };
        for (value, cluster) in values.iter().zip(clusters) {
            let bin = usize::try_from(bin_of(*value) - least).ok()?;
            binned.add(*cluster, bin, 1);
        }
        Some(binned)
    }

    /// Adds `count` values to a bin; numbers past the last bin are beyond all bins. A cluster that
    /// does not exist is added, with those before it.
    pub fn add(&mut self, cluster: usize, bin: usize, count: u64) {
        let (bin, first) = (bin.min(self.width - 1), cluster * self.width);
        if self.counts.len() <= first {
            self.counts.resize(first + self.width, 0);
        }
        let sum = &mut self.counts[first + bin];
        *sum = sum.saturating_add(count);
    }

    /// Adds `count` values beyond all bins.
    pub fn add_beyond(&mut self, cluster: usize, count: u64) {
        self.add(cluster, usize::MAX, count);
    }

    /// Returns quantiles of all values, with percentile intervals over 400 resampled clusters.
    ///
    /// Values are assumed to be evenly distributed within a bin on a logarithmic scale.
    pub fn quantiles(
        &self,
        shares: &[f64],
        confidence: f64,
        rng: &mut Rng,
    ) -> Vec<ClusterQuantile> {
        let clusters: Vec<&[u64]> = self.counts.chunks_exact(self.width).collect();
        // Only the columns from the first to the last non-empty one.
        let is_used = |column: &usize| clusters.iter().any(|cluster| cluster[*column] > 0);
        let first = (0..self.width).find(is_used).unwrap_or(0);
        let last = (0..self.width).rfind(is_used).unwrap_or(0);
        let summed = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut sum = vec![0_u64; last + 1 - first];
            for number in numbers {
                let columns = sum.iter_mut().zip(&clusters[number][first..=last]);
                columns.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
            }
            sum
        };
        let all = summed(&mut (0..clusters.len()));
        let mut drawn: Vec<Vec<f64>> = vec![Vec::with_capacity(DRAWS); shares.len()];
        if clusters.len() > 1 {
            for _ in 0..DRAWS {
                let count = clusters.len() as u32;
                let sum = summed(&mut (0..count).map(|_| rng.below(count) as usize));
                for (share, drawn) in shares.iter().zip(&mut drawn) {
                    drawn.push(self.quantile(&sum, first, *share).unwrap_or(f64::INFINITY));
                }
            }
        }
        let outside = (1.0 - confidence).clamp(0.0, 1.0) / 2.0;
        let of = |(share, mut drawn): (&f64, Vec<f64>)| {
            drawn.sort_unstable_by(f64::total_cmp);
            let end = |at: f64| {
                let place = (at * DRAWS as f64).floor() as usize;
                drawn.get(place.min(DRAWS - 1)).copied().filter(|value| value.is_finite())
            };
            let estimate = self.quantile(&all, first, *share);
            if (1.0 - share) * (clusters.len() as f64) < BEYOND_LEAST {
                return ClusterQuantile { estimate, low: None, high: None };
            }
            ClusterQuantile { estimate, low: end(outside), high: end(1.0 - outside) }
        };
        shares.iter().zip(drawn).map(of).collect()
    }

    /// Returns the quantile of counts that start at column `first`.
    fn quantile(&self, counts: &[u64], first: usize, share: f64) -> Option<f64> {
        let bins = counts.iter().take(self.width - 1 - first).copied();
        let bins = (self.first + first as i64..).zip(bins);
        binned_quantile(self.ratio, bins, counts.iter().sum(), share)
    }
}

/// Returns a quantile of `total` values in ascending logarithmic bins, each with its number and
/// count; bin `b` has the values above `ratio^(b-1)` up to `ratio^b`, evenly distributed on a
/// logarithmic scale. Values in no bin are larger than all others: `None` if it is one of them.
pub fn binned_quantile(
    ratio: f64,
    bins: impl Iterator<Item = (i64, u64)>,
    total: u64,
    share: f64,
) -> Option<f64> {
    let rank = share.clamp(0.0, 1.0) * total as f64;
    let mut before = 0.0;
    for (bin, count) in bins.filter(|(_, count)| *count > 0) {
        let count = count as f64;
        if before + count >= rank {
            return Some(ratio.powf(bin as f64 - 1.0 + (rank - before) / count));
        }
        before += count;
    }
    None
}

/// A share of all trials, with trials in clusters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterShare {
    /// From 0 to 1.
    pub share: f64,
    /// Standard error over clusters.
    pub error: f64,
    pub clusters: u64,
}

/// Returns the share of successes of clusters with `(successes, trials)`: a ratio of two sums, with
/// its error linearised over clusters (Cochran 1977, section 11.8). `None` without a trial.
pub fn cluster_share(clusters: &[(u64, u64)]) -> Option<ClusterShare> {
    let (successes, trials) = clusters.iter().fold((0, 0), |(s, t), (own, of)| (s + own, t + of));
    if trials == 0 {
        return None;
    }
    let share = successes as f64 / trials as f64;
    let count = clusters.len() as f64;
    let squares: f64 =
        clusters.iter().map(|(own, of)| (*own as f64 - share * *of as f64).powi(2)).sum();
    let correction = if count > 1.0 { count / (count - 1.0) } else { f64::INFINITY };
    let error = (squares * correction).sqrt() / trials as f64;
    Some(ClusterShare { share, error, clusters: clusters.len() as u64 })
}

impl ClusterShare {
    /// Returns the difference to another share, half the width of its interval, and its two-sided
    /// p-value by the normal distribution.
    pub fn less(&self, other: &Self, confidence: f64) -> (f64, f64, f64) {
        let difference = self.share - other.share;
        let error = self.error.hypot(other.error);
        let half = normal_quantile(0.5 + confidence.clamp(0.0, 1.0) / 2.0) * error;
        let p_value = match (difference, error) {
            (0.0, _) => 1.0,
            (_, 0.0) => 0.0,
            _ => 2.0 * normal_above((difference / error).abs()),
        };
        (difference, half, p_value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: f64 = 1.02;

    /// 120 clusters of 40 values, each cluster around a different level.
    fn clusters() -> Vec<Vec<f64>> {
        let level = |cluster: u32| 20_000.0 + f64::from(cluster * 37 % 120) * 150.0;
        let value = |cluster, i: u32| level(cluster) * (1.0 + f64::from(i * 17 % 40) / 80.0);
        (0..120).map(|cluster| (0..40).map(|i| value(cluster, i)).collect()).collect()
    }

    fn binned() -> BinnedClusters {
        let mut bins = BinnedClusters::new(RATIO, 932, 120);
        for (number, values) in clusters().iter().enumerate() {
            for value in values {
                bins.add(number, (value.ln() / RATIO.ln()).ceil() as usize, 1);
            }
        }
        bins
    }

    // x = numpy.array([[(20000 + c * 37 % 120 * 150) * (1 + i * 17 % 40 / 80) for i in range(40)]
    // for c in range(120)]) for q in (0.5, 0.8): pooled = lambda c:
    // numpy.quantile(x[c.astype(int)].ravel(), q) numpy.quantile(x, q)
    // scipy.stats.bootstrap((numpy.arange(120),), pooled, n_resamples=20000, vectorized=False,
    // method='percentile', rng=1).confidence_interval Half of the tolerance is 1 % of a bin; the
    // other half is the random error of 400 draws.
    #[test]
    fn single_values_are_binned_within_half_a_percent() {
        let values: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let clusters: Vec<usize> = (0..1_000).map(|at| at % 40).collect();
        let binned = BinnedClusters::of_values(&values, &clusters).expect("good values");
        let found = binned.quantiles(&[0.5, 0.25], 0.95, &mut Rng::new(1));
        for (quantile, want) in found.iter().zip([500.0, 250.0]) {
            let estimate = quantile.estimate.expect("inside");
            assert!((estimate / want - 1.0).abs() < 0.005, "{estimate} for {want}");
            let (low, high) = (quantile.low.expect("low"), quantile.high.expect("high"));
            assert!(low < estimate && estimate < high, "{low} {estimate} {high}");
        }
        let small = BinnedClusters::of_values(&[0.001, 0.002], &[0, 0]).expect("below one");
        let median = small.quantiles(&[0.5], 0.95, &mut Rng::new(1))[0].estimate;
        assert!((median.expect("a value") / 0.001 - 1.0).abs() < 0.005, "{median:?}");
        for (values, clusters) in [
            (&[][..], &[][..]),
            (&[1.0], &[0, 1]),
            (&[0.0], &[0]),
            (&[f64::NAN], &[0]),
            (&[1.0], &[usize::MAX]),
            (&[1.0, 2.0], &[0, 1 << 40]),
        ] {
            assert!(BinnedClusters::of_values(values, clusters).is_none(), "{values:?}");
        }
    }

    #[test]
    fn quantiles_vary_as_scipys_do_when_clusters_are_drawn() {
        let mut rng = Rng::new(1);
        let found = binned().quantiles(&[0.5, 0.8], 0.95, &mut rng);
        for (found, [estimate, low, high]) in found.iter().zip(SCIPY_QUANTILES) {
            let pairs = [
                (found.estimate, estimate, 0.01),
                (found.low, low, 0.015),
                (found.high, high, 0.015),
            ];
            for (found, want, tolerance) in pairs {
                let ratio = found.expect("within the bins") / want;
                assert!((ratio - 1.0).abs() < tolerance, "{found:?} is not {want}");
            }
        }
        // Treated as independent values, the interval would be less than half as wide.
        let mut alone = BinnedClusters::new(RATIO, 932, 4_800);
        for (number, value) in clusters().iter().flatten().enumerate() {
            alone.add(number, (value.ln() / RATIO.ln()).ceil() as usize, 1);
        }
        let width = |found: &ClusterQuantile| found.high.unwrap() - found.low.unwrap();
        let narrow = width(&alone.quantiles(&[0.5], 0.95, &mut rng)[0]);
        assert!(narrow < 0.6 * width(&found[0]), "{narrow} beside {:?}", found[0]);
    }

    #[test]
    fn a_quantile_of_few_clusters_has_no_interval() {
        let quantiles = |clusters: usize| {
            let mut bins = BinnedClusters::new(RATIO, 932, clusters);
            (0..clusters).for_each(|cluster| bins.add(cluster, 500 + cluster % 50, 50));
            bins.quantiles(&[0.5, 0.95, 0.99], 0.95, &mut Rng::new(1))
        };
        let told = |clusters| quantiles(clusters).iter().map(|it| it.low.is_some()).collect();
        let cases: [(usize, [bool; 3]); 4] = [
            (19, [false; 3]),
            (20, [true, false, false]),
            (200, [true, true, false]),
            (1_000, [true; 3]),
        ];
        for (clusters, want) in cases {
            let found: Vec<bool> = told(clusters);
            assert_eq!(found, want, "{clusters}");
            assert!(quantiles(clusters)[2].estimate.is_some());
        }
    }

    #[test]
    fn lost_values_count_as_longer_than_all_bins() {
        let mut bins = BinnedClusters::new(RATIO, 932, 50);
        for cluster in 0..50 {
            bins.add(cluster, 500, 98);
            bins.add_beyond(cluster, 2);
        }
        let found = bins.quantiles(&[0.5, 0.98, 0.99], 0.95, &mut Rng::new(1));
        assert!(found[0].estimate.is_some() && found[1].estimate.is_some());
        assert_eq!(found[2], ClusterQuantile { estimate: None, low: None, high: None });
        let one = BinnedClusters::new(RATIO, 932, 1);
        let none = one.quantiles(&[0.5], 0.95, &mut Rng::new(1));
        assert_eq!(none[0], ClusterQuantile { estimate: None, low: None, high: None });
    }

    // y, n = numpy.array([3, 0, 5, 2, 9]), numpy.array([10, 8, 10, 4, 12])
    // p = y.sum() / n.sum(); e = numpy.sqrt(((y - p * n)**2).sum() * 5 / 4) / n.sum()
    // and of the second, scipy.stats.norm.ppf(0.975) * numpy.hypot(e, f),
    // 2 * scipy.stats.norm.sf(abs(p - q) / numpy.hypot(e, f))
    #[test]
    fn shares_equal_the_formula() {
        let first = cluster_share(&[(3, 10), (0, 8), (5, 10), (2, 4), (9, 12)]).expect("trials");
        let second = cluster_share(&[(9, 10), (4, 8), (8, 10), (3, 4)]).expect("trials");
        let (difference, half, p_value) = first.less(&second, 0.95);
        for (found, want) in
            [first.share, first.error, difference, half, p_value].into_iter().zip(SCIPY_SHARES)
        {
            assert!((found - want).abs() < 1e-9, "{found} is not {want}");
        }
        assert_eq!(cluster_share(&[]), None);
        assert_eq!(cluster_share(&[(0, 0)]), None);
        let all = cluster_share(&[(4, 4), (2, 2)]).expect("trials");
        assert_eq!(all.less(&all, 0.95).2.to_bits(), 1.0_f64.to_bits());
    }

    const SCIPY_QUANTILES: [[f64; 3]; 2] =
        [[35_491.9, 33_994.1, 36_922.5], [42_984.9, 41_460.0, 44_352.5]];
    const SCIPY_SHARES: [f64; 5] = [
        0.431_818_181_818_181_8, 0.136_338_198_854_569, -0.318_181_818_181_818_2,
        0.322_362_815_247_225, 0.053_046_333_262_615_264,
    ];
}
