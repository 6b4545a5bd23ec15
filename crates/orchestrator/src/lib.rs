//! Admits runs and collects what they measured.
//!
//! - [`operator`]: who may look and who may act.
//! - [`store`]: what is kept, in SQLite or PostgreSQL.
//! - [`study`]: the cohorts of a plan compared.

pub mod operator;
pub mod store;
pub mod study;
