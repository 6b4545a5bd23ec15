//! The evaluation of measurements, shared by all programs that measure. It converts a
//! [`MeasurementResult`](underload_probe::measure::MeasurementResult) to the record of a trial,
//! judges whether the trial is valid, and computes the findings of a step.
//!
//! - [`trial`], [`validity`], [`goodput`]: of any measurement, on a real line or an emulated one.
//! - [`step`]: of a step of `underload measure`, with its findings.
//! - [`ForeignLoad`]: of a test against a server of another kind.
//! - [`followed`]: of a trial of a line that is measured again and again.

mod finding;
mod followed;
mod foreign;
mod outcome;

pub use finding::{Step, Tier, step};
pub use followed::followed;
pub use foreign::ForeignLoad;
pub use outcome::{Outcome, TrialLabel, goodput, trial, validity};
