//! What housekeeping needs of a database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use underload_fleet::device::DeviceId;
use underload_fleet::store::StoreError;

use crate::store::files::Location;
use crate::store::rollup::{Key, Planned, RolledUp, SumPlace};

/// A result as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Row {
    /// Numbers rise in the order in which results came.
    pub(in crate::store) number: i64,
    pub(in crate::store) device: DeviceId,
    /// See `encode`.
    pub(in crate::store) body: Vec<u8>,
}

/// A database whose days are moved. All fail with [`StoreError`], changing nothing.
pub(in crate::store) trait Base: Send {
    /// Folds at most `limit` results into the sums, fewer where they are large or the flag of
    /// [`Self::stop_with`] is set.
    fn roll_up(&mut self, limit: usize) -> Result<RolledUp, StoreError>;
    /// Abandons the batch that is being folded once `flag` is set.
    fn stop_with(&mut self, flag: &Arc<AtomicBool>);
    /// The number of results in the first batch of a process; `None` if no process has stored one.
    fn batch(&mut self) -> Result<Option<usize>, StoreError>;
    /// Stores the number that [`Self::batch`] returns.
    fn put_batch(&mut self, results: usize) -> Result<(), StoreError>;
    /// The series that the plans have; the same allocation until the plans change.
    fn planned(&mut self) -> Result<Arc<Planned>, StoreError>;
    /// The first `limit` keys of sums with numbers above `after`, in their order.
    fn keys(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, Key)>, StoreError>;
    /// The first `limit` places of sums behind `after`, in their order.
    fn sums(&mut self, after: SumPlace, limit: usize) -> Result<Vec<SumPlace>, StoreError>;
    /// Deletes sums.
    fn delete_sums(&mut self, places: &[SumPlace]) -> Result<(), StoreError>;
    /// Deletes keys that no sum has.
    fn delete_keys(&mut self, numbers: &[i64]) -> Result<(), StoreError>;
    /// A number up to which all results that will ever be are there, and put together.
    fn settled(&mut self) -> Result<i64, StoreError>;
    /// The first day and plan after that one that results are there of.
    fn day_after(
        &mut self,
        after: Option<&(u32, String)>,
    ) -> Result<Option<(u32, String)>, StoreError>;
    /// The first results of a plan's day with numbers above the first and up to the second.
    fn results(
        &mut self,
        of: (&str, u32),
        numbers: (i64, i64),
        limit: usize,
    ) -> Result<Vec<Row>, StoreError>;
    /// Deletes at most so many results of a plan's day with numbers up to that; how many it were.
    fn delete(&mut self, of: (&str, u32), up_to: i64, limit: usize) -> Result<usize, StoreError>;
    /// Where the archive is.
    fn location(&mut self) -> Result<Option<Location>, StoreError>;
    /// Writes down where the archive is.
    fn put_location(&mut self, location: &Location) -> Result<(), StoreError>;
    /// Gives new results numbers above that one.
    fn count_from(&mut self, number: i64) -> Result<(), StoreError>;
    /// The folder that a location may be below.
    fn root(&self) -> Option<&Path>;
}
