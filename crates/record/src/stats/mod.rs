//! Statistics of latency: quantiles, intervals and comparisons.
//!
//! Two rules apply. Samples of one trial follow one another through the same queue and are not
//! independent: an interval over a trial's samples ([`Ecdf::band_half_height`]) is too narrow, so
//! every interval that a report prints is over repeats ([`mean_interval`], [`median_interval`]). And
//! percentiles are never averaged: pooled quantiles are computed from the samples.
//!
//! The tests compare every function with scipy 1.17.1, and show the calls of scipy.

mod cluster;
mod compare;
mod durations;
mod ecdf;
mod histogram;
mod interval;
mod order;
mod qoo;
mod quantile;
mod sequence;
mod tails;

pub use cluster::{BinnedClusters, ClusterQuantile, ClusterShare, binned_quantile, cluster_share};
pub use compare::{
    Alternative, MannWhitney, RankMethod, hodges_lehmann_ratio, hodges_lehmann_shift, mann_whitney,
};
pub use durations::Histogram;
pub use ecdf::Ecdf;
pub use histogram::{FixedBins, SignedHistogram};
pub use interval::{RunningMean, jain_index, mean_interval};
pub use order::{FEWEST_FOR_INTERVAL, MedianInterval, median_interval};
pub use qoo::{Components, Conditions, LatencyBound, Requirements, quality_of_outcome};
pub use quantile::{
    distribution, median, nearest_rank, nearest_rank_of, of_sent, weighted_distribution,
};
pub(crate) use quantile::{nanos, rank};
pub use sequence::sequence_half_width;
pub(crate) use tails::normal_quantile;

/// Confidence of every interval that a report prints.
pub const CONFIDENCE: f64 = 0.95;
