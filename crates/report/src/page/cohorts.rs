//! The page of a study of cohorts.

use maud::{Markup, html};
use underload_record::schema::{
    ClassStudy, CohortSeries, CohortStudy, Compared, Comparison, Estimate, OutcomeStudy,
    QualityStudy, QuantileEstimate, SeriesStudy, Stratified, Stratum, TierUse,
};
use underload_record::text::plain_text;

use super::figures::{Headings, figures};
use super::header;
use super::parts::{
    Column, Least, NOTHING, careful, folded, lost_days, mean, signed, table_of, with_range,
};
use crate::cohorts::{
    cohort_name, cohort_sentences, cohort_warnings, compared_values, day, load_words,
    quantile_words, series_name,
};
use crate::plot::{Plot, cohort_plots};
use crate::words::{count, significant, thousands};

/// Renders the page of a study: its results, their certainty, and the data behind them.
pub fn cohort_page(study: &CohortStudy) -> String {
    let plots = cohort_plots(study);
    let title = if study.title.is_empty() { &study.plan } else { &study.title };
    let content = html! {
        (top(study, title))
        @for (number, plots) in &plots { (series(&study.series[*number], plots)) }
        (classes(&study.classes))
        (uses(&study.uses))
        (qualities(&study.qualities))
        (outcomes(study))
        (method())
    };
    plain_text(&header::document(title, &content).into_string())
}

fn top(study: &CohortStudy, title: &str) -> Markup {
    let (devices, tests) = study
        .cohorts
        .iter()
        .fold((0, 0), |(devices, tests), cohort| (devices + cohort.devices, tests + cohort.tests));
    let days = study.first_ms.and_then(day).zip(study.last_ms.and_then(day));
    let warnings = cohort_warnings(study);
    html! {
        header {
            "\n"
            p.kind {
                (study.plan) ", " (count(devices, "device")) ", " (count(tests, "test"))
                @if let Some((first, last)) = days { ", " (first) " to " (last) }
            }
            "\n"
            h1 { (title) } "\n"
            @for (number, line) in cohort_sentences(study).iter().enumerate() {
                p.verdict.minor[number > 0] { (line) } "\n"
            }
            (careful(&warnings))
        }
        "\n"
    }
}

fn series(series: &SeriesStudy, plots: &[Plot]) -> Markup {
    type Cells<'c> = Column<'c, CohortSeries>;
    let mut columns = vec![
        Cells::words("group", |own| cohort_name(&own.cohort)),
        Cells::numbers("devices", |own| thousands(own.devices)),
        Cells::numbers("tests", |own| thousands(own.tests)),
        Cells::units("mean", "ms, over devices", |own| {
            mean(own.mean.average.as_ref(), 1.0, Least::Zero)
        }),
        Cells::units("median", "ms, of means", |own| significant(own.mean.median)),
        Cells::units("median", "ms, of maxima", |own| significant(own.maximum.median)),
        Cells::units("above idle", "ms", |own| mean(own.above_idle.as_ref(), 1.0, Least::None)),
    ];
    columns.extend(["p50", "p90", "p95", "p99"].iter().enumerate().map(|(number, share)| {
        Cells::units(share, "ms, of round trips", move |own: &CohortSeries| {
            own.quantiles.get(number).map_or(html! {}, |found| quantile(own, found))
        })
    }));
    columns.push(Cells::units("lost", "%", |own| {
        significant(own.lost as f64 * 100.0 / own.sent.max(1) as f64)
    }));
    let step = format!("Step {}", series_name(series));
    html! {
        h2 { (step) ": " (load_words(series)) } "\n"
        (figures(plots, Headings::Shown))
        (table_of(&format!("{step}: groups"), &columns, &series.cohorts))
        (comparisons(&format!("{step}: groups compared"), &series.comparisons))
        @for stratified in &series.stratified { (strata(&step, stratified)) }
    }
}

fn quantile(own: &CohortSeries, found: &QuantileEstimate) -> Markup {
    let words = |ms: Option<f64>| quantile_words(own, ms);
    let range = found.low.map(|low| format!("{}–{}", significant(low), words(found.high)));
    with_range(&words(found.ms), range)
}

fn comparisons(caption: &str, comparisons: &[Comparison]) -> Markup {
    type Row<'a> = (&'a Comparison, &'static str, &'a Compared);
    type Cells<'c, 'r> = Column<'c, Row<'r>>;
    let rows_of = |it| compared_values(it).map(move |(name, found)| (it, name, found));
    let rows: Vec<Row<'_>> = comparisons.iter().flat_map(rows_of).collect();
    if rows.is_empty() {
        return html! {};
    }
    let columns = [
        Cells::wide_words("group", |(it, ..)| {
            format!("{} against {}", cohort_name(&it.cohort), cohort_name(&it.against))
        }),
        Cells::words("value of a device", |(_, name, _)| *name),
        Cells::words("verdict", |(.., found)| found.verdict.name()),
        Cells::units("ratio", "reference by group", |(.., found)| estimate(found.ratio.as_ref())),
        Cells::units("less", "ms", |(.., found)| estimate(found.shift_ms.as_ref())),
        Cells::units("pairs with less", "%", |(.., found)| significant(found.less * 100.0)),
    ];
    table_of(caption, &columns, &rows)
}

fn estimate(found: Option<&Estimate>) -> Markup {
    let Some(found) = found else { return html! { (NOTHING) } };
    let range = found.low.zip(found.high).map(|(low, high)| {
        let between = if low < 0.0 { " to " } else { "–" };
        format!("{}{between}{}", signed(low), signed(high))
    });
    with_range(&signed(found.value), range)
}

fn strata(step: &str, stratified: &Stratified) -> Markup {
    type Cells<'c> = Column<'c, Stratum>;
    let (cohort, against) = (cohort_name(&stratified.cohort), cohort_name(&stratified.against));
    let summary = match &stratified.ratio {
        Some(ratio) => format!(
            "{cohort} against {against} within the same {}: ratio {}, {}",
            stratified.by,
            crate::cohorts::interval_words(ratio),
            stratified.verdict.name()
        ),
        None => format!("{cohort} against {against} within the same {}: too few", stratified.by),
    };
    let columns = [
        Cells::wide_words(&stratified.by, |it| match it.value.as_str() {
            "" => "(not known)".to_owned(),
            value => value.to_owned(),
        }),
        Cells::units("devices", &cohort, |it| thousands(it.devices[0])),
        Cells::units("devices", &against, |it| thousands(it.devices[1])),
        Cells::units("weight", "%", |it| significant(it.weight * 100.0)),
        Cells::units("ratio", "reference by group", |it| estimate(Some(&it.ratio))),
        Cells::words("verdict", |it| it.verdict.name()),
    ];
    let caption = format!("{step}: {cohort} against {against} by {}", stratified.by);
    let content = html! {
        p.note {
            "Ratios of geometric means within lines that are alike, put together with the share "
            "of both groups' lines in each part as weight. Left out, because one group has "
            "fewer than five lines there: " (count(stratified.strata_dropped, "part")) " with "
            (thousands(stratified.dropped[0])) " and " (thousands(stratified.dropped[1]))
            " devices."
        }
        "\n"
        (table_of(&caption, &columns, &stratified.strata))
    };
    folded(&summary, false, &content)
}

fn classes(classes: &[ClassStudy]) -> Markup {
    type Cells<'c> = Column<'c, ClassStudy>;
    if classes.is_empty() {
        return html! {};
    }
    let columns = [
        Cells::words("group", |it| cohort_name(&it.cohort)),
        Cells::words("step", |it| it.step.clone()),
        Cells::numbers("DSCP", |it| it.dscp),
        Cells::units("measured", "devices, days", |it| {
            format!("{}, {}", thousands(it.devices), thousands(it.days))
        }),
        Cells::units("idle p50", "ms", |it| mean(it.idle_p50_ms.as_ref(), 1.0, Least::Zero)),
        Cells::units("loaded p99", "ms", |it| {
            let loaded = mean(it.loaded_p99_ms.as_ref(), 1.0, Least::Zero);
            html! { (loaded) (lost_days(it.days_lost)) }
        }),
        Cells::units("lag", "ms", |it| mean(it.lag_ms.as_ref(), 1.0, Least::None)),
        Cells::units("cut", "%", |it| mean(it.cut_percent.as_ref(), 1.0, Least::None)),
    ];
    html! {
        h2 { "Lag of each class" } "\n"
        p.note {
            "Of each device and day, all loaded probes of a class together: their 99th "
            "percentile, in which a lost probe is longer than every answer, and what it is above "
            "the idle median of the same class and day. The cut "
            "is the share of the lag of the step's lowest DSCP that a class does not have. Days "
            "of a device are averaged first; means over devices with 95 % intervals. A run counts "
            "where the load reached 95 % of the most that its own line reached."
        }
        "\n"
        (table_of("Lag of each class", &columns, classes))
    }
}

fn uses(uses: &[TierUse]) -> Markup {
    type Cells<'c> = Column<'c, TierUse>;
    if uses.is_empty() {
        return html! {};
    }
    let columns = [
        Cells::words("group", |it| cohort_name(&it.cohort)),
        Cells::words("step", |it| it.step.clone()),
        Cells::units("of the tier", "%", |it| mean(it.percent.as_ref(), 1.0, Least::Zero)),
        Cells::units("95 % or more", "% of devices", |it| significant(it.full)),
    ];
    html! {
        h2 { "Of what is sold" } "\n"
        (table_of("Share of the tier that was reached", &columns, uses))
    }
}

fn qualities(qualities: &[QualityStudy]) -> Markup {
    type Cells<'c> = Column<'c, QualityStudy>;
    if qualities.is_empty() {
        return html! {};
    }
    let columns = [
        Cells::words("group", |it| cohort_name(&it.cohort)),
        Cells::words("step", |it| it.step.clone()),
        Cells::numbers("devices", |it| thousands(it.devices)),
        Cells::units("lowest QoO", "%", |it| mean(it.percent.as_ref(), 1.0, Least::Zero)),
        Cells::units("apart", "points", |it| estimate(it.gain.as_ref())),
    ];
    html! {
        h2 { "Quality of Outcome" } "\n"
        p.note {
            "Of a call, a game and a web page the lowest score under the load "
            "(draft-ietf-ippm-qoo-10): 0 % is unacceptable, 100 % optimal. Means over devices; the "
            "difference to the reference is in percentage points, with 95 % intervals."
        }
        "\n"
        (table_of("Quality of Outcome", &columns, qualities))
    }
}

fn outcomes(study: &CohortStudy) -> Markup {
    type Cells<'c> = Column<'c, OutcomeStudy>;
    if study.outcomes.is_empty() {
        return html! {};
    }
    let columns = [
        Cells::words("outcome", |it| it.outcome.clone()),
        Cells::words("group", |it| cohort_name(&it.cohort)),
        Cells::numbers("runs", |it| thousands(it.runs)),
        Cells::units("share", "%", |it| significant(it.percent)),
        Cells::units("apart", "points", |it| estimate(it.difference.as_ref())),
    ];
    html! {
        h2 { "Runs that are missing" } "\n"
        p.note {
            "Every run that was due has one outcome. Groups that miss runs unequally may differ "
            "for that reason: the difference to the reference is in percentage points, with a "
            "99 % interval over devices."
        }
        "\n"
        (table_of("Runs that are missing", &columns, &study.outcomes))
    }
}

fn method() -> Markup {
    html! {
        h2 { "How this was computed" } "\n"
        p.note {
            "A device counts once, however often it was measured: its value is the mean over its "
            "tests. Ratio and difference are Hodges-Lehmann estimates, the median over all pairs "
            "of devices, with 95 % intervals; a group is lower or higher if the interval excludes "
            "equality and a person notices the difference. Quantiles are of all round "
            "trips together, from bins of 2 %, a lost probe longer than all others; their "
            "intervals come from drawing devices 400 times."
        }
        "\n"
    }
}
