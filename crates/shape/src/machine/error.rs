//! Why a change is not made, or not undone.

use std::io;

use underload_tc::Command;
use underload_tc::restore::Unrestorable;
use underload_tc::run::ToolError;

use super::folder::FolderError;
use super::snapshot::SnapshotError;
use crate::judge::Refusal;
use crate::request::RequestError;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("nothing was changed: the process that would undo the change cannot be started")]
    Watcher(#[source] io::Error),
    #[error("{device} is as it was before")]
    Step { device: String, source: ToolError },
    #[error("{device} is as it was before: after all commands, {what} was missing")]
    Missing { device: String, what: &'static str },
    #[error("{device} is as it was before: the change could not be recorded")]
    Unrecorded { device: String, source: FolderError },
    #[error("{cause}; undoing failed, too")]
    Stuck { cause: String, source: Box<UndoError> },
    #[error(transparent)]
    Temporary(Box<TemporaryError>),
}

impl ApplyError {
    /// Whether the request cannot be met on this machine, so that another one has to be made.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Snapshot(error) => error.is_refusal(),
            error => matches!(error, Self::Request(_) | Self::Refused(_)),
        }
    }
}

impl From<TemporaryError> for ApplyError {
    fn from(error: TemporaryError) -> Self {
        Self::Temporary(Box::new(error))
    }
}

/// Why the rates of a shaped device were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("underload does not shape {device} any more")]
    Ended { device: String },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the rate of {device} cannot be changed")]
    Kernel { device: String, source: io::Error },
    #[error("{path}: expected the bytes that a device has sent")]
    Counter { path: String },
}

/// Why a change was not undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Unrestorable(#[from] Unrestorable),
    #[error("by hand: {}", list(commands))]
    Left { commands: Vec<Command>, source: ToolError },
    #[error("underload shapes no device: nothing to undo or to confirm")]
    Nothing,
    #[error("underload does not shape `{device}`; it shapes {shaped}")]
    Other { device: String, shaped: String },
    #[error("underload shapes several devices: --dev with one of {shaped}")]
    Several { shaped: String },
}

impl UndoError {
    /// Whether the named device, or the only one, is not shaped.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Snapshot(error) => error.is_refusal(),
            error => matches!(error, Self::Nothing | Self::Other { .. } | Self::Several { .. }),
        }
    }
}

/// Why a measurement behind a temporary shaper means nothing.
#[derive(Debug, thiserror::Error)]
pub enum TemporaryError {
    #[error("{device}: another command undid or confirmed this change while it was measured")]
    Interfered { device: String },
    #[error(transparent)]
    Undo(#[from] UndoError),
}

fn list(commands: &[Command]) -> String {
    commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ")
}
