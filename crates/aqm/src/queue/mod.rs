//! The queue disciplines, one file or folder each, and in [`store`] the ways of storing packets
//! that they share.
//!
//! A discipline has a table of its parameters, a `configure` function that makes its configuration
//! from their values, and a `build` function that makes an empty queue from the configuration. It
//! does not depend on the configurations of other disciplines: [`registry`](crate::registry) lists
//! them all.

pub mod avq;
pub mod blue;
pub mod bode;
pub mod buffer_control;
pub mod cake;
pub mod codel;
pub(crate) mod control;
pub mod diffserv;
pub mod docsis_lld;
pub mod docsis_pie;
pub mod dualpi2;
pub mod fifo;
pub mod fq_codel;
pub mod fq_pie;
#[cfg(test)]
mod gauge_tests;
pub mod own;
pub mod pi;
pub mod pie;
pub mod policer;
pub mod red;
pub mod rem;
pub mod sfb;
pub mod sred;
pub mod store;
