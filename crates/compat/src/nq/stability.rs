//! Whether a measurement has settled, as the draft decides it.

/// Whether something has settled: the draft's moving averages of the last intervals differ from
/// each other by less than 5 %.
#[derive(Clone, Debug, Default)]
pub struct Stability {
    values: Vec<f64>,
    averages: Vec<f64>,
}

/// The draft's MAD: intervals of a moving average, and averages compared.
pub const INTERVALS: usize = 4;
/// The draft's SDT: largest standard deviation, as a share of the mean.
const DEVIATION_MAX: f64 = 0.05;

impl Stability {
    /// Takes the value of one more interval; true if it is settled now.
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
    fn it_is_stable_when_the_averages_of_four_intervals_agree() {
        let mut stability = Stability::default();
        let mut push = |value| stability.push(value);
        assert!(![10.0, 50.0, 100.0, 100.0, 100.0].map(&mut push).contains(&true));
        let settled = (0..10).position(|_| push(100.0));
        // 87.5, 100, 100, 100 still deviate by 5.4 of 96.9; then the ramp has left the averages.
        assert_eq!(settled, Some(3));
    }
}
