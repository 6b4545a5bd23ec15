//! Variants whose keys a sweep overrides once more.

use underload_aqm::registry::LoadFile;

use super::Scenario;
use super::tables::{Base, Conditions, Override};
use super::variant::{Variant, read_variant};
use crate::keys::{Fault, Faults};

/// The tables of a variant with overridden keys.
#[derive(Debug, Clone)]
pub struct Varied {
    name: String,
    tables: Base,
}

impl Scenario {
    /// Overrides keys of a variant; needs a scenario read with [`super::Options::keeps_tables`].
    pub fn varied<'a>(
        &self,
        variant: &str,
        changes: impl Iterator<Item = &'a Override>,
    ) -> Result<Varied, Fault> {
        let tables = self.templates.get(variant).cloned();
        let mut tables = tables.ok_or_else(|| {
            Fault::new("", format!("the tables of the variant `{variant}` were not kept"))
        })?;
        for change in changes {
            if tables.is_overridden(&change.key) {
                let problem = format!("the variant `{variant}` overrides this key itself");
                return Err(Fault::new(&change.key, problem));
            }
            tables.set(change, "axis")?;
        }
        Ok(Varied { name: variant.to_owned(), tables })
    }

    /// Whether conditions are drawn for every trial.
    pub fn draws(&self) -> bool {
        self.cohort.is_some()
    }
}

impl Varied {
    /// Returns the variant of one trial and the conditions drawn for it.
    pub fn variant(
        &self,
        scenario: &Scenario,
        repeat: u32,
        load: &mut LoadFile<'_>,
    ) -> Result<(Variant, Conditions), Fault> {
        if let Some(cohort) = &scenario.cohort {
            return cohort.variant((scenario.seed, repeat), (&self.name, &self.tables), load);
        }
        let mut faults = Faults::default();
        let variant = read_variant(&self.name, &self.tables, load, &mut faults);
        Ok((faults.result(variant)?, Conditions::new()))
    }

    /// Returns all keys and values as JSON, for the identity of a cell.
    pub fn settings(&self) -> String {
        serde_json::to_string(&self.tables.settings()).unwrap_or_default()
    }
}
