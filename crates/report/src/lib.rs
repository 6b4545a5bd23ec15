//! What a run recorded and what it means.
//!
//! - [`schema`]: the record itself, as plain types: runs, trials, samples, curves, summaries.

pub mod schema;
