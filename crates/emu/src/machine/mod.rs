//! The machine's part of an emulation: the right to create namespaces, namespaces and TUN devices,
//! a clock, and threads that wake up in time.
//!
//! Everything created here ends with this process. Packets are not inspected. All `unsafe` code of
//! the crate is in `sys`.

mod clock;
mod lab;
mod namespace;
pub mod privilege;
mod realtime;
mod scratch;
pub(crate) mod sys;
mod tun;

pub use clock::Clock;
pub(crate) use lab::DEVICE;
pub use lab::{CLIENT_V4, CLIENT_V6, Ends, Lab, LabConfig, LabError, SERVER_V4, SERVER_V6};
pub use namespace::{Namespace, NamespaceError, Network, Process};
pub(crate) use realtime::{Waiter, schedule};
pub use scratch::{ScratchError, scratch};
pub use tun::{Tun, TunError};
