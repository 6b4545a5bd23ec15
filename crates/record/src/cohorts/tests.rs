//! Studies of synthetic lines, whose true differences are known.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use super::*;
use crate::comparison::Verdict;
use crate::schema::{ChangeStudy, Interval, Unhealthy};
use crate::stats::{Alternative, mann_whitney, median};

/// Indices of the dimensions.
const TIER: usize = 0;
const HOUR: usize = 1;

/// Lines that tests may change before a study adds them.
struct Fleet {
    names: Lines,
    lines: Vec<Line>,
}

impl Deref for Fleet {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.names
    }
}

impl DerefMut for Fleet {
    fn deref_mut(&mut self) -> &mut Lines {
        &mut self.names
    }
}

impl Fleet {
    fn added(&self) -> Lines {
        let mut all = self.names.clone();
        self.lines.iter().for_each(|line| all.add(line));
        all
    }
}

fn study(fleet: &Fleet, seed: u64) -> CohortStudy {
    super::study(&fleet.added(), seed)
}

/// Draws about normally: mean 0, deviation 1.
fn normal(rng: &mut Rng) -> f64 {
    let uniform = |rng: &mut Rng| f64::from(rng.next_u32()) / f64::from(u32::MAX);
    (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
}

/// Lines of two cohorts. The second is the reference and `ratio` times as slow. Each line has its
/// own level, and its tests vary around that level. Tiers are `a` and `b`; lines of `b` are 3 times
/// as slow, and their share differs between the cohorts.
fn fleet(rng: &mut Rng, count: usize, ratio: f64, of_b: [f64; 2]) -> Fleet {
    let names = Lines {
        cohorts: vec!["aqm".to_owned(), "plain".to_owned()],
        reference: Some(1),
        series: vec![
            SeriesName { step: "idle".to_owned(), load: IDLE, dscp: 0, is_inside: false },
            SeriesName { step: "up".to_owned(), load: "upload", dscp: 0, is_inside: false },
        ],
        dimensions: vec![
            ("tier".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("hour".to_owned(), (0..24).map(|hour| format!("{hour:02}")).collect()),
        ],
        outcomes: vec!["measured".to_owned(), "refused".to_owned()],
        bin_ratio: 1.02,
        bins: 932,
        moved: 0,
        change: None,
        planned: Vec::new(),
        rows: Rows::default(),
    };
    let mut lines = Fleet { names, lines: Vec::new() };
    for number in 0..count {
        let cohort = number % 2;
        let is_b = f64::from(rng.below(1_000)) < of_b[cohort] * 1_000.0;
        let factor = if cohort == 1 { ratio } else { 1.0 } * if is_b { 3.0 } else { 1.0 };
        let level = 20_000.0 * factor * (0.4 * normal(rng)).exp();
        let mut series = LineSeries::default();
        for _ in 0..3 {
            let mean = level * (0.2 * normal(rng)).exp();
            series.tests += 1;
            series.means_us += mean;
            series.maxima_us += mean * 2.0;
            series.sent += 1;
            let bin = (mean.ln() / 1.02_f64.ln()).ceil() as u16;
            series.bins.push((bin, 1));
            for place in [(TIER, usize::from(is_b)), (HOUR, number % 3)] {
                let (sum, tests) = series.strata.entry(place).or_default();
                (*sum, *tests) = (*sum + mean, *tests + 1);
            }
        }
        series.bins.sort_unstable();
        let idle = LineSeries { tests: 1, means_us: 10_000.0, maxima_us: 1e4, ..series.clone() };
        lines.lines.push(Line {
            cohort,
            tests: 3,
            outcomes: vec![3, u32::from(number % 5 == 0)],
            series: [(0, idle), (1, series)].into(),
            ..Line::default()
        });
    }
    lines
}

#[test]
fn a_planted_effect_is_found_by_line() {
    let lines = fleet(&mut Rng::new(1), 400, 8.0, [0.5, 0.5]);
    let study = study(&lines, 1);
    assert_eq!(study.reference, "plain");
    assert_eq!((study.cohorts[0].devices, study.cohorts[0].tests), (200, 600));
    let up = study.headline().expect("a series");
    assert_eq!((up.step.as_str(), up.comparisons.len()), ("up", 1));
    let mean = up.comparisons[0].mean.clone().expect("compared");
    let ratio = mean.ratio.expect("an estimate");
    assert!(ratio.low.unwrap() < 8.0 && ratio.high.unwrap() > 8.0, "{ratio:?}");
    assert!(mean.less > 0.95 && mean.verdict == Verdict::Lower, "{mean:?}");
    let above = up.comparisons[0].above_idle.clone().expect("compared");
    let [shift, above] = [&mean, &above].map(|of| of.shift_ms.expect("an estimate").value);
    assert!((shift - above).abs() < 1e-9, "both cohorts idle at 10 ms: {shift} {above}");
    for cohort in &up.cohorts {
        let percent: f64 = cohort.mean.histogram.iter().sum::<f64>() + cohort.mean.beyond;
        assert!((percent - 100.0).abs() < 1e-9);
        let p50 = cohort.quantiles[0];
        assert!(p50.low.unwrap() < p50.ms.unwrap() && p50.ms.unwrap() < p50.high.unwrap());
    }
}

#[test]
fn strata_remove_the_effect_of_other_tiers() {
    // The cohorts are equally fast, but the reference has more slow lines.
    let lines = fleet(&mut Rng::new(2), 2_000, 1.0, [0.2, 0.6]);
    let study = study(&lines, 1);
    let up = study.headline().expect("a series");
    let plain = up.comparisons[0].mean.clone().expect("compared").ratio.expect("an estimate");
    assert!(plain.low.unwrap() > 1.2, "the premise: {plain:?}");
    let tier = &up.stratified[0];
    let ratio = tier.ratio.expect("an estimate");
    assert!(ratio.low.unwrap() < 1.0 && ratio.high.unwrap() > 1.0, "{ratio:?}");
    assert!(ratio.high.unwrap() / ratio.low.unwrap() < 1.15, "{ratio:?}");
    let weights: f64 = tier.strata.iter().map(|stratum| stratum.weight).sum();
    assert!((weights - 1.0).abs() < 1e-9 && tier.strata.len() == 2);
    // A tier that one cohort does not have is dropped and reported.
    let lines = fleet(&mut Rng::new(2), 2_000, 1.0, [0.0, 0.6]);
    let dropped = super::study(&lines.added(), 1);
    let tier = &dropped.series[1].stratified[0];
    assert_eq!((tier.strata.len(), tier.strata_dropped, tier.dropped[0]), (1, 1, 0));
    assert!(tier.dropped[1] > 500, "{:?}", tier.dropped);
}

#[test]
fn a_line_measured_in_several_hours_counts_once() {
    let mut lines = fleet(&mut Rng::new(3), 1_000, 2.0, [0.0, 0.0]);
    let width = |lines: &Fleet| {
        let ratio = study(lines, 1).series[1].stratified[HOUR].ratio.expect("an estimate");
        ratio.high.unwrap() / ratio.low.unwrap()
    };
    let once = width(&lines);
    // Equal values in eight more hours add no information.
    for line in &mut lines.lines {
        let strata = &mut line.series.get_mut(&1).expect("it has it").strata;
        let (_, known) = strata.range((HOUR, 0)..).next().expect("one");
        let known = *known;
        strata.extend((10..18).map(|hour| ((HOUR, hour), known)));
    }
    assert!((width(&lines) / once - 1.0).abs() < 0.005, "{} is not {once}", width(&lines));
}

#[test]
fn missing_runs_are_compared_by_line() {
    let mut lines = fleet(&mut Rng::new(4), 400, 8.0, [0.5, 0.5]);
    lines.lines.iter_mut().filter(|line| line.cohort == 0).for_each(|line| line.outcomes[1] += 1);
    let study = study(&lines, 1);
    let refused: Vec<_> = study.outcomes.iter().filter(|row| row.outcome == "refused").collect();
    let [aqm, plain] = refused.as_slice() else { panic!("two rows: {refused:?}") };
    let difference = aqm.difference.expect("compared");
    assert!(difference.low.unwrap() > 10.0 && aqm.verdict == Verdict::Higher, "{aqm:?}");
    assert!(plain.difference.is_none() && plain.runs == 40, "{plain:?}");
}

#[test]
fn a_single_or_empty_cohort_warns_and_is_not_compared() {
    let mut lines = fleet(&mut Rng::new(5), 100, 8.0, [0.5, 0.5]);
    lines.lines.retain(|line| line.cohort == 0);
    let alone = study(&lines, 1);
    assert!(alone.series[1].comparisons[0].mean.is_none() && alone.series[1].cohorts.len() == 1);
    lines.reference = None;
    assert!(study(&lines, 1).series[1].comparisons.is_empty());
    lines.lines.clear();
    let nothing = study(&lines, 1);
    assert!(nothing.series.is_empty() && nothing.outcomes.is_empty());
    assert_eq!(super::study(&Lines::default(), 1).cohorts, []);
}

#[test]
fn a_cohort_that_loses_3_percent_is_worse_than_one_that_delays_all_by_10_ms() {
    let mut lines = fleet(&mut Rng::new(6), 60, 1.0, [0.0, 0.0]);
    for line in &mut lines.lines {
        let (ms, lost) = if line.cohort == 0 { (20.0_f64, 3) } else { (30.0, 0) };
        let bin = ((ms * 1e3).ln() / 1.02_f64.ln()).ceil() as u16;
        let (means_us, bins) = (ms * 1e3, vec![(bin, 100 - lost)]);
        let lost = u64::from(lost);
        let own = LineSeries { tests: 1, means_us, sent: 100, lost, bins, ..LineSeries::default() };
        line.series.insert(1, own);
    }
    let up = study(&lines, 1).headline().expect("a series").comparisons[0].clone();
    let mean = up.mean.expect("compared");
    assert!(mean.ratio.is_some_and(|ratio| ratio.value > 1.4), "the premise: {mean:?}");
    let p99 = up.p99.expect("compared");
    assert!(p99.less < 0.01 && p99.verdict == Verdict::Lost, "{p99:?}");
    assert_eq!((p99.ratio, p99.shift_ms), (None, None), "no number for a lost probe");
}

/// Checks the coverage of the intervals: of many studies with a known effect, counts those whose
/// interval contains it; of as many without an effect, counts those that report one.
#[test]
fn intervals_contain_the_true_value_at_their_confidence() {
    let studies = 200;
    let (mut held, mut stratified, mut false_alarms) = (0, 0, 0);
    for number in 0..studies {
        let mut rng = Rng::new(number).child("coverage");
        let planted = fleet(&mut rng, 120, 2.0, [0.5, 0.5]);
        let values = |lines: &Fleet, cohort: usize| -> Vec<f64> {
            lines.added().of_series(cohort, 1).expect("lines").means.clone()
        };
        let holds = |estimate: crate::schema::Estimate, truth: f64| {
            u32::from(estimate.low.unwrap() <= truth && truth <= estimate.high.unwrap())
        };
        let found = compare(&values(&planted, 0), &values(&planted, 1)).expect("both cohorts");
        held += holds(found.ratio.expect("positive"), 2.0);
        let tiers = strata::stratified(&planted.added(), 1);
        stratified += holds(tiers[0].ratio.expect("two groups"), 2.0);
        let none = fleet(&mut rng, 120, 1.0, [0.5, 0.5]);
        let found = compare(&values(&none, 0), &values(&none, 1)).expect("both cohorts");
        false_alarms += 1 - holds(found.ratio.expect("positive"), 1.0);
    }
    // 95 % of 200, within three standard deviations.
    for held in [held, stratified] {
        assert!((181..=199).contains(&held), "{held} of {studies}");
    }
    assert!((1..=19).contains(&false_alarms), "{false_alarms} of {studies}");
}

#[test]
fn verdicts_agree_with_medians_p_values_and_sizes_of_cohorts() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let mut rng = Rng::new(seed).child("verdicts");
        let sizes = [1 + rng.below(40) as usize, 1 + rng.below(40) as usize];
        let factor = [1.0, 1.01, 1.3, 4.0][rng.below(4) as usize];
        let mut draw = |count: usize, factor: f64| -> Vec<f64> {
            (0..count).map(|_| 20.0 * factor * (0.4 * normal(&mut rng)).exp()).collect()
        };
        let (own, other) = (draw(sizes[0], 1.0), draw(sizes[1], factor));
        let found = compare(&own, &other).expect("both have values");
        seen.insert(found.verdict);
        let [low, high] = [median(&own), median(&other)].map(|it| it.expect("values"));
        match found.verdict {
            Verdict::Lower => assert!(low < high && found.ratio.unwrap().low > Some(1.0)),
            Verdict::Higher => assert!(low > high && found.ratio.unwrap().high < Some(1.0)),
            Verdict::TooFew => assert!(sizes[0].min(sizes[1]) < 5),
            Verdict::NotSure => assert!(found.ratio.unwrap().low <= Some(1.0)),
            Verdict::Alike => assert!((low - high).abs() < 20.0),
            other => panic!("{other:?}"),
        }
        let is_shown = matches!(found.verdict, Verdict::Lower | Verdict::Higher);
        let test = mann_whitney(&own, &other, Alternative::TwoSided).expect("values");
        assert!(!is_shown || test.p_value < 0.051, "{found:?}");
    }
    assert!([Verdict::Lower, Verdict::TooFew, Verdict::NotSure].iter().all(|it| seen.contains(it)));
}

#[test]
fn a_reduction_is_at_most_100_percent() {
    let interval = |mean, low, high| {
        let (low, high) = (Some(low), Some(high));
        Interval { mean, low, high, confidence: 0.95, repeats: 40 }
    };
    let cut = interval(94.8, 86.4, 103.0).capped();
    assert_eq!((cut.mean, cut.high), (94.8, Some(100.0)));
    let judge = |cut, lag, baseline| Verdict::of_cut(cut, Some(lag), Some(baseline));
    assert_eq!(judge(Some(cut), 2.0, 40.0), Verdict::Lower);
    // Both lags are too short for a person to notice.
    assert_eq!(judge(Some(cut), 0.1, 0.9), Verdict::Alike);
    assert_eq!(judge(Some(interval(10.0, -40.0, 60.0)), 36.0, 40.0), Verdict::NotSure);
    assert_eq!(judge(None, 36.0, 40.0), Verdict::NotMeasured);
    let few = Interval { low: None, high: None, ..cut };
    assert_eq!(judge(Some(few), 2.0, 40.0), Verdict::TooFew);
}

#[test]
fn cohorts_that_are_not_alike_have_reasons_and_no_effect() {
    let reasons = |change: &dyn Fn(&mut Fleet)| {
        let mut lines = fleet(&mut Rng::new(1), 200, 8.0, [0.5, 0.5]);
        change(&mut lines);
        let study = study(&lines, 1);
        let is_withheld = study.series[1].comparisons.is_empty();
        assert_eq!(is_withheld, !study.unhealthy.is_empty());
        assert_eq!(study.series[1].stratified.is_empty(), is_withheld);
        study.unhealthy
    };
    let planned =
        |first, second| move |lines: &mut Fleet| lines.planned = vec![Some(first), Some(second)];
    assert_eq!(reasons(&planned(0.5, 0.5)), []);
    let found = reasons(&planned(0.2, 0.8));
    let unplanned = |cohort: &str, planned_percent| {
        let cohort = cohort.to_owned();
        Unhealthy::Unplanned { cohort, devices: 100, of: 200, planned_percent }
    };
    assert_eq!(found, [unplanned("aqm", 20.0), unplanned("plain", 80.0)]);
    let found = reasons(&|lines| lines.moved = 3);
    assert_eq!(found, [Unhealthy::Moved { devices: 3, of: 200 }]);
    assert_eq!(reasons(&|lines| lines.moved = 2), []);
    let silence = |share: usize| {
        move |lines: &mut Fleet| {
            let silent = lines.lines.iter_mut().filter(|line| line.cohort == 0).take(share);
            silent.for_each(|line| (line.tests, line.series) = (0, BTreeMap::new()));
        }
    };
    assert_eq!(reasons(&silence(4)), []);
    let found = reasons(&silence(30));
    assert_eq!(found, [Unhealthy::Silent { cohort: "aqm".to_owned() }]);
}

/// A fleet in which some lines changed, at one of five times, and what all lines have in common
/// differs between the times. Returns the study of the change.
fn changed(rng: &mut Rng, [changed, others]: [usize; 2], effect: f64, seasons: f64) -> ChangeStudy {
    let mut lines = fleet(rng, 0, 1.0, [0.0, 0.0]).added();
    lines.change = Some(ChangeStudy { attribute: "configured".to_owned(), ..Default::default() });
    let seasons: [f64; 5] = std::array::from_fn(|_| (seasons * normal(rng)).exp());
    let times: Vec<usize> = (0..changed).map(|_| rng.below(5) as usize).collect();
    for number in 0..changed + others {
        let is_changed = number < changed;
        let time = if is_changed { number } else { rng.below(changed as u32) as usize };
        let level = 20_000.0 * (0.5 * normal(rng)).exp();
        let mut side = |factor: f64| {
            let mean = level * factor * (0.25 * normal(rng)).exp();
            let bin = (mean.ln() / 1.02_f64.ln()).ceil() as u16;
            let series = LineSeries {
                tests: 1,
                means_us: mean,
                sent: 1,
                bins: vec![(bin, 1)],
                ..Default::default()
            };
            Line { tests: 1, series: [(1, series)].into(), ..Line::default() }
        };
        let own = if is_changed { effect } else { 1.0 };
        let (before, after) = (side(1.0), side(own * seasons[times[time]]));
        lines.add_pair(&before, &after, is_changed);
    }
    super::study(&lines, 1).change.expect("a change")
}

/// With 600 repetitions of a true 95 %, the share has a standard deviation of 0.9 %. Times that
/// differ more make the intervals wider than they need to be.
#[test]
fn intervals_of_a_change_hold_the_effect() {
    for (seasons, expected) in [(0.1, 93.0..=97.0), (0.3, 95.0..=99.0)] {
        for percent in coverage(seasons) {
            assert!(expected.contains(&percent), "{percent} % with {seasons}");
        }
    }
}

/// Returns how often the intervals of p99 and of mean contain the effect, in percent.
fn coverage(seasons: f64) -> [f64; 2] {
    const REPETITIONS: u64 = 600;
    let mut held = [0; 2];
    for seed in 0..REPETITIONS {
        let study = changed(&mut Rng::new(seed), [40, 90], 0.7, seasons);
        let [series] = &study.series[..] else { panic!("{study:?}") };
        for (held, found) in held.iter_mut().zip([&series.p99, &series.mean]) {
            assert_eq!(found.lines, [40, 90]);
            let effect = found.effect.expect("enough lines");
            *held += u64::from(effect.low <= 0.7 && effect.high.is_some_and(|high| high >= 0.7));
        }
    }
    held.map(|held| held as f64 * 100.0 / REPETITIONS as f64)
}

#[test]
fn a_change_is_judged_by_what_people_notice() {
    let verdict = |lines, effect| {
        let study = changed(&mut Rng::new(7), lines, effect, 0.1);
        study.series[0].mean.verdict
    };
    assert_eq!(verdict([400, 400], 0.7), Verdict::Lower);
    assert_eq!(verdict([400, 400], 1.4), Verdict::Higher);
    assert_ne!(verdict([400, 400], 1.0), Verdict::Lower);
    assert_eq!(verdict([4, 400], 0.1), Verdict::TooFew);
}
