//! The page of a study of cohorts.

use maud::{Markup, html};
use underload_record::schema::{
    ClassStudy, CohortSeries, CohortStudy, Compared, Comparison, Estimate, OutcomeStudy,
    QualityStudy, QuantileEstimate, SeriesStudy, Stratified, TierUse,
};

use super::figures::{Headings, figures};
use super::parts::{
    Least, NOTHING, careful, folded, head, lost_days, mean, signed, table, unit_head, with_range,
    words_head,
};
use super::{header, published, without_controls};
use crate::cohorts::{
    cohort_name, cohort_sentences, cohort_warnings, compared_values, day, load_words, p_words,
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
        (self_check(study))
        (published::expectations(&study.published))
        (method())
    };
    without_controls(header::document(title, &content).into_string())
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
    let cohort_head = html! {
        (words_head("group")) (head("devices")) (head("tests"))
        (unit_head("mean", "ms, over devices")) (unit_head("median", "ms, of means"))
        (unit_head("median", "ms, of maxima")) (unit_head("above idle", "ms"))
        @for share in ["p50", "p90", "p95", "p99"] { (unit_head(share, "ms, of round trips")) }
        (unit_head("lost", "%"))
    };
    let cohort_rows: Vec<Markup> = series.cohorts.iter().map(cohort_row).collect();
    let compared: Vec<Markup> = series.comparisons.iter().flat_map(comparison_rows).collect();
    let compared_head = html! {
        (words_head("group")) (words_head("value of a device")) (unit_head("less", "times"))
        (unit_head("less", "ms")) (unit_head("pairs with less", "%"))
        (unit_head("p-value", "ranks")) (unit_head("distance", "of the curves"))
        (unit_head("p-value", "distance"))
    };
    html! {
        h2 { "Step " (series_name(series)) ": " (load_words(series)) } "\n"
        (figures(plots, Headings::Shown))
        (table(&cohort_head, &cohort_rows))
        @if !compared.is_empty() { (table(&compared_head, &compared)) }
        @for stratified in &series.stratified { (strata(stratified)) }
    }
}

fn cohort_row(own: &CohortSeries) -> Markup {
    let lost = own.lost as f64 * 100.0 / own.sent.max(1) as f64;
    html! {
        tr {
            td.text { (cohort_name(&own.cohort)) }
            td { (thousands(own.devices)) }
            td { (thousands(own.tests)) }
            td { (mean(own.mean.average.as_ref(), 1.0, Least::Zero)) }
            td { (significant(own.mean.median)) }
            td { (significant(own.maximum.median)) }
            td { (mean(own.above_idle.as_ref(), 1.0, Least::None)) }
            @for found in &own.quantiles { td { (quantile(own, found)) } }
            td { (significant(lost)) }
        }
    }
}

fn quantile(own: &CohortSeries, found: &QuantileEstimate) -> Markup {
    let words = |ms: Option<f64>| quantile_words(own, ms);
    let range = found.low.map(|low| format!("{}–{}", significant(low), words(found.high)));
    with_range(&words(found.ms), range)
}

fn comparison_rows(comparison: &Comparison) -> Vec<Markup> {
    compared_values(comparison).map(|(name, found)| compared_row(comparison, name, found)).collect()
}

fn compared_row(comparison: &Comparison, name: &str, found: &Compared) -> Markup {
    let (cohort, against) = (cohort_name(&comparison.cohort), cohort_name(&comparison.against));
    html! {
        tr {
            td.text.wide { (cohort) " against " (against) }
            td.text { (name) }
            td { (estimate(found.ratio.as_ref())) }
            td { (estimate(found.shift_ms.as_ref())) }
            td { (significant(found.less * 100.0)) }
            td { (p_words(found.rank_p_value)) }
            td { (significant(found.distance)) }
            td { (p_words(found.distance_p_value)) }
        }
    }
}

fn estimate(found: Option<&Estimate>) -> Markup {
    let Some(found) = found else { return html! { (NOTHING) } };
    let range = found.low.zip(found.high).map(|(low, high)| {
        let between = if low < 0.0 { " to " } else { "–" };
        format!("{}{between}{}", signed(low), signed(high))
    });
    with_range(&signed(found.value), range)
}

fn strata(stratified: &Stratified) -> Markup {
    let (cohort, against) = (cohort_name(&stratified.cohort), cohort_name(&stratified.against));
    let summary = match &stratified.ratio {
        Some(ratio) => format!(
            "{cohort} against {against} within like {}: {} times less",
            stratified.by,
            crate::cohorts::interval_words(ratio)
        ),
        None => format!("{cohort} against {against} within like {}: no lines alike", stratified.by),
    };
    let rows: Vec<Markup> = stratified
        .strata
        .iter()
        .map(|stratum| {
            html! {
                tr {
                    td.text.wide {
                        @if stratum.value.is_empty() { "(not known)" } @else { (stratum.value) }
                    }
                    td { (thousands(stratum.devices[0])) }
                    td { (thousands(stratum.devices[1])) }
                    td { (significant(stratum.weight * 100.0)) }
                    td { (estimate(Some(&stratum.ratio))) }
                }
            }
        })
        .collect();
    let head = html! {
        (words_head(&stratified.by)) (unit_head("devices", &cohort))
        (unit_head("devices", &against)) (unit_head("weight", "%")) (unit_head("less", "times"))
    };
    let content = html! {
        p.note {
            "Ratios of geometric means within lines that are alike, put together with the share "
            "of both groups' lines in each part as weight. Left out, because one group has "
            "fewer than five lines there: " (count(stratified.strata_dropped, "part")) " with "
            (thousands(stratified.dropped[0])) " and " (thousands(stratified.dropped[1]))
            " devices."
        }
        "\n"
        (table(&head, &rows))
    };
    folded(&summary, false, &content)
}

fn classes(classes: &[ClassStudy]) -> Markup {
    if classes.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("group")) (words_head("step")) (head("DSCP"))
        (unit_head("measured", "devices, days")) (unit_head("idle p50", "ms"))
        (unit_head("loaded p99", "ms")) (unit_head("lag", "ms")) (unit_head("cut", "%"))
    };
    let row = |class: &ClassStudy| {
        html! {
            tr {
                td.text { (cohort_name(&class.cohort)) }
                td.text { (class.step) }
                td { (class.dscp) }
                td { (thousands(class.devices)) ", " (thousands(class.days)) }
                td { (mean(class.idle_p50_ms.as_ref(), 1.0, Least::Zero)) }
                td {
                    (mean(class.loaded_p99_ms.as_ref(), 1.0, Least::Zero))
                    (lost_days(class.days_lost))
                }
                td { (mean(class.lag_ms.as_ref(), 1.0, Least::None)) }
                td { (mean(class.cut_percent.as_ref(), 1.0, Least::None)) }
            }
        }
    };
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
        (table(&head, &classes.iter().map(row).collect::<Vec<_>>()))
    }
}

fn uses(uses: &[TierUse]) -> Markup {
    if uses.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("group")) (words_head("step")) (unit_head("of the tier", "%"))
        (unit_head("95 % or more", "% of devices"))
    };
    let row = |used: &TierUse| {
        html! {
            tr {
                td.text { (cohort_name(&used.cohort)) }
                td.text { (used.step) }
                td { (mean(used.percent.as_ref(), 1.0, Least::Zero)) }
                td { (significant(used.full)) }
            }
        }
    };
    html! {
        h2 { "Of what is sold" } "\n"
        (table(&head, &uses.iter().map(row).collect::<Vec<_>>()))
    }
}

fn qualities(qualities: &[QualityStudy]) -> Markup {
    if qualities.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("group")) (words_head("step")) (head("devices")) (unit_head("lowest QoO", "%"))
        (unit_head("apart", "points"))
    };
    let row = |found: &QualityStudy| {
        html! {
            tr {
                td.text { (cohort_name(&found.cohort)) }
                td.text { (found.step) }
                td { (thousands(found.devices)) }
                td { (mean(found.percent.as_ref(), 1.0, Least::Zero)) }
                td { (estimate(found.gain.as_ref())) }
            }
        }
    };
    html! {
        h2 { "Quality of Outcome" } "\n"
        p.note {
            "Of a call, a game and a web page the lowest score under the load "
            "(draft-ietf-ippm-qoo-10): 0 % is unacceptable, 100 % optimal. Means over devices; the "
            "difference to the reference is in percentage points, with 95 % intervals."
        }
        "\n"
        (table(&head, &qualities.iter().map(row).collect::<Vec<_>>()))
    }
}

fn outcomes(study: &CohortStudy) -> Markup {
    if study.outcomes.is_empty() {
        return html! {};
    }
    let head = html! {
        (words_head("outcome")) (words_head("group")) (head("runs")) (unit_head("share", "%"))
        (unit_head("apart", "points")) (head("p-value"))
    };
    let row = |row: &OutcomeStudy| {
        html! {
            tr {
                td.text { (row.outcome) }
                td.text { (cohort_name(&row.cohort)) }
                td { (thousands(row.runs)) }
                td { (significant(row.percent)) }
                td { (estimate(row.difference.as_ref())) }
                td { (row.p_value.map_or(NOTHING.to_owned(), p_words)) }
            }
        }
    };
    html! {
        h2 { "Runs that are missing" } "\n"
        p.note {
            "Every run that was due has one outcome. Groups that miss runs unequally may differ "
            "for that reason: the difference to the reference is in percentage points, with a "
            "95 % interval over devices."
        }
        "\n"
        (table(&head, &study.outcomes.iter().map(row).collect::<Vec<_>>()))
    }
}

fn self_check(study: &CohortStudy) -> Markup {
    let Some(check) = &study.self_check else { return html! {} };
    html! {
        h2 { "The plan against itself" } "\n"
        p {
            "The " (thousands(check.devices)) " devices of " (cohort_name(&check.cohort))
            ", halved at random " (check.splits) " times: the halves differ at the 5 % level in "
            (significant(check.differ_percent)) " % of the splits, where 5 % is chance. In 95 of "
            "100 splits one half has at most " (significant(check.ratio_by_chance))
            " times the other's latency: smaller effects cannot be seen with so many devices."
        }
        "\n"
    }
}

fn method() -> Markup {
    html! {
        h2 { "How this was computed" } "\n"
        p.note {
            "A device counts once, however often it was measured: its value is the mean over its "
            "tests. Ratio and difference are Hodges-Lehmann estimates, the median over all pairs "
            "of devices, with 95 % intervals; p-values are two-sided, by Mann and Whitney of the "
            "ranks and by Kolmogorov and Smirnov of the distance. Quantiles are of all round "
            "trips together, from bins of 2 %, a lost probe longer than all others; their "
            "intervals come from drawing devices 400 times."
        }
        "\n"
    }
}
