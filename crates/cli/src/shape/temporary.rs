//! A shaper for the time of a measurement.

use std::time::Duration;

use anyhow::ensure;
use underload_shape::machine::{ApplyError, Confirmation, Lasts, Session, Settings, Standing};
use underload_shape::request::Request;
use underload_terminal::console::warning;

use super::watcher;

/// A change that ends when this value is dropped, and when this process is killed.
pub(super) struct Temporary<'a> {
    session: &'a Session,
    confirmation: Confirmation,
    is_over: bool,
}

impl<'a> Temporary<'a> {
    /// Applies a change, which is undone after `at_most` in any case.
    ///
    /// # Errors
    /// Returns [`ApplyError`]; the device is as before.
    pub(super) fn apply(
        session: &'a Session,
        request: &Request,
        may_replace: bool,
        at_most: Duration,
    ) -> Result<Self, ApplyError> {
        let lasts = Lasts::WithProcess(at_most);
        let settings = Settings { may_replace, lasts, watcher: watcher() };
        let confirmation = session.apply(request, settings)?;
        Ok(Self { session, confirmation, is_over: false })
    }

    /// Checks that the change is still in force. If not, what was measured meanwhile means nothing.
    ///
    /// # Errors
    /// Returns an error if another command undid or confirmed the change.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let record = &self.confirmation.record;
        ensure!(
            matches!(self.session.standing(record), Standing::Temporary { .. }),
            "{}: another command undid or confirmed this change while it was measured",
            record.device
        );
        Ok(())
    }

    /// Undoes the change.
    ///
    /// # Errors
    /// Returns an error if that fails, or that of [`Temporary::check`].
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        let checked = self.check();
        self.undo()?;
        checked
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        self.is_over = true;
        self.session.undo_unless_changed(&self.confirmation.record)?;
        self.confirmation.wait_for_watcher();
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Err(error) = self.undo() {
            warning!("{}: {error:#}", self.confirmation.record.device);
        }
    }
}
