//! The trials of a run of many, which are not kept in memory: read again out of its journal.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use underload_record::schema::TrialRecord;

use crate::error::StoreError;
use crate::files::open_file;
use crate::run_data::check_trial;

/// A journal that this program wrote.
#[derive(Debug)]
pub(super) struct Spool<'a> {
    pub(super) path: &'a Path,
    /// Its length, bytes.
    pub(super) bytes: u64,
    /// Its lines.
    pub(super) trials: usize,
    pub(super) arms: &'a BTreeSet<String>,
}

impl Spool<'_> {
    /// Gives the trials to `take`, in their order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Inconsistent`] where somebody else has changed the journal, what the disk
    /// said, or what `take` returns.
    pub(super) fn read(
        &self,
        take: &mut dyn FnMut(TrialRecord) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
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
            _ => Err(self.changed(self.trials, "a line too many")),
        }
    }

    fn trial(&self, line: &[u8], index: usize) -> Result<TrialRecord, String> {
        let trial: TrialRecord = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if trial.index as usize != index {
            return Err(format!("trial {} where {index} was written", trial.index));
        }
        check_trial(&trial, self.arms)?;
        Ok(trial)
    }

    fn changed(&self, index: usize, reason: &str) -> StoreError {
        let reason = format!("line {}: {reason}; it changed while the run went on", index + 1);
        StoreError::Inconsistent { path: self.path.to_owned(), reason }
    }
}
