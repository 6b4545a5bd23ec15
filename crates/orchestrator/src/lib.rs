//! Admits runs and collects their results.
//!
//! - [`desk`]: the actions of operators on pages.
//! - [`http`]: requests of devices, servers and operators.
//! - [`operator`]: the operators and viewers, and their tokens.
//! - [`pages`]: the collected results, in a browser.
//! - [`rollout`]: rollouts and their logs in a store.
//! - [`store`]: the stored state, in SQLite or PostgreSQL.
//! - [`study`]: compares the cohorts of a plan.

pub mod desk;
pub mod http;
pub mod operator;
pub mod pages;
mod random;
pub mod rollout;
pub mod store;
pub mod study;
