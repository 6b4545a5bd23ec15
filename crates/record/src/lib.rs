//! The record of a run, and the numbers that follow from it.
//!
//! Every world writes these types and every report reads them. The crate uses no file, clock or
//! plotter, so an engine that depends on it compiles neither Parquet nor a plotter.
//!
//! - [`schema`]: the types of a record: runs, trials, samples, series, summaries.
//! - [`summarise`], [`trial_latencies`]: compute a trial's latency from its samples.
//! - [`LatencyPools`], [`conclude`]: summarise each variant and compare it with published numbers.
//!   [`Conclusion`] does the same for trials that do not fit in memory together.
//! - [`metric`]: one number of a variant by its name.
//! - [`link`]: counters and series of a link, as every world records them.
//! - [`tally`]: counts what a link does to its packets, in every world alike.
//! - [`cohorts`]: compares the cohorts of a plan, line by line.
//! - [`comparison`]: compares the variants of a run, and decides what is lower, alike or not sure.
//! - [`history`]: compares the latest runs of one line with its first days.
//! - [`judgement`]: judges a measured line: grade, added delay, uses, cure.
//! - [`quality`]: scores a step for applications, by Quality of Outcome.
//! - [`ce_excess`]: finds flows that received more congestion marks than congestion explains.
//! - [`text`]: makes untrusted text safe for a terminal.
//! - [`stats`]: quantiles, histograms, intervals and comparisons.

pub mod ce_excess;
pub mod cohorts;
pub mod comparison;
pub mod history;
pub mod judgement;
pub mod link;
pub mod quality;
pub mod schema;
pub mod stats;
#[cfg(any(test, feature = "testkit"))]
#[path = "../tests/support/synthetic.rs"]
pub mod synthetic;
pub mod tally;
pub mod text;

mod conclusion;
mod fold;
mod metric_names;
mod shares;
mod study;
mod summarise;
mod throughput;
mod variants;
mod verdict;

pub use conclusion::{Conclusion, conclude};
pub use metric_names::{closest_metric, latency_names, metric_names, metric_unit};
pub use stats::CONFIDENCE;
pub use study::{DAY, LINE};
pub use summarise::{LatencyPools, summarise, trial_latencies};
pub use underload_aqm::named;
pub use variants::{metric, metric_of, metric_over_trials, metrics_of_trial, unknown_metric};
