#![doc = include_str!("../README.md")]
//!
//! # Modules
//! | module | what it promises |
//! |---|---|
//! | [`time`], [`rate`], [`packet`] | times, rates, what a discipline may know of a packet |
//! | [`qdisc`] | [`Qdisc`](qdisc::Qdisc): store and schedule; [`Observer`](qdisc::Observer): no packet disappears silently |
//! | [`aqm`] | [`Aqm`](aqm::Aqm): active queue management, without the storage of packets |
//! | [`queue`] | the disciplines, and their ways to store packets |
//! | [`link`] | [`Link`](link::Link): queue, rate process, loss and delay of one direction |
//! | [`remark`] | what devices on a path change in the DSCP and ECN fields of packets |
//! | [`checksum`] | the Internet checksum, also of a header whose ECN field has changed |
//! | [`config`], [`registry`] | from SPEC text to disciplines and links; what exists, with units, defaults, sources |
//! | [`latency_bins`] | the bins of the histogram that DOCSIS devices keep |
//! | [`service_flow`] | the interface of a queue with two service flows and a link with grants |
//! | [`rng`] | seeded random numbers in labelled child streams |
#![no_std]
#![warn(missing_docs)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aqm;
pub mod checksum;
pub mod link;
pub mod qdisc;
pub mod queue;
pub mod registry;
pub mod rng;
pub mod service_flow;
mod token_bucket;

pub use underload_spec::{config, latency_bins, named, packet, rate, remark, time};
