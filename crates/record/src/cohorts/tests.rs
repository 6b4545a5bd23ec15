//! Studies of synthetic lines, whose true differences are known.

use super::*;

/// Indices of the dimensions.
const TIER: usize = 0;
const HOUR: usize = 1;

/// Draws about normally: mean 0, deviation 1.
fn normal(rng: &mut Rng) -> f64 {
    let uniform = |rng: &mut Rng| f64::from(rng.next_u32()) / f64::from(u32::MAX);
    (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
}

/// Lines of two cohorts. The second is the reference and `ratio` times as slow. Each line has its
/// own level, and its tests vary around that level. Tiers are `a` and `b`; lines of `b` are 3 times
/// as slow, and their share differs between the cohorts.
fn fleet(rng: &mut Rng, count: usize, ratio: f64, of_b: [f64; 2]) -> Lines {
    let mut lines = Lines {
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
        lines: Vec::new(),
    };
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
    assert!(mean.less > 0.95 && mean.rank_p_value < 1e-6 && mean.distance > 0.7, "{mean:?}");
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
    let tier = &super::study(&lines, 1).series[1].stratified[0];
    assert_eq!((tier.strata.len(), tier.strata_dropped, tier.dropped[0]), (1, 1, 0));
    assert!(tier.dropped[1] > 500, "{:?}", tier.dropped);
}

#[test]
fn a_line_measured_in_several_hours_counts_once() {
    let mut lines = fleet(&mut Rng::new(3), 1_000, 2.0, [0.0, 0.0]);
    let width = |lines: &Lines| {
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
fn missing_runs_are_compared_by_line_and_halves_of_a_cohort_are_alike() {
    let mut lines = fleet(&mut Rng::new(4), 400, 8.0, [0.5, 0.5]);
    lines.lines.iter_mut().filter(|line| line.cohort == 0).for_each(|line| line.outcomes[1] += 1);
    let study = study(&lines, 1);
    let refused: Vec<_> = study.outcomes.iter().filter(|row| row.outcome == "refused").collect();
    let [aqm, plain] = refused.as_slice() else { panic!("two rows: {refused:?}") };
    let difference = aqm.difference.expect("compared");
    assert!(difference.low.unwrap() > 10.0 && aqm.p_value.unwrap() < 1e-9, "{aqm:?}");
    assert!(plain.difference.is_none() && plain.runs == 40, "{plain:?}");
    let check = study.self_check.expect("200 lines");
    assert_eq!((check.cohort.as_str(), check.devices), ("plain", 200));
    assert!(check.differ_percent <= 12.0 && check.ratio_by_chance < 1.5, "{check:?}");
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
    assert_eq!(study(&Lines::default(), 1).cohorts, []);
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
    assert!(p99.less < 0.01 && p99.rank_p_value < 0.001, "{p99:?}");
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
        let values = |lines: &Lines, cohort: usize| -> Vec<f64> {
            let own = lines.of_cohort(cohort);
            own.filter_map(|line| line.series[&1].mean_ms()).collect()
        };
        let holds = |estimate: crate::schema::Estimate, truth: f64| {
            u32::from(estimate.low.unwrap() <= truth && truth <= estimate.high.unwrap())
        };
        let found = compare(&values(&planted, 0), &values(&planted, 1)).expect("both cohorts");
        held += holds(found.ratio.expect("positive"), 2.0);
        let tiers = strata::stratified(&planted, 1);
        stratified += holds(tiers[0].ratio.expect("two groups"), 2.0);
        let none = fleet(&mut rng, 120, 1.0, [0.5, 0.5]);
        let found = compare(&values(&none, 0), &values(&none, 1)).expect("both cohorts");
        false_alarms += u32::from(found.rank_p_value < 0.05);
    }
    // 95 % of 200, within three standard deviations.
    for held in [held, stratified] {
        assert!((181..=199).contains(&held), "{held} of {studies}");
    }
    assert!((1..=19).contains(&false_alarms), "{false_alarms} of {studies}");
}
