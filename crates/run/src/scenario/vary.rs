//! Arms with some of their keys overridden once more, one at a time: what a sweep varies.

use toml::{Table, Value};
use underload_aqm::registry::LoadFile;

use super::Scenario;
use super::arm::{Arm, read_arm};
use super::cohort::Conditions;
use super::document::{Base, Override, overrides};
use super::error::Fault;

/// A key and its new value.
pub(crate) type Change = (String, Value);

/// The overrides that a table spells out.
pub(crate) fn changes(table: &Table) -> Result<Vec<Change>, Fault> {
    Ok(overrides(table)?.into_iter().map(|change| (change.key, change.value)).collect())
}

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
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Varied, Fault> {
        let tables = self.templates.get(arm).cloned();
        let mut tables = tables.ok_or_else(|| {
            Fault::new("", format!("the tables of the arm `{arm}` were not kept"))
        })?;
        for (key, value) in changes {
            if tables.origin(key).is_some_and(|origin| origin.contains('[')) {
                let problem = format!("the arm `{arm}` overrides this key itself");
                return Err(Fault::new(key, problem));
            }
            let change = Override { key: key.clone(), value: value.clone() };
            tables.set(&change, "axis")?;
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
        let Some(cohort) = &scenario.cohort else {
            return Ok((read_arm(&self.name, &self.tables, load)?, Conditions::new()));
        };
        let conditions = cohort.draw(scenario.seed, repeat, &self.name);
        let arm = read_arm(&self.name, &self.tables.filled(&conditions), load);
        let arm = arm.map_err(|mut fault| {
            let with = conditions.iter().map(|(name, value)| format!("{{{name}}} = {value}"));
            let with = with.collect::<Vec<_>>().join(", ");
            fault.problem = format!("with {with}: {}", fault.problem);
            fault
        })?;
        Ok((arm, conditions))
    }

    /// All that it says, for its identity.
    pub(crate) fn said(&self) -> String {
        serde_json::to_string(&self.tables.settings()).unwrap_or_default()
    }
}
