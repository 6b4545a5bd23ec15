//! What a run recorded and what it means.
//!
//! - [`schema`]: the record itself, as plain types: runs, trials, samples, curves, summaries.
//! - [`summarise`], [`trial_latencies`]: from samples to a trial's latency.
//! - [`RunDir`]: the run directory, written trial by trial; [`RunData`]: read back.
//! - [`metric`]: one number of an arm by its name, for expectations.
//! - [`stats`]: quantiles, histograms, intervals and comparisons.

pub mod schema;
pub mod stats;

mod arms;
mod store;
mod summarise;

pub use arms::{conclude, metric};
pub use store::{RunData, RunDir, StoreError, parse_run_json, write_samples_csv, write_series_csv};
pub use summarise::{CONFIDENCE, LatencyPools, summarise, trial_latencies};
