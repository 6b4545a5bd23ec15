//! The crate from outside, on a made-up run.

mod documentation;
mod run_directory;
