//! The words in which queues and links are described: times, rates, header fields, and SPECs.
//!
//! The crate is `no_std` and has no dependencies. It knows no queue and no link; `aqm` re-exports
//! its modules.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod latency_bins;
mod named;
pub mod packet;
pub mod rate;
pub mod remark;
pub mod time;
