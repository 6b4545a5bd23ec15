//! A run in memory, and the checks of every reader and writer of trials.

use std::collections::BTreeSet;

use underload_record::schema::{RunRecord, Sample, Series, TrialRecord, VariantRecord};

#[derive(Debug, Clone, PartialEq)]
pub struct RunData {
    pub record: RunRecord,
    /// The samples of all probes, ascending by trial.
    pub samples: Vec<Sample>,
    /// All series, ascending by trial.
    pub series: Vec<Series>,
    /// Descriptions of the damaged parts of an incomplete run, which are missing.
    pub left_out: Vec<String>,
}

impl RunData {
    pub fn samples_of(&self, trial: u32) -> &[Sample] {
        of_trial(&self.samples, trial, |sample| sample.trial)
    }

    pub fn series_of_trial(&self, trial: u32) -> &[Series] {
        of_trial(&self.series, trial, |series| series.trial)
    }

    pub fn series_of(&self, trial: u32, name: &str) -> Option<&Series> {
        self.series_of_trial(trial).iter().find(|series| series.name == name)
    }
}

/// Returns the items of one trial.
pub(crate) fn of_trial<T>(ascending: &[T], trial: u32, trial_of: impl Fn(&T) -> u32) -> &[T] {
    let from = ascending.partition_point(|item| trial_of(item) < trial);
    let to = ascending.partition_point(|item| trial_of(item) <= trial);
    &ascending[from..to.max(from)]
}

pub(crate) fn variant_names(variants: &[VariantRecord]) -> BTreeSet<String> {
    variants.iter().map(|variant| variant.name.clone()).collect()
}

/// Checks a trial of a run with these variants.
pub(crate) fn check_trial(trial: &TrialRecord, variants: &BTreeSet<String>) -> Result<(), String> {
    let TrialRecord { index, variant, .. } = trial;
    if !variants.contains(variant) {
        return Err(format!("trial {index} has the unknown variant {variant:?}"));
    }
    let names: BTreeSet<&str> = trial.flows.iter().map(|flow| flow.name.as_str()).collect();
    if names.len() != trial.flows.len() {
        return Err(format!("trial {index} has two flows with equal names"));
    }
    if trial.flows.len() > usize::from(u16::MAX) {
        return Err(format!("trial {index} has more than {} flows", u16::MAX));
    }
    Ok(())
}
