//! A command behind an emulated link: its namespace, its way to the caller's network and to names,
//! and the logs of what passed.
//!
//! [`LinkCommand`] joins a gateway with all of that. As root the way outwards changes the host
//! (masquerading, forwarding): locks tell who still needs the change, and a child that outlives a
//! kill undoes it.

mod link;
mod lock;
mod log;
mod resolver;
mod uplink;
mod watcher;

pub use link::{LinkCommand, LinkError, LinkOutcome, Watch};
pub use uplink::UplinkError;
