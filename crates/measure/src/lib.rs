//! What a measurement means, once for every program that measures: from a
//! [`MeasurementResult`](underload_probe::measure::MeasurementResult) to the record of a trial, to
//! whether it may be believed, and to what a step found.
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
