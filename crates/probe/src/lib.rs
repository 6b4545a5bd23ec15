//! Latency under load: the wire protocol, the client, and the servers of probes and load.
//!
//! - [`wire`]: STAMP packets, byte for byte.
//! - [`session`]: when to send and how to match answers, without sockets and without a clock.
//! - [`control`]: a session at a server on another machine, over TLS.
//! - [`endpoint`]: prober and reflector on real sockets, with plain threads.
//! - [`load`]: TCP and UDP flows that fill the path, and the load server.
//! - [`measure`]: a whole measurement: idle, ramp, load, end.
//! - [`network`]: sockets, waiting, and connecting to the first address that answers.
//! - [`path`]: what the path does to markings, and which queue is at its bottleneck.
//! - [`preset`]: named measurements.
//! - [`route`]: the first hops of a route, found and probed.
//! - [`rpm`]: round trips per minute (responsiveness).
//! - [`survey`]: round trips to many hosts, a few probes each.

mod clock;
pub mod control;
mod counters;
pub mod endpoint;
pub mod load;
pub mod measure;
pub mod network;
pub mod path;
pub mod preset;
pub mod route;
pub mod rpm;
pub mod session;
pub mod survey;
mod sys;
mod system;
pub mod wire;

pub use clock::{Instants, RunClock};
pub use counters::Counters;
