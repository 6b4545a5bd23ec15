//! The state of a fleet, and the traits of stores.
//!
//! The rules of this crate change state only through a [`Transaction`], which is atomic, isolated
//! and durable. The stores in SQLite and PostgreSQL are in the crate `orchestrator`. A conformance
//! suite checks both against a store in memory, which other tests use, too.

mod archive;
#[cfg(any(test, feature = "conformance"))]
#[path = "../../tests/conformance/mod.rs"]
pub mod conformance;
mod rows;
mod transaction;

pub use archive::{Archive, Dimension, Filter, OutcomeCount, Outcomes, Sum, Summed};
#[cfg(any(test, feature = "conformance"))]
pub use conformance::Memory;
pub use rows::{
    Code, CodeFor, Device, HeldLease, LineRow, LogEntry, OpenRun, PlanRow, Schedule, Server,
    StoredResult,
};
pub use transaction::{
    Cause, Leases, MADE_EPOCH, Needs, Result, SEEN_ROWS, SEEN_WIDTH, Store, StoreError,
    Transaction, Tx,
};
