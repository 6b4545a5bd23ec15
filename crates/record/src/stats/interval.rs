//! Confidence intervals over repeats, and the fairness index.

use super::order::median_interval;
use super::tails::student_t_within;
use crate::schema::Interval;

/// Maximum number of values for an interval from order statistics; from more values, Student's t is
/// valid for any distribution.
const MOST_ORDERED: usize = 30;

/// Returns the mean of the values, with an interval.
///
/// For at most 30 values the interval is that of [`median_interval`]: it contains the median of
/// further repeats, even if these have two modes, and its `confidence` is what so few values reach.
/// For more values it is Student's interval about the mean. `None` without values, or if one is not
/// finite. The ends are `None` with fewer than [`super::FEWEST_FOR_INTERVAL`] values, or if
/// `confidence` is not strictly between 0 and 1.
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut all = RunningMean::default();
    for value in values {
        all.push(*value);
    }
    all.interval(confidence)
}

/// The mean and interval of values that are added one by one. Of many values only sums are stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunningMean {
    count: u32,
    sum: f64,
    /// Welford's mean (1962), and the sum of the squared distances from it.
    centre: f64,
    squares: f64,
    /// The first values, while they are at most [`MOST_ORDERED`].
    first: Vec<f64>,
}

impl RunningMean {
    /// Adds a value; ignores values that are not finite.
    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if (self.count as usize) < MOST_ORDERED {
            self.first.push(value);
        }
        self.count = self.count.saturating_add(1);
        self.sum += value;
        let distance = value - self.centre;
        self.centre += distance / f64::from(self.count);
        self.squares += distance * (value - self.centre);
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// As [`mean_interval`] of the values up to now.
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let (count, repeats) = (f64::from(self.count), self.count);
        let mean = self.sum / count;
        if !mean.is_finite() {
            return None;
        }
        let inside = confidence > 0.0 && confidence < 1.0;
        let ends = match self.count as usize {
            _ if !inside => None,
            0..=MOST_ORDERED => median_interval(&self.first, confidence)
                .map(|interval| (interval.low, interval.high, interval.confidence)),
            _ => {
                let error = (self.squares / (count - 1.0) / count).sqrt();
                let half = student_t_within(confidence, count - 1.0) * error;
                Some((mean - half, mean + half, confidence)).filter(|_| half.is_finite())
            }
        };
        let (low, high) = ends.map(|(low, high, _)| (low, high)).unzip();
        let confidence = ends.map_or(confidence, |(.., reached)| reached);
        Some(Interval { mean, low, high, confidence, repeats })
    }
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
            let interval = mean_interval(&[1.0, 2.0, 4.0, 5.0, 7.0], confidence).expect("five");
            assert_eq!((interval.low, interval.high), (None, None), "{confidence}");
        }
    }

    #[test]
    fn few_repeats_have_an_ordered_interval_and_many_that_of_student() {
        // x = [23.1, 24.7, 22.9, 25.3, 24.0]
        let interval = mean_interval(&[23.1, 24.7, 22.9, 25.3, 24.0], 0.95).expect("five");
        close(Some(interval.mean), MEAN);
        assert_eq!((interval.low, interval.high), (Some(22.9), Some(25.3)));
        close(Some(interval.confidence), 0.9375);
        // x = np.arange(40.0): scipy.stats.t.interval(0.99, 39, np.mean(x), scipy.stats.sem(x))
        let many: Vec<f64> = (0..40).map(f64::from).collect();
        let many = mean_interval(&many, 0.99).expect("forty");
        close(many.low, MANY_LOW);
        close(many.high, MANY_HIGH);
    }

    #[test]
    fn one_repeat_has_a_mean_and_no_interval() {
        let one = mean_interval(&[7.0], 0.95).expect("one");
        assert_eq!((one.low, one.high, one.repeats), (None, None, 1));
        assert_eq!(mean_interval(&[], 0.95), None);
        assert_eq!(mean_interval(&[1.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn a_running_mean_has_the_interval_of_all_its_values() {
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
    const MANY_LOW: f64 = 14.494_631_663_667_995;
    const MANY_HIGH: f64 = 24.505_368_336_332_005;
}
