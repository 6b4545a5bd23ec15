//! Sentences and tables on probes that were lost.

use underload_record::comparison::{OfRun, Verdict, compare_runs};
use underload_record::schema::{Headline, Phase, World};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, Queue, Trial};
use underload_record::trial_latencies;
use underload_report::{render, summary_lines, table};
use underload_store::RunData;

use crate::page::conclude_all;

/// Loses all samples under load except the first `kept`.
pub fn lose(trial: &mut Trial, kept: usize) {
    let loaded = trial.samples.iter_mut().filter(|sample| sample.scheduled_ns >= 6_000_000_000);
    for sample in loaded.skip(kept) {
        sample.rtt_ns = None;
    }
    let record = &mut trial.record;
    record.latencies = trial_latencies(&trial.samples, &record.flows, &record.phases);
}

/// A run of two trials per variant; the variants in `kept` lose all samples of each trial except the given
/// number.
fn run(queues: &[Queue], kept: &[(&str, usize)]) -> RunData {
    let mut trials = synthetic::trials(queues, 2, 10_000_000);
    for trial in &mut trials {
        let of_variant = kept.iter().find(|(variant, _)| *variant == trial.record.variant);
        if let Some((_, kept)) = of_variant {
            lose(trial, *kept);
        }
    }
    let mut record = synthetic::record(World::Sim, queues);
    record.expectations.clear();
    conclude_all(record, trials)
}

/// A queue that drops three probes of a hundred under load and delays none, and one that delays all
/// by 10 ms more and drops none.
fn drops_and_delays(headline: Option<Headline>) -> Vec<String> {
    let delays = Queue { delay_ms: FQ_CODEL.delay_ms + 10.0, ..named("delays", DOCSIS_PIE) };
    let queues = [named("drops", FQ_CODEL), Queue { swing_ms: FQ_CODEL.swing_ms, ..delays }];
    let mut trials = synthetic::trials(&queues, 5, 5_000_000);
    for trial in &mut trials {
        let drops = trial.record.variant == "drops";
        let loaded = trial.samples.iter_mut().filter(|sample| sample.phase == Phase::Load);
        for (number, sample) in loaded.enumerate() {
            sample.rtt_ns = sample.rtt_ns.or(Some(1)).filter(|_| !drops || number % 33 != 0);
        }
        let record = &mut trial.record;
        record.latencies = trial_latencies(&trial.samples, &record.flows, &record.phases);
    }
    let mut record = synthetic::record(World::Sim, &queues);
    record.expectations.clear();
    record.scenario.headline = headline;
    summary_lines(&[conclude_all(record, trials)])
}

#[test]
fn losses_are_reported_beside_the_latency_of_answered_probes() {
    let lines = drops_and_delays(None);
    let said = "the latency under load is 30.5 ms instead of 19.8 ms with drops: 1.5 to 1.6 times \
                higher; 0 against 3.07 % of the probes were lost.";
    assert!(lines[0].starts_with("With delays") && lines[0].ends_with(said), "{lines:?}");
    assert!(
        lines[1].starts_with("The latencies compared are p95: 95 % of the probes sent"),
        "{lines:?}"
    );
    let declared = Headline {
        metric: "load.rtt.p99".to_owned(),
        says: "working latency".to_owned(),
        variant: "drops".to_owned(),
        baseline: "delays".to_owned(),
        ..Headline::default()
    };
    let lines = drops_and_delays(Some(declared));
    let said = " the working latency is 19.8 ms instead of 30.5 ms with delays: 1.5 to 1.6 times \
                lower; 3.07 against 0 % of the probes were lost.";
    assert!(lines[0].starts_with("With drops") && lines[0].ends_with(said), "{lines:?}");
}

/// Two of five trials of the faster variant lost every probe under load: the interval of the ratio over
/// trials includes them, so the variant is not reported as certainly faster.
#[test]
fn a_trial_that_lost_every_probe_counts_as_the_slowest() {
    let lines_of = |silent: u32| {
        let queues = [DOCSIS_PIE, named("fast", FQ_CODEL)];
        let mut trials = synthetic::trials(&queues, 5, 5_000_000);
        let fast = trials.iter_mut().filter(|trial| trial.record.variant == "fast");
        fast.take(silent as usize).for_each(|trial| lose(trial, 0));
        let mut record = synthetic::record(World::Sim, &queues);
        record.expectations.clear();
        let run = conclude_all(record, trials);
        let page = render(std::slice::from_ref(&run)).expect("a page");
        (summary_lines(&[run]), page)
    };
    let (lines, page) = lines_of(0);
    assert!(lines[0].ends_with("29.8 ms with docsis-pie: 1.5 times lower."), "{lines:?}");
    assert!(!page.contains('∞'));
    let (lines, page) = lines_of(2);
    assert!(lines[0].contains("but that is not sure: lower in 3 of 5 pairs"), "{lines:?}");
    assert!(page.contains("A trial that lost the probes of the percentile counts as slower than"));
    assert!(page.contains('∞') && page.contains("all in 2 trials"), "{page}");
}

fn named(name: &'static str, queue: Queue) -> Queue {
    Queue { name, ..queue }
}

#[test]
fn a_variant_without_an_answer_is_named_and_counted_once() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE, FQ_CODEL, named("other", FQ_CODEL)];
    let run = run(&queues, &[("fq-codel", 0), ("other", 0)]);
    let lines = summary_lines(&[run]);
    for (line, name) in lines.iter().zip(["fq-codel", "other"]) {
        let lost = format!(
            "With {name} (up queue: fq-codel instead of fifo) no probe came back, \
                            with buffer-control 0.143 % of the probes never came back."
        );
        assert_eq!(*line, lost);
    }
    assert!(lines[2].contains("the latency under load is 29.1 ms against 261 ms"), "{lines:?}");
    assert_eq!(lines.len(), 4, "no more variants than there are: {lines:?}");
}

#[test]
fn the_reason_why_nothing_is_compared_is_the_true_one() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE, named("other", FQ_CODEL), FQ_CODEL];
    let kept = [("buffer-control", 0), ("docsis-pie", 2), ("other", 3)];
    let lines = summary_lines(&[run(&queues, &kept)]);
    assert_eq!(
        lines,
        [
            "With docsis-pie (up queue: docsis-pie instead of fifo) 99.7 % of the probes never came \
             back, with buffer-control no probe came back.",
            "With other (up queue: fq-codel instead of fifo) 99.6 % of the probes never came back, \
             with buffer-control no probe came back.",
            "With fq-codel (up queue: fq-codel instead of fifo) 0.143 % of the probes never came \
             back, with buffer-control no probe came back.",
            "Only 2 trials each: run with `--repeat 6` to see how sure this is.",
        ]
    );
}

#[test]
fn a_percentile_lost_in_both_variants_is_replaced_by_a_lower_one() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let line = |kept: [usize; 2]| {
        let kept = [("buffer-control", kept[0]), ("docsis-pie", kept[1])];
        summary_lines(&[run(&queues, &kept)]).swap_remove(0)
    };
    for kept in [[680, 680], [695, 685], [670, 680]] {
        let line = line(kept);
        assert!(
            line.contains(" the latency under load is 2") && line.contains(" % of the probes"),
            "{line}"
        );
    }
    let most = line([170, 50]);
    assert!(most.contains(" 92.9 % of the probes never came back, with "), "{most}");
    assert!(!most.contains("latency"), "{most}");
}

#[test]
fn a_latency_of_few_probes_says_how_many_were_lost() {
    let data = run(&[DOCSIS_PIE], &[("docsis-pie", 70)]);
    let lines = summary_lines(std::slice::from_ref(&data));
    let most = "With docsis-pie:profile=rfc,target=10ms more than half of the probes were lost \
                (90.0 %); those answered took 2";
    assert!(lines[0].starts_with(most) && lines[0].contains(" ms at p50, "), "{lines:?}");
    let few = summary_lines(&[run(&[DOCSIS_PIE], &[("docsis-pie", 600)])]);
    let said = " ms at p50 of all probes sent, 1.4 times the idle latency of 17.6 ms; ";
    assert!(few[0].contains(said), "{few:?}");
    assert!(few[0].ends_with("; 14.4 % of the probes were lost."), "{few:?}");
    assert!(table(std::slice::from_ref(&data)).contains("1260"), "the premise");
    let silent = run(&[DOCSIS_PIE], &[("docsis-pie", 0)]);
    let alone = summary_lines(std::slice::from_ref(&silent));
    assert!(alone[0].contains("all 1400 probes under load were lost."), "{alone:?}");
    // Two runs that have the same variant.
    let both = summary_lines(&[data, silent]);
    assert!(
        both.iter().any(|line| line.contains(" (run 2, sim) no probe came back, ")),
        "{both:?}"
    );
}

#[test]
fn a_variant_that_lost_its_probes_does_not_lower_the_percentile_of_others() {
    let queues = [BUFFER_CONTROL, DOCSIS_PIE];
    let first = run(&queues, &[("buffer-control", 700), ("docsis-pie", 700)]);
    let later = run(&queues, &[("buffer-control", 700), ("docsis-pie", 50)]);
    let pair = |variant| (OfRun { run: 1, variant }, OfRun { run: 0, variant });
    let pairs = ["buffer-control", "docsis-pie"].map(pair);
    let both = compare_runs(&[&first.record, &later.record], &pairs, "load.rtt.p99");
    let [kept, lost] = &both[..] else { panic!("{both:?}") };
    assert_eq!((kept.metric.as_str(), kept.verdict), ("load.rtt.p99_of_sent", Verdict::TooFew));
    assert_eq!(lost.verdict, Verdict::Lost);
}
