//! Runs a command behind an emulated link: its namespace, its connection to the caller's network
//! and to name servers, and the logs of its packets.
//!
//! As root the connection changes the host (masquerading, forwarding). Locks show which processes
//! still need the change, and a child that survives a kill of this process undoes it.

mod firewall;
mod link;
mod log;
mod resolver;
mod uplink;
mod watcher;

pub use firewall::closed_port;
pub use link::{LinkCommand, LinkError, LinkOutcome};
pub use uplink::UplinkError;
