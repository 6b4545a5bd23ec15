//! Admits runs and collects what they measured.
//!
//! - [`operator`]: who may look and who may act.

pub mod operator;
