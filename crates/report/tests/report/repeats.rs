//! Identical repeats do not make a difference more certain.

use underload_record::comparison::Verdict;
use underload_record::schema::World;
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Queue, Trial};
use underload_report::summary_lines;
use underload_store::RunData;

use crate::page::conclude_all;

/// Returns a run of six trials per variant. If `is_same`, the trials of the first variant are
/// identical.
fn run(queues: &[Queue], is_same: bool) -> RunData {
    let mut trials = synthetic::trials(queues, 6, 20_000_000);
    if is_same {
        let first = trials[0].clone();
        trials[1..6].iter_mut().for_each(|trial| repeat(&first, trial));
    }
    let mut record = synthetic::record(World::Sim, queues);
    record.expectations.clear();
    conclude_all(record, trials)
}

/// Replaces the results of a trial by those of `first`.
fn repeat(first: &Trial, trial: &mut Trial) {
    let own = trial.record.clone();
    *trial = first.clone();
    trial.record.index = own.index;
    trial.record.repeat = own.repeat;
    trial.record.seed = own.seed;
    for sample in &mut trial.samples {
        sample.trial = own.index;
    }
}

#[test]
fn identical_repeats_do_not_make_a_difference_more_certain() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let [differing, same] = [false, true].map(|is_same| run(&queues, is_same));
    let certainty = |run: &RunData| summary_lines(std::slice::from_ref(run)).swap_remove(1);
    assert!(certainty(&differing).contains("of many trials is within the range"), "the premise");
    assert!(certainty(&same).contains(
        "All 6 trials of buffer-control are identical, because nothing in them is random, so they \
         do not show how sure that is: add start_jitter to a flow."
    ));
    assert!(differing.record.comparisons[0].range.is_some());
    assert_eq!(same.record.comparisons[0].range, None);
    assert_eq!(same.record.comparisons[0].verdict, Verdict::TooFew);
}
