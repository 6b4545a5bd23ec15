//! Statements about variants by their names and metrics: `[headline]`, `[[plot]]` and `[[published]]`.

use super::metrics::Metrics;
use crate::keys::{Fault, Faults};

/// A statement of one of these tables. A table may make several.
pub(super) trait Statement: Sized {
    type Keys;

    fn from_keys(keys: Self::Keys) -> Result<Vec<Self>, Fault>;

    /// Reports metrics that the scenario does not have.
    fn check_metrics(&self, metrics: &Metrics) -> Result<(), Fault>;

    /// Reports patterns that match none of these variants.
    fn check_variants(&self, variants: &[&str]) -> Result<(), Fault>;

    /// Whether the variants that run, of all that are made, are those that the statement is about.
    fn applies(&self, made: &[&str], chosen: &[&str]) -> bool;
}

pub(super) struct VariantNames<'a> {
    /// Names of the variants that the file declares; `None` if a variant is invalid, so that names
    /// are missing.
    pub declared: Option<Vec<&'a str>>,
    /// The names once other links have replaced those that the file sweeps over.
    pub made: Vec<&'a str>,
    pub chosen: Vec<&'a str>,
}

impl VariantNames<'_> {
    /// Returns the statements of `tables` that apply to the variants that run. Each table has its
    /// place in the file, such as `plot[2]`; `None` for one that is wrong.
    pub(super) fn statements<S: Statement>(
        &self,
        tables: Vec<(String, Option<S::Keys>)>,
        metrics: &Metrics,
        faults: &mut Faults,
    ) -> Vec<S> {
        let mut applicable = Vec::new();
        for (place, keys) in tables {
            let Some(keys) = keys else { continue };
            faults.under(&place, |faults| {
                let statements = faults.accept(S::from_keys(keys)).unwrap_or_default();
                for statement in statements {
                    faults.accept(statement.check_metrics(metrics));
                    if let Some(declared) = &self.declared {
                        faults.accept(statement.check_variants(declared));
                    }
                    if statement.applies(&self.made, &self.chosen) {
                        applicable.push(statement);
                    }
                }
            });
        }
        applicable
    }
}
