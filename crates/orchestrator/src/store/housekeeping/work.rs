//! Pieces of work, which can be told to stop.

use std::sync::atomic::{AtomicBool, Ordering};

use underload_fleet::store::StoreError;

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// There was none, or somebody else is at it.
    Nothing,
    /// So many results were put together with those before them.
    PutTogether(usize),
    /// So many results were written to files.
    Moved(usize),
    /// So many results that are in files were deleted from the database.
    Deleted(usize),
    /// So many files became one.
    Merged(usize),
    /// The runs of a day were added up, so many results of them.
    AddedUp(u64),
    /// So many files went away that nobody needs.
    Removed(usize),
    /// This many sums and keys of series that no plan has were deleted.
    DeletedSums(usize),
}

/// Returns an error if `stop` is set. The next piece of work removes what this one has written.
pub(super) fn go_on(stop: &AtomicBool) -> Result<(), StoreError> {
    if stop.load(Ordering::Relaxed) {
        return Err(StoreError::temporary("told to stop"));
    }
    Ok(())
}
