//! Admits runs and collects what they measured.
//!
//! - [`operator`]: who may look and who may act.
//! - [`pages`]: what was collected, in a browser.
//! - [`store`]: what is kept, in SQLite or PostgreSQL.
//! - [`study`]: the cohorts of a plan compared.

pub mod operator;
pub mod pages;
pub mod store;
pub mod study;
