//! A run whose variants are found by name: a scenario may have 50,000.

use std::collections::BTreeMap;

use crate::schema::{RunRecord, TrialRecord, VariantRecord, VariantSummary};
use crate::variants::metric_of_summary;

pub(super) struct Indexed<'a> {
    pub(super) record: &'a RunRecord,
    variants: BTreeMap<&'a str, Parts<'a>>,
}

/// The parts of a run that belong to one variant.
#[derive(Default)]
struct Parts<'a> {
    variant: Option<&'a VariantRecord>,
    summary: Option<&'a VariantSummary>,
    valid_trials: Vec<&'a TrialRecord>,
}

impl<'a> Indexed<'a> {
    pub(super) fn of(record: &'a RunRecord) -> Self {
        let mut variants: BTreeMap<&str, Parts<'a>> = BTreeMap::new();
        for variant in &record.variants {
            variants.entry(&variant.name).or_default().variant = Some(variant);
        }
        for summary in &record.summaries {
            variants.entry(&summary.variant).or_default().summary = Some(summary);
        }
        for trial in record.trials.iter().filter(|trial| trial.validity.is_valid()) {
            variants.entry(&trial.variant).or_default().valid_trials.push(trial);
        }
        Self { record, variants }
    }

    pub(super) fn variant(&self, name: &str) -> Option<&'a VariantRecord> {
        self.variants.get(name)?.variant
    }

    pub(super) fn summary(&self, name: &str) -> Option<&'a VariantSummary> {
        self.variants.get(name)?.summary
    }

    pub(super) fn valid_trials(&self, name: &str) -> &[&'a TrialRecord] {
        self.variants.get(name).map_or(&[], |parts| &parts.valid_trials)
    }

    /// As [`crate::metric_of`]; `None` also for a percentile that falls on a lost probe.
    pub(super) fn value(&self, name: &str, metric: &str) -> Option<f64> {
        let value = metric_of_summary(self.record, self.summary(name)?, metric);
        value.filter(|value| value.is_finite())
    }
}
