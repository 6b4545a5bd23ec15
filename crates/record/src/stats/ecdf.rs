//! The empirical distribution function and the band around it.

/// Share of values at or below x, as a step function.
#[derive(Debug, Clone, PartialEq)]
pub struct Ecdf {
    sorted: Vec<f64>,
}

/// What is known of the true distribution function everywhere at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EcdfBand {
    /// Half the band's height; the band is the function plus and minus this, cut at 0 and 1.
    pub half_height: f64,
    /// Confidence level of the band.
    pub confidence: f64,
}

impl Ecdf {
    /// Of the finite values among these; `None` when there are none.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Ecdf> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        (!sorted.is_empty()).then_some(Ecdf { sorted })
    }

    /// The values, ascending.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// Share of values at or below `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.sorted.partition_point(|value| *value <= x) as f64 / self.sorted.len() as f64
    }

    /// One point per distinct value: the value and the share at or below it.
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

    /// The band of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990): the true
    /// function lies wholly inside with at least `confidence`. Supposes independent values.
    pub fn band(&self, confidence: f64) -> EcdfBand {
        let outside = (1.0 - confidence).clamp(f64::MIN_POSITIVE, 1.0);
        let half_height = ((2.0 / outside).ln() / (2.0 * self.sorted.len() as f64)).sqrt();
        EcdfBand { half_height, confidence }
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
        let hundred = Ecdf::new((0..100).map(f64::from)).expect("values").band(0.95);
        assert!((hundred.half_height - 0.135_810_151_574_061_95).abs() < 1e-12);
        let study = Ecdf::new((0..26_000).map(f64::from)).expect("values").band(0.99);
        assert!((study.half_height - 0.010_094_093_252_366_071).abs() < 1e-12);
    }

    #[test]
    fn values_that_are_not_numbers_are_left_out() {
        assert_eq!(Ecdf::new([f64::NAN, f64::INFINITY]), None);
        assert_eq!(Ecdf::new([f64::NAN, 1.0]).map(|ecdf| ecdf.sorted().len()), Some(1));
    }
}
