//! Deletes the sums of series that their plan does not have.
//!
//! Earlier versions stored and folded every series that a device handed in, and every query reads
//! those sums. They are deleted page by page: first the sums, then their keys, so that no remaining
//! sum has a key whose number may be reused.

use std::sync::Arc;

use roaring::RoaringTreemap;
use underload_fleet::store::StoreError;

use crate::store::archive::keys_after;
use crate::store::keeper::Keeper;
use crate::store::rollup::{Planned, SumPlace};

/// State of the deletion for one set of plans.
#[derive(Debug, Default)]
pub(super) struct Unplanned {
    planned: Option<Arc<Planned>>,
    /// Numbers of the keys to delete.
    keys: RoaringTreemap,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Keys up to this number have been examined.
    FindKeys(i64),
    /// Sums up to this place have been deleted.
    DeleteSums(SumPlace),
    DeleteKeys,
    Done,
}

impl Default for Phase {
    fn default() -> Self {
        Self::FindKeys(i64::MIN)
    }
}

impl Unplanned {
    /// Examines a page of keys or sums. Returns how many rows it deleted, or `None` if nothing is
    /// left to examine.
    pub(super) fn step(&mut self, keeper: &mut Keeper) -> Result<Option<usize>, StoreError> {
        let planned = keeper.planned()?;
        if !self.planned.as_ref().is_some_and(|known| Arc::ptr_eq(known, &planned)) {
            *self = Self { planned: Some(Arc::clone(&planned)), ..Self::default() };
        }
        let (phase, deleted) = match self.phase {
            Phase::Done => return Ok(None),
            Phase::FindKeys(after) => {
                let page = keys_after(&mut *keeper.database, after, PAGE)?;
                let unplanned = page.iter().filter(|(_, key)| !planned.has_key(key));
                self.keys.extend(unplanned.map(|(number, _)| *number as u64));
                let next = match page.last() {
                    Some((last, _)) if page.len() == PAGE => Phase::FindKeys(*last),
                    _ if self.keys.is_empty() => Phase::Done,
                    _ => Phase::DeleteSums(SumPlace::MIN),
                };
                (next, 0)
            }
            Phase::DeleteSums(after) => {
                let page = keeper.sums(after, PAGE)?;
                let of_keys = page.iter().filter(|place| self.keys.contains(place.key as u64));
                let unplanned: Vec<SumPlace> = of_keys.copied().collect();
                keeper.delete_sums(&unplanned)?;
                let next = match page.last() {
                    Some(last) if page.len() == PAGE => Phase::DeleteSums(*last),
                    _ => Phase::DeleteKeys,
                };
                (next, unplanned.len())
            }
            Phase::DeleteKeys => {
                let page: Vec<i64> = self.keys.iter().take(PAGE).map(|key| key as i64).collect();
                keeper.delete_keys(&page)?;
                self.keys.remove_range(..=page.last().map_or(0, |last| *last as u64));
                let is_last = self.keys.is_empty();
                (if is_last { Phase::Done } else { Phase::DeleteKeys }, page.len())
            }
        };
        self.phase = phase;
        Ok((phase != Phase::Done || deleted > 0).then_some(deleted))
    }
}

/// Rows of a step, for which uploads wait some tens of milliseconds.
const PAGE: usize = 4_096;
