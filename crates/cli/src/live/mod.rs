//! The live world: the kernel's own TCP between two network namespaces, through our links and
//! queues, in real time.
//!
//! Every trial has a lab of its own: nothing that one trial did to the kernel reaches the next, and
//! all of it ends with the trial.
//!
//! - [`mod@check`]: refuses what this machine or this world cannot run.
//! - [`plan`]: from the scenario's words to those of the lab, the gateway and the measurement.
//! - [`trial`]: runs one.
//! - [`exec`]: commands inside the lab.

mod check;
mod exec;
mod plan;
mod trial;

pub use check::check;
pub use trial::run_trial;
