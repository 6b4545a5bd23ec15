//! The crate from outside, on a made-up run.

mod applications;
mod differences;
mod headline;
mod losses;
mod metrics;
mod page;
mod repeats;
mod service_flows;
mod shape;
mod study;
mod terminal;
