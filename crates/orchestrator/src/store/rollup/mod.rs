//! Results put together, so that a page's question does not read results again.
//!
//! There are three levels, each told apart by more than the one before: cohorts by day, lines
//! (model, firmware, tier, region, configured) by day, the same by hour. A question is answered
//! from the first level that knows all it asks for, and from the results themselves where none
//! does, as for one segment. A keeper puts results together in the order in which they came and
//! notes how far it is; what came later is added from the results when a question is asked, so
//! that an answer is always about all that was kept. Devices of a cell are a set of numbers, so
//! that those of many cells are counted once each.

mod batch;
mod cells;
mod fold;
mod planned;
mod question;

pub(super) use batch::Batch;
pub use batch::RolledUp;
pub(super) use cells::{Cell, CellBytes, Key, Level, Place, RUNS, SERIES, SumPlace};
pub(super) use fold::Rollup;
pub(super) use planned::Planned;
pub(crate) use question::needs_results;
pub(super) use question::{Part, Question};
