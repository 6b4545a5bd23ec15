//! Resampling whole clusters: samples of one device or one trial belong together.

/// A statistic and its interval over resamples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BootstrapInterval {
    /// The statistic of the data as they are.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Its confidence.
    pub confidence: f64,
    /// Clusters behind it.
    pub clusters: usize,
}

/// The percentile bootstrap over clusters (Davison and Hinkley 1997, section 3.8): as many clusters
/// as there are, drawn with replacement, each with all its values, `resamples` times.
///
/// `statistic` receives the values of all drawn clusters in one slice, which it may reorder. The
/// same seed gives the same interval. `None` with fewer than two clusters or an empty one, without
/// resamples, if the confidence is not strictly between 0 and 1, or if the statistic is not finite.
pub fn cluster_bootstrap(
    clusters: &[Vec<f64>],
    statistic: impl Fn(&mut [f64]) -> f64,
    resamples: u32,
    confidence: f64,
    seed: u64,
) -> Option<BootstrapInterval> {
    let usable = clusters.len() >= 2 && clusters.iter().all(|cluster| !cluster.is_empty());
    if !usable || resamples == 0 || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let mut values: Vec<f64> = clusters.iter().flatten().copied().collect();
    let estimate = statistic(&mut values);
    let mut random = SplitMix64 { state: seed };
    let mut found = Vec::with_capacity(resamples as usize);
    for _ in 0..resamples {
        values.clear();
        for _ in 0..clusters.len() {
            values.extend_from_slice(&clusters[random.below(clusters.len())]);
        }
        found.push(statistic(&mut values));
    }
    if !estimate.is_finite() || found.iter().any(|value| !value.is_finite()) {
        return None;
    }
    found.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    let low = super::nearest_rank(&found, tail)?;
    let high = super::nearest_rank(&found, 1.0 - tail)?;
    Some(BootstrapInterval { estimate, low, high, confidence, clusters: clusters.len() })
}

/// Steele, Lea and Flood's generator (2014): eight lines whose stream no release of a library can
/// change, which the same seed, same bytes rule asks for.
struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform below `bound`; the bias of the multiplication is under bound / 2^64.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::nearest_rank;

    fn clusters() -> Vec<Vec<f64>> {
        [
            [20.0, 22.0, 21.0],
            [25.0, 24.0, 26.0],
            [19.0, 18.0, 20.0],
            [30.0, 31.0, 29.0],
            [22.0, 23.0, 24.0],
            [27.0, 26.0, 28.0],
            [21.0, 21.0, 21.0],
            [24.0, 25.0, 23.0],
        ]
        .map(Vec::from)
        .to_vec()
    }

    fn mean(values: &mut [f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    // Clusters of one size: the mean of the values is the mean of the clusters' means.
    // scipy.stats.bootstrap((means,), np.mean, n_resamples=200000, method='percentile',
    //     confidence_level=0.95, random_state=1).confidence_interval: 21.5 to 26.125
    #[test]
    fn the_interval_agrees_with_scipys_over_cluster_means() {
        let interval = cluster_bootstrap(&clusters(), mean, 20_000, 0.95, 7).expect("clusters");
        assert!((interval.estimate - 23.75).abs() < 1e-9);
        assert!((interval.low - 21.5).abs() <= 0.13, "{interval:?}");
        assert!((interval.high - 26.125).abs() <= 0.13, "{interval:?}");
    }

    #[test]
    fn treating_samples_as_independent_would_be_too_sure() {
        let single: Vec<Vec<f64>> = clusters().into_iter().flatten().map(|v| vec![v]).collect();
        let median = |values: &mut [f64]| {
            values.sort_unstable_by(f64::total_cmp);
            nearest_rank(values, 0.5).unwrap_or(f64::NAN)
        };
        let clustered = cluster_bootstrap(&clusters(), median, 4000, 0.95, 7).expect("clusters");
        let naive = cluster_bootstrap(&single, median, 4000, 0.95, 7).expect("clusters");
        assert!(clustered.high - clustered.low > naive.high - naive.low);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let run = |seed| cluster_bootstrap(&clusters(), mean, 200, 0.9, seed);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn what_cannot_be_resampled_is_none() {
        assert_eq!(cluster_bootstrap(&[vec![1.0]], mean, 10, 0.95, 1), None);
        assert_eq!(cluster_bootstrap(&[vec![1.0], vec![]], mean, 10, 0.95, 1), None);
        assert_eq!(cluster_bootstrap(&clusters(), mean, 0, 0.95, 1), None);
        assert_eq!(cluster_bootstrap(&clusters(), |_| f64::NAN, 10, 0.95, 1), None);
    }
}
