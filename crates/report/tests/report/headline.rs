//! The first sentence of a scenario that declares what it is about.

use underload_record::schema::{Headline, World};
use underload_record::synthetic::{self, BUFFER_CONTROL, DOCSIS_PIE, Queue};
use underload_report::summary_lines;

use crate::losses::lose;
use crate::page::conclude_all;

/// The first lines of a run with this headline, of two trials per variant.
fn lines(queues: &[Queue], headline: Headline) -> Vec<String> {
    lines_of(queues, headline, &[])
}

/// As [`lines`], but the variants in `kept` lose all samples of each trial except the given number.
fn lines_of(queues: &[Queue], headline: Headline, kept: &[(&str, usize)]) -> Vec<String> {
    let mut trials = synthetic::trials(queues, 2, 10_000_000);
    for trial in &mut trials {
        let of_variant = kept.iter().find(|(variant, _)| *variant == trial.record.variant);
        if let Some((_, kept)) = of_variant {
            lose(trial, *kept);
        }
    }
    let slow = |variant: &str| variant.starts_with("docsis-pie");
    for trial in trials.iter_mut().filter(|trial| slow(&trial.record.variant)) {
        trial.record.flows[0].goodput_up_bit_per_s = Some(950_000);
    }
    let mut record = synthetic::record(World::Sim, queues);
    record.scenario.headline = Some(headline);
    summary_lines(&[conclude_all(record, trials)])
}

fn headline(metric: &str, variant: &str, baseline: &str) -> Headline {
    let [metric, variant, baseline] = [metric, variant, baseline].map(str::to_owned);
    Headline { metric, says: "wait".to_owned(), variant, baseline, ..Headline::default() }
}

const TWO: [Queue; 2] = [BUFFER_CONTROL, DOCSIS_PIE];

#[test]
fn a_declared_comparison_comes_first_and_says_what_it_cost() {
    let lines = lines(&TWO, headline("load.rtt.p99", "docsis-pie", "buffer-control"));
    assert_eq!(
        lines[0],
        "With docsis-pie (up queue: docsis-pie instead of fifo) the wait is 29.1 ms against 261 ms \
         with buffer-control; goodput 0.950 against 9.43 Mbit/s up."
    );
    let basis = "The latencies compared are p99: 99 % of the probes sent took that long or less, with the \
                 lost ones as the slowest. Only 2 trials each: run with `--repeat 6` to see how sure this is.";
    assert_eq!(lines[1], basis);
}

#[test]
fn a_quantile_of_too_few_samples_becomes_a_lower_one() {
    let declared = headline("load.rtt.p99.9", "docsis-pie", "buffer-control");
    let lines = lines(&TWO, declared);
    assert!(
        lines[0].contains(" the wait is 29.1 ms against")
            && lines[1].starts_with("The latencies compared are p99: ")
    );
}

#[test]
fn another_metric_of_the_same_variant_may_be_the_baseline() {
    let declared = Headline {
        baseline_metric: "idle.rtt.p99".to_owned(),
        baseline_says: "an idle line".to_owned(),
        ..headline("load.rtt.p99", "buffer-control", "")
    };
    let line = &lines(&TWO, declared)[0];
    assert!(line.starts_with("With buffer-control the wait is 254 ms against "), "{line}");
    assert!(line.ends_with(" of an idle line."), "{line}");
}

#[test]
fn several_pairs_are_counted_and_the_middle_one_has_its_numbers() {
    let named = |name, queue: Queue| Queue { name, ..queue };
    let queues = [
        named("buffer-control/a", BUFFER_CONTROL),
        named("buffer-control/b", BUFFER_CONTROL),
        named("docsis-pie/a", DOCSIS_PIE),
        named("docsis-pie/b", DOCSIS_PIE),
    ];
    let line = &lines(&queues, headline("load.rtt.p99", "docsis-pie/*", "buffer-control/*"))[0];
    let start = "With docsis-pie the wait is lower than with buffer-control in both comparisons (variants a and b), by \
                 232 ms; for example 29.0 ms with docsis-pie/";
    assert!(line.starts_with(start), "{line}");
    assert!(line.ends_with("its rate up is 0.10 times the other's."), "{line}");
}

#[test]
fn without_a_baseline_the_sentence_has_one_number() {
    let line = &lines(&TWO, headline("load.rtt.p99", "docsis-pie", ""))[0];
    assert_eq!(line, "With docsis-pie the wait is 29.1 ms at p99.");
    let line = &lines(&TWO, headline("load.rtt.p99", "*", ""))[0];
    assert!(
        line.starts_with("The wait at p99 goes from 29.1 (docsis-pie) to 261 ms (buf"),
        "{line}"
    );
    let line = &lines(&TWO, headline("nobody/has_this", "*", ""))[0];
    assert_eq!(line, "The wait, which this scenario is about, was not measured.");
}

#[test]
fn a_range_and_the_middle_of_pairs_are_of_one_statistic() {
    // 60 samples in two trials are too few for a 99th percentile.
    let few = [("docsis-pie", 30)];
    let said = lines_of(&TWO, headline("load.rtt.p99", "*", ""), &few);
    assert_eq!(
        said[0],
        "With buffer-control the wait is 261 ms at p99. Without a value: docsis-pie."
    );
    let named = |name, queue: Queue| Queue { name, ..queue };
    let queues = [
        named("buffer-control/a", BUFFER_CONTROL),
        named("buffer-control/b", BUFFER_CONTROL),
        named("docsis-pie/a", DOCSIS_PIE),
        named("docsis-pie/b", DOCSIS_PIE),
    ];
    let pairs = headline("load.rtt.p99", "docsis-pie/*", "buffer-control/*");
    let said = lines_of(&queues, pairs.clone(), &[("docsis-pie/b", 30)]);
    let start = "With docsis-pie the wait is lower than with buffer-control in 1 of 2 comparisons, \
                 by 232 ms; is unknown, as most probes never came back, in 1 (docsis-pie/b)";
    assert!(said[0].starts_with(start), "{said:?}");
    let said = lines_of(&queues, pairs, &[("docsis-pie/b", 0)]);
    assert!(said[0].starts_with(start), "{said:?}");
}

#[test]
fn variants_whose_names_have_nothing_in_common_are_not_named() {
    let declared = Headline {
        baseline_metric: "idle.rtt.p50".to_owned(),
        baseline_says: "an idle line".to_owned(),
        ..headline("load.rtt.p50", "*", "")
    };
    let line = &lines(&TWO, declared)[0];
    let start = "The wait is higher than that of an idle line in both comparisons (variants buffer-control and docsis-pie), by 6.41 to 208 ms;";
    assert!(line.starts_with(start), "{line}");
}
