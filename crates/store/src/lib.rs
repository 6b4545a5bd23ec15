//! Run directories: written while the run goes on, readable whatever happens to them.
//!
//! [`RunDir`] writes one, [`RunData`] is one in memory. What is drawn of it is another crate's.
//!
//! While a run is under way the directory holds `run.json` (without trials), `trials.jsonl` (one
//! line per finished trial) and `parts/` (two small Parquet files per trial). A trial's line is
//! written after its parts, so every line is backed by complete files. [`RunDir::finish`] merges
//! the parts and then replaces `run.json` in one rename: a reader sees the run before or after,
//! never between. A run that was killed, or whose disk filled up, reads as the trials it finished,
//! with `RunRecord::complete` false. [`RunDir::sync`] brings the parts to the disk, then the
//! lines; what a power cut damaged of the trials since the last time is left out when it is read,
//! and named.
//!
//! Of a run of many trials `run.json` has no trials and names `trials.parquet`, which has them
//! (module `records`). While such a run is under way its trials are in the journal alone: what they
//! come to is added up as they come, and once more when they go from there into the table (module
//! `spool`), so that memory does not grow with their number.
//!
//! A sweep of a million trials has a directory of its own kind: [`sweep`]. Runs that follow each
//! other for months are a [`series`], out of which old ones can be taken.
//!
//! A run begins in an empty or new directory only, and removes nothing but what it made itself.
//! [`RunDir::resume`] goes on with one that was cut short.

mod columns;
mod error;
mod files;
mod folder;
pub mod host;
mod packets;
mod read;
mod records;
mod resume;
mod rows;
mod run_data;
mod run_dir;
pub mod series;
mod spool;
pub mod sweep;
mod table_file;
mod tables;
mod trials;
pub mod values;

pub use columns::{Column, Kind, Value};
pub use error::StoreError;
pub use packets::PacketTable;
pub use read::parse_run_json;
pub use resume::Resumed;
pub use run_data::RunData;
pub use run_dir::RunDir;
pub use tables::{
    Table, parquet_table, table_columns, table_groups, write_samples_csv, write_series_csv,
    write_trials_csv,
};
