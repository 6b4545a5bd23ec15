//! The queue disciplines, one file each, and the two ways of storing that they share.

pub mod bode;
pub mod buffer_control;
pub mod codel;
pub mod diffserv;
pub mod docsis_lld;
pub mod docsis_pie;
mod dual;
pub mod dualpi2;
pub mod fair;
pub mod fifo;
pub mod fq_codel;
pub mod pie;
pub mod red;
mod ring;
mod single;

pub use ring::Ring;
pub use single::{Limit, NoAqm, Overflow, Single};
