//! Reads the trials of a large run, which are not in memory, from its journal again.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use underload_record::schema::TrialRecord;

use crate::error::{Result, StoreError};
use crate::files::{open_file, trial_of_line};
use crate::run_data::check_trial;

/// A journal that this program wrote.
pub(super) struct Spool<'a> {
    pub(super) path: &'a Path,
    /// Length of the journal.
    pub(super) bytes: u64,
    pub(super) trials: usize,
    pub(super) variants: &'a BTreeSet<String>,
}

impl Spool<'_> {
    /// Calls `take` with the trials in order.
    ///
    /// # Errors
    /// Returns [`StoreError::Inconsistent`] if another program has changed the journal.
    pub(super) fn read(&self, take: &mut dyn FnMut(TrialRecord) -> Result<()>) -> Result<()> {
        let mut lines = BufReader::new(open_file(self.path)?.take(self.bytes));
        let mut line = Vec::new();
        for index in 0..self.trials {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            read.map_err(StoreError::io(self.path, "read"))?;
            take(self.trial(&line, index).map_err(|reason| self.changed(index, &reason))?)?;
        }
        match lines.fill_buf().map_err(StoreError::io(self.path, "read"))? {
            [] => Ok(()),
            _ => Err(self.changed(self.trials, "an unknown line")),
        }
    }

    fn trial(&self, line: &[u8], index: usize) -> Result<TrialRecord, String> {
        let trial = trial_of_line(line.strip_suffix(b"\n").unwrap_or(line))
            .map_err(|error| error.to_string())?;
        if trial.index as usize != index {
            return Err(format!("trial {}; expected trial {index}", trial.index));
        }
        check_trial(&trial, self.variants)?;
        Ok(trial)
    }

    fn changed(&self, index: usize, reason: &str) -> StoreError {
        let reason = format!("line {}: {reason}; the file changed during the run", index + 1);
        StoreError::inconsistent(self.path, reason)
    }
}
