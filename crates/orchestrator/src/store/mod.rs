//! Where an orchestrator keeps what it knows.
//!
//! [`SqliteStore`] needs no set-up and serves one orchestrator, [`PostgresStore`] serves any
//! number of them at once. Both keep the same things in the same way: rows of devices, servers,
//! leases and plans; results as bytes of a few hundred each (`encode`); which of a device's
//! sequence numbers were seen (`seen`), which outlives the results; and sums of results that
//! answer what pages ask without reading results again (`rollup`). Who writes never waits for who
//! reads.

mod encode;
mod files;
mod housekeeping;
mod place;
mod postgres;
mod rollup;
mod seen;
mod sqlite;
#[cfg(test)]
mod testing;

pub use housekeeping::{Did, Housekeeping, Work};
pub use place::{NotAPlace, Opened, Place};
pub use postgres::{PostgresArchive, PostgresKeeper, PostgresStore};
pub use rollup::RolledUp;
pub use sqlite::{SqliteArchive, SqliteKeeper, SqliteStore};

use serde::Serialize;
use serde::de::DeserializeOwned;
use underload_fleet::store::{Dimension, Filter, StoreError, Summed};

/// Whether sums by these dimensions, and outcomes where there are none, are only known of results
/// that are kept themselves, which they are not for ever.
pub(crate) fn needs_results(filter: &Filter, by: &[Dimension]) -> bool {
    rollup::Question::new(filter, by, std::sync::Arc::default()).level().is_none()
}

/// `95 days before 2026-11-23`
pub(crate) fn summed_words(summed: Summed) -> String {
    let days = if summed.days == 1 { "day" } else { "days" };
    format!("{} {days} before {}", summed.days, files::date(summed.until_day))
}

/// An instant that is compared as it is stored: the databases know signed numbers only, so that all
/// are moved down by 2^63, which keeps their order.
fn to_instant(at_ms: u64) -> i64 {
    at_ms.wrapping_sub(1 << 63) as i64
}

/// What [`to_instant`] was given.
fn instant_of(stored: i64) -> u64 {
    (stored as u64).wrapping_add(1 << 63)
}

fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    let broken = |error| StoreError::Broken { what: format!("a row cannot be written: {error}") };
    serde_json::to_string(value).map_err(broken)
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    let broken = |error| StoreError::Broken { what: format!("a stored row is damaged: {error}") };
    serde_json::from_str(text).map_err(broken)
}

/// CRC-32 of the parts in a row, which finds what a disk or a copy has changed.
fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    for part in parts {
        sum.update(part);
    }
    sum.finalize().to_le_bytes()
}

/// The column of an attribute that may be filtered by.
fn attribute_column(name: &str) -> Option<&'static str> {
    underload_fleet::device::Attributes::NAMES.into_iter().find(|known| *known == name)
}

/// How far results were put together is kept by this name.
const ROLLED_UP: &str = "rolled up";
/// The size of the next process's first batch is kept by this name, as a decimal number.
const BATCH: &str = "roll-up batch";
/// Where the archive is is kept by this name.
const LOCATION: &str = "archive";
