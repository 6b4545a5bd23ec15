//! The agent: measures a line by plan, as an orchestrator permits, and sends the results.
//!
//! [`underload_fleet::agent`] decides what to do next, without a socket, a clock or a file; this
//! crate carries it out.
//!
//! - [`device`]: runs a device.
//! - [`identity`], [`client`], [`address`]: the key of a device, its requests, and the
//!   addresses to which it may send them.
//! - [`spool`]: results on disk.
//! - [`measure`]: measures one run with the library of `underload measure`.
//! - `member`: a measurement server of a fleet (feature `member`).
//! - [`arguments`]: the command line of every program that runs an agent.
//!
//! The agent uses threads without an async runtime, so that it fits beside a router's own work.

pub mod address;
pub mod arguments;
pub mod client;
pub mod device;
pub mod identity;
pub mod measure;
#[cfg(feature = "member")]
pub mod member;
mod series;
pub mod spool;
mod tls;

pub use tls::Trust;
