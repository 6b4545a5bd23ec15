//! robustMPC (Yin, Jindal, Sekar and Sinopoli, SIGCOMM 2015), with the parameters that comparisons
//! since Pensieve use: a horizon of 5 chunks, all plans tried, throughput predicted as the harmonic
//! mean of 5 chunks divided by one plus the largest error of the last 5 predictions. Among equal
//! plans the last in order is chosen.

use super::view::{View, harmonic_mean};

#[derive(Debug, Default)]
pub(in crate::application::video) struct RobustMpc {
    predicted: Option<f64>,
    /// Errors of the last predictions, in a ring.
    errors: [f64; MEMORY],
    predictions: usize,
}

impl RobustMpc {
    pub(super) fn choose(&mut self, view: &View<'_>) -> usize {
        let throughput = self.pessimistic_throughput(view.throughputs);
        let horizon = HORIZON.min(view.chunks_left).max(1);
        let rungs = view.ladder.len();
        let plans = rungs.pow(horizon as u32);
        let mut best = (0, f64::NEG_INFINITY);
        for plan in 0..plans {
            let value = value(view, throughput, plan, plans);
            if value >= best.1 {
                best = (plan, value);
            }
        }
        best.0 / (plans / rungs)
    }

    fn pessimistic_throughput(&mut self, throughputs: &[f64]) -> f64 {
        if let (Some(predicted), Some(actual)) = (self.predicted, throughputs.last()) {
            self.errors[self.predictions % MEMORY] = libm::fabs(predicted - actual) / actual;
            self.predictions += 1;
        }
        let mean = harmonic_mean(throughputs, MEMORY);
        self.predicted = Some(mean);
        mean / (1.0 + self.errors.iter().copied().fold(0.0, f64::max))
    }
}

/// Returns the quality of a plan, whose digits, most significant first, are the rungs.
fn value(view: &View<'_>, throughput: f64, plan: usize, plans: usize) -> f64 {
    let rungs = view.ladder.len();
    let mut buffer = view.buffer_s;
    let mut last = view.rungs.last().map_or(0.0, |&rung| view.ladder[rung]);
    let mut value = 0.0;
    let mut weight = plans / rungs;
    while weight > 0 {
        let rate = view.ladder[plan / weight % rungs];
        let download = rate * view.chunk_s / throughput;
        value += rate - libm::fabs(rate - last) - view.highest() * (download - buffer).max(0.0);
        buffer = (buffer - download).max(0.0) + view.chunk_s;
        last = rate;
        weight /= rungs;
    }
    value
}

const HORIZON: usize = 5;
const MEMORY: usize = 5;

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    #[test]
    fn steady_throughput_selects_the_affordable_rung() {
        let mut mpc = RobustMpc::default();
        // At 3 Mbit/s a rate of 2.85 never stalls; 4.3 stalls within five chunks from 8 s of
        // buffer.
        assert_eq!(mpc.choose(&view(8.0, &[3.0; 5], &[4; 5])), 4);
        assert_eq!(mpc.choose(&view(8.0, &[0.5; 6], &[0; 6])), 0);
    }

    #[test]
    fn a_wrong_prediction_lowers_the_estimate() {
        let mut mpc = RobustMpc::default();
        mpc.pessimistic_throughput(&[4.0]);
        // Predicted 4, measured 2: an error of 100 %. The harmonic mean is 8/3.
        let careful = mpc.pessimistic_throughput(&[4.0, 2.0]);
        assert!((careful - 4.0 / 3.0).abs() < 1e-12, "{careful}");
    }
}
