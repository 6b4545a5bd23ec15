//! Run directories, which are written during the run and readable at any time.
//!
//! [`RunDir`] writes and reads a directory, [`RunData`] is a run in memory.
//!
//! During a run the directory has `run.json` (without trials), `trials.jsonl` (one line per
//! finished trial) and `parts/` (two small Parquet files per trial). A trial's line is written
//! after its parts, so that every line has complete files. [`RunDir::finish`] merges the parts and
//! then replaces `run.json` in one rename: a reader sees the run before or after, never between.
//! A run that was killed, or whose disk filled up, is read as the trials that it finished, with
//! `RunRecord::complete` false. [`RunDir::sync`] syncs the parts, then the lines; trials that a
//! power cut damaged since are dropped when the run is read, and reported.
//!
//! If a run has many trials, they are in `trials.parquet`, which `run.json` names (module
//! `records`). During such a run its trials are in the journal only: they are summarised as they
//! come, and a second time when they are copied from there into the table (module `spool`), so that
//! memory does not grow with their number.
//!
//! A sweep of a million trials has another kind of directory: [`sweep`]. Runs of the same line over
//! months are a [`series`], from which old ones can be removed.
//!
//! A run begins only in an empty or new directory, and removes only files that it created.
//! [`RunDir::resume`] continues an incomplete run.

mod error;
mod files;
mod folder;
pub mod host;
mod read;
mod records;
mod resume;
mod rows;
mod run_data;
mod run_dir;
pub mod series;
mod spool;
pub mod sweep;
pub mod table;
mod table_file;
mod tables;
mod trials;

pub use error::StoreError;
pub use read::parse_run_json;
pub use resume::Resumed;
pub use run_data::RunData;
pub use run_dir::RunDir;
pub use table::{Column, Kind};
pub use tables::{
    Table, table_columns, table_groups, write_samples_csv, write_series_csv, write_trials_csv,
};
