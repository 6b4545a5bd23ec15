//! Admits runs and collects their results.
//!
//! - [`http`]: requests of devices, servers and operators.
//! - `nats`: results by way of a broker (the feature `nats`).
//! - [`operator`]: who may look and who may act.
//! - [`pages`]: what was collected, in a browser.
//! - [`service`]: all of it at work.
//! - [`store`]: what is kept, in SQLite or PostgreSQL.
//! - [`study`]: the cohorts of a plan compared.

pub mod http;
#[cfg(feature = "nats")]
pub mod nats;
pub mod operator;
pub mod pages;
mod random;
pub mod service;
pub mod store;
pub mod study;
