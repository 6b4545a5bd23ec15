//! Which series the plans have.
//!
//! The rules store no others, but earlier versions stored whatever a device handed in. Series
//! of a known plan that the plan does not have are neither folded nor shown in sums.

use std::collections::BTreeMap;

use underload_fleet::outcome::{RunResult, SeriesResult};
use underload_fleet::plan::Plan;
use underload_fleet::store::PlanRow;

use super::{Of, series_of};

/// The plans of a store. Without a plan of a result's name all of its series count.
#[derive(Debug, Default)]
pub(in crate::store) struct Planned {
    rows: Vec<PlanRow>,
    plans: BTreeMap<String, Plan>,
}

impl Planned {
    /// Reads the plans. One that cannot be read limits nothing: the rules report it.
    pub(in crate::store) fn new(rows: Vec<PlanRow>) -> Self {
        let plan = |row: &PlanRow| Some((row.name.clone(), Plan::parse(&row.text).ok()?));
        Self { plans: rows.iter().filter_map(plan).collect(), rows }
    }

    /// Whether these are the plans.
    pub(in crate::store) fn is_of(&self, rows: &[PlanRow]) -> bool {
        self.rows == rows
    }

    /// Whether sums of that plan have such a key.
    pub(super) fn has(&self, plan: &str, of: &Of) -> bool {
        let Of::Series { step, kind, dscp } = of else { return true };
        let Some(plan) = self.plans.get(plan) else { return true };
        plan.step(step, *kind).is_some_and(|step| step.classes.contains(dscp))
    }

    /// The series of a result that count in sums.
    pub(super) fn series_of<'a>(
        &'a self,
        result: &'a RunResult,
    ) -> impl Iterator<Item = (Of, &'a SeriesResult)> {
        series_of(result).filter(|(of, _)| self.has(&result.plan, of))
    }
}
