//! The crate from outside, on a made-up run.

mod page;
mod run_directory;
mod synthetic;
