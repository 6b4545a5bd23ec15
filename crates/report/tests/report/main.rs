//! The crate from outside, on a made-up run.

mod applications;
mod documentation;
mod metrics;
mod page;
mod run_directory;
mod shape;
mod synthetic;
mod terminal;
