//! Distributions of one condition.

use underload_aqm::rng::Rng;

use super::quantity::{Quantity, Unit};

/// Distribution of a condition over trials.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// A normal logarithm, drawn again while it falls outside `low..=high`: round trips and
    /// buffers, which are positive and skewed.
    LogNormal {
        /// Half of the untruncated draws lie below it.
        median: Quantity,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// Smallest value.
        low: Quantity,
        /// Largest value.
        high: Quantity,
    },
    /// All values between the two are equally likely.
    Uniform {
        /// Smallest value.
        low: Quantity,
        /// Largest value.
        high: Quantity,
    },
    /// A measured distribution, straight lines between its quantiles.
    Quantiles(Quantiles),
    /// One of several texts, such as the tiers on sale or queue SPECs.
    Choice {
        /// The texts, at least one.
        values: Vec<String>,
        /// How often each is drawn, relative to the others; as many.
        weights: Vec<f64>,
    },
}

/// Points of a cumulative distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    unit: Unit,
    /// Probability and amount, both not decreasing, from 0 to 1.
    points: Vec<(f64, f64)>,
}

/// Why numbers make no distribution, and what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    /// Quantities of several units.
    #[error("its values have different units; expected one unit")]
    Units,
    /// The bounds leave nothing, or hardly anything, of the distribution.
    #[error("expected `low` below `high`, and `median` between them")]
    Bounds,
    /// No such spread.
    #[error("expected a `sigma` above 0 and at most 5")]
    Sigma,
    /// The two lists do not make a cumulative distribution.
    #[error("expected as many `at` as `values`, both ascending, `at` from 0 to 1")]
    Quantiles,
    /// Weights that say nothing.
    #[error("expected a weight of at least 0 per value, one of them above 0")]
    Weights,
}

/// Draws of a truncated distribution before its nearer bound is taken instead.
const MOST_DRAWS: u32 = 1_000;

impl Distribution {
    /// A truncated log-normal distribution.
    ///
    /// # Errors
    /// Values of several units, an impossible spread or bounds without the median between them.
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

    /// A uniform distribution.
    ///
    /// # Errors
    /// Values of several units, or not ascending.
    pub fn uniform(low: Quantity, high: Quantity) -> Result<Self, DistributionError> {
        match (low.unit == high.unit, low.amount < high.amount) {
            (false, _) => Err(DistributionError::Units),
            (true, false) => Err(DistributionError::Bounds),
            (true, true) => Ok(Self::Uniform { low, high }),
        }
    }

    /// A distribution through measured quantiles: `values[i]` at probability `at[i]`.
    ///
    /// # Errors
    /// Values of several units, or points that are no cumulative distribution.
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

    /// One of several texts; without weights every one alike.
    ///
    /// # Errors
    /// No values, or weights that do not fit them.
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

    /// Draws a value, written as a scenario would write it.
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
            Self::Uniform { .. } | Self::Quantiles(_) => self.at(uniform(rng)),
        }
    }

    /// A value in the middle: the median, or of several texts the most frequent one.
    pub fn typical(&self) -> String {
        match self {
            Self::LogNormal { median, .. } => median.to_string(),
            Self::Choice { values, weights } => {
                let heaviest = |best: usize, (index, weight): (usize, &f64)| {
                    if *weight > weights[best] { index } else { best }
                };
                values[weights.iter().enumerate().fold(0, heaviest)].clone()
            }
            Self::Uniform { .. } | Self::Quantiles(_) => self.at(0.5),
        }
    }

    /// The values at the ends, or every text: what works with all of these works with every draw.
    pub fn extremes(&self) -> Vec<String> {
        match self {
            Self::LogNormal { low, high, .. } => vec![low.to_string(), high.to_string()],
            Self::Choice { values, .. } => values.clone(),
            Self::Uniform { .. } | Self::Quantiles(_) => vec![self.at(0.0), self.at(1.0)],
        }
    }

    /// The value below which this share of the draws lies.
    fn at(&self, share: f64) -> String {
        let (unit, amount) = match self {
            Self::Uniform { low, high } | Self::LogNormal { low, high, .. } => {
                (low.unit, low.amount + share * (high.amount - low.amount))
            }
            Self::Quantiles(quantiles) => (quantiles.unit, quantiles.at(share)),
            Self::Choice { values, weights } => return values[chosen(weights, share)].clone(),
        };
        Quantity { unit, amount }.to_string()
    }
}

impl Quantiles {
    fn at(&self, share: f64) -> f64 {
        let above = self.points.partition_point(|point| point.0 <= share);
        let (from, to) = (above.saturating_sub(1), above.min(self.points.len() - 1));
        let ((low_share, low), (high_share, high)) = (self.points[from], self.points[to]);
        if high_share <= low_share {
            return high;
        }
        low + (share - low_share) / (high_share - low_share) * (high - low)
    }
}

/// The text whose part of the weights holds this share; never one without weight.
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

/// In `0..1`, with 53 bits.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Mean 0, variance 1 (Box and Muller 1958), with a mathematical library of our own rather than the
/// platform's, so that every machine draws the same.
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
    fn a_log_normal_has_its_median_and_spread_and_stays_inside() {
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
        // Drawn again, not pressed to the bounds.
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
    fn choices_come_as_often_as_their_weights_say() {
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
