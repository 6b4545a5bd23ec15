//! Phases, directions, measures, distributions and quantiles of a trial.

use serde::{Deserialize, Serialize};

underload_aqm::named! {
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum Phase {
        /// No load, only probes: the phase of idle latency.
        #[default]
        Idle = "idle",
        /// The load is starting; no result uses samples of this phase.
        Ramp = "ramp",
        /// The load is steady: the phase of working latency.
        Load = "load",
        /// The load has ended and queues empty.
        Drain = "drain",
        /// Before a live trial's first phase. No run has it.
        Whole = "whole",
    }
}

/// When a phase ran: `start_ns <= t < end_ns`, since the start of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseWindow {
    pub phase: Phase,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl PhaseWindow {
    /// Returns the length of the window, ns; 0 if the window ends before it starts.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    pub fn contains(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && time_ns < self.end_ns
    }
}

underload_aqm::named! {
    /// The delay that a latency summary is about.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum LatencyMeasure {
        /// Client to server and back.
        #[default]
        RoundTrip = "round trip",
        /// Client to server; depends on both clocks in the measured world.
        OneWayUp = "one way up",
        /// Server to client; depends on both clocks in the measured world.
        OneWayDown = "one way down",
    }
}

/// Quantiles of `count` delays, ns. Quantile q is the smallest value with at least `q * count`
/// values at or below it (nearest rank).
///
/// Only one-way delays can be negative: if the clocks differ by more than the path takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values, at least 1.
    pub count: u64,
    pub min_ns: i64,
    pub p50_ns: i64,
    pub p90_ns: i64,
    pub p95_ns: i64,
    pub p99_ns: i64,
    pub p999_ns: i64,
    pub max_ns: i64,
    /// Arithmetic mean, rounded down.
    pub mean_ns: i64,
}

/// A flow whose packets queue protection (RFC 9957) moved to the classic queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sanction {
    /// [`super::FlowRecord::name`] if the run knows it, otherwise a number of the flow; `others`
    /// combines all flows beyond the first 1024.
    pub flow: String,
    /// Packets that were redirected to the classic queue.
    pub packets: u64,
    /// Time of the first redirection.
    pub first_ns: u64,
    /// Time of the last redirection.
    pub last_ns: u64,
    /// Highest score of the flow at a redirection, as the time in which it drains.
    pub highest_score_ns: u64,
}

/// The histogram of a service flow's delays (DOCSIS TLV 40.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Name of the service flow: `low-latency` or `classic`.
    pub service_flow: String,
    /// Edges between the bins, ascending.
    pub edges_ns: Vec<u64>,
    /// Packets sent per bin, one bin more than edges: below the first edge, from each edge up to
    /// the next, from the last edge on.
    pub packets: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PacketCount {
    pub packets: u64,
    /// Includes the link's overhead if the link counts it.
    pub bytes: u64,
}

underload_aqm::named! {
    /// A statistic of a distribution.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Quantile {
        P50 = "p50",
        P90 = "p90",
        P95 = "p95",
        P99 = "p99",
        P999 = "p99.9",
        Max = "max",
        Mean = "mean",
    }
}

impl Quantile {
    /// The percentiles, each with the share of values at or below it.
    pub const WITH_SHARE: [(Quantile, f64); 5] = [
        (Quantile::P50, 0.5),
        (Quantile::P90, 0.9),
        (Quantile::P95, 0.95),
        (Quantile::P99, 0.99),
        (Quantile::P999, 0.999),
    ];

    /// Percentiles that compare variants, highest first: the first one with enough samples counts.
    pub const HIGHEST_FIRST: [Quantile; 4] =
        [Quantile::P99, Quantile::P95, Quantile::P90, Quantile::P50];

    /// Percentiles by which a measured step is judged, highest first.
    pub const ABOVE_MEDIAN: [Quantile; 3] = [Quantile::P99, Quantile::P95, Quantile::P90];

    /// Returns the share of values at or below the percentile; `None` for maximum and mean.
    pub fn share(self) -> Option<f64> {
        let mut known = Self::WITH_SHARE.into_iter();
        known.find_map(|(quantile, share)| (quantile == self).then_some(share))
    }

    /// Returns the fewest samples for which the quantile is shown: five lie above it.
    pub const fn fewest_samples(self) -> u64 {
        match self {
            Quantile::P90 => 50,
            Quantile::P95 => 100,
            Quantile::P99 => 500,
            Quantile::P999 => 5_000,
            _ => 1,
        }
    }

    /// Returns whether `samples` are at least [`Quantile::fewest_samples`].
    pub const fn is_told_by(self, samples: u64) -> bool {
        samples >= self.fewest_samples()
    }

    /// Fewest samples of which the median, for want of a higher percentile, grades the test of another
    /// tool: five lie above it, too.
    pub const GRADED_MIN: u64 = 10;

    /// Returns the highest percentile for which `samples` are enough.
    pub fn highest_told_by(samples: u64) -> Quantile {
        let mut told = Quantile::HIGHEST_FIRST.into_iter();
        told.find(|quantile| quantile.is_told_by(samples)).unwrap_or(Quantile::P50)
    }

    /// Returns the value of the quantile in a distribution, ns.
    pub fn of(self, distribution: &Distribution) -> i64 {
        match self {
            Quantile::P50 => distribution.p50_ns,
            Quantile::P90 => distribution.p90_ns,
            Quantile::P95 => distribution.p95_ns,
            Quantile::P99 => distribution.p99_ns,
            Quantile::P999 => distribution.p999_ns,
            Quantile::Max => distribution.max_ns,
            Quantile::Mean => distribution.mean_ns,
        }
    }
}

impl Distribution {
    /// Creates a distribution from a function of the permille rank.
    pub(crate) fn new(
        count: u64,
        [min_ns, max_ns, mean_ns]: [i64; 3],
        at_permille: impl Fn(u32) -> i64,
    ) -> Self {
        let [p50_ns, p90_ns, p95_ns, p99_ns, p999_ns] = [500, 900, 950, 990, 999].map(at_permille);
        Self { count, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns, mean_ns }
    }

    /// Returns the value of a quantile, ns; `None` with too few samples for it.
    pub fn told_ns(&self, quantile: Quantile) -> Option<i64> {
        quantile.is_told_by(self.count).then(|| quantile.of(self))
    }

    /// Returns the highest percentile with enough samples, and its value, ns.
    pub fn highest_told(&self) -> (Quantile, i64) {
        let quantile = Quantile::highest_told_by(self.count);
        (quantile, quantile.of(self))
    }

    /// As [`Self::highest_told`]; `None` if only the median has enough samples.
    pub fn highest_above_median(&self) -> Option<(Quantile, i64)> {
        Some(self.highest_told()).filter(|(quantile, _)| *quantile != Quantile::P50)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_quantiles_need_many_samples() {
        let of = |count| Distribution { count, p99_ns: 7, ..Distribution::default() };
        let highest = |count| of(count).highest_above_median().map(|(quantile, _)| quantile);
        assert_eq!([49, 50, 99].map(highest), [None, Some(Quantile::P90), Some(Quantile::P90)]);
        assert_eq!([100, 499].map(highest), [Some(Quantile::P95); 2]);
        assert_eq!(of(500).highest_above_median(), Some((Quantile::P99, 7)));
        let p999 = |count| of(count).told_ns(Quantile::P999);
        assert_eq!([4_999, 5_000].map(p999), [None, Some(0)]);
    }
}
