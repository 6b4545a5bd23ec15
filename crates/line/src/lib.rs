//! An access line, measured against a server: the request, the session, the stored run, and the
//! runs of weeks compared. The program and the Python package share it; neither prints here.
//!
//! - [`Request`]: what to measure and against which server; [`target`] resolves the server's name.
//! - [`Session`]: one measurement through a session at `underload serve`, step by step.
//! - [`Test`], [`measure`]: any measurement whose steps are stored as a run.
//! - `foreign` (with the feature of that name): tests at servers of other projects.
//! - [`series`]: a line measured again and again.
//! - [`history`]: stored runs over weeks.
//! - [`before_after`]: lines before and after a change.
//! - [`path`]: what a path does to packets.
//! - [`survey`]: the round trips to many hosts.

pub mod before_after;
pub mod connect;
mod error;
#[cfg(feature = "foreign")]
pub mod foreign;
pub mod history;
mod local_load;
pub mod path;
mod place;
mod progress;
mod record;
mod request;
mod route;
mod router;
pub mod series;
mod session;
pub mod survey;
pub mod target;
mod test;

pub use error::{BadSetting, LineError, Problem, Setting};
pub use place::Place;
pub use progress::Progress;
pub use record::{Plan, store_step};
pub use request::{Locate, Request, UDP_PACKET_BYTES, class, label, preset};
pub use router::RouterTest;
pub use session::Session;
pub use test::{Measured, NO_VERDICT, Test, measure};
