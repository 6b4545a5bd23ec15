//! What a run recorded, and the numbers that follow from it.
//!
//! Every world writes these types and every report reads them. Nothing here knows a file, a clock
//! or a picture, so an engine that depends on it compiles neither Parquet nor a plotter.
//!
//! - [`schema`]: the record itself, as plain types: runs, trials, samples, curves, summaries.
//! - [`summarise`], [`trial_latencies`]: from samples to a trial's latency.
//! - [`LatencyPools`], [`conclude`]: from trials to the summary of each arm, and the published
//!   numbers held against it; [`Conclusion`] of trials that are nowhere in memory at once.
//! - [`metric`]: one number of an arm by its name.
//! - [`link`]: what a link did, as every world records it.
//! - [`cohorts`]: from the lines of a plan to what its cohorts show, compared by line.
//! - [`history`]: one line over weeks: what is usual, what has changed.
//! - [`ce_excess`]: which flows received more congestion marks than congestion explains.
//! - [`text`]: text that strangers wrote, made safe for a terminal.
//! - [`stats`]: quantiles, histograms, intervals and comparisons.

pub mod ce_excess;
pub mod cohorts;
pub mod history;
pub mod link;
pub mod schema;
pub mod stats;
#[cfg(any(test, feature = "testkit"))]
pub mod synthetic;
pub mod text;

mod arms;
mod conclusion;
mod fold;
mod metric_names;
mod shares;
mod study;
mod summarise;
mod throughput;

pub use arms::{metric, metric_of, metric_over_trials, metrics_of_trial, unknown_metric};
pub use conclusion::{Conclusion, SecondPass, conclude};
pub use metric_names::{closest_metric, latency_names, metric_names, metric_unit};
pub use stats::CONFIDENCE;
pub use study::{DAY, LINE};
pub use summarise::{LatencyPools, summarise, trial_latencies};
