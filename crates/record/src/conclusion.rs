//! The end of a run: computes the summary of each variant and compares it with published numbers.

use std::collections::BTreeMap;

use crate::comparison;
use crate::fold::{ShareWithin, VariantFold};
use crate::schema::{Expectation, RunRecord, TrialRecord, VariantSummary, names_variant};
use crate::shares::Ratio;
use crate::summarise::LatencyPools;
use crate::variants;

/// Computes `summaries` from the trials and the pooled samples, then judges every expectation.
pub fn conclude(run: &mut RunRecord, pools: &LatencyPools) {
    let mut conclusion = Conclusion::new(run);
    run.trials.iter().for_each(|trial| conclusion.add(trial));
    conclusion.finish(run, pools);
    comparison::conclude(run);
}

/// The summary of each variant of a run, and its expectations, from trials that are added one by one.
#[derive(Debug)]
pub struct Conclusion {
    variants: BTreeMap<String, ConcludedVariant>,
}

#[derive(Debug, Default)]
struct ConcludedVariant {
    fold: VariantFold,
    /// Shares of trials within a range, by the metric of the expectation that uses the share;
    /// [`VariantSummary`] does not contain them.
    shares: BTreeMap<String, ShareWithin>,
    ratios: BTreeMap<String, Ratio>,
}

impl ConcludedVariant {
    fn share(&self, name: &str) -> Option<f64> {
        let share = self.shares.get(name)?;
        share.percent(self.fold.headline_probe(share.phase)?)
    }
}

impl Conclusion {
    /// Starts with the variants and expectations of a run; other parts of the record are not read.
    pub fn new(run: &RunRecord) -> Self {
        let variant = |name: &str| {
            let mut variant = ConcludedVariant::default();
            let of_variant = |expected: &&Expectation| {
                expected.variant_patterns().iter().any(|pattern| names_variant(pattern, name))
            };
            for expected in run.expectations.iter().filter(of_variant) {
                let metric = &expected.metric;
                let named = ShareWithin::parse(metric).map(|share| (metric.clone(), share));
                variant.shares.extend(named);
                variant.ratios.extend(Ratio::parse(metric).map(|ratio| (metric.clone(), ratio)));
            }
            variant
        };
        let variants = run.variants.iter().map(|it| (it.name.clone(), variant(&it.name)));
        Self { variants: variants.collect() }
    }

    /// Adds a trial; trials of unknown variants are ignored.
    pub fn add(&mut self, trial: &TrialRecord) {
        let Some(variant) = self.variants.get_mut(&trial.variant) else { return };
        variant.fold.add(trial);
        if trial.validity.is_valid() {
            variant.ratios.values_mut().for_each(|ratio| ratio.add(trial));
            variant.shares.values_mut().for_each(|share| share.add(trial));
        }
    }

    /// Computes `summaries` and the groups of a study, then judges every expectation.
    pub fn finish(self, run: &mut RunRecord, pools: &LatencyPools) {
        let empty = ConcludedVariant::default();
        let concluded = |name: &str| self.variants.get(name).unwrap_or(&empty);
        let variants = run.variants.iter();
        run.summaries = variants
            .map(|variant| concluded(&variant.name).fold.summary(&variant.name, pools))
            .collect();
        if let Some(study) = &mut run.study {
            pools.conclude_study(study);
        }
        let value = |summary: &VariantSummary, name: &str| {
            let variant = concluded(&summary.variant);
            variants::metric(summary, name)
                .or_else(|| variant.share(name))
                .or_else(|| variant.ratios.get(name)?.interval().map(|ratio| ratio.mean))
                .or_else(|| run.study.as_ref()?.cut(&summary.variant, name))
        };
        let summaries: BTreeMap<&str, &VariantSummary> =
            run.summaries.iter().rev().map(|summary| (summary.variant.as_str(), summary)).collect();
        let names: Vec<&str> =
            run.summaries.iter().map(|summary| summary.variant.as_str()).collect();
        let measured = |expected: &Expectation| {
            expected.measure(&names, |variant| value(summaries.get(variant)?, &expected.metric))
        };
        let measured: Vec<Option<f64>> = run.expectations.iter().map(measured).collect();
        for (expected, value) in run.expectations.iter_mut().zip(measured) {
            expected.judge(value);
        }
    }
}
