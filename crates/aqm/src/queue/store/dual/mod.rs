//! The parts that dual queues share: the two stores and the scheduler between them.
//!
//! A dual queue (RFC 9332) keeps packets of scalable or sparse flows (L: low latency) apart from
//! those of classic ones (C), and couples the two so that bulk flows of both kinds get like rates.

mod credit;
mod pair;

pub(crate) use credit::Credit;
pub(crate) use pair::Pair;
