//! What an emulation needs of the machine: the right to create namespaces, namespaces and TUN
//! devices in them, a clock, and threads that wake up in time.
//!
//! Everything made here belongs to this process and goes with it, however it ends. No packet is
//! looked into. All `unsafe` code of the crate is in `sys`.

mod clock;
mod lab;
mod namespace;
pub mod privilege;
mod realtime;
mod scratch;
pub(crate) mod sys;
mod tun;

pub use clock::Clock;
pub use lab::{CLIENT_V4, CLIENT_V6, Lab, LabConfig, LabError, SERVER_V4, SERVER_V6};
pub use namespace::{Namespace, NamespaceError, Network, Process};
pub use realtime::Realtime;
pub(crate) use realtime::Waiter;
pub use scratch::{ScratchError, scratch};
pub use tun::{Tun, TunError};
