//! Where packets wait, in four ways: [`Ring`] keeps them in order of arrival, [`Single`] puts one
//! ring under an AQM and a limit, [`fair`] keeps a queue and an AQM per flow, and `dual` two rings
//! with a scheduler between them.
//!
//! Here packets are stored, scheduled and counted; which of them are dropped or marked is the
//! disciplines' part ([`Aqm`](crate::aqm::Aqm), or the controllers of the dual queues).

pub(crate) mod dual;
pub mod fair;
mod ring;
mod single;

pub use ring::Ring;
pub use single::{Limit, NoAqm, Overflow, Single};
