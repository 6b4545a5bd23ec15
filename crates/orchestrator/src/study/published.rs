//! Numbers that others published of studies that a built-in plan repeats.

use underload_record::schema::{CohortStudy, Expectation};

/// Those of the plan beside what was measured; none where the plan repeats nobody's study.
pub(super) fn numbers(_: &CohortStudy) -> Vec<Expectation> {
    Vec::new()
}
