//! Identical repeats do not make a difference more certain.

use underload_record::schema::World;
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Queue, Trial};
use underload_report::{render, summary_lines};
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
fn identical_repeats_are_no_evidence() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let [differing, same] = [false, true].map(|is_same| run(&queues, is_same));
    let certainty = |run: &RunData| summary_lines(std::slice::from_ref(run)).swap_remove(1);
    assert!(certainty(&differing).contains("(95 % interval)"), "the premise");
    assert_eq!(
        certainty(&same),
        "All 6 trials of buffer-control are identical, because nothing in them is random, so they \
         do not show how sure that is. Add start_jitter to a flow to get intervals."
    );
    let page = |run: RunData| render(&[run]).expect("a page");
    let compared = |page: &str| -> String {
        let section = page.rsplit("Compared with").next().unwrap_or_default();
        section.split("</table>").next().unwrap_or_default().to_owned()
    };
    let (differing, same) = (compared(&page(differing)), compared(&page(same)));
    let intervals = |section: &str| section.matches("class=\"interval\"").count();
    assert!(intervals(&differing) > 0 && differing.contains("<td>0.002</td>"), "{differing}");
    assert!(intervals(&same) == 0 && !same.contains("<td>0.002</td>"), "{same}");
    assert!(same.contains("neither an interval nor a p-value"), "{same}");
}
