//! Four ways to store packets: [`Ring`] in order of arrival, [`Single`] a ring under an AQM and a
//! limit, [`fair`] a queue and an AQM per flow, and `dual` two rings with a scheduler between them.
//!
//! The stores hold, schedule and count packets; the disciplines decide which are dropped or marked
//! ([`Aqm`](crate::aqm::Aqm), or the controllers of the dual queues).

pub(crate) mod dual;
pub mod fair;
mod ring;
mod single;

pub use ring::Ring;
pub use single::{Limit, NoAqm, Overflow, Single};
