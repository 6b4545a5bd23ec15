//! Intervals: of a quantile, of a mean over repeats; and the fairness index.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::schema::Interval;

/// Mean of the values and the interval in which the mean of all such repeats lies (Student's t).
///
/// `confidence` is strictly between 0 and 1. `None` when there is no value or one is not finite.
/// Ends are `None` with fewer than two values.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let repeats = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let half = half_width(values, mean, confidence);
    let (low, high) = (half.map(|half| mean - half), half.map(|half| mean + half));
    Some(Interval { mean, low, high, confidence, repeats })
}

fn half_width(values: &[f64], mean: f64, confidence: f64) -> Option<f64> {
    let freedom = values.len() as f64 - 1.0;
    let inside = confidence > 0.0 && confidence < 1.0;
    if freedom < 1.0 || !inside {
        return None;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / freedom / values.len() as f64).sqrt();
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let half = student.inverse_cdf(0.5 + confidence / 2.0) * error;
    half.is_finite().then_some(half)
}

/// Distribution-free interval of quantile `q` from order statistics: the two values of `sorted`
/// between which the true quantile lies with at least `confidence`, by the binomial distribution.
///
/// An end is `None` when no order statistic reaches that far: too few samples. It supposes
/// independent samples; see the module page for what that means within one trial.
pub fn quantile_interval<T: Copy>(sorted: &[T], q: f64, confidence: f64) -> (Option<T>, Option<T>) {
    let inside = |share: f64| share > 0.0 && share < 1.0;
    let count = sorted.len() as u64;
    let Some(below) = Binomial::new(q, count).ok().filter(|_| inside(q) && inside(confidence))
    else {
        return (None, None);
    };
    let tail = (1.0 - confidence) / 2.0;
    // The low end is order statistic l (from 1) where l is the largest with P(B <= l - 1) <= tail;
    // the high end is order statistic u, the smallest with P(B <= u - 1) >= 1 - tail.
    let at_or_under_tail = first_rank(count, |k| below.cdf(k) > tail);
    let at_or_over = first_rank(count, |k| below.cdf(k) >= 1.0 - tail);
    let low = at_or_under_tail.checked_sub(1).and_then(|l| sorted.get(l as usize));
    (low.copied(), sorted.get(at_or_over as usize).copied())
}

/// The smallest k in 0..=count for which the monotonic condition holds; count if none does.
fn first_rank(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = u64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Jain's fairness index, from 1/n (one takes all) to 1 (all equal): square of the sum over n times
/// the sum of squares (Jain, Chiu and Hawe 1984). `None` without a positive value.
pub fn jain_index(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let index = sum * sum / (shares.len() as f64 * squares);
    index.is_finite().then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Count, quantile, confidence, low, high.
    type QuantileCase = (u64, f64, f64, Option<u64>, Option<u64>);

    fn close(found: Option<f64>, want: f64) {
        let found = found.expect("a value");
        assert!((found - want).abs() <= 1e-9 * want.abs(), "{found} is not {want}");
    }

    #[test]
    fn the_mean_of_repeats_has_scipys_interval() {
        // x = [23.1, 24.7, 22.9, 25.3, 24.0]
        // scipy.stats.t.interval(0.95, 4, np.mean(x), scipy.stats.sem(x))
        let interval = mean_interval(&[23.1, 24.7, 22.9, 25.3, 24.0], 0.95).expect("five");
        close(Some(interval.mean), MEAN);
        close(interval.low, MEAN_LOW);
        close(interval.high, MEAN_HIGH);
        // x = [250.0, 260.0]: scipy.stats.t.interval(0.99, 1, np.mean(x), scipy.stats.sem(x))
        let two = mean_interval(&[250.0, 260.0], 0.99).expect("two");
        close(two.low, TWO_LOW);
        close(two.high, TWO_HIGH);
    }

    #[test]
    fn one_repeat_has_a_mean_and_no_interval() {
        let one = mean_interval(&[7.0], 0.95).expect("one");
        assert_eq!((one.low, one.high, one.repeats), (None, None, 1));
        assert_eq!(mean_interval(&[], 0.95), None);
        assert_eq!(mean_interval(&[1.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn quantile_intervals_equal_scipys_quantile_test() {
        // scipy.stats.quantile_test(range(1, n + 1), q=0, p=q).confidence_interval(confidence)
        for (n, q, confidence, low, high) in QUANTILES {
            let sorted: Vec<u64> = (1..=n).collect();
            assert_eq!(quantile_interval(&sorted, q, confidence), (low, high), "{n} {q}");
        }
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_single_winner() {
        close(jain_index(&[5.0, 5.0, 5.0]), 1.0);
        close(jain_index(&[9.0, 0.0, 0.0]), 1.0 / 3.0);
        close(jain_index(&[1.0, 2.0, 3.0]), 36.0 / (3.0 * 14.0));
        assert_eq!(jain_index(&[]), None);
        assert_eq!(jain_index(&[0.0]), None);
    }

    const MEAN: f64 = 23.999_999_999_999_996;
    const MEAN_LOW: f64 = 22.727_673_014_254_144;
    const MEAN_HIGH: f64 = 25.272_326_985_745_85;
    const TWO_LOW: f64 = -63.283_705_814_357_63;
    const TWO_HIGH: f64 = 573.283_705_814_357_6;
    const QUANTILES: [QuantileCase; 10] = [
        (10, 0.5, 0.95, Some(2), Some(9)),
        (5, 0.5, 0.95, None, None),
        (20, 0.9, 0.95, Some(15), None),
        (100, 0.9, 0.95, Some(84), Some(96)),
        (100, 0.99, 0.95, Some(97), None),
        (1000, 0.99, 0.95, Some(983), Some(997)),
        (1000, 0.999, 0.95, Some(997), None),
        (7000, 0.999, 0.99, Some(6985), Some(7000)),
        (7000, 0.5, 0.99, Some(3392), Some(3609)),
        (35, 0.25, 0.9, Some(5), Some(14)),
    ];
}
