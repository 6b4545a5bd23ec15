//! Latency under load: wire protocol, client, and the far ends of probes and load.
//!
//! - [`wire`]: STAMP packets, byte for byte.
//! - [`session`]: when to send and what the answers mean, without sockets and without a clock.
//! - [`control`]: a session at a server on another machine, over TLS.
//! - [`endpoint`]: prober and reflector on real sockets, with plain threads.
//! - [`load`]: TCP and UDP flows that fill the path, and the server at their far end.
//! - [`measure`]: a whole measurement, from idle through ramp and load to its end.
//! - [`network`]: sockets, waiting, and connecting to the first address that answers.
//! - [`path`]: what the path does to markings, and which queue stands at its bottleneck.
//! - [`preset`]: measurements with a name.
//! - [`rpm`]: responsiveness, by formula.
//! - [`survey`]: round trips to many hosts, a few probes each.

mod clock;
pub mod control;
pub mod endpoint;
pub mod load;
pub mod measure;
pub mod network;
pub mod path;
pub mod preset;
pub mod rpm;
pub mod session;
pub mod survey;
mod sys;
pub mod wire;

pub use clock::{Instants, RunClock};
