//! Statistics of latency: what can be said from the samples, and how sure one may be.
//!
//! Two warnings shape what is here. Samples of one trial follow one another through the same queue,
//! so they are far from independent: an interval over a trial's samples ([`Ecdf::band`]) is too
//! narrow, and every interval that a report prints is one over repeats ([`mean_interval`]). And
//! percentiles are never averaged across hosts into a percentile: pooled quantiles come from the
//! samples themselves.
//!
//! Every function is checked against scipy 1.17.1; the tests hold its numbers and the calls that
//! give them.

mod cluster;
mod compare;
mod ecdf;
mod histogram;
mod interval;
mod kolmogorov;
mod quantile;
mod two_passes;

pub use cluster::{BinnedClusters, ClusterQuantile, ClusterShare, cluster_share};
pub use compare::{
    Alternative, MannWhitney, RankMethod, Shift, hodges_lehmann_ratio, hodges_lehmann_shift,
    mann_whitney,
};
pub use ecdf::{Ecdf, EcdfBand};
pub use histogram::{FixedBins, SignedHistogram};
pub use interval::{RunningMean, jain_index, mean_interval};
pub use kolmogorov::{KolmogorovSmirnov, kolmogorov_smirnov};
pub(crate) use quantile::nanos;
pub(crate) use quantile::rank;
pub use quantile::{distribution, nearest_rank, nearest_rank_of, of_sent, weighted_distribution};
pub use two_passes::{MeanInTwoPasses, Pass};

/// Confidence of every interval that a report prints.
pub const CONFIDENCE: f64 = 0.95;
