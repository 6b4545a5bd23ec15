//! Phases, directions, measures, distributions and quantiles of a trial.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of a trial.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// No load, only probes: the phase of idle latency.
    #[default]
    Idle,
    /// The load is starting; its samples count for nothing.
    Ramp,
    /// The load is steady: working latency.
    Load,
    /// The load has ended and queues empty.
    Drain,
    /// The whole trial: only of links, in live runs of earlier versions.
    Whole,
}

impl Phase {
    /// The name used in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Ramp => "ramp",
            Phase::Load => "load",
            Phase::Drain => "drain",
            Phase::Whole => "whole",
        }
    }

    /// The phase of that name.
    pub fn from_name(name: &str) -> Option<Phase> {
        [Phase::Idle, Phase::Ramp, Phase::Load, Phase::Drain, Phase::Whole]
            .into_iter()
            .find(|phase| phase.name() == name)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// When a phase ran: `start_ns <= t < end_ns`, since the start of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseWindow {
    /// The phase that the window belongs to.
    pub phase: Phase,
    /// First instant inside, ns.
    pub start_ns: u64,
    /// First instant after, ns.
    pub end_ns: u64,
}

impl PhaseWindow {
    /// Returns the length of the window, ns; 0 if the window ends before it starts.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether the instant lies inside.
    pub fn contains(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && time_ns < self.end_ns
    }
}

/// A direction of the path, seen from the client.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Upstream: from the client to the server.
    #[default]
    Up,
    /// Downstream: from the server to the client.
    Down,
}

impl Direction {
    /// The name used in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }

    /// Returns the other direction.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The delay that a latency summary is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyMeasure {
    /// Client to server and back.
    #[default]
    RoundTrip,
    /// Client to server. Depends on both clocks in the measured world.
    OneWayUp,
    /// Server to client. Depends on both clocks in the measured world.
    OneWayDown,
}

impl LatencyMeasure {
    /// Short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            LatencyMeasure::RoundTrip => "round trip",
            LatencyMeasure::OneWayUp => "one way up",
            LatencyMeasure::OneWayDown => "one way down",
        }
    }
}

/// Quantiles of `count` delays, ns. Quantile q is the nearest-rank one: the smallest value with at
/// least `q * count` values at or below it.
///
/// Only one-way delays can be negative: where the two ends' clocks differ by more than the path
/// takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values, at least 1.
    pub count: u64,
    /// Smallest value, ns.
    pub min_ns: i64,
    /// Median, ns.
    pub p50_ns: i64,
    /// 90th percentile, ns.
    pub p90_ns: i64,
    /// 95th percentile, ns.
    pub p95_ns: i64,
    /// 99th percentile, ns.
    pub p99_ns: i64,
    /// 99.9th percentile, ns.
    pub p999_ns: i64,
    /// Largest value, ns.
    pub max_ns: i64,
    /// Arithmetic mean, rounded down, ns.
    pub mean_ns: i64,
}

/// A flow that queue protection (RFC 9957) sent away from the low latency queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sanction {
    /// [`super::FlowRecord::name`] if the run knows it, otherwise a number of the flow; `others`
    /// combines all flows beyond the first 1024.
    pub flow: String,
    /// Number of packets of the flow that were redirected to the classic queue.
    pub packets: u64,
    /// When the first of them was, ns.
    pub first_ns: u64,
    /// When the last of them was, ns.
    pub last_ns: u64,
    /// The highest score that the flow had then, as the time in which it drains, ns.
    pub highest_score_ns: u64,
}

/// The histogram of a service flow's delays (DOCSIS TLV 40.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Name of the service flow: `low-latency` or `classic`.
    pub service_flow: String,
    /// Edges between the bins, rising, ns.
    pub edges_ns: Vec<u64>,
    /// Packets sent per bin, one bin more than edges: below the first edge, from each edge up to
    /// the next, from the last one on.
    pub packets: Vec<u64>,
}

impl LatencyHistogram {
    /// Adds the counts of another trial; of other bins, none.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.edges_ns == other.edges_ns {
            let counts = self.packets.iter_mut().zip(&other.packets);
            counts.for_each(|(count, more)| *count = count.saturating_add(*more));
        }
    }
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PacketCount {
    /// Number of packets.
    pub packets: u64,
    /// Bytes, with the link's overhead where the link counts it.
    pub bytes: u64,
}

/// A statistic of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantile {
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Largest value.
    Max,
    /// Arithmetic mean.
    Mean,
}

impl Quantile {
    /// Every quantile, in the order of tables.
    pub const ALL: [Quantile; 7] = [
        Quantile::P50,
        Quantile::P90,
        Quantile::P95,
        Quantile::P99,
        Quantile::P999,
        Quantile::Max,
        Quantile::Mean,
    ];

    /// The percentiles, each with the share of values at or below it, as parts of 1.
    pub const WITH_SHARE: [(Quantile, f64); 5] = [
        (Quantile::P50, 0.5),
        (Quantile::P90, 0.9),
        (Quantile::P95, 0.95),
        (Quantile::P99, 0.99),
        (Quantile::P999, 0.999),
    ];

    /// Percentiles by which arms are compared, the highest first: where one has too few samples,
    /// the next lower one is used.
    pub const HIGHEST_FIRST: [Quantile; 4] =
        [Quantile::P99, Quantile::P95, Quantile::P90, Quantile::P50];

    /// The quantile's name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P90 => "p90",
            Quantile::P95 => "p95",
            Quantile::P99 => "p99",
            Quantile::P999 => "p99.9",
            Quantile::Max => "max",
            Quantile::Mean => "mean",
        }
    }

    /// The one printed so.
    pub fn from_name(name: &str) -> Option<Quantile> {
        Quantile::ALL.into_iter().find(|quantile| quantile.name() == name)
    }

    /// The share of values at or below it, as parts of 1; `None` of the largest and the mean.
    pub fn share(self) -> Option<f64> {
        let mut known = Self::WITH_SHARE.into_iter();
        known.find_map(|(quantile, share)| (quantile == self).then_some(share))
    }

    /// The fewest samples of which it is printed, drawn or compared: five of them lie above it.
    pub const fn fewest_samples(self) -> u64 {
        match self {
            Quantile::P90 => 50,
            Quantile::P95 => 100,
            Quantile::P99 => 500,
            Quantile::P999 => 5_000,
            _ => 1,
        }
    }

    /// Whether `samples` are enough for it, see [`Quantile::fewest_samples`].
    pub const fn is_told_by(self, samples: u64) -> bool {
        samples >= self.fewest_samples()
    }

    /// The highest percentile for which `samples` are enough.
    pub fn highest_told_by(samples: u64) -> Quantile {
        let mut told = Quantile::HIGHEST_FIRST.into_iter();
        told.find(|quantile| quantile.is_told_by(samples)).unwrap_or(Quantile::P50)
    }

    /// The quantile's value in a distribution, ns.
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
    /// A statistic, ns; `None` where it has too few samples.
    pub fn told_ns(&self, quantile: Quantile) -> Option<i64> {
        quantile.is_told_by(self.count).then(|| quantile.of(self))
    }

    /// The highest percentile that has enough samples, and its value, ns.
    pub fn highest_told(&self) -> (Quantile, i64) {
        let quantile = Quantile::highest_told_by(self.count);
        (quantile, quantile.of(self))
    }
}
