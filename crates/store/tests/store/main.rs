//! Tests the crate's public interface on a synthetic run.

mod documentation;
mod run_directory;
