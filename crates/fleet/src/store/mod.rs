//! What is kept, and the trait of those who keep it.
//!
//! The rules of this crate change state only through a [`Transaction`]: all of it or nothing, and
//! one after the other as far as anybody can tell. What was committed is on disk. A store in
//! memory stands here, for simulations and as the reference of the others; SQLite and PostgreSQL
//! are in the crate `orchestrator`, and one suite of conformance holds all of them.

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
