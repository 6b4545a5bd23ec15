//! The store of an orchestrator.
//!
//! A [`SqlStore`] in SQLite needs no set-up and serves one orchestrator, one in PostgreSQL serves
//! any number. Both implement `database`, which runs statements; all other code is shared: rows of
//! devices, servers, leases and plans (`tables`), changed in transactions (`transaction`); results,
//! encoded in a few hundred bytes each (`encode`); the sequence numbers that devices have handed in
//! (`seen`), which outlive the results; and sums of results, from which pages are answered
//! (`rollup`, `keeper`, `archive`). Old days are in `files`. Writers never wait for readers.

mod archive;
mod backup;
mod database;
mod encode;
mod files;
mod forget;
mod housekeeping;
mod keeper;
mod open;
mod place;
mod postgres;
mod rollup;
mod seen;
mod sqlite;
mod tables;
#[cfg(test)]
#[path = "../../tests/support/results.rs"]
mod testing;
mod transaction;

pub use archive::SqlArchive;
pub use backup::CopiedFile;
pub(crate) use encode::{Encoded, encode};
pub(crate) use files::summed_words;
pub use forget::{Forgetting, Forgotten};
pub use housekeeping::{Did, Housekeeping, Work};
pub use keeper::Keeper;
pub use open::SqlStore;
pub use place::{Connections, NotAPlace, Place};
pub use rollup::RolledUp;
pub(crate) use rollup::needs_results;
