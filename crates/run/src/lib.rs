//! Scenarios and the worlds that run them.
//!
//! [`run`] takes a [`Scenario`](scenario::Scenario), read from a file or built in code, and
//! [`Settings`], and returns the record of every trial and variant, whichever world ran it.
//!
//! | module | content |
//! |---|---|
//! | [`scenario`] | the file format of experiments |
//! | [`study`] | distributions that a cohort's conditions are drawn from |
//! | [`cache`] | simulated trials that are stored for the next run |
//! | [`flows`] | the names of the flows of an entry of a scenario |
//! | [`question`] | builds the scenario of a question that needs no file |
//! | [`source`] | finds scenarios and the files that they name |
//! | [`tier`] | what to set for a cable upstream: its candidates as a scenario |
//! | [`sweep`] | a scenario over a million settings, in a directory that survives a kill |
//! | [`world`] | the live and the simulated world |
//! | [`own`] | algorithms that the caller of a run provides |
//! | [`recording`] | recorded packets from scripts and captures |
//! | [`replay`] | recorded packets through a queue and a link |
//! | [`packets`] | records and captures of simulated packets |
//! | [`measured_lines`] | the study of a list of measured access lines |

pub mod cache;
mod call_stats;
mod error;
mod execute;
mod film_report;
pub mod flows;
mod keys;
pub mod measured_lines;
pub mod modem_file;
pub mod own;
pub mod packets;
mod page_loads;
mod progress;
pub mod question;
pub mod recording;
pub mod replay;
mod results;
pub mod scenario;
mod settings;
pub mod source;
pub mod study;
pub mod sweep;
pub mod tier;
mod trial;
mod trials;
pub mod world;
mod worlds;

pub use error::{Remains, RunError, chain};
pub use execute::{keeps_samples, run};
pub use progress::Progress;
pub use results::Run;
pub use settings::{Destination, Settings, WorldChoice};
