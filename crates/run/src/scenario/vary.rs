//! Arms with some of their keys overridden once more, one at a time: what a sweep varies.

use underload_aqm::registry::LoadFile;

use super::Scenario;
use super::arm::{Arm, read_arm};
use super::tables::{Base, Conditions, Override};
use crate::keys::{Fault, Faults};

/// The tables of an arm with overridden keys.
#[derive(Debug, Clone)]
pub(crate) struct Varied {
    name: String,
    tables: Base,
}

impl Scenario {
    /// An arm with these keys overridden. The scenario must keep its tables, see
    /// [`super::Options::keeps_tables`].
    pub(crate) fn varied<'a>(
        &self,
        arm: &str,
        changes: impl Iterator<Item = &'a Override>,
    ) -> Result<Varied, Fault> {
        let tables = self.templates.get(arm).cloned();
        let mut tables = tables.ok_or_else(|| {
            Fault::new("", format!("the tables of the arm `{arm}` were not kept"))
        })?;
        for change in changes {
            if tables.is_overridden(&change.key) {
                let problem = format!("the arm `{arm}` overrides this key itself");
                return Err(Fault::new(&change.key, problem));
            }
            tables.set(change, "axis")?;
        }
        Ok(Varied { name: arm.to_owned(), tables })
    }

    /// Whether every trial of an arm draws conditions of its own.
    pub(crate) fn draws(&self) -> bool {
        self.cohort.is_some()
    }
}

impl Varied {
    /// The arm as the trial of a repeat meets it, and what was drawn for it.
    pub(crate) fn arm(
        &self,
        scenario: &Scenario,
        repeat: u32,
        load: &mut LoadFile<'_>,
    ) -> Result<(Arm, Conditions), Fault> {
        if let Some(cohort) = &scenario.cohort {
            return cohort.arm((scenario.seed, repeat), (&self.name, &self.tables), load);
        }
        let mut faults = Faults::default();
        let arm = read_arm(&self.name, &self.tables, load, &mut faults);
        Ok((faults.result(arm)?, Conditions::new()))
    }

    /// All that it says, for its identity.
    pub(crate) fn said(&self) -> String {
        serde_json::to_string(&self.tables.settings()).unwrap_or_default()
    }
}
