//! A study of cohorts in words: its sentences, and a table for a terminal.

use std::fmt::Write as _;

use underload_record::CONFIDENCE;
use underload_record::comparison::Verdict;
use underload_record::schema::{
    Change, ChangeStudy, CohortSeries, CohortStudy, Compared, Comparison, Estimate, OutcomeStudy,
    QuantileEstimate, SeriesStudy, Unhealthy,
};

use crate::study::lag_words;
use crate::table::{Row, render};
use crate::words::{count, one_line, significant, thousands, wrap};

/// Widest line in a terminal.
const COLUMNS: usize = 100;
/// Maximum number of comparisons with a sentence each; the tables have the others.
const MOST_SENTENCES: usize = 6;

/// Returns the results in sentences, the most important first, each with its interval, devices and
/// tests.
pub fn cohort_sentences(study: &CohortStudy) -> Vec<String> {
    let Some(series) = study.headline() else {
        let nothing = match study.summed_days {
            0 => "No run that measured was collected, so nothing can be said.",
            _ => "No run that measured is kept by itself any more, so nothing can be said.",
        };
        return vec![nothing.to_owned()];
    };
    if let Some(change) = &study.change {
        return change_sentences(study, change);
    }
    let mut sentences: Vec<String> = study.unhealthy.iter().map(|it| reason(study, it)).collect();
    let compared = series.comparisons.iter().take(MOST_SENTENCES);
    sentences.extend(compared.filter_map(|comparison| effect(series, comparison)));
    if sentences.is_empty() {
        sentences.extend(series.cohorts.iter().take(MOST_SENTENCES).map(|own| alone(series, own)));
    }
    sentences.extend(study.classes.iter().filter_map(|class| {
        let (cut, lag) = (class.cut_percent.as_ref()?, class.lag_ms.as_ref()?);
        if class.dscp == class.against {
            return None;
        }
        let than = format!("DSCP {} in step {}", class.against, one_line(&class.step));
        Some(format!(
            "{}DSCP {} {}: {} ms of p99 under load above the idle median, over {} with {}.",
            of_cohort(study, &class.cohort),
            class.dscp,
            lag_words(class.verdict, cut, &than, "devices"),
            significant(lag.mean),
            count(class.devices, "device"),
            count(class.days, "day"),
        ))
    }));
    sentences.truncate(MOST_SENTENCES);
    sentences
}

/// Returns the effects of a change, the series of the headline first.
fn change_sentences(study: &CohortStudy, change: &ChangeStudy) -> Vec<String> {
    let attribute = one_line(&change.attribute);
    let of = |series: &SeriesStudy| {
        change.series.iter().find(|it| {
            (&it.step, &it.load, it.dscp, it.is_inside)
                == (&series.step, &series.load, series.dscp, series.is_inside)
        })
    };
    let mut ordered: Vec<&SeriesStudy> = study.series.iter().collect();
    let headline = study.headline();
    ordered.sort_by_key(|series| Some(*series) != headline);
    let sentence = |series: &SeriesStudy| Some(change_effect(&attribute, series, &of(series)?.p99));
    let mut sentences: Vec<String> =
        ordered.into_iter().filter_map(sentence).take(MOST_SENTENCES).collect();
    if sentences.is_empty() {
        sentences.push(format!(
            "No series has results before and after of lines whose `{attribute}` changed and of \
             others, so nothing can be said."
        ));
    }
    if change.excluded > 0 {
        sentences.push(format!(
            "{} excluded: `{attribute}` changed several times, or at another time.",
            count(change.excluded, "line")
        ));
    }
    sentences
}

/// States the effect of a change on the 99th percentile of each line's probes.
fn change_effect(attribute: &str, series: &SeriesStudy, found: &Change) -> String {
    let [own, others] = found.lines;
    let name = format!("{} {}", series_name(series), load_words(series));
    let lines = format!(
        "over {} that changed and {} that did not, on the same days",
        count(own, "line"),
        thousands(others)
    );
    let times = |ratio: f64| format!("{} times", significant(ratio));
    let effect = found.effect.and_then(|it| Some((it.middle?, it.low, it.high?)));
    let said = match (found.verdict, effect) {
        (Verdict::TooFew, _) => "too few lines to say".to_owned(),
        (Verdict::Lost, _) | (_, None) => "lost probes decide, so there is no number".to_owned(),
        (verdict, Some((middle, low, high))) => {
            let word = match verdict {
                Verdict::Lower => "lower",
                Verdict::Higher => "higher",
                Verdict::Alike => "alike",
                _ => "not sure",
            };
            format!("{word}, {} ({} to {})", times(middle), significant(low), significant(high))
        }
    };
    format!(
        "p99 of {name} with the change of `{attribute}`, relative to without: {said}, {lines}. \
         After over before: {} where it changed, {} elsewhere.",
        times(found.medians[0]),
        times(found.medians[1])
    )
}

/// Returns `With aqm, `; empty if there is one cohort.
fn of_cohort(study: &CohortStudy, cohort: &str) -> String {
    if study.cohorts.len() > 1 { format!("With {}, ", cohort_name(cohort)) } else { String::new() }
}

/// Returns the display name of a cohort; lines without a cohort have one, too.
pub(crate) fn cohort_name(cohort: &str) -> String {
    if cohort.is_empty() { "(no group)".to_owned() } else { one_line(cohort) }
}

/// Returns `under upload` or `without load`.
pub(crate) fn load_words(series: &SeriesStudy) -> String {
    match series.load.as_str() {
        "latency" => "without load".to_owned(),
        load => format!("under {load}"),
    }
}

/// Returns a name such as `up, DSCP 45` or `up, inside the load`.
pub(crate) fn series_name(series: &SeriesStudy) -> String {
    let step = one_line(&series.step);
    if series.is_inside {
        return format!("{step}, inside the load");
    }
    format!("{step}, DSCP {}", series.dscp)
}

/// Says why the cohorts are not compared.
fn reason(study: &CohortStudy, unhealthy: &Unhealthy) -> String {
    let why = match unhealthy {
        Unhealthy::Moved { devices, of } => {
            format!("{} of {of} have results in more than one group", count(*devices, "device"))
        }
        Unhealthy::Unplanned { cohort, devices, of, planned_percent } => format!(
            "{} has {devices} of {of} devices, where the plan gives it {} %",
            cohort_name(cohort),
            significant(*planned_percent)
        ),
        Unhealthy::Silent { cohort } => {
            let silent = |name: &str| {
                let own = study.cohorts.iter().find(|own| own.name == name);
                let (silent, measured) = own.map_or((0, 0), |own| (own.silent, own.devices));
                format!("{silent} of {} devices of {}", silent + measured, cohort_name(name))
            };
            format!("{} and {} have no valid run", silent(cohort), silent(&study.reference))
        }
    };
    format!("No effect is shown: {why}. The devices that are compared may not be alike.")
}

/// States the verdict on the 99th percentile of the probes that each device sent.
fn effect(series: &SeriesStudy, comparison: &Comparison) -> Option<String> {
    let found = comparison.p99.as_ref()?;
    let of = |name: &str| series.cohorts.iter().find(|own| own.cohort == name);
    let (own, other) = (of(&comparison.cohort)?, of(&comparison.against)?);
    let (cohort, against) = (cohort_name(&comparison.cohort), cohort_name(&comparison.against));
    let load = load_words(series);
    let ratio = found.ratio.unwrap_or_default();
    let is_more = found.ratio.map_or(found.less < 0.5, |ratio| ratio.value < 1.0);
    let (word, least, most) =
        if is_more { ("more", ratio.high, ratio.low) } else { ("less", ratio.low, ratio.high) };
    let times = |ratio: f64| significant(ratio.max(1.0 / ratio));
    let by = match (found.ratio, found.shift_ms) {
        // Values of zero have no ratio.
        (None, Some(shift)) => format!("{} ms", significant(shift.value.abs())),
        _ => format!("{} times", times(ratio.value)),
    };
    let effect = format!("{cohort} has {by} {word} latency {load} than {against}");
    let said = match found.verdict {
        Verdict::Lower | Verdict::Higher if found.ratio.is_none() => effect,
        Verdict::Lower | Verdict::Higher => {
            let least = least.map(times).unwrap_or_default();
            let most = most.map_or("more".to_owned(), times);
            format!("{effect} ({least} to {most} at 95 %)")
        }
        Verdict::TooFew => format!("{effect}, with too few devices to be sure"),
        Verdict::Alike => format!("{cohort} hardly differs from {against} in its latency {load}"),
        Verdict::Lost => {
            let (word, worse) =
                if found.less < 0.5 { ("more", &cohort) } else { ("less", &against) };
            format!(
                "{cohort} has {word} latency {load} than {against}, as most devices of {worse} \
                 lost more than 1 % of their probes"
            )
        }
        _ => {
            let shown = ratio.range(CONFIDENCE).and_then(|range| range.smallest_shown());
            let shown = shown.map_or(String::new(), |ratio| {
                format!("; so many devices show differences from {} times on", significant(ratio))
            });
            format!("{cohort} is not sure to differ from {against} in its latency {load}{shown}")
        }
    };
    let p99 = |own: &CohortSeries| {
        let ms = quantile_of(own, 0.99)?.ms;
        Some(ms.map_or("lost".to_owned(), |ms| format!("{} ms", significant(ms))))
    };
    Some(format!(
        "{said}: p99 of sent {} and {}, over {} and {} devices with {} and {} tests.",
        p99(own)?,
        p99(other)?,
        own.devices,
        other.devices,
        own.tests,
        other.tests
    ))
}

/// A quantile of all round trips of a cohort.
fn quantile_of(own: &CohortSeries, share: f64) -> Option<&QuantileEstimate> {
    own.quantiles.iter().find(|found| (found.share - share).abs() < 1e-9)
}

fn alone(series: &SeriesStudy, own: &CohortSeries) -> String {
    let interval = own.mean.average.as_ref().and_then(|mean| mean.low.zip(mean.high));
    let sure = interval.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {} at 95 %)", significant(low), significant(high))
    });
    format!(
        "{}: {} ms of mean round trip {}{sure}, median {}, over {} with {}.",
        cohort_name(&own.cohort),
        own.mean.average.as_ref().map_or("-".to_owned(), |mean| significant(mean.mean)),
        load_words(series),
        significant(own.mean.median),
        count(own.devices, "device"),
        count(own.tests, "test"),
    )
}

/// Formats the day of an instant in milliseconds since 1970.
pub(crate) fn day(at_ms: u64) -> Option<String> {
    let instant = jiff::Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
    Some(instant.strftime("%Y-%m-%d").to_string())
}

/// Returns the caveats that a reader must know before relying on the numbers.
pub fn cohort_warnings(study: &CohortStudy) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(until) = study.summed_until_ms.and_then(day) {
        let days = count(study.summed_days, "day");
        let are = if study.summed_days == 1 { "is" } else { "are" };
        warnings.push(format!("{days} before {until} {are} kept as sums only and not in this."));
    }
    if study.late_runs > 0 {
        let runs = count(study.late_runs, "run");
        warnings.push(format!(
            "{runs} came more than two days late and are missing from the lag of classes."
        ));
    }
    for series in &study.series {
        let medians = series.cohorts.iter().filter_map(|own| {
            Some((cohort_name(&own.cohort), own.disagreeing_median()?, own.device_medians?))
        });
        warnings.extend(medians.take(MOST_SENTENCES).map(|(cohort, median, (low, high))| {
            format!(
                "{}, {cohort}: the median of all round trips, {} ms, is not between the medians \
                 of the middle half of the devices, {} to {} ms. A few devices weigh more than \
                 many others; rely on the numbers by device.",
                series_name(series),
                significant(median),
                significant(low),
                significant(high)
            )
        }));
    }
    let is_unequal = |row: &&OutcomeStudy| matches!(row.verdict, Verdict::Lower | Verdict::Higher);
    let unequal = study.outcomes.iter().filter(is_unequal);
    warnings.extend(unequal.take(MOST_SENTENCES).map(|row| {
        format!(
            "{} % of the runs of {} were {}, which {} did not see as often or saw more often \
             ({} points apart): lines that are missing may not be like the others.",
            significant(row.percent),
            cohort_name(&row.cohort),
            row.outcome,
            cohort_name(&study.reference),
            row.difference.as_ref().map_or("-".to_owned(), interval_words)
        )
    }));
    warnings
}

/// Formats an estimate with its interval: `9.81 [9.70 to 9.92]`.
pub(crate) fn interval_words(estimate: &Estimate) -> String {
    let ends = estimate.low.zip(estimate.high);
    let ends = ends.map_or(String::new(), |(low, high)| {
        format!(" [{} to {}]", significant(low), significant(high))
    });
    format!("{}{ends}", significant(estimate.value))
}

/// Returns the whole study as text, within 100 columns unless a name is longer.
pub fn cohort_table(study: &CohortStudy) -> String {
    let mut text = format!("{}\n", one_line(&study.title));
    let folded = |text: &mut String, words: &str| {
        for line in wrap(words, COLUMNS) {
            let _ = writeln!(text, "{line}");
        }
    };
    for sentence in cohort_sentences(study) {
        folded(&mut text, &sentence);
    }
    for warning in cohort_warnings(study) {
        folded(&mut text, &format!("Careful. {warning}"));
    }
    for series in &study.series {
        let _ = writeln!(text, "\n{} ({})", series_name(series), load_words(series));
        text += &rows(series.cohorts.iter().map(series_cells).collect(), HEAD);
        for line in series.comparisons.iter().flat_map(comparison_lines) {
            folded(&mut text, &line);
        }
        for stratified in &series.stratified {
            let Some(ratio) = &stratified.ratio else { continue };
            let words = format!(
                "  {} against {} within the same {}: ratio {}, {} groups left out with {} and \
                 {} devices",
                cohort_name(&stratified.cohort),
                cohort_name(&stratified.against),
                stratified.by,
                interval_words(ratio),
                stratified.strata_dropped,
                stratified.dropped[0],
                stratified.dropped[1],
            );
            let _ = writeln!(text, "{words}");
        }
    }
    text += &outcome_rows(study);
    text
}

const HEAD: [&str; 8] =
    ["", "devices", "tests", "median mean", "median max", "p50", "p99, ms", "lost %"];

/// Formats a quantile of a cohort's round trips: `lost` if it is a lost probe, `-` if no device of
/// the cohort has a scheduled run.
pub(crate) fn quantile_words(own: &CohortSeries, ms: Option<f64>) -> String {
    match ms {
        Some(ms) => significant(ms),
        None if own.sent == 0 => "-".to_owned(),
        None => "lost".to_owned(),
    }
}

fn series_cells(own: &CohortSeries) -> [String; 8] {
    let quantile = |share: f64| {
        let Some(found) = quantile_of(own, share) else { return "-".to_owned() };
        let words = |ms: Option<f64>| quantile_words(own, ms);
        let is_interval = found.low.is_some();
        let ends = format!(" [{} to {}]", words(found.low), words(found.high));
        format!("{}{}", words(found.ms), if is_interval { ends } else { String::new() })
    };
    [
        cohort_name(&own.cohort),
        own.devices.to_string(),
        own.tests.to_string(),
        significant(own.mean.median),
        significant(own.maximum.median),
        quantile(0.5),
        quantile(0.99),
        significant(own.lost as f64 * 100.0 / own.sent.max(1) as f64),
    ]
}

fn comparison_lines(comparison: &Comparison) -> Vec<String> {
    let line = |(name, found): (&str, &Compared)| {
        // Without a latency above idle there is no ratio.
        let ratio = found.ratio.as_ref().map(|it| format!("ratio {}, ", interval_words(it)));
        let shift = found.shift_ms.as_ref().map_or("-".to_owned(), interval_words);
        format!(
            "  {} against {}, {name}: {}; {}{shift} ms less, less in {} % of pairs",
            cohort_name(&comparison.cohort),
            cohort_name(&comparison.against),
            found.verdict.name(),
            ratio.unwrap_or_default(),
            significant(found.less * 100.0),
        )
    };
    compared_values(comparison).map(line).collect()
}

/// The comparisons that were possible, each with the value of a device that it compares.
pub(crate) fn compared_values(
    comparison: &Comparison,
) -> impl Iterator<Item = (&'static str, &Compared)> {
    let values = [
        ("p99 of sent", &comparison.p99),
        ("mean", &comparison.mean),
        ("maximum", &comparison.maximum),
        ("mean above idle", &comparison.above_idle),
    ];
    values.into_iter().filter_map(|(name, found)| Some((name, found.as_ref()?)))
}

fn outcome_rows(study: &CohortStudy) -> String {
    let cells: Vec<[String; 5]> = study
        .outcomes
        .iter()
        .map(|row| {
            [
                row.outcome.clone(),
                cohort_name(&row.cohort),
                row.runs.to_string(),
                significant(row.percent),
                row.difference.as_ref().map_or(String::new(), interval_words),
            ]
        })
        .collect();
    let head = ["outcome", "group", "runs", "%", "points apart"];
    if cells.is_empty() { String::new() } else { format!("\n{}", rows(cells, head)) }
}

/// Formats rows below their heads.
fn rows<const N: usize>(cells: Vec<[String; N]>, head: [&str; N]) -> String {
    let all = std::iter::once(head.map(str::to_owned)).chain(cells);
    render(&all.map(|cells| Row::Cells(cells.to_vec())).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use underload_record::schema::{ClassStudy, CohortCount, Interval, OutcomeStudy, Spread};

    use super::*;
    use crate::cohort_page;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, low: Some(low), high: Some(high) }
    }

    fn interval(mean: f64, half: f64) -> Interval {
        let (low, high) = (Some(mean - half), Some(mean + half));
        Interval { mean, low, high, confidence: 0.95, repeats: 40 }
    }

    fn cohort(name: &str, median: f64) -> CohortSeries {
        let spread = |median: f64| Spread {
            median,
            average: Some(interval(median, 1.0)),
            curve: vec![(median * 0.5, 0.5), (median * 2.0, 1.0)],
            half_height: 0.1,
            histogram: vec![50.0, 50.0],
            beyond: 0.0,
        };
        CohortSeries {
            cohort: name.to_owned(),
            devices: 40,
            tests: 120,
            sent: 1_000,
            lost: 5,
            mean: spread(median),
            maximum: spread(median * 3.0),
            quantiles: vec![QuantileEstimate {
                share: 0.99,
                ms: Some(median * 2.0),
                ..QuantileEstimate::default()
            }],
            ..CohortSeries::default()
        }
    }

    fn study(ratio: Estimate) -> CohortStudy {
        let verdict = match (ratio.low, ratio.high) {
            (Some(low), _) if low > 1.0 => Verdict::Lower,
            (_, Some(high)) if high < 1.0 => Verdict::Higher,
            (Some(_), _) => Verdict::NotSure,
            _ => Verdict::TooFew,
        };
        let found = Compared {
            verdict,
            devices: [3, 40],
            ratio: Some(ratio),
            less: 0.9,
            ..Compared::default()
        };
        let comparison = Comparison {
            cohort: "aqm".to_owned(),
            against: "control".to_owned(),
            p99: Some(found),
            ..Comparison::default()
        };
        let series = SeriesStudy {
            step: "up".to_owned(),
            load: "upload".to_owned(),
            dscp: 0,
            cohorts: vec![cohort("aqm", 20.0), cohort("control", 200.0)],
            comparisons: vec![comparison],
            ..SeriesStudy::default()
        };
        let count =
            |name: &str| CohortCount { name: name.to_owned(), devices: 40, silent: 0, tests: 120 };
        CohortStudy {
            plan: "trial".to_owned(),
            title: "A <trial>\u{1b}".to_owned(),
            reference: "control".to_owned(),
            first_ms: Some(0),
            last_ms: Some(86_400_000),
            cohorts: vec![count("aqm"), count("control")],
            series: vec![series],
            ..CohortStudy::default()
        }
    }

    #[test]
    fn the_first_sentence_has_the_effect_its_certainty_and_the_groups() {
        let first = |ratio| cohort_sentences(&study(ratio)).remove(0);
        assert_eq!(
            first(estimate(9.81, 9.7, 9.92)),
            "aqm has 9.81 times less latency under upload than control (9.70 to 9.92 at 95 %): \
             p99 of sent 40.0 ms and 400 ms, over 40 and 40 devices with 120 and \
             120 tests."
        );
        let worse = first(estimate(0.5, 0.4, 0.8));
        assert!(worse.starts_with("aqm has 2.00 times more latency"), "{worse}");
        assert!(worse.contains("(1.25 to 2.50 at 95 %)"), "{worse}");
        let chance = first(estimate(1.02, 0.97, 1.05));
        let words = "aqm is not sure to differ from control in its latency under upload; so many \
                     devices show differences from 1.05 times on: p99";
        assert!(chance.starts_with(words), "{chance}");
        let few = first(Estimate { value: 2.0, low: None, high: None });
        let words = "aqm has 2.00 times less latency under upload than control, with too few devices \
                     to be sure: p99";
        assert!(few.starts_with(words), "{few}");
        let unbounded = first(Estimate { value: 9.0, low: Some(4.0), high: None });
        assert!(
            unbounded.contains("9.00 times less") && unbounded.contains("(4.00 to more at 95 %)")
        );
        let mut lossy = study(estimate(1.5, 1.4, 1.6));
        let up = &mut lossy.series[0];
        up.cohorts[0].quantiles[0].ms = None;
        up.comparisons[0].p99 = Some(Compared { verdict: Verdict::Lost, ..Compared::default() });
        assert_eq!(
            cohort_sentences(&lossy)[0],
            "aqm has more latency under upload than control, as most devices of aqm lost more \
             than 1 % of their probes: p99 of sent lost and 400 ms, over 40 and 40 \
             devices with 120 and 120 tests."
        );
        let nothing = cohort_sentences(&CohortStudy::default());
        assert!(nothing[0].contains("nothing can be said"), "{nothing:?}");
    }

    #[test]
    fn weaknesses_of_a_study_are_warnings() {
        let mut careful = study(estimate(9.0, 8.0, 10.0));
        assert!(cohort_warnings(&careful).is_empty());
        careful.late_runs = 3;
        (careful.summed_days, careful.summed_until_ms) = (2, Some(86_400_000));
        careful.outcomes.push(OutcomeStudy {
            cohort: "aqm".to_owned(),
            outcome: "failed".to_owned(),
            runs: 30,
            percent: 20.0,
            difference: Some(estimate(12.0, 8.0, 16.0)),
            verdict: Verdict::Higher,
        });
        let warnings = cohort_warnings(&careful).join(" ");
        let summed = "2 days before 1970-01-02 are kept as sums only";
        for words in [summed, "3 runs came", "were failed"] {
            assert!(warnings.contains(words), "{words}: {warnings}");
        }
        let empty = CohortStudy { series: Vec::new(), ..careful };
        let said = cohort_sentences(&empty);
        assert!(said[0].contains("is kept by itself any more"), "{said:?}");
    }

    #[test]
    fn a_pooled_median_outside_the_devices_quartiles_is_marked() {
        let warned = |median: Option<f64>, devices: Option<(f64, f64)>| {
            let mut study = study(estimate(9.0, 8.0, 10.0));
            let own = &mut study.series[0].cohorts[0];
            own.device_medians = devices;
            own.quantiles =
                vec![QuantileEstimate { share: 0.5, ms: median, ..QuantileEstimate::default() }];
            cohort_warnings(&study)
        };
        let found = warned(Some(903.0), Some((19.0, 21.0)));
        assert_eq!(found.len(), 1, "{found:?}");
        let words = "up, DSCP 0, aqm: the median of all round trips, 903 ms, is not between";
        assert!(found[0].starts_with(words) && found[0].contains("19.0 to 21.0"), "{found:?}");
        assert_eq!(warned(Some(5.0), Some((19.0, 21.0))).len(), 1);
        for (median, devices) in
            [(Some(20.0), Some((19.0, 21.0))), (Some(903.0), None), (None, Some((19.0, 21.0)))]
        {
            assert!(warned(median, devices).is_empty(), "{median:?} {devices:?}");
        }
    }

    #[test]
    fn a_quantile_without_scheduled_runs_is_missing_and_not_lost() {
        let one = QuantileEstimate { share: 0.5, ..QuantileEstimate::default() };
        let lost = CohortSeries { quantiles: vec![one], ..cohort("aqm", 20.0) };
        assert_eq!(series_cells(&lost)[5], "lost");
        let none = CohortSeries { sent: 0, lost: 0, ..lost };
        assert_eq!(series_cells(&none)[5], "-");
    }

    #[test]
    fn a_lag_is_less_or_more_only_where_its_verdict_says_so() {
        let words = |verdict, cut| lag_words(verdict, &cut, "DSCP 0", "devices");
        assert_eq!(
            words(Verdict::Lower, interval(80.0, 10.0)),
            "has 80.0 % less lag than DSCP 0 (70.0 to 90.0 % at 95 %)"
        );
        assert_eq!(
            words(Verdict::Higher, interval(-20.0, 10.0)),
            "has 20.0 % more lag than DSCP 0 (10.0 to 30.0 % at 95 %)"
        );
        assert!(words(Verdict::Alike, interval(0.1, 0.2)).starts_with("hardly differs"));
        assert_eq!(
            words(Verdict::NotSure, interval(1.0, 3.0)),
            "is not sure to differ from DSCP 0 in its lag (-2.00 to 4.00 % less at 95 %)"
        );
        let few = Interval { low: None, high: None, repeats: 3, ..interval(30.0, 0.0) };
        let words = words(Verdict::TooFew, few);
        assert_eq!(words, "has 30.0 % less lag than DSCP 0, with too few devices to be sure,");
    }

    #[test]
    fn unhealthy_cohorts_have_a_reason_and_no_effect() {
        let mut study = study(estimate(9.81, 9.7, 9.92));
        study.unhealthy.push(Unhealthy::Silent { cohort: "aqm".to_owned() });
        study.reference = "control".to_owned();
        study.cohorts[0].silent = 20;
        study.series[0].comparisons.clear();
        let (page, table) = (cohort_page(&study), cohort_table(&study));
        for text in [page, table.replace('\n', " ")] {
            assert!(
                text.contains("20 of 60 devices of aqm and 0 of 40 devices of control"),
                "{text}"
            );
            assert!(!text.contains("9.81") && !text.contains("times less"), "{text}");
        }
    }

    #[test]
    fn page_and_table_agree_and_escape_control_characters() {
        let mut study = study(estimate(9.81, 9.7, 9.92));
        study.classes.push(ClassStudy {
            cohort: "aqm".to_owned(),
            step: "up".to_owned(),
            dscp: 45,
            devices: 40,
            days: 80,
            lag_ms: Some(interval(5.0, 1.0)),
            cut_percent: Some(interval(80.0, 2.0)),
            verdict: Verdict::Lower,
            ..ClassStudy::default()
        });
        let (page, table) = (cohort_page(&study), cohort_table(&study));
        for words in ["9.81", "120", "aqm", "control"] {
            assert!(page.contains(words) && table.contains(words), "{words}");
        }
        assert!(table.contains("DSCP 45 has 80.0 % less lag than DSCP 0 in step up"), "{table}");
        assert!(page.contains("A &lt;trial&gt;") && page.contains("1970-01-01 to 1970-01-02"));
        assert!(!page.contains('\u{1b}') && !table.contains('\u{1b}'));
        assert_eq!(page.matches("<svg class=\"plot\"").count(), 4);
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    }
}
