//! Comparisons of made-up runs.

use proptest::prelude::*;

use super::*;
use crate::schema::{
    BottleneckSummary, Distribution, Headline, Interval, LatencySummary, PacketCount, PhaseWindow,
    ScenarioRecord, TrialRecord, Validity, VariantSummary, VariantThroughput,
};
use crate::{LatencyPools, schema::Phase};

/// A variant of a made-up run: name, settings, and the p99 under load of each trial in ms; `None` for a
/// trial that lost all but five of its probes.
type Made<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [Option<f64>]);

fn trial(variant: &str, repeat: usize, p99_ms: Option<f64>) -> TrialRecord {
    let ns = (p99_ms.unwrap_or(1.0) * 1e6) as i64;
    let lost = if p99_ms.is_some() { 0 } else { 595 };
    let distribution = Distribution {
        count: 600 - lost,
        p50_ns: ns / 2,
        p90_ns: ns,
        p95_ns: ns,
        p99_ns: ns,
        ..Distribution::default()
    };
    let latency = LatencySummary {
        probe: "probe".to_owned(),
        window: PhaseWindow { phase: Phase::Load, start_ns: 0, end_ns: 1 },
        sent: 600,
        lost,
        distribution: Some(distribution),
        ..LatencySummary::default()
    };
    TrialRecord {
        variant: variant.to_owned(),
        repeat: repeat as u32,
        validity: Validity::Valid,
        latencies: vec![latency],
        ..TrialRecord::default()
    }
}

fn run(variants: &[Made<'_>], headline: Option<Headline>) -> RunRecord {
    let mut run = RunRecord {
        scenario: ScenarioRecord { headline, ..ScenarioRecord::default() },
        ..RunRecord::default()
    };
    for (name, settings, values) in variants {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let factors = settings.iter().map(own).collect();
        run.variants.push(VariantRecord {
            name: (*name).to_owned(),
            factors,
            ..VariantRecord::default()
        });
        let trials = values.iter().enumerate();
        run.trials.extend(trials.map(|(repeat, value)| trial(name, repeat, *value)));
    }
    crate::conclude(&mut run, &LatencyPools::default());
    run
}

const FIFO: &[(&str, &str)] = &[("path.up_queue", "fifo")];
const CAKE: &[(&str, &str)] = &[("path.up_queue", "cake")];

fn verdict(first: &[Option<f64>], other: &[Option<f64>]) -> Comparison {
    run(&[("fifo", FIFO, first), ("cake", CAKE, other)], None).comparisons.remove(0)
}

fn ms<const N: usize>(values: [f64; N]) -> [Option<f64>; N] {
    values.map(Some)
}

#[test]
fn a_verdict_needs_a_clear_range_and_a_noticeable_difference() {
    let fifo = ms([100.0, 104.0, 99.0, 101.0, 103.0, 97.0]);
    for (cake, verdict_of_it) in [
        (ms([20.0, 21.0, 22.0, 20.5, 21.5, 20.1]), Verdict::Lower),
        (ms([200.0, 210.0, 220.0, 205.0, 215.0, 201.0]), Verdict::Higher),
        (ms([99.0, 103.0, 98.5, 100.5, 101.0, 96.9]), Verdict::Alike),
        (ms([20.0, 21.0, 22.0, 20.5, 21.5, 120.1]), Verdict::NotSure),
        (ms([20.0, 21.0, 22.0, 20.5, 900.0, 97.1]), Verdict::NotSure),
    ] {
        let found = verdict(&fifo, &cake);
        assert_eq!(found.verdict, verdict_of_it, "{found:?}");
        assert_eq!(found.pairs.compared, 6);
        assert_eq!(found.range.map(|range| range.confidence), Some(0.968_75));
    }
    // Less than 1 ms is not felt, however many times it is.
    let small = verdict(&ms([0.4, 0.41, 0.42, 0.4, 0.43]), &ms([0.1, 0.11, 0.1, 0.12, 0.1]));
    assert_eq!((small.verdict, small.pairs.lower), (Verdict::Alike, 5));
    let few = verdict(&fifo[..4], &ms([20.0, 21.0, 22.0, 20.5]));
    assert_eq!((few.verdict, few.range, few.direction()), (Verdict::TooFew, None, Verdict::Lower));
    let absurd = verdict(&ms([1e7; 5].map(|it| it + 1.0)), &ms([1.0, 1.1, 1.2, 1.3, 1.4]));
    assert_eq!(absurd.verdict, Verdict::TooFew, "five equal trials are one: {absurd:?}");
}

#[test]
fn a_lost_trial_counts_as_longer_than_any_answer() {
    let fifo = ms([100.0, 104.0, 99.0, 101.0, 103.0, 97.0]);
    let mut cake = ms([20.0, 21.0, 22.0, 20.5, 21.5, 20.1]);
    cake[3] = None;
    let found = verdict(&fifo, &cake);
    assert_eq!(found.verdict, Verdict::NotSure, "one of six pairs is lost: {found:?}");
    assert_eq!(found.range.and_then(|range| range.high), None);
    let lost = verdict(&fifo, &[None; 6]);
    assert_eq!((lost.verdict, lost.value), (Verdict::Lost, None));
    assert_eq!(lost.lost_percent.map(|lost| lost.variant), Some(595.0 / 6.0));
}

#[test]
fn a_queue_is_compared_on_its_line_and_a_line_behind_its_queue() {
    let of = |up: &'static str, queue: &'static str| [("path.up", up), ("path.up_queue", queue)];
    let (today, sqm, cake, faster) =
        (of("10mbit", "fifo"), of("9mbit", "cake"), of("10mbit", "cake"), of("20mbit", "fifo"));
    let both = of("20mbit", "cake");
    let one = ms([10.0]);
    let made: Vec<Made<'_>> = vec![
        ("today", &today, &one),
        ("sqm-slow", &sqm, &one),
        ("cake-at-line", &cake, &one),
        ("bigger-line", &faster, &one),
        ("both", &both, &one),
    ];
    let record = run(&made, None);
    let pairs: Vec<(&str, &str)> =
        record.comparisons.iter().map(|it| (it.variant.as_str(), it.baseline.as_str())).collect();
    let expected = [
        ("sqm-slow", "today"),
        ("cake-at-line", "today"),
        ("bigger-line", "today"),
        ("both", "bigger-line"),
    ];
    assert_eq!(pairs, expected);
    let claims = claims(&record.comparisons);
    let members: usize = claims.iter().map(|claim| claim.comparisons.len()).sum();
    assert_eq!(members, 4, "each is in one claim");
    let same = claims.iter().find(|claim| claim.extent == Extent::SameChange).expect("a change");
    let of_same: Vec<&str> = same.comparisons.iter().map(|it| it.variant.as_str()).collect();
    assert_eq!(of_same, ["cake-at-line", "both"], "the queue alone, on two lines");
}

#[test]
fn the_declared_comparison_comes_first() {
    let headline = Headline {
        metric: "load.rtt.p99".to_owned(),
        variant: "pie".to_owned(),
        baseline: "fifo".to_owned(),
        ..Headline::default()
    };
    let pie: &[(&str, &str)] = &[("path.up_queue", "pie")];
    let (fifo, one, two) = (ms([100.0]), ms([1.0]), ms([50.0]));
    let made: [Made<'_>; 3] = [("fifo", FIFO, &fifo), ("cake", CAKE, &one), ("pie", pie, &two)];
    let record = run(&made, Some(headline));
    let first = claims(&record.comparisons).remove(0);
    assert_eq!((first.id.as_str(), first.comparisons[0].variant.as_str()), ("S1", "pie"));
    assert!(first.comparisons[0].is_declared);
    assert_eq!(record.comparisons[0].metric, "load.rtt.p99_of_sent");
}

#[test]
fn the_first_variant_replaces_a_baseline_that_the_run_left_out() {
    let headline = Headline { baseline: "left-out".to_owned(), ..Headline::default() };
    let (fifo, cake) = (ms([100.0]), ms([1.0]));
    let record = run(&[("fifo", FIFO, &fifo), ("cake", CAKE, &cake)], Some(headline));
    let pairs: Vec<(&str, &str)> =
        record.comparisons.iter().map(|it| (it.variant.as_str(), it.baseline.as_str())).collect();
    assert_eq!(pairs, [("cake", "fifo")]);
}

#[test]
fn trials_with_an_inactive_queue_are_distinguished() {
    let fifo = ms([100.0, 101.0, 102.0, 103.0, 104.0, 105.0]);
    let pie = ms([58.0, 57.0, 73.0, 58.5, 59.0, 57.5]);
    let mut run = run(&[("fifo", FIFO, &fifo), ("cake", CAKE, &pie)], None);
    assert_eq!(run.modes, [], "nothing slept");
    for trial in run.trials.iter_mut().filter(|trial| trial.variant == "cake") {
        let slept_packets = if trial.repeat == 2 { 300 } else { 200 };
        let offered = PacketCount { packets: 1_000, bytes: 1_000_000 };
        let window = trial.latencies[0].window;
        let busy = BottleneckSummary {
            window,
            offered,
            slept_packets,
            throughput_bit_per_s: 9_000_000,
            capacity_bit_per_s: Some(10_000_000),
            ..BottleneckSummary::default()
        };
        let unused = BottleneckSummary {
            throughput_bit_per_s: 100_000,
            slept_packets: 1_000,
            ..busy.clone()
        };
        trial.bottlenecks.extend([busy, unused]);
    }
    conclude(&mut run);
    let [found] = run.modes.as_slice() else { panic!("{:?}", run.modes) };
    assert_eq!((found.variant.as_str(), found.metric.as_str()), ("cake", "load.rtt.p99_of_sent"));
    assert_eq!(found.asleep, Mode { trials: 1, value: 73.0 });
    assert_eq!(found.awake, Mode { trials: 5, value: 58.0 });
    // A difference that a person does not notice does not count.
    run.trials[8] = TrialRecord {
        bottlenecks: run.trials[8].bottlenecks.clone(),
        ..trial("cake", 2, Some(58.2))
    };
    conclude(&mut run);
    assert_eq!(run.modes, []);
}

/// A line with these values before and after, ms; `None` for one that lost its probes.
fn line((before, after): (Option<f64>, Option<f64>)) -> Comparison {
    let before = run(&[("before", FIFO, &[before])], None);
    let after = run(&[("after", FIFO, &[after])], None);
    compare_two((&after, "after"), (&before, "before"), "load.rtt.p99").expect("both are there")
}

#[test]
fn each_line_is_one_pair_and_a_lost_one_is_longer_than_any() {
    let lines = [(80.0, Some(20.0)), (60.0, Some(30.0)), (50.0, Some(10.0)), (40.0, Some(20.0))];
    let lines = lines.map(|(before, after)| line((Some(before), after)));
    let found = compare_lines(&lines).expect("lines");
    assert_eq!((found.value, found.baseline_value), (Some(20.0), Some(55.0)));
    assert_eq!((found.verdict, found.pairs.lower), (Verdict::TooFew, 4));
    let lost = [lines.as_slice(), &[line((Some(30.0), None))]].concat();
    let found = compare_lines(&lost).expect("lines");
    let range = found.range.expect("five pairs");
    assert_eq!((range.low, range.high), (0.2, None), "one of five lost its probes");
    assert_eq!((found.pairs.lower, found.pairs.higher), (4, 1));
    assert_eq!(compare_lines(&[]), None);
    let all_lost = vec![line((Some(30.0), None)); 5];
    assert_eq!(compare_lines(&all_lost).expect("lines").verdict, Verdict::Lost);
}

proptest! {
    #[test]
    fn swapped_sides_have_the_inverse_ratio(
        values in prop::collection::vec((5.0..500.0_f64, 5.0..500.0_f64), 5..12),
    ) {
        let of = |swap: bool| {
            let pair = |(a, b): &(f64, f64)| if swap { (*b, *a) } else { (*a, *b) };
            let lines = values.iter().map(pair).map(|(before, after)| Comparison {
                value: Some(after),
                baseline_value: Some(before),
                unit: "ms".to_owned(),
                ..Comparison::default()
            });
            compare_lines(&lines.collect::<Vec<_>>()).expect("lines")
        };
        let (one, other) = (of(false), of(true));
        let (range, inverse) = (one.range.expect("a range"), other.range.expect("a range"));
        let is_inverse = |a: f64, b: f64| (a * b - 1.0).abs() < 1e-9;
        prop_assert!(is_inverse(range.low, inverse.high.expect("finite")));
        prop_assert!(is_inverse(range.high.expect("finite"), inverse.low));
        // Of an even number the middle is the lower one of two.
        let middles = range.middle.zip(inverse.middle).expect("finite");
        prop_assert!(values.len() % 2 == 0 || is_inverse(middles.0, middles.1));
        prop_assert_eq!((one.pairs.lower, one.pairs.higher), (other.pairs.higher, other.pairs.lower));
        prop_assert_eq!((one.value, one.baseline_value), (other.baseline_value, other.value));
    }
}

/// A rate on the link beside transfers the other way counts unless it is that of acknowledgements.
#[test]
fn acknowledgements_are_no_rate_that_differs() {
    let interval = |mean| Some(Interval { mean, repeats: 6, ..Interval::default() });
    let variant = |up: f64, down: f64| VariantSummary {
        throughputs: vec![
            VariantThroughput {
                direction: Direction::Up,
                link_bit_per_s: interval(up),
                ..VariantThroughput::default()
            },
            VariantThroughput {
                direction: Direction::Down,
                goodput_bit_per_s: interval(down),
                ..VariantThroughput::default()
            },
        ],
        ..VariantSummary::default()
    };
    let directions = |own: (f64, f64), other: (f64, f64)| {
        let rates = pairs::rates(&variant(own.0, own.1), &variant(other.0, other.1));
        rates.iter().map(|it| it.direction).collect::<Vec<_>>()
    };
    assert_eq!(directions((3.4e6, 150e6), (4.1e6, 190e6)), [Direction::Down]);
    // Pages, films and calls are not counted as goodput.
    assert_eq!(directions((2.6e6, 20e6), (1.3e6, 20e6)), [Direction::Up]);
}
