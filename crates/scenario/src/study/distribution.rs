//! Distributions that conditions are drawn from.

use underload_aqm::rng::Rng;

use super::quantity::{Quantity, Unit};

/// The distribution of a condition over trials.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// A log-normal distribution, drawn again while the value is outside of `low..=high`: for round
    /// trips and buffers, which are positive and skewed.
    LogNormal {
        /// The median of the untruncated distribution.
        median: Quantity,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        low: Quantity,
        high: Quantity,
    },
    /// A measured distribution, with straight lines between its quantiles.
    Quantiles(Quantiles),
    /// One of several texts, such as the tiers on sale or queue SPECs.
    Choice {
        /// The texts, at least one.
        values: Vec<String>,
        /// The relative frequency of each text.
        weights: Vec<f64>,
    },
}

/// Points of a cumulative distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    unit: Unit,
    /// Probabilities, which ascend from 0 to 1, and amounts, which do not decrease.
    points: Vec<(f64, f64)>,
}

/// Why numbers make no distribution, and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    #[error("its values have different units; expected one unit")]
    Units,
    #[error("expected `low` below `high`, and `median` between them")]
    Bounds,
    #[error("expected a `sigma` above 0 and at most 5")]
    Sigma,
    #[error("expected as many `at` as `values`, both ascending, `at` from 0 to 1")]
    Quantiles,
    #[error("expected a weight of at least 0 per value, one of them above 0")]
    Weights,
}

/// Draws of a truncated distribution before its nearer bound is used instead.
const MOST_DRAWS: u32 = 1_000;

impl Distribution {
    pub fn log_normal(
        median: Quantity,
        sigma: f64,
        low: Quantity,
        high: Quantity,
    ) -> Result<Self, DistributionError> {
        if median.unit != low.unit || median.unit != high.unit {
            return Err(DistributionError::Units);
        }
        if !(sigma > 0.0 && sigma <= 5.0) {
            return Err(DistributionError::Sigma);
        }
        let ascending = low.amount < high.amount;
        if !ascending || !(low.amount..=high.amount).contains(&median.amount) {
            return Err(DistributionError::Bounds);
        }
        Ok(Self::LogNormal { median, sigma, low, high })
    }

    pub fn uniform(low: Quantity, high: Quantity) -> Result<Self, DistributionError> {
        match (low.unit == high.unit, low.amount < high.amount) {
            (false, _) => Err(DistributionError::Units),
            (true, false) => Err(DistributionError::Bounds),
            (true, true) => Self::quantiles(&[0.0, 1.0], &[low, high]),
        }
    }

    /// Returns a distribution through measured quantiles: `values[i]` at probability `at[i]`.
    pub fn quantiles(at: &[f64], values: &[Quantity]) -> Result<Self, DistributionError> {
        let unit = values.first().ok_or(DistributionError::Quantiles)?.unit;
        if values.iter().any(|value| value.unit != unit) {
            return Err(DistributionError::Units);
        }
        let points: Vec<_> = at.iter().copied().zip(values.iter().map(|v| v.amount)).collect();
        let ascending = points.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 <= p[1].1);
        let whole = at.first() == Some(&0.0) && at.last() == Some(&1.0);
        if at.len() != values.len() || !ascending || !whole {
            return Err(DistributionError::Quantiles);
        }
        Ok(Self::Quantiles(Quantiles { unit, points }))
    }

    /// Returns a choice of several texts, with equal weights by default.
    pub fn choice(
        values: Vec<String>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self, DistributionError> {
        let weights = weights.unwrap_or_else(|| vec![1.0; values.len()]);
        let possible = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        if weights.len() != values.len() || !possible || weights.iter().sum::<f64>() <= 0.0 {
            return Err(DistributionError::Weights);
        }
        Ok(Self::Choice { values, weights })
    }

    pub fn draw(&self, rng: &mut Rng) -> String {
        match self {
            Self::LogNormal { median, sigma, low, high } => {
                let bounds = low.amount..=high.amount;
                let mut amount = median.amount;
                for _ in 0..MOST_DRAWS {
                    amount = median.amount * libm::exp(sigma * normal(rng));
                    if bounds.contains(&amount) {
                        break;
                    }
                }
                let amount = amount.clamp(low.amount, high.amount);
                Quantity { unit: median.unit, amount }.to_string()
            }
            Self::Choice { values, weights } => values[chosen(weights, uniform(rng))].clone(),
            Self::Quantiles(quantiles) => quantiles.at(uniform(rng)),
        }
    }

    /// Returns the median, or the most frequent of several texts.
    pub fn typical(&self) -> String {
        match self {
            Self::LogNormal { median, .. } => median.to_string(),
            Self::Choice { values, weights } => {
                let heaviest = |best: usize, (index, weight): (usize, &f64)| {
                    if *weight > weights[best] { index } else { best }
                };
                values[weights.iter().enumerate().fold(0, heaviest)].clone()
            }
            Self::Quantiles(quantiles) => quantiles.at(0.5),
        }
    }

    /// Returns the extreme values, or every text: what is valid with all is valid with any draw.
    pub fn extremes(&self) -> Vec<String> {
        match self {
            Self::LogNormal { low, high, .. } => vec![low.to_string(), high.to_string()],
            Self::Choice { values, .. } => values.clone(),
            Self::Quantiles(quantiles) => vec![quantiles.at(0.0), quantiles.at(1.0)],
        }
    }
}

impl Quantiles {
    /// Returns the value at a probability, as text for a scenario.
    fn at(&self, share: f64) -> String {
        let above = self.points.partition_point(|point| point.0 <= share);
        let (from, to) = (above.saturating_sub(1), above.min(self.points.len() - 1));
        let ((low_share, low), (high_share, high)) = (self.points[from], self.points[to]);
        let part = (share - low_share) / (high_share - low_share);
        let amount = if high_share <= low_share { high } else { low + part * (high - low) };
        Quantity { unit: self.unit, amount }.to_string()
    }
}

/// Returns the position of the text at a share of the weights, never one of weight 0.
fn chosen(weights: &[f64], share: f64) -> usize {
    let mut left = share * weights.iter().sum::<f64>();
    let mut last = 0;
    for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = index;
        if left < *weight {
            break;
        }
        left -= weight;
    }
    last
}

/// Draws a number in `0..1`, with 53 bits.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Draws a number with mean 0 and variance 1 (Box and Muller 1958). It uses `libm` and not the
/// platform's functions, so that every machine draws the same numbers.
fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) = (1.0 - uniform(rng), uniform(rng));
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(2.0 * std::f64::consts::PI * angle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::read(text).expect("a quantity")
    }

    fn amounts(distribution: &Distribution, seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        let mut drawn: Vec<f64> =
            (0..20_000).map(|_| quantity(&distribution.draw(&mut rng)).amount).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        drawn
    }

    #[test]
    fn log_normal_has_the_given_median_and_sigma_and_stays_within_its_bounds() {
        let bounds = (quantity("1ms"), quantity("1s"));
        let distribution =
            Distribution::log_normal(quantity("20ms"), 0.5, bounds.0, bounds.1).expect("valid");
        let drawn = amounts(&distribution, 3);
        let (median, upper) = (drawn[10_000] / 1e6, drawn[16_827] / 1e6);
        assert!((19.5..20.5).contains(&median), "{median}");
        // One standard deviation above: 20 ms x e^0.5 = 32.97 ms at 84.13 %.
        assert!((32.2..33.8).contains(&upper), "{upper}");
        let narrow = (quantity("15ms"), quantity("22ms"));
        let cut = Distribution::log_normal(quantity("20ms"), 0.5, narrow.0, narrow.1);
        let drawn = amounts(&cut.expect("valid"), 3);
        assert!(drawn[0] >= 15e6 && drawn[19_999] <= 22e6);
        // Drawn again, not moved to the bounds.
        assert!(drawn[200] > 15e6 && drawn[19_800] < 22e6);
    }

    #[test]
    fn uniform_and_quantiles_follow_their_lines() {
        let uniform = Distribution::uniform(quantity("10ms"), quantity("30ms")).expect("valid");
        let drawn = amounts(&uniform, 5);
        assert!((14.7e6..15.3e6).contains(&drawn[5_000]), "{}", drawn[5_000]);
        let values = ["5mbit", "10mbit", "40mbit"].map(quantity);
        let measured = Distribution::quantiles(&[0.0, 0.8, 1.0], &values).expect("valid");
        let drawn = amounts(&measured, 5);
        assert!((8.0e6..8.25e6).contains(&drawn[10_000]), "{}", drawn[10_000]);
        assert!((24.0e6..26.0e6).contains(&drawn[18_000]), "{}", drawn[18_000]);
        assert_eq!(
            (measured.typical().as_str(), measured.extremes()),
            ("8125kbit", vec!["5mbit".to_owned(), "40mbit".to_owned()])
        );
    }

    #[test]
    fn choices_have_the_frequency_of_their_weights() {
        let values = ["a", "b", "c"].map(str::to_owned).to_vec();
        let choice =
            Distribution::choice(values.clone(), Some(vec![1.0, 0.0, 3.0])).expect("valid");
        let mut rng = Rng::new(1);
        let drawn: Vec<String> = (0..10_000).map(|_| choice.draw(&mut rng)).collect();
        let of = |value: &str| drawn.iter().filter(|drawn| *drawn == value).count();
        assert!((2_300..2_700).contains(&of("a")) && of("b") == 0, "{}", of("a"));
        assert_eq!((choice.typical().as_str(), choice.extremes()), ("c", values));
    }

    #[test]
    fn impossible_distributions_are_refused() {
        let (low, high) = (quantity("10ms"), quantity("30ms"));
        let refused = [
            Distribution::uniform(high, low),
            Distribution::uniform(low, quantity("3")),
            Distribution::log_normal(quantity("40ms"), 0.5, low, high),
            Distribution::log_normal(low, f64::NAN, low, high),
            Distribution::quantiles(&[0.0, 0.5], &[low, high]),
            Distribution::quantiles(&[0.0, 1.0], &[high, low]),
            Distribution::quantiles(&[], &[]),
            Distribution::choice(Vec::new(), None),
            Distribution::choice(vec!["a".into()], Some(vec![-1.0])),
        ];
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
    }
}
