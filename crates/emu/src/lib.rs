//! Real-time emulation: the links of `underload-aqm` on live packets between namespaces.
//!
//! Each layer uses only the layers below it:
//!
//! | layer | purpose |
//! |---|---|
//! | [`command`] | runs a command behind an emulated link, as Mahimahi's shells do |
//! | [`gateway`] | carries live packets through links and queues, and reports what they did |
//! | [`guest`] | runs a separate Linux kernel in virtual time, as an ordinary process |
//! | [`qdisc`] | Linux's own queues between client and server, and their counters |
//! | [`packet`] | packets as bytes: parsing, cutting, joining, in recycled buffers |
//! | [`machine`] | privileges, namespaces, TUN devices, the clock, and waiting |
//!
//! `packet` and `machine` are independent of each other, `qdisc` uses `machine` alone, and `guest`
//! uses one system call of `machine`. On systems other than Linux there is only `packet`.

#[cfg(target_os = "linux")]
pub mod command;
#[cfg(target_os = "linux")]
pub mod gateway;
#[cfg(target_os = "linux")]
pub mod guest;
#[cfg(target_os = "linux")]
pub mod machine;
pub mod packet;
#[cfg(target_os = "linux")]
pub mod qdisc;
