//! The sim world: virtual time.

mod plan;

pub use plan::{PlanError, configure};
