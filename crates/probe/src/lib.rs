//! Latency under load: wire protocol, client, server.
//!
//! - [`wire`]: STAMP packets, byte for byte.
//! - [`session`]: when to send and what the answers mean, without sockets and without a clock.
//! - [`endpoint`]: prober and reflector on real sockets, with plain threads.
//! - [`load`]: TCP and UDP flows that fill the path, and the server at their far end.
//! - [`measure`]: a whole measurement, from idle through ramp and load to its end.
//! - [`compat`]: servers for clients of other tools.
//! - [`path`]: what the path does to markings, and which queue stands at its bottleneck.
//! - [`preset`]: measurements with a name.
//! - [`rpm`]: responsiveness, by formula.
//! - [`service`]: the same between two machines, with sessions, leases and TLS on the control
//!   connection.

mod clock;
pub mod compat;
pub mod endpoint;
pub mod load;
pub mod measure;
mod network;
pub mod path;
pub mod preset;
mod race;
pub mod rpm;
pub mod service;
pub mod session;
mod sys;
pub mod wire;

pub use clock::{Instants, RunClock};
pub use network::{SocketSource, current_network};
