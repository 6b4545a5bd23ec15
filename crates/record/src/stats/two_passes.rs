//! The interval of a mean over values that are added in two passes and not stored.

use super::interval::interval_of;
use crate::schema::Interval;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Sums,
    /// The second pass, in the same order, sums the squared distances from the mean.
    Distances,
}

impl Pass {
    pub const BOTH: [Pass; 2] = [Pass::Sums, Pass::Distances];
}

/// [`super::mean_interval`] of values that are added twice in the same order: equal to the last
/// bit, in constant memory. [`super::RunningMean`] needs one pass and rounds differently.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanInTwoPasses {
    count: usize,
    sum: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
    is_finite: bool,
}

impl Default for MeanInTwoPasses {
    fn default() -> Self {
        // The initial value of `f64` sums, so that results are equal to the last bit.
        Self { count: 0, sum: -0.0, squares: -0.0, is_finite: true }
    }
}

impl MeanInTwoPasses {
    pub fn push(&mut self, value: f64, pass: Pass) {
        match pass {
            Pass::Sums => {
                self.count += 1;
                self.sum += value;
                self.is_finite &= value.is_finite();
            }
            Pass::Distances => self.squares += (value - self.mean()).powi(2),
        }
    }

    /// Returns [`super::mean_interval`] of the values, after both passes.
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let is_known = self.count > 0 && self.is_finite;
        is_known.then(|| interval_of(self.count, self.mean(), self.squares, confidence))
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::mean_interval;
    use super::*;

    fn in_two_passes(values: &[f64]) -> Option<Interval> {
        let mut mean = MeanInTwoPasses::default();
        for pass in Pass::BOTH {
            for value in values {
                mean.push(*value, pass);
            }
        }
        mean.interval(0.95)
    }

    fn bits(interval: Option<Interval>) -> Option<(u64, Option<u64>, Option<u64>, u32)> {
        let end = |end: Option<f64>| end.map(f64::to_bits);
        interval.map(|it| (it.mean.to_bits(), end(it.low), end(it.high), it.repeats))
    }

    proptest! {
        #[test]
        fn two_passes_equal_the_interval_of_the_list_bit_for_bit(
            values in prop::collection::vec(-1e12..1e12_f64, 0..40),
            scale in prop::sample::select(vec![1e-12, 1.0, 1e9]),
        ) {
            let values: Vec<f64> = values.iter().map(|value| value * scale).collect();
            prop_assert_eq!(bits(in_two_passes(&values)), bits(mean_interval(&values, 0.95)));
        }
    }

    #[test]
    fn values_without_an_interval_have_none_in_two_passes() {
        for values in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY, 2.0], &[0.0, 0.0], &[-0.0]] {
            assert_eq!(
                bits(in_two_passes(values)),
                bits(mean_interval(values, 0.95)),
                "{values:?}"
            );
        }
    }
}
