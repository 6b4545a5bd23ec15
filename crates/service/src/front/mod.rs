//! The ports of the server, and what listens there.

mod address_proof;
mod conversation;
mod counters;
mod host;
mod listener;
mod openings;
mod server;
mod strangers;

#[cfg(feature = "fuzzing")]
pub(crate) use address_proof::{AddressProof, is_join};
pub use counters::{ServiceCounts, ServiceState};
pub use server::{Access, Service, ServiceConfig};
