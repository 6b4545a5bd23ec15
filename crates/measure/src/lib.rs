//! The evaluation of measurements, shared by all programs that measure.
//!
//! - [`trial`], [`validity`], [`goodput`] convert and judge a
//!   [`MeasurementResult`](underload_probe::measure::MeasurementResult) of a real or emulated line.
//! - [`step`] adds the findings of a step of `underload measure`.
//! - [`locate`] names the segment of the path in which a load waits.
//! - [`payload_within`] limits its load.
//! - [`ForeignLoad`] converts an ndt7 or responsiveness test.
//! - [`followed`] selects the numbers that are compared from run to run of one line.

mod finding;
mod followed;
mod foreign;
mod location;
mod outcome;

pub use finding::{LocalRates, Step, Tier, payload_within, step};
pub use followed::followed;
pub use foreign::ForeignLoad;
pub use location::{PathProbes, locate};
pub use outcome::{Outcome, goodput, trial, validity};
