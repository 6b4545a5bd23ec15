//! The crate from outside, on a made-up run.

mod run_directory;
mod synthetic;
