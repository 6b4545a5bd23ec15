//! Runs of scenarios, and the worlds that execute them.
//!
//! [`run`] takes a [`Scenario`](underload_scenario::Scenario), read from a file or built in code, and
//! [`Settings`], and returns the record of every trial and variant, whichever world ran it.
//!
//! | module | content |
//! |---|---|
//! | [`check`] | what the check of a file finds |
//! | [`cache`] | simulated trials that are stored for the next run |
//! | [`sweep`] | a scenario over a million settings, in a directory that survives a kill |
//! | [`world`] | the live and the simulated world |
//! | [`recording`] | recorded packets from scripts and captures |
//! | [`replay`] | recorded packets through a queue and a link |
//! | [`packets`] | records and captures of simulated packets |

pub mod cache;
pub mod check;
mod error;
mod execute;
pub mod packets;
mod progress;
pub mod recording;
pub mod replay;
mod results;
mod settings;
pub mod sweep;
mod trial;
mod trials;
pub mod world;

pub use error::{Remains, RunError};
pub use execute::{keeps_samples, run};
pub use progress::Progress;
pub use results::Run;
pub use settings::{Destination, Settings, WorldChoice};
