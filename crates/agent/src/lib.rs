//! Measures a line by a plan: asks an orchestrator, runs, keeps what was measured, hands it in.
//!
//! What to do when is decided by [`underload_fleet::agent`], without a socket, a clock or a file;
//! here is what it takes to do it.
//!
//! - [`device`]: a device at work.
//! - [`identity`], [`client`], [`address`]: who it is, its requests, and where they may go.
//! - [`spool`]: what is kept on disk, whatever happens.
//! - [`measure`]: a run, on the library of `underload measure`.
//! - `member`: a measurement server of a fleet (the feature of that name).
//! - [`reach`]: the addresses that are measured to.
//! - [`arguments`]: its command line, for every program that is one.
//!
//! Threads and no runtime, no database, no page: it fits beside a router's own work.

pub mod address;
pub mod arguments;
pub mod client;
pub mod device;
pub mod identity;
pub mod measure;
#[cfg(feature = "member")]
pub mod member;
pub mod reach;
mod series;
pub mod spool;
mod tls;

pub use tls::Trust;
