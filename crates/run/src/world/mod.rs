//! What executes an arm.

pub mod sim;
