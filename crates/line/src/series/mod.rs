//! Repeated measurements of a line in one directory.
//!
//! - [`Courtesy`]: when a measurement may start, and its budget of bytes.
//! - [`Rhythm`]: the pauses between measurements.
//! - [`Keeper`]: the runs of the directory; it removes old ones and stores their numbers.

mod account;
mod courtesy;
mod keep;
mod rhythm;

use std::io;
use std::path::PathBuf;

use underload_store::StoreError;

pub use courtesy::{Courtesy, Grant, Hours, Limits, covers_day, local_zone};
pub use keep::{Keeper, SHORTEST_AGE};
pub use rhythm::{PUBLIC_MEAN_LEAST, PUBLIC_PAUSE_LEAST, Rhythm};

/// A sentence for the user about a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Note(String),
    Warning(String),
}

/// Shows a notice to the user.
pub type Show = fn(Notice);

#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: locked by another process", directory.display())]
    Locked { directory: PathBuf, source: io::Error },
    #[error("{}: damaged; remove it to begin a new account of bytes", path.display())]
    DamagedAccount { path: PathBuf, source: serde_json::Error },
    #[error(
        "the budget per day: {limit} are less than a measurement to this server takes; the \
         last one moved {last}, and its load cannot end before"
    )]
    SmallBudget { limit: String, last: String },
    #[error("no interface has a default route, so the traffic of the line is unknown")]
    NoDefaultRoute,
    #[error("the calendar has no later day")]
    Calendar,
    #[error(transparent)]
    Store(#[from] StoreError),
}
