//! The ports, and what is said at them.

mod conversation;
mod counters;
mod door;
mod host;
mod listener;
mod openings;
mod server;
mod strangers;

pub use counters::{ServiceCounts, ServiceState};
#[cfg(fuzzing)]
pub(crate) use door::{Door, is_join};
pub use server::{Access, Service, ServiceConfig};
