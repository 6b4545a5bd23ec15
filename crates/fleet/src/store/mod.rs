//! The state of a fleet, and the traits of stores.
//!
//! The rules of this crate change state only through a [`Transaction`], which is atomic, isolated
//! and durable. A store in memory is here, for simulations and as the reference; the stores in
//! SQLite and PostgreSQL are in the crate `orchestrator`. One conformance suite checks all of them.

mod archive;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod rows;
mod transaction;

pub use archive::{Archive, Dimension, Filter, OutcomeCount, Outcomes, Sum, Summed};
pub use memory::Memory;
pub use rows::{
    Code, CodeFor, Device, HeldLease, LogEntry, OpenRun, PlanRow, Schedule, Server, StoredResult,
};
pub use transaction::{
    Cause, Leases, MADE_EPOCH, Needs, SEEN_ROWS, SEEN_WIDTH, Store, StoreError, Transaction,
};
