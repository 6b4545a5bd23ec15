//! Runs: what a scenario says, and the worlds that do it.
//!
//! [`run`] is all that a program needs: a [`Scenario`](scenario::Scenario), read from a file or
//! built in code, and [`Settings`] go in, the record of every trial and arm comes out, whichever
//! world did it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scenario`] | the file model of experiments |
//! | [`study`] | distributions that a cohort's conditions are drawn from |
//! | [`cache`] | simulated trials that are kept for the next run |
//! | [`flows`] | the flows that an entry of a scenario stands for, by name |
//! | [`source`] | scenarios, and the files that they name, by their names |
//! | [`sweep`] | a scenario over a million settings, in a directory that survives being killed |
//! | [`world`] | what executes an arm |
//! | [`own`] | algorithms that whoever runs a scenario brings along |
//! | [`replay`] | packets from elsewhere through a queue and a link |
//! | [`packets`] | records and captures of simulated packets |
//! | [`measured_lines`] | the study of a list of lines that were measured |

pub mod cache;
mod error;
mod execute;
pub mod flows;
mod keys;
pub mod measured_lines;
pub mod modem_file;
pub mod own;
pub mod packets;
mod progress;
pub mod replay;
mod results;
pub mod scenario;
mod settings;
pub mod source;
pub mod study;
pub mod sweep;
mod trial;
mod trials;
pub mod world;

pub use error::{Remains, RunError};
pub use execute::{keeps_samples, run};
pub use progress::Progress;
pub use results::Run;
pub use settings::{Destination, Settings, WorldChoice};
