//! Judgements of random measurements, evaluated a second time.

use proptest::prelude::*;

use super::*;
use crate::schema::{Interval, VariantMetric};

const MS: i64 = 1_000_000;

fn percentile() -> impl Strategy<Value = Option<HighPercentile>> {
    let quantile = prop_oneof![Just(Quantile::P90), Just(Quantile::P95), Just(Quantile::P99)];
    let ns = prop_oneof![1 => Just(None), 9 => (MS / 10..3_000 * MS).prop_map(Some)];
    proptest::option::weighted(
        0.9,
        (quantile, ns).prop_map(|(quantile, ns)| HighPercentile { quantile, ns }),
    )
}

fn step(name: &'static str) -> impl Strategy<Value = LoadedStep> {
    let rate = || proptest::option::of(0.1..1_000.0_f64);
    (
        (any::<bool>(), proptest::option::weighted(0.9, MS / 10..300 * MS)),
        (percentile(), percentile(), percentile(), 0.0..20.0_f64),
        (rate(), rate(), any::<bool>(), any::<bool>()),
        proptest::option::of((0..PathSegment::ALL.len()).prop_map(|it| PathSegment::ALL[it])),
    )
        .prop_map(
            move |(
                (valid, idle_p50_ns),
                (beside, answered, inside, lost_percent),
                rates,
                segment,
            )| {
                LoadedStep {
                    step: name.to_owned(),
                    valid,
                    loaded: true,
                    idle_p50_ns,
                    beside,
                    answered,
                    inside,
                    lost_percent,
                    mbit_s: PerDirection::new(rates.0, rates.1),
                    held_back: PerDirection::new(rates.2, rates.3),
                    segment,
                    recovery: None,
                    in_order: false,
                }
            },
        )
}

#[test]
fn limits_belong_to_the_worse_grade() {
    let letters = [-1.0, 4.99, 5.0, 29.99, 30.0, 60.0, 199.9, 200.0, 399.9, 400.0, f64::NAN];
    let letters = letters.map(|added| Band::of_delay(added).grade.name());
    assert_eq!(letters, ["A+", "A+", "A", "A", "B", "C", "C", "D", "D", "F", "F"]);
    let losses = [0.0, 1.0, 1.1, 3.0, 3.1, 10.0, 10.1, f64::NAN];
    let losses = losses.map(|percent| Band::of_loss(percent).grade.name());
    assert_eq!(losses, ["A+", "A+", "C", "C", "D", "D", "F", "F"]);
}

#[test]
fn steps_with_equal_names_are_distinguished() {
    let step = |ms| LoadedStep {
        step: "up".to_owned(),
        valid: true,
        loaded: true,
        idle_p50_ns: Some(10 * MS),
        beside: Some(HighPercentile { quantile: Quantile::P99, ns: Some(ms * MS) }),
        ..LoadedStep::default()
    };
    let judgement = judge(&[step(12), step(900)]);
    assert_eq!(judgement.grade, Some(Grade::F));
    assert_eq!(judgement.worst().and_then(StepJudgement::worst_ms), Some(890.0));
}

/// A step of 40 Mbit/s down with these 99th percentiles, ms.
fn loaded(beside_ms: Option<i64>, inside_ms: Option<i64>) -> LoadedStep {
    let of_ms = |ms| HighPercentile { quantile: Quantile::P99, ns: Some(ms * MS) };
    let p99 = |ms: Option<i64>| ms.map(of_ms);
    LoadedStep {
        step: "down".to_owned(),
        valid: true,
        loaded: true,
        idle_p50_ns: Some(20 * MS),
        beside: p99(beside_ms),
        inside: p99(inside_ms),
        mbit_s: PerDirection::new(None, Some(40.0)),
        ..LoadedStep::default()
    }
}

#[test]
fn a_sender_without_loss_and_delay_did_not_fill_the_buffer() {
    let step = |beside_ms, inside_ms, in_order| LoadedStep {
        in_order,
        ..loaded(Some(beside_ms), Some(inside_ms))
    };
    let is_unfilled = |step: &LoadedStep| step.judge().buffer_unfilled;
    assert!(is_unfilled(&step(24, 31, true)));
    assert!(!is_unfilled(&step(24, 31, false)), "a short queue drops");
    assert!(!is_unfilled(&step(24, 90, true)), "its own packets wait");
    assert!(!is_unfilled(&step(90, 31, true)), "the probes wait");
    let unknown = LoadedStep { inside: None, ..step(24, 31, true) };
    assert!(!is_unfilled(&unknown));
    assert!(!is_unfilled(&LoadedStep { lost_percent: 0.2, ..step(24, 31, true) }));
    let held_back = PerDirection::new(false, true);
    assert!(!is_unfilled(&LoadedStep { held_back, ..step(24, 31, true) }));
    assert!(!is_unfilled(&LoadedStep { valid: false, ..step(24, 31, true) }));
}

fn scores(step: &LoadedStep) -> Vec<(String, f64)> {
    step.judge().qoo.into_iter().map(|it| (it.application, it.score.round())).collect()
}

#[test]
fn a_page_is_scored_inside_the_load_and_a_call_beside_it() {
    let of = |call, game, page| {
        [("call", call), ("game", game), ("web page", page)]
            .map(|(name, score): (&str, f64)| (name.to_owned(), score))
    };
    assert_eq!(scores(&loaded(Some(250), Some(250))), of(90.0, 50.0, 75.0));
    assert_eq!(scores(&loaded(Some(20), Some(400))), of(100.0, 100.0, 0.0));
    let lossy = LoadedStep {
        lost_percent: 2.0,
        beside: Some(HighPercentile { quantile: Quantile::P99, ns: None }),
        ..loaded(None, Some(20))
    };
    assert_eq!(scores(&lossy), of(0.0, 0.0, 50.0), "a lost probe is at the 99th percentile");
}

#[test]
fn applications_without_measured_conditions_have_no_score() {
    assert!(scores(&loaded(None, None)).is_empty());
    let mut slow = loaded(Some(20), Some(20));
    slow.mbit_s.down = Some(0.5);
    assert_eq!(scores(&slow)[2].1.to_bits(), 0.0_f64.to_bits(), "too slow for a page");
    slow.held_back.down = true;
    assert_eq!(scores(&slow).len(), 2, "the line may carry more than the server granted");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// A second evaluation from the numbers alone.
    #[test]
    fn a_judgement_agrees_with_its_numbers(steps in (step("down"), step("up"))) {
        let steps = [steps.0, steps.1];
        let judgement = judge(&steps);
        let added = |step: &LoadedStep, high: Option<HighPercentile>| {
            let high = high.filter(|_| step.valid)?;
            let idle_ns = step.idle_p50_ns?;
            Some(high.ns.map_or(f64::INFINITY, |ns| (ns - idle_ns) as f64 / 1e6))
        };
        let beside = |step: &LoadedStep| match (step.beside?.ns, step.answered) {
            (None, Some(answered)) => Some(answered),
            _ => step.beside,
        };
        let all = |step: &LoadedStep| {
            let both = [added(step, beside(step)), added(step, step.inside)];
            both.into_iter().flatten().reduce(f64::max)
        };
        let lost = |step: &LoadedStep| {
            // Loss is of the probes beside the load.
            added(step, beside(step)).map_or(0.0, |_| step.lost_percent)
        };
        let grade = |step: &LoadedStep| {
            let by_delay = SCALE.iter().position(|it| all(step).is_some_and(|ms| ms < it.below_ms));
            let by_loss = SCALE.iter().position(|it| lost(step) <= it.lost_percent_max);
            all(step)?;
            Some(SCALE[by_delay.unwrap_or(5).max(by_loss.unwrap_or(5))].grade)
        };
        prop_assert_eq!(judgement.grade, steps.iter().filter_map(grade).max());
        for (step, judged) in steps.iter().zip(&judgement.steps) {
            prop_assert_eq!(judged.worst_ms(), all(step));
            prop_assert_eq!(judged.grade, grade(step));
            prop_assert_eq!(judged.void, !step.valid);
        }
        for it in &judgement.uses {
            let valid = steps.iter().filter(|step| step.valid).collect::<Vec<_>>();
            prop_assert!(valid.iter().any(|step| step.step == it.step), "of a step with numbers");
            // A use is at most as good as the grade of the delay that its packets have.
            let own = judgement.steps.iter().find(|step| step.step == it.step);
            let waits = own.and_then(|own| if it.name == Use::WebPage { own.inside } else { own.beside });
            let bound = waits.map(|waits| Band::of_delay(waits.ms()));
            let bound = bound.map(|row| match it.name {
                Use::WebPage => row.page,
                Use::VideoStream => Suitability::Good,
                Use::Call | Use::Game => row.interactive,
            });
            prop_assert!(bound.is_none_or(|bound| it.suits >= bound), "{it:?}");
            if matches!(it.name, Use::Call | Use::Game) {
                let lost = valid.iter().map(|step| lost(step)).fold(0.0, f64::max);
                prop_assert!(lost <= 3.0 || it.suits == Suitability::Poor);
                prop_assert!(it.delay_ns.is_some() || it.suits == Suitability::Poor);
            }
        }
        let needs_cure = |step: &&LoadedStep| {
            let is_slow = all(step).is_some_and(|ms| ms >= ADVICE_FROM_MS);
            is_slow || lost(step) > 1.0
        };
        prop_assert_eq!(judgement.cure.is_some(), steps.iter().any(|step| needs_cure(&step)));
    }
}

/// By hand: 60 and 200 ms of [`SCALE`], with 50 ms in the devices of a call; 2 and 4 s of a page.
#[test]
fn numbers_of_simulated_applications_suit_their_use_by_the_one_scale() {
    let found = |name: &str, mean: f64| {
        let value = Interval { mean, ..Interval::default() };
        suitability(&VariantMetric { name: name.to_owned(), value, ..VariantMetric::default() })
    };
    for (name, good, fair, poor) in [
        ("glass_to_glass_p99", 109.9, 249.9, 250.0),
        ("page_load", 1.99, 3.99, 4.0),
        ("round_trip_p99", 59.9, 199.9, 200.0),
        ("mos", 4.03, 3.6, 3.59),
    ] {
        assert_eq!(found(name, good), Some(Suitability::Good), "{name}");
        assert_eq!(found(name, fair), Some(Suitability::Fair), "{name}");
        assert_eq!(found(name, poor), Some(Suitability::Poor), "{name}");
    }
    assert_eq!(found("bit_rate", 1.0), None);
}
