//! Errors of a run.

use std::error::Error;
use std::path::PathBuf;

use underload_scenario::ScenarioError;
use underload_store::{RunData, StoreError};

/// Any error, with the errors that caused it.
type Cause = Box<dyn Error + Send + Sync>;

/// The result of a step of a run.
pub(crate) type Result<T, E = RunError> = std::result::Result<T, E>;

/// Why a run cannot begin, or ended before it was complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The request is not possible, here or at all; the message says what would be accepted.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("{doing}")]
    Step { doing: String, source: Cause },
    /// An error of a world, whose message is complete.
    #[error(transparent)]
    World(Cause),
    #[error("interrupted after {} of {of} trials", .remains.trials)]
    Interrupted { of: usize, remains: Remains },
    #[error("the run failed after {} trials", .remains.trials)]
    Failed { source: Box<RunError>, remains: Remains },
}

/// The finished part of an incomplete run.
#[derive(Debug, Default)]
pub struct Remains {
    /// Trials that were completed.
    pub trials: usize,
    /// The run directory; `None` if no trial was completed, or if no directory was requested.
    pub directory: Option<PathBuf>,
    /// The trials, if the destination was [`crate::Destination::Caller`] and one was completed.
    pub data: Option<Box<RunData>>,
    /// Why the files of a run without a trial could not be removed.
    pub unremoved: Option<StoreError>,
}

impl RunError {
    /// Whether the caller has to change its request.
    pub fn is_refusal(&self) -> bool {
        match self {
            RunError::Refused(_) => true,
            RunError::Store(error) => error.is_occupied(),
            _ => false,
        }
    }

    /// Returns the finished part of the run, if it had begun.
    pub fn remains(&self) -> Option<&Remains> {
        match self {
            RunError::Interrupted { remains, .. } | RunError::Failed { remains, .. } => {
                Some(remains)
            }
            _ => None,
        }
    }
}

pub(crate) trait Doing<T> {
    /// Adds the step that failed to the error.
    fn doing(self, step: impl Into<String>) -> Result<T>;

    /// Wraps the error without changing its message.
    fn of_world(self) -> Result<T>;
}

impl<T, E: Into<Cause>> Doing<T> for Result<T, E> {
    fn doing(self, step: impl Into<String>) -> Result<T> {
        self.map_err(|error| RunError::Step { doing: step.into(), source: error.into() })
    }

    fn of_world(self) -> Result<T> {
        self.map_err(|error| RunError::World(error.into()))
    }
}
