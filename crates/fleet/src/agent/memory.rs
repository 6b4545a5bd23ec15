//! What a device has to know after it was switched off.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Settings;
use super::limits::Usage;
use crate::message::Alone;

/// What a device remembers of its time before; nothing at first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The last request of this epoch that may have been sent, from 1; 0 for none.
    pub request: u64,
    /// The last run that began.
    pub began: Option<Began>,
    /// A run that began and has no result.
    pub interrupted: Option<Began>,
    /// What it measures while no orchestrator answers.
    pub alone: Option<Alone>,
    /// The statement of orchestrators that it was removed; `None` while it is not.
    pub removal: Option<RemovalNotice>,
    /// Runs and traffic of the last day and month.
    pub usage: Usage,
}

/// The statement of orchestrators that a device was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovalNotice {
    /// When the first statement was signed, milliseconds since 1970.
    pub first_ms: u64,
    /// A second statement, signed at least [`Settings::confirm_removal`] later, confirmed the
    /// first: the device stops for good.
    pub is_confirmed: bool,
}

/// A run that began; to be on disk before the run begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Began {
    /// The request whose answer it was; 0 for a run without a lease.
    pub request: u64,
    /// The plan's name.
    pub plan: String,
    /// Which run of the device.
    pub run: u64,
    /// When, by the orchestrator's clock, milliseconds since 1970.
    pub at_ms: u64,
    /// To give it back by.
    pub lease_id: Option<u64>,
    /// The server's name.
    pub server: String,
}

impl Memory {
    /// Whether the last request's answer is known to have come. Asking again is harmless, but for
    /// a run that began: it would be given again.
    pub(super) fn is_answered(&self) -> bool {
        let began = self.began.as_ref().or(self.interrupted.as_ref());
        self.request == 0 || began.is_some_and(|began| began.request == self.request)
    }
}
