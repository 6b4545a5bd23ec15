//! Delays of an application's own events, and their quantiles.

use underload_aqm::time::Span;
use underload_record::schema::Metric;
use underload_record::stats::nearest_rank;

use super::metric;

/// Delays, in the order of events.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    /// Makes room for one delay per `interval` of `length`.
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

    /// How many are longer than the shortest by more than `margin`.
    pub(super) fn beyond_shortest(&self, margin: Span) -> usize {
        let Some(shortest) = self.nanos.iter().min() else { return 0 };
        let limit = shortest + margin.as_nanos();
        self.nanos.iter().filter(|&&delay| delay > limit).count()
    }

    /// Median, 99th percentile and maximum in milliseconds.
    pub(super) fn report(&self, name: &str) -> [Metric; 3] {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        [("p50", 0.5), ("p99", 0.99), ("max", 1.0)].map(|(quantile, q)| {
            let value = nearest_rank(&sorted, q).map(|nanos| nanos as f64 / 1e6);
            metric(format!("{name}_{quantile}"), "ms", value)
        })
    }

    pub(super) fn bytes_reserved(&self) -> usize {
        self.nanos.capacity() * size_of::<u64>()
    }
}
