//! A shaper for the time of a measurement.

use std::time::Duration;

use underload_tc::run::ToolError;

use super::error::{ApplyError, TemporaryError, UndoError};
use super::session::{Confirmation, Lasts, Session, Settings, Standing};
use crate::request::Request;

/// A change that ends when this value is dropped, and when this process is killed.
#[derive(Debug)]
pub struct Temporary<'a> {
    session: &'a Session,
    confirmation: Confirmation,
    is_over: bool,
}

impl<'a> Temporary<'a> {
    /// Applies a change, which is undone after `at_most` in any case.
    ///
    /// # Errors
    /// Returns [`ApplyError`]; the device is as before.
    pub fn apply(
        session: &'a Session,
        request: &Request,
        may_replace: bool,
        at_most: Duration,
    ) -> Result<Self, ApplyError> {
        let settings = Settings { may_replace, lasts: Lasts::WithProcess(at_most) };
        let confirmation = session.apply(request, settings)?;
        Ok(Self { session, confirmation, is_over: false })
    }

    /// Checks that the change is still in force.
    ///
    /// # Errors
    /// Returns [`TemporaryError::Interfered`].
    pub fn check(&self) -> Result<(), TemporaryError> {
        let record = &self.confirmation.record;
        match self.session.standing(record) {
            Standing::Temporary { .. } => Ok(()),
            _ => Err(TemporaryError::Interfered { device: record.device.clone() }),
        }
    }

    /// Undoes the change.
    ///
    /// # Errors
    /// Returns an error if undoing fails, or the error of [`Temporary::check`].
    pub fn end(mut self) -> Result<(), TemporaryError> {
        let checked = self.check();
        self.undo()?;
        checked
    }

    fn undo(&mut self) -> Result<(), UndoError> {
        self.is_over = true;
        self.session.undo_unless_changed(&self.confirmation.record)?;
        self.confirmation.wait_for_watcher();
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // If this fails, the watcher tries again when this process ends.
            let _ = self.undo();
        }
    }
}

impl Session {
    /// Shapes a device for an instant. Returns what the kernel or `tc` lacks for the queue; `None`
    /// if the device can be shaped.
    ///
    /// # Errors
    /// Returns an error if something other than a missing queue or an old `tc` prevents shaping.
    pub fn lacks(
        &self,
        request: &Request,
        may_replace: bool,
        at_most: Duration,
    ) -> Result<Option<ToolError>, ApplyError> {
        match Temporary::apply(self, request, may_replace, at_most) {
            Ok(change) => change.end().map(|()| None).map_err(ApplyError::from),
            Err(ApplyError::Step {
                source: source @ (ToolError::NoQueue { .. } | ToolError::OldTool { .. }),
                ..
            }) => Ok(Some(source)),
            Err(error) => Err(error),
        }
    }
}
