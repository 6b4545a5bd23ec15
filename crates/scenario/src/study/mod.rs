//! Distributions of conditions that differ from trial to trial.
//!
//! A fleet's access lines differ in rate, base delay and buffer. A [`crate::Cohort`]
//! draws these for every trial from the run's seed alone, so that a study of thousands of lines
//! repeats byte for byte.

mod distribution;
mod quantity;

pub use distribution::{Distribution, DistributionError, Quantiles};
pub use quantity::{Quantity, Unit};
