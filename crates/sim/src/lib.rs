//! Virtual time: scenarios, event loop, transports and applications.

pub mod scenario;
