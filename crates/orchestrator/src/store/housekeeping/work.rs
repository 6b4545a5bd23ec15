//! Pieces of housekeeping work, and the check by which a stop flag ends them early.

use std::sync::atomic::{AtomicBool, Ordering};

use underload_fleet::store::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// No work was due, or another keeper is folding.
    Nothing,
    /// Another process is working on the archive.
    Locked,
    /// This many results were folded into the roll-up.
    PutTogether(usize),
    /// This many results were written to files.
    Moved(usize),
    /// This many results, which are in files, were deleted from the database.
    Deleted(usize),
    /// This many files were merged into one.
    Merged(usize),
    /// This many results of one day were reduced to sums.
    AddedUp(u64),
    /// This many files that the manifest does not name were deleted.
    Removed(usize),
}

/// Returns an error if `stop` is set. The next piece of work removes what this one has written.
pub(super) fn go_on(stop: &AtomicBool) -> Result<(), StoreError> {
    if stop.load(Ordering::Relaxed) {
        return Err(StoreError::temporary("stopped"));
    }
    Ok(())
}
