//! The draft's criterion for stable results.

/// Decides whether a value is stable: the standard deviation of the last moving averages is below
/// 5 % of their mean.
#[derive(Clone, Debug, Default)]
pub struct Stability {
    values: Vec<f64>,
    averages: Vec<f64>,
}

/// Intervals of a moving average, and moving averages compared (the draft's MAD).
pub const INTERVALS: usize = 4;
/// Largest standard deviation, as a share of the mean (the draft's SDT).
const DEVIATION_MAX: f64 = 0.05;

impl Stability {
    /// Adds the value of one interval. Returns whether the values are stable now.
    pub fn push(&mut self, value: f64) -> bool {
        self.values.push(value);
        let recent = last(&self.values);
        self.averages.push(recent.iter().sum::<f64>() / recent.len() as f64);
        let averages = last(&self.averages);
        let mean = averages.iter().sum::<f64>() / averages.len() as f64;
        let squares = averages.iter().map(|average| (average - mean).powi(2)).sum::<f64>();
        let deviation = (squares / averages.len() as f64).sqrt();
        averages.len() == INTERVALS && mean > 0.0 && deviation < mean * DEVIATION_MAX
    }
}

fn last(values: &[f64]) -> &[f64] {
    &values[values.len().saturating_sub(INTERVALS)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_when_the_averages_of_four_intervals_agree() {
        let mut stability = Stability::default();
        let mut push = |value| stability.push(value);
        assert!(![10.0, 50.0, 100.0, 100.0, 100.0].map(&mut push).contains(&true));
        let settled = (0..10).position(|_| push(100.0));
        // The averages 87.5, 100, 100, 100 deviate by 5.4 from their mean 96.9. The next ones no
        // longer include the ramp.
        assert_eq!(settled, Some(3));
    }
}
