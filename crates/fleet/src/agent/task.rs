//! Tasks of a device and their results.

use underload_aqm::time::Time;

use super::Began;
use crate::message::{AssignedStep, Move, Moved, Next, NextAnswer, Release, ServerAddress};
use crate::outcome::{Outcome, RunResult, StepResult};

/// The facts that the device knows at the time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// See [`Next::epoch`].
    pub epoch: u32,
    /// Results on disk that are not acknowledged.
    pub waiting: u64,
    pub dropped: u64,
    /// Whether the home uses its line now.
    pub is_busy: bool,
    /// Whether the home pays for its line by the byte.
    pub is_metered: bool,
}

/// A task; each variant names the news that reports its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Waits, and calls [`super::Agent::next`] again at `until`.
    Wait { until: Time },
    /// Stores the number of the request, then requests a run: [`News::Next`].
    Ask { orchestrator: usize, request: Next },
    /// Requests another server: [`News::Moved`].
    Move { orchestrator: usize, request: Move },
    /// Releases a lease: [`News::Released`].
    Release { orchestrator: usize, request: Release },
    /// Sends the oldest results of one epoch, at most `most`, and deletes them once they are
    /// acknowledged: [`News::Stored`].
    HandIn { orchestrator: usize, most: usize },
    /// Stores that the run began, then measures: [`News::Ran`].
    Run(Box<RunTask>),
    /// Writes a result durably to disk: [`News::Kept`] or [`News::NotKept`].
    Keep(Box<RunResult>),
    /// Drops the oldest result, which orchestrators reject, and counts it as lost:
    /// [`News::Discarded`].
    Discard,
    /// Begins a new epoch: [`News::Renewed`].
    Renew,
    /// Stores that the device was removed, and ends for good.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTask {
    /// Stored before the run begins.
    pub began: Began,
    pub steps: Vec<AssignedStep>,
    pub server: ServerAddress,
    /// The signed lease; `None` for a run that needs none.
    pub lease: Option<String>,
    /// Bytes that the run may send and receive; it ends at this limit.
    pub bytes_max: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Next(Box<NextAnswer>),
    Moved(Moved),
    Released,
    Stored,
    Discarded,
    Renewed,
    Kept,
    NotKept,
    Ran(Box<Ran>),
    Trouble(Trouble),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    Over {
        outcome: Outcome,
        reason: String,
        began: Time,
        steps: Vec<StepResult>,
        /// Bytes that the run sent and received, as far as known.
        bytes: u64,
    },
    /// The server was unreachable or refused the run; nothing was measured.
    TurnedAway {
        /// In words. It contains no address, because orchestrators receive it.
        reason: String,
    },
}

/// Why a request has no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No orchestrator answered: the connection failed, or the answer is an error that is not an
    /// orchestrator's, such as a proxy's page.
    NoAnswer,
    /// The orchestrator is busy (429, 503).
    Later { after_ms: u64 },
    /// The request is malformed or too large (400, 413).
    Unfit,
    /// The device is not authorised (401, 403, 404).
    Refused,
    /// The orchestrator has already answered later requests (409, `outdated`): the device lost its
    /// memory.
    Outdated,
    /// An orchestrator stated that the device was removed (410). The caller has verified the
    /// signature and that the statement is of this enrolment.
    Removed {
        /// When the statement was signed, milliseconds since 1970.
        at_ms: u64,
    },
}
