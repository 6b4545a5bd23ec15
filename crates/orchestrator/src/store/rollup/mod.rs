//! Sums of results, so that pages do not read the results again.
//!
//! There are three levels of rising detail: cohorts by day, lines (model, firmware, tier, region,
//! configured) by day, and lines by hour. A query uses the first level with all its dimensions, or
//! the results themselves if none has them, as for one segment. A keeper folds results in the order
//! of arrival and stores its progress; a query adds the results that arrived later, so it covers
//! all stored results. The devices of a cell are a set, so that the devices of many cells are
//! counted once each.

mod batch;
mod cells;
mod fold;
mod question;

pub(super) use batch::Batch;
pub use batch::RolledUp;
pub(super) use cells::{Cell, CellBytes, Key, Level, Place, RUNS, SERIES, SumPlace};
pub(super) use fold::Rollup;
pub(super) use question::Question;
pub(crate) use question::needs_results;
