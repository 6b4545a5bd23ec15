//! Admits runs and collects what they measured.
//!
//! - [`operator`]: who may look and who may act.
//! - [`store`]: what is kept, in SQLite or PostgreSQL.

pub mod operator;
pub mod store;
