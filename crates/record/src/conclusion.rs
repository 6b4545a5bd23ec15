//! The end of a run: computes the summary of each arm and compares it with published numbers.

use std::collections::BTreeMap;

use crate::arms;
use crate::fold::{ArmFold, ShareWithin};
use crate::schema::{ArmSummary, Expectation, RunRecord, TrialRecord, names_arm};
use crate::shares::Ratio;
use crate::stats::Pass;
use crate::summarise::LatencyPools;

/// Computes `summaries` from the trials and the pooled samples, then judges every expectation.
pub fn conclude(run: &mut RunRecord, pools: &LatencyPools) {
    let mut sums = Conclusion::new(run);
    run.trials.iter().for_each(|trial| sums.add(trial));
    let mut distances = sums.second_pass();
    run.trials.iter().for_each(|trial| distances.add(trial));
    distances.finish(run, pools);
}

/// The summary of each arm of a run, and its expectations, from trials that are added one by one.
///
/// Every trial is added once here, and again to the [`SecondPass`], in the same order.
#[derive(Debug)]
pub struct Conclusion {
    arms: BTreeMap<String, ConcludedArm>,
}

#[derive(Debug, Default)]
struct ConcludedArm {
    fold: ArmFold,
    /// Shares of trials within a range, by the metric of the expectation that uses the share;
    /// [`ArmSummary`] does not contain them.
    shares: BTreeMap<String, ShareWithin>,
    ratios: BTreeMap<String, Ratio>,
}

impl Conclusion {
    /// Starts with the arms and expectations of a run; other parts of the record are not read.
    pub fn new(run: &RunRecord) -> Self {
        let arm = |name: &str| {
            let mut arm = ConcludedArm::default();
            let of_arm = |expected: &&Expectation| {
                expected.arm_patterns().iter().any(|pattern| names_arm(pattern, name))
            };
            for expected in run.expectations.iter().filter(of_arm) {
                let metric = &expected.metric;
                let named = ShareWithin::parse(metric).map(|share| (metric.clone(), share));
                arm.shares.extend(named);
                arm.ratios.extend(Ratio::parse(metric).map(|ratio| (metric.clone(), ratio)));
            }
            arm
        };
        let arms = run.arms.iter().map(|it| (it.name.clone(), arm(&it.name)));
        Self { arms: arms.collect() }
    }

    /// Adds a trial; trials of unknown arms are ignored.
    pub fn add(&mut self, trial: &TrialRecord) {
        self.add_in(Pass::Sums, trial);
    }

    pub fn second_pass(self) -> SecondPass {
        SecondPass(self)
    }

    fn add_in(&mut self, pass: Pass, trial: &TrialRecord) {
        let Some(arm) = self.arms.get_mut(&trial.arm) else { return };
        arm.fold.add(trial, pass);
        if !trial.validity.is_valid() {
            return;
        }
        arm.ratios.values_mut().for_each(|ratio| ratio.add(trial, pass));
        if pass == Pass::Distances {
            for share in arm.shares.values_mut() {
                // The arm's headline probe is known only after the first pass.
                if let Some(probe) = arm.fold.headline_probe(share.phase) {
                    share.add(trial, probe);
                }
            }
        }
    }
}

/// The second pass over the trials: distances from the means of the first pass.
#[derive(Debug)]
pub struct SecondPass(Conclusion);

impl SecondPass {
    pub fn add(&mut self, trial: &TrialRecord) {
        self.0.add_in(Pass::Distances, trial);
    }

    /// Computes `summaries` and the groups of a study, then judges every expectation.
    pub fn finish(self, run: &mut RunRecord, pools: &LatencyPools) {
        let empty = ConcludedArm::default();
        let concluded = |name: &str| self.0.arms.get(name).unwrap_or(&empty);
        let arms = run.arms.iter();
        run.summaries =
            arms.map(|arm| concluded(&arm.name).fold.summary(&arm.name, pools)).collect();
        if let Some(study) = &mut run.study {
            pools.conclude_study(study);
        }
        let value = |summary: &ArmSummary, name: &str| {
            let arm = concluded(&summary.arm);
            arms::metric(summary, name)
                .or_else(|| arm.shares.get(name)?.percent())
                .or_else(|| arm.ratios.get(name)?.interval().map(|ratio| ratio.mean))
                .or_else(|| run.study.as_ref()?.cut(&summary.arm, name))
        };
        let summaries: BTreeMap<&str, &ArmSummary> =
            run.summaries.iter().rev().map(|summary| (summary.arm.as_str(), summary)).collect();
        let names: Vec<&str> = run.summaries.iter().map(|summary| summary.arm.as_str()).collect();
        let measured = |expected: &Expectation| {
            expected.measure(&names, |arm| value(summaries.get(arm)?, &expected.metric))
        };
        let measured: Vec<Option<f64>> = run.expectations.iter().map(measured).collect();
        for (expected, value) in run.expectations.iter_mut().zip(measured) {
            expected.judge(value);
        }
    }
}
