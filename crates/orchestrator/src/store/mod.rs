//! Where an orchestrator keeps what it knows.
//!
//! A [`SqlStore`] in SQLite needs no set-up and serves one orchestrator, one in PostgreSQL serves
//! any number of them at once. Each of the two is a `database` that runs statements; what is stored
//! and how is the same and written once: rows of devices, servers, leases and plans (`tables`),
//! changed in transactions (`transaction`); results as bytes of a few hundred each (`encode`);
//! which of a device's sequence numbers were seen (`seen`), which outlives the results; and sums of
//! results that answer what pages ask without reading results again (`rollup`, `keeper`,
//! `archive`). Old days are in `files`. Writers never wait for readers.

mod archive;
mod database;
mod encode;
mod files;
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
mod testing;
mod transaction;

pub use archive::SqlArchive;
pub(crate) use files::summed_words;
pub use housekeeping::{Did, Housekeeping, Work};
pub use keeper::Keeper;
pub use open::SqlStore;
pub use place::{NotAPlace, Opened, Place};
pub use rollup::RolledUp;
pub(crate) use rollup::needs_results;
