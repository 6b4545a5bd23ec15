//! Confidence intervals of means over repeats, and the fairness index.

use super::tails::student_t_within;
use crate::schema::Interval;

/// Returns the mean of the values with its confidence interval (Student's t).
///
/// `None` without values, or if one is not finite. The ends are `None` with fewer than two values,
/// or if `confidence` is not strictly between 0 and 1.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(interval_of(values.len(), mean, squares, confidence))
}

/// Returns the interval of `count` values with this mean and sum of squared distances from it.
pub(super) fn interval_of(count: usize, mean: f64, squares: f64, confidence: f64) -> Interval {
    let half = half_width(count as f64, squares, confidence);
    let (low, high) = (half.map(|half| mean - half), half.map(|half| mean + half));
    let repeats = u32::try_from(count).unwrap_or(u32::MAX);
    Interval { mean, low, high, confidence, repeats }
}

/// The mean and interval of values that are added one by one and not stored (Welford 1962).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunningMean {
    count: u32,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl RunningMean {
    /// Adds a value; ignores values that are not finite.
    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count = self.count.saturating_add(1);
        let distance = value - self.mean;
        self.mean += distance / f64::from(self.count);
        self.squares += distance * (value - self.mean);
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// As [`mean_interval`] of the values up to now.
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let Self { count, mean, squares } = *self;
        (count > 0).then(|| interval_of(count as usize, mean, squares, confidence))
    }
}

fn half_width(count: f64, squares: f64, confidence: f64) -> Option<f64> {
    let freedom = count - 1.0;
    let inside = confidence > 0.0 && confidence < 1.0;
    if freedom < 1.0 || !inside {
        return None;
    }
    let error = (squares / freedom / count).sqrt();
    let half = student_t_within(confidence, freedom) * error;
    half.is_finite().then_some(half)
}

/// Returns Jain's fairness index, from 1/n (one has everything) to 1 (all equal): the square of the
/// sum over n times the sum of squares (Jain, Chiu and Hawe 1984). `None` without a positive value.
pub fn jain_index(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let index = sum * sum / (shares.len() as f64 * squares);
    index.is_finite().then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<f64>, want: f64) {
        let found = found.expect("a value");
        assert!((found - want).abs() <= 1e-9 * want.abs(), "{found} is not {want}");
    }

    #[test]
    fn a_confidence_outside_of_zero_to_one_has_no_interval() {
        for confidence in [-0.5, 0.0, 1.0, 1.5, f64::NAN] {
            let interval = mean_interval(&[1.0, 2.0, 4.0], confidence).expect("three");
            assert_eq!((interval.low, interval.high), (None, None), "{confidence}");
        }
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
    fn values_one_by_one_have_the_same_interval() {
        let values = [23.1, 24.7, 22.9, 25.3, 24.0, -3.5e6, 1e-3];
        let mut running = RunningMean::default();
        assert_eq!(running.interval(0.95), None);
        for (index, value) in values.iter().enumerate() {
            running.push(*value);
            running.push(f64::NAN);
            let all = mean_interval(&values[..=index], 0.95).expect("some");
            let own = running.interval(0.95).expect("some");
            assert_eq!((own.repeats, own.low.is_some()), (all.repeats, all.low.is_some()));
            close(Some(own.mean), all.mean);
            if let (Some(low), Some(high)) = (all.low, all.high) {
                close(own.low, low);
                close(own.high, high);
            }
        }
        assert_eq!(running.count(), 7);
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
}
