//! Studies: conditions that differ from trial to trial, drawn from named distributions.
//!
//! A fleet's lines differ in rate, base delay and buffer. A cohort draws these for every trial,
//! from the run's seed alone, so that a study of thousands of lines repeats byte for byte; its
//! place in a scenario is [`crate::scenario::Cohort`].

mod distribution;
mod quantity;

pub use distribution::{Distribution, DistributionError, Quantiles};
pub use quantity::{Quantity, Unit};
