//! Admission of sessions, and the rates, the volume and the time that each session has left.

mod account;
mod allowance;
mod compat_share;
mod grant;
mod ledger;
mod line;
mod quota;
mod session_rate;
mod sessions;
mod share;
mod traffic;

pub use account::TooFast;
pub use compat_share::{CompatLedger, CompatShare};
pub(crate) use grant::{Admitted, Denial};
pub use ledger::Limits;
pub(crate) use line::LineMeter;
pub(crate) use sessions::{Granted, ProbeIndex, Sessions};
pub(crate) use share::Share;
