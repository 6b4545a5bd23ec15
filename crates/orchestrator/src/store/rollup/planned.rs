//! The series that the plans have.
//!
//! The rules store only these series, but earlier versions stored all that a device handed in.
//! Series that a known plan does not have are neither folded nor shown in sums, and their sums are
//! deleted.

use std::collections::BTreeMap;

use underload_fleet::outcome::{RunResult, SeriesResult};
use underload_fleet::plan::Plan;
use underload_fleet::store::PlanRow;

use super::cells::{Key, Subject};

/// The plans of a store. All series of a result count if the store does not have its plan.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    rows: Vec<PlanRow>,
    plans: BTreeMap<String, Plan>,
}

impl Planned {
    /// Reads the plans. One that cannot be read limits nothing: the rules report it.
    pub(crate) fn new(rows: Vec<PlanRow>) -> Self {
        let plan = |row: &PlanRow| Some((row.name.clone(), Plan::parse(&row.text).ok()?));
        Self { plans: rows.iter().filter_map(plan).collect(), rows }
    }

    /// Returns whether these are the plans that were read.
    pub(crate) fn is_of(&self, rows: &[PlanRow]) -> bool {
        self.rows == rows
    }

    /// Returns whether the named plan has this series; true for an unknown plan. Plans do not
    /// change once they are applied, and their names are not used again.
    pub(super) fn has(&self, plan: &str, of: &Subject) -> bool {
        let Subject::Series { step, kind, dscp } = of else { return true };
        let Some(plan) = self.plans.get(plan) else { return true };
        plan.step(step, *kind).is_some_and(|step| step.classes.contains(dscp))
    }

    /// Returns whether the plan of `key` has its series. [`Self::has`] defines the result for runs
    /// and unknown plans.
    pub(crate) fn has_key(&self, key: &Key) -> bool {
        self.has(&key.plan, &key.of)
    }

    /// The series of a result that count in sums.
    pub(super) fn series_of<'a>(
        &'a self,
        result: &'a RunResult,
    ) -> impl Iterator<Item = (Subject, &'a SeriesResult)> {
        let named = result.pooled_series().map(|(step, series)| {
            let of =
                Subject::Series { step: step.step.clone(), kind: step.kind, dscp: series.dscp };
            (of, series)
        });
        named.filter(|(of, _)| self.has(&result.plan, of))
    }
}
