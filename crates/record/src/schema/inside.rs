//! Round trips inside the load: those of the TCP connections that load the path.

use serde::{Deserialize, Serialize};

use super::{Direction, Distribution, Quantile};
use crate::stats;

/// Round trips of the TCP connections that load one direction, in the load phase.
///
/// A value is a sender's smoothed round trip (RFC 6298: about the last eight acknowledgements),
/// read every 10 ms. Probes beside the load wait in the queue that another application would wait
/// in. These values include the queue of the load itself, which is a different one behind a queue
/// per flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InsideLatency {
    /// Direction of the payload.
    pub direction: Direction,
    /// Connections with at least one value.
    pub connections: u32,
    /// Smallest round trip that a sender observed, its handshake included; `None` if unknown.
    pub smallest_ns: Option<u64>,
    /// Values of all connections together.
    pub distribution: Distribution,
}

/// As [`InsideLatency`], in ms and with only the percentiles that have enough values. Also used for
/// tests against servers of other projects.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InsideReadings {
    /// Direction of the payload.
    pub direction: Direction,
    /// Names the values in a sentence: `readings of 4 connections`.
    pub of: String,
    /// Number of values, at least 1.
    pub count: u64,
    /// Smallest round trip that a sender observed; `None` if unknown.
    pub smallest_ms: Option<f64>,
    pub p50_ms: f64,
    /// `None` below 50 values.
    pub p90_ms: Option<f64>,
    /// `None` below 100 values.
    pub p95_ms: Option<f64>,
    /// `None` below 500 values.
    pub p99_ms: Option<f64>,
    pub max_ms: f64,
}

impl InsideReadings {
    pub fn new(direction: Direction, of: &str, distribution: &Distribution) -> Self {
        let ms = |ns: i64| ns as f64 / 1e6;
        let told = |quantile| distribution.told_ns(quantile).map(ms);
        Self {
            direction,
            of: of.to_owned(),
            count: distribution.count,
            smallest_ms: None,
            p50_ms: ms(distribution.p50_ns),
            p90_ms: told(Quantile::P90),
            p95_ms: told(Quantile::P95),
            p99_ms: told(Quantile::P99),
            max_ms: ms(distribution.max_ns),
        }
    }

    /// Returns the readings of values in ms, and `smallest_ms`; `None` if no value is above 0.
    pub fn of_ms(
        direction: Direction,
        of: &str,
        values_ms: impl IntoIterator<Item = f64>,
        smallest_ms: Option<f64>,
    ) -> Option<Self> {
        let usable = values_ms.into_iter().filter(|ms| ms.is_finite() && *ms > 0.0);
        let mut values_ns: Vec<u64> = usable.map(|ms| (ms * 1e6) as u64).collect();
        let distribution = stats::distribution(&mut values_ns)?;
        Some(Self { smallest_ms, ..Self::new(direction, of, &distribution) })
    }

    /// Returns the highest percentile above the median that has enough values, and its value, ms.
    pub fn highest_ms(&self) -> Option<(Quantile, f64)> {
        let known = [self.p99_ms, self.p95_ms, self.p90_ms];
        let mut pairs = Quantile::HIGHEST_FIRST.into_iter().zip(known);
        pairs.find_map(|(quantile, value)| Some((quantile, value?)))
    }
}

impl From<&InsideLatency> for InsideReadings {
    fn from(inside: &InsideLatency) -> Self {
        let of = match inside.connections {
            1 => "readings of 1 connection".to_owned(),
            connections => format!("readings of {connections} connections"),
        };
        let smallest_ms = inside.smallest_ns.map(|ns| ns as f64 / 1e6);
        Self { smallest_ms, ..Self::new(inside.direction, &of, &inside.distribution) }
    }
}

crate::named! {
    /// The traffic that a packet belongs to when its delay is measured.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Vantage {
        /// A packet of another application: a call, a game.
        Beside = "beside",
        /// A packet of a loading connection: a page or a download.
        Inside = "inside",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_inside_the_load_need_the_same_number_of_values() {
        let of = |count: u32| {
            let values = (1..=count).map(f64::from).chain([0.0, f64::NAN, -1.0]);
            InsideReadings::of_ms(Direction::Down, "readings", values, None)
        };
        let highest = |count| of(count).and_then(|it| it.highest_ms());
        assert_eq!(of(0), None);
        assert_eq!(highest(49), None);
        assert_eq!(highest(50), Some((Quantile::P90, 45.0)));
        assert_eq!(highest(100), Some((Quantile::P95, 95.0)));
        assert_eq!(highest(500), Some((Quantile::P99, 495.0)));
        let all = of(500).map(|it| (it.count, it.p50_ms, it.max_ms));
        assert_eq!(all, Some((500, 250.0, 500.0)));
    }
}
