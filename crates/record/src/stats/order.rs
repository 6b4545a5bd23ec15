//! The interval of a median by order statistics: exact for every distribution, two modes or not.

/// Fewest values with an interval: with four, the whole range holds the median in 87.5 % only.
pub const FEWEST_FOR_INTERVAL: usize = 5;

/// Values up to which probabilities are summed; beyond, the normal distribution is near enough.
const MOST_SUMMED: usize = 1_000;

/// Two of the values, between which the median of the distribution lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MedianInterval {
    pub low: f64,
    pub high: f64,
    /// The probability that the interval holds the median; more if values are equal.
    pub confidence: f64,
}

/// Returns the narrowest pair of values, equally far from both ends of the sorted list, that holds
/// the median of their distribution with at least `confidence`; the whole range if that has less, as
/// for five values with 93.75 %. Values may be infinite.
///
/// The k-th smallest and the k-th largest of n values hold the median with probability
/// 1 - 2 P(X < k), X binomial with n draws of 1/2 (David and Nagaraja, Order Statistics, 7.1). `None`
/// with fewer than [`FEWEST_FOR_INTERVAL`] values, or if one is not a number.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<MedianInterval> {
    if values.len() < FEWEST_FOR_INTERVAL || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (left_out, confidence) = left_out_at_each_end(sorted.len(), confidence);
    let (low, high) = (sorted[left_out], sorted[sorted.len() - 1 - left_out]);
    Some(MedianInterval { low, high, confidence })
}

/// Returns how many values at each end an interval leaves out, and its confidence.
fn left_out_at_each_end(count: usize, confidence: f64) -> (usize, f64) {
    if count > MOST_SUMMED {
        let half = 0.5 * super::normal_quantile(f64::midpoint(1.0, confidence));
        let left_out = (count as f64 / 2.0 - half * (count as f64).sqrt()).floor() - 1.0;
        return (left_out.max(0.0) as usize, confidence);
    }
    // The probability of exactly `left_out` values below the median, and of at most that many.
    let mut exactly = 0.5_f64.powi(count as i32);
    let mut at_most = exactly;
    let mut left_out = 0;
    loop {
        let next = exactly * (count - left_out) as f64 / (left_out + 1) as f64;
        if 1.0 - 2.0 * (at_most + next) < confidence {
            return (left_out, 1.0 - 2.0 * at_most);
        }
        left_out += 1;
        (exactly, at_most) = (next, at_most + next);
    }
}

#[cfg(test)]
mod tests {
    use underload_aqm::rng::Rng;

    use super::*;

    #[test]
    fn the_confidence_is_that_of_the_binomial_distribution() {
        // 1 - 2 * scipy.stats.binom.cdf(left_out, n, 0.5)
        for (count, left_out, confidence) in [
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (7, 0, 0.984_375),
            (8, 0, 0.992_187_5),
            (9, 1, 0.960_937_5),
            (10, 1, 0.978_515_625),
            (20, 5, 0.958_610_534_667_968_8),
            (30, 9, 0.957_226_054_742_932_3),
        ] {
            assert_eq!(left_out_at_each_end(count, 0.95), (left_out, confidence), "{count}");
        }
        let (summed, approximate) =
            (left_out_at_each_end(1_000, 0.95).0, left_out_at_each_end(1_001, 0.95).0);
        assert!(summed.abs_diff(approximate) <= 1, "{summed} and {approximate}");
    }

    #[test]
    fn few_values_have_no_interval_and_infinite_ones_have_their_place() {
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0], 0.95), None);
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, f64::NAN], 0.95), None);
        let five = median_interval(&[3.0, f64::INFINITY, 1.0, 2.0, 4.0], 0.95).expect("five");
        assert_eq!((five.low, five.high), (1.0, f64::INFINITY));
    }

    type Inverse = fn(f64) -> f64;

    /// Draws 20,000 samples from a distribution with one mode, and as many from one with a common
    /// and a rare mode: the interval contains the median as often as it states.
    #[test]
    fn the_interval_holds_the_median_of_any_distribution() {
        let mut random = Rng::new(20);
        let distributions: [(f64, Inverse); 3] = [
            (0.5, |share| share),
            (-0.5_f64.ln(), |share| -(1.0 - share).ln()),
            (58.5, |share| if share < 0.8 { 58.0 + share } else { 73.0 + share }),
        ];
        for (median, value) in distributions {
            for count in [5, 6, 10] {
                let mut holds = 0;
                let mut confidence = 0.0;
                for _ in 0..20_000 {
                    let values: Vec<f64> = (0..count)
                        .map(|_| value(f64::from(random.next_u32()) / 2f64.powi(32)))
                        .collect();
                    let interval = median_interval(&values, 0.95).expect("enough values");
                    holds += u32::from((interval.low..=interval.high).contains(&median));
                    confidence = interval.confidence;
                }
                let share = f64::from(holds) / 20_000.0;
                assert!((share - confidence).abs() < 0.006, "{count}: {share}, {confidence}");
            }
        }
    }
}
