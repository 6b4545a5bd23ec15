//! Real-time emulation: the links of `underload-aqm` on live packets between namespaces.
//!
//! Four floors; each stands on those below it and knows none above.
//!
//! | floor | what it is for |
//! |---|---|
//! | [`command`] | a command behind an emulated link, as Mahimahi's shells run it |
//! | [`gateway`] | the wire, running: links and queues on live packets, and a report of what they did |
//! | [`packet`] | packets as bytes: read, cut, put together, kept in recycled buffers |
//! | [`machine`] | privilege, namespaces, TUN devices, the clock, and waiting |
//!
//! `packet` and `machine` do not know each other. Elsewhere than on Linux there is `packet` alone.

#[cfg(target_os = "linux")]
pub mod command;
#[cfg(target_os = "linux")]
pub mod gateway;
#[cfg(target_os = "linux")]
pub mod machine;
pub mod packet;
