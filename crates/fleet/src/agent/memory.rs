//! The state that a device stores to continue after a restart.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Settings;
use super::limits::Usage;
use crate::message::Alone;

/// The state that a device stored before it was started; empty the first time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Number of the last request of this epoch that may have been sent; 0 if none was.
    pub request: u64,
    pub began: Option<Began>,
    /// A run that began and has no result.
    pub interrupted: Option<Began>,
    /// Measurements to take while no orchestrator answers.
    pub alone: Option<Alone>,
    pub removal: Option<RemovalNotice>,
    pub usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovalNotice {
    /// When the first statement was signed, milliseconds since 1970.
    pub first_ms: u64,
    /// A second statement, signed at least [`Settings::confirm_removal`] later, confirmed the
    /// first: the device stops for good.
    pub is_confirmed: bool,
}

/// A run that began, as stored before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Began {
    /// Number of the request that was answered with this run; 0 for a run without a lease.
    pub request: u64,
    pub plan: String,
    pub run: u64,
    /// Start by the orchestrator's clock, milliseconds since 1970.
    pub at_ms: u64,
    /// The lease to release; `None` for a run without a lease.
    pub lease_id: Option<u64>,
    pub server: String,
}

impl Memory {
    /// Whether the answer to the last request is known to have arrived. Repeating a request is
    /// harmless unless its run began: the same run would be assigned again.
    pub(super) fn is_answered(&self) -> bool {
        let began = self.began.as_ref().or(self.interrupted.as_ref());
        self.request == 0 || began.is_some_and(|began| began.request == self.request)
    }
}
