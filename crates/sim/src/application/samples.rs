//! Delays of an application's events, and their quantiles.

use underload_aqm::time::Span;
use underload_record::schema::{Metric, Quantile};
use underload_record::stats::distribution;

use crate::endpoint::delay_metrics;

/// Delays, in the order of events.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    /// Reserves memory for one delay per `interval` of `length`.
    pub(super) fn reserve_for(&mut self, length: Span, interval: Span) {
        let count = length.as_nanos() / interval.as_nanos().max(1) + 1;
        self.nanos.reserve_exact(count as usize);
    }

    pub(super) fn push(&mut self, delay: Span) {
        self.nanos.push(delay.as_nanos());
    }

    pub(super) fn count(&self) -> usize {
        self.nanos.len()
    }

    /// Returns the number of delays of at most `limit`.
    pub(super) fn up_to(&self, limit: Span) -> usize {
        self.nanos.iter().filter(|&&delay| delay <= limit.as_nanos()).count()
    }

    /// Returns the number of delays that exceed the shortest by more than `margin`.
    pub(super) fn beyond_shortest(&self, margin: Span) -> usize {
        let Some(shortest) = self.nanos.iter().min() else { return 0 };
        let limit = shortest + margin.as_nanos();
        self.nanos.iter().filter(|&&delay| delay > limit).count()
    }

    /// Returns median, 99th percentile and maximum, ms; the 99th percentile needs 500 delays.
    pub(super) fn report(&self, name: &str) -> [Metric; 3] {
        let quantiles = [Quantile::P50, Quantile::P99, Quantile::Max];
        delay_metrics(name, quantiles, distribution(&mut self.nanos.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_99th_percentile_needs_500_delays() {
        let mut samples = Samples::default();
        for millis in 1..500 {
            samples.push(Span::from_millis(millis));
        }
        let values = |samples: &Samples| samples.report("lag").map(|metric| metric.value);
        assert_eq!(values(&samples), [Some(250.0), None, Some(499.0)]);
        assert_eq!(samples.up_to(Span::from_millis(130)), 130);
        samples.push(Span::from_millis(500));
        assert_eq!(values(&samples), [Some(250.0), Some(495.0), Some(500.0)]);
    }
}
