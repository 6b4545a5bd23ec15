//! Why a run cannot begin, or did not come to its end.

use std::error::Error;
use std::path::PathBuf;

use underload_store::{RunData, StoreError};

use crate::scenario::ScenarioError;

/// Any error, with the errors that caused it.
type Cause = Box<dyn Error + Send + Sync>;

/// Why a run cannot begin, or did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// What was asked for cannot be done, here or at all; says what would be accepted.
    #[error("{0}")]
    Refused(String),
    /// The run directory cannot be made or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Conditions that a cohort drew together make no arm.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A step failed.
    #[error("{doing}")]
    Step {
        /// The step that failed.
        doing: String,
        /// The error of that step.
        source: Cause,
    },
    /// A world failed, in words that need no others before them.
    #[error(transparent)]
    World(Cause),
    /// The caller stopped the run.
    #[error("interrupted after {} of {of} trials", .remains.trials)]
    Interrupted {
        /// Trials asked for.
        of: usize,
        /// The part of the run that was kept.
        remains: Remains,
    },
    /// The run failed on its way.
    #[error("the run failed after {} trials", .remains.trials)]
    Failed {
        /// The error that ended the run.
        source: Box<RunError>,
        /// The part of the run that was kept.
        remains: Remains,
    },
}

/// What is left of a run that did not come to its end.
#[derive(Debug, Default)]
pub struct Remains {
    /// Trials that were completed.
    pub trials: usize,
    /// Where they are kept; `None` where none was completed, or none was to be kept.
    pub directory: Option<PathBuf>,
    /// The trials themselves, where the caller was to have them: [`Destination::Caller`].
    ///
    /// [`Destination::Caller`]: crate::Destination::Caller
    pub data: Option<Box<RunData>>,
    /// Why the files of a run without a trial could not be removed again.
    pub unremoved: Option<StoreError>,
}

impl RunError {
    /// Whether the caller has to change what it asked for.
    pub fn is_refusal(&self) -> bool {
        match self {
            RunError::Refused(_) => true,
            RunError::Store(error) => error.is_occupied(),
            _ => false,
        }
    }

    /// The part of the run that was kept, if it had begun.
    pub fn remains(&self) -> Option<&Remains> {
        match self {
            RunError::Interrupted { remains, .. } | RunError::Failed { remains, .. } => {
                Some(remains)
            }
            _ => None,
        }
    }
}

/// Says what was being done when something failed.
pub(crate) trait Doing<T> {
    /// Puts the step before the error.
    fn doing(self, step: impl Into<String>) -> Result<T, RunError>;

    /// Leaves the error's own words as they are.
    fn of_world(self) -> Result<T, RunError>;
}

impl<T, E: Into<Cause>> Doing<T> for Result<T, E> {
    fn doing(self, step: impl Into<String>) -> Result<T, RunError> {
        self.map_err(|error| RunError::Step { doing: step.into(), source: error.into() })
    }

    fn of_world(self) -> Result<T, RunError> {
        self.map_err(|error| RunError::World(error.into()))
    }
}

/// An error and its causes, outermost first, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
