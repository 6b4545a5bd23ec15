//! Arms whose keys a sweep overrides once more.

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
    /// Overrides keys of an arm; needs a scenario read with [`super::Options::keeps_tables`].
    pub(crate) fn varied<'a>(
        &self,
        arm: &str,
        changes: impl Iterator<Item = &'a Override>,
    ) -> Result<Varied, Fault> {
        let tables = self.templates.get(arm).cloned();
        let mut tables = tables.ok_or_else(|| {
            Fault::new("", format!("the tables of the variant `{arm}` were not kept"))
        })?;
        for change in changes {
            if tables.is_overridden(&change.key) {
                let problem = format!("the variant `{arm}` overrides this key itself");
                return Err(Fault::new(&change.key, problem));
            }
            tables.set(change, "axis")?;
        }
        Ok(Varied { name: arm.to_owned(), tables })
    }

    /// Whether conditions are drawn for every trial.
    pub(crate) fn draws(&self) -> bool {
        self.cohort.is_some()
    }
}

impl Varied {
    /// Returns the arm of one trial and the conditions drawn for it.
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

    /// Returns all keys and values as JSON, for the identity of a cell.
    pub(crate) fn settings(&self) -> String {
        serde_json::to_string(&self.tables.settings()).unwrap_or_default()
    }
}
