//! What a device is to do, and what it hears of it.

use underload_aqm::time::Time;

use super::Began;
use crate::message::{AssignedStep, Move, Moved, Next, NextAnswer, Release, ServerAddress};
use crate::outcome::{Outcome, RunResult, StepResult};

/// What is known on the spot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// See [`Next::epoch`].
    pub epoch: u32,
    /// Results that are kept and not yet known to be stored.
    pub waiting: u64,
    /// Results that were lost.
    pub dropped: u64,
    /// The home uses its line now.
    pub is_busy: bool,
}

/// What a device does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Nothing, until then.
    Wait {
        /// When to ask for the next task.
        until: Time,
    },
    /// Remembers the number of the request, then asks. [`News::Next`].
    Ask {
        /// Whom.
        orchestrator: usize,
        /// What.
        request: Next,
    },
    /// Asks for another server. [`News::Moved`].
    Move {
        /// Whom.
        orchestrator: usize,
        /// What.
        request: Move,
    },
    /// Gives a lease back. [`News::Released`].
    Release {
        /// Whom.
        orchestrator: usize,
        /// What.
        request: Release,
    },
    /// Hands in the oldest results of one epoch. [`News::Stored`], once they need not be kept any
    /// more.
    HandIn {
        /// Whom.
        orchestrator: usize,
        /// Results at most.
        most: usize,
    },
    /// Remembers that it began, then measures. [`News::Ran`].
    Run(Box<RunTask>),
    /// Keeps a result so that it outlives a power cut. [`News::Kept`] or [`News::NotKept`].
    Keep(Box<RunResult>),
    /// Drops the oldest result and counts it as lost: nobody takes it. [`News::Discarded`].
    Discard,
    /// Begins a new epoch. [`News::Renewed`].
    Renew,
    /// Stores that the device was removed, and ends for good.
    Stop,
}

/// A run to make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTask {
    /// To be remembered before it begins.
    pub began: Began,
    /// What to measure.
    pub steps: Vec<AssignedStep>,
    /// Where to.
    pub server: ServerAddress,
    /// What to show there; `None` for a run that needs none.
    pub lease: Option<String>,
    /// Bytes that the run may send and receive. The run ends at this limit.
    pub bytes_max: u64,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The answer.
    Next(Box<NextAnswer>),
    /// The answer.
    Moved(Moved),
    /// It is given back, or was not held any more.
    Released,
    /// They are stored, and forgotten here.
    Stored,
    /// It is dropped.
    Discarded,
    /// The epoch is a new one.
    Renewed,
    /// It is on disk.
    Kept,
    /// It is not.
    NotKept,
    /// What the run came to.
    Ran(Box<Ran>),
    /// The request failed.
    Trouble(Trouble),
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    /// It ended.
    Over {
        /// How.
        outcome: Outcome,
        /// Why, in words.
        reason: String,
        /// When it began.
        began: Time,
        /// What was measured.
        steps: Vec<StepResult>,
        /// Bytes that it sent and received, as far as it is known.
        bytes: u64,
    },
    /// The server was not there or did not want it; nothing was measured.
    TurnedAway {
        /// Reason in words. It contains no address, because orchestrators receive it.
        reason: String,
    },
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No orchestrator answered: the connection failed, or the answer is an error that is not an
    /// orchestrator's, such as a proxy's page.
    NoAnswer,
    /// Not now (429, 503).
    Later {
        /// When, milliseconds.
        after_ms: u64,
    },
    /// The request is none that could be answered, or too large (400, 413).
    Unfit,
    /// The device is not let in (401, 403, 404).
    Refused,
    /// The orchestrator has answered later requests than this one (409, `outdated`): the device
    /// lost its memory.
    Outdated,
    /// An orchestrator stated that the device was removed (410). The signature was verified, and
    /// the statement is of this enrolment.
    Removed {
        /// When the statement was signed, milliseconds since 1970.
        at_ms: u64,
    },
}
