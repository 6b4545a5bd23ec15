//! The empirical distribution function and its confidence band.

/// Share of values at or below x, as a step function.
#[derive(Debug, Clone, PartialEq)]
pub struct Ecdf {
    sorted: Vec<f64>,
}

impl Ecdf {
    /// Uses the finite values; `None` if no value is finite.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Ecdf> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Ecdf { sorted })
    }

    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// Returns the share of values at or below `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.sorted.partition_point(|value| *value <= x) as f64 / self.sorted.len() as f64
    }

    /// Returns one point per distinct value: the value and the share at or below it.
    pub fn steps(&self) -> Vec<(f64, f64)> {
        let count = self.sorted.len() as f64;
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (position, value) in self.sorted.iter().enumerate() {
            let share = (position + 1) as f64 / count;
            match steps.last_mut() {
                Some(last) if last.0.total_cmp(value).is_eq() => last.1 = share,
                _ => steps.push((*value, share)),
            }
        }
        steps
    }

    /// Returns half the height of the band of Dvoretzky, Kiefer and Wolfowitz with Massart's
    /// constant (1990): with at least `confidence` the true function is everywhere within the
    /// function plus and minus this. Assumes independent values.
    pub fn band_half_height(&self, confidence: f64) -> f64 {
        let outside = (1.0 - confidence).clamp(f64::MIN_POSITIVE, 1.0);
        ((2.0 / outside).ln() / (2.0 * self.sorted.len() as f64)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // e = scipy.stats.ecdf([3, 1, 2, 2, 5]).cdf; e.quantiles, e.probabilities
    #[test]
    fn steps_equal_scipys() {
        let ecdf = Ecdf::new([3.0, 1.0, 2.0, 2.0, 5.0]).expect("five values");
        assert_eq!(ecdf.steps(), [(1.0, 0.2), (2.0, 0.6), (3.0, 0.8), (5.0, 1.0)]);
        assert_eq!(ecdf.sorted(), [1.0, 2.0, 2.0, 3.0, 5.0]);
        for (x, share) in [(0.9, 0.0), (1.0, 0.2), (2.5, 0.6), (9.0, 1.0)] {
            assert!((ecdf.at(x) - share).abs() < 1e-12, "at {x}");
        }
    }

    // math.sqrt(math.log(2 / alpha) / (2 * n)) for (alpha, n) = (0.05, 100) and (0.01, 26000)
    #[test]
    fn the_band_narrows_with_the_root_of_the_count() {
        let hundred = Ecdf::new((0..100).map(f64::from)).expect("values").band_half_height(0.95);
        assert!((hundred - 0.135_810_151_574_061_95).abs() < 1e-12);
        let study = Ecdf::new((0..26_000).map(f64::from)).expect("values").band_half_height(0.99);
        assert!((study - 0.010_094_093_252_366_071).abs() < 1e-12);
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        assert_eq!(Ecdf::new([f64::NAN, f64::INFINITY]), None);
        assert_eq!(Ecdf::new([f64::NAN, 1.0]).map(|ecdf| ecdf.sorted().len()), Some(1));
    }
}
