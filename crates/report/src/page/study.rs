//! A study of lines, each measured several times a day: the effect of a marking, by group.

use maud::{Markup, html};
use underload_record::schema::{RunRecord, StudyClass, StudyGroup, StudyRecord};

use super::parts::{Least, NOTHING, lost_days, mean, table, unit_head, words_head};
use crate::study::{group_name, left_out};
use crate::words::{count, significant, thousands};
use underload_store::RunData;

pub(super) fn section(runs: &[RunData]) -> Markup {
    let studies = runs.iter().filter_map(|run| Some((&run.record, run.record.study.as_ref()?)));
    html! {
        @for (record, study) in studies { (one(record, study)) }
    }
}

fn one(record: &RunRecord, study: &StudyRecord) -> Markup {
    let head = html! {
        (words_head("lines")) (words_head("class")) (unit_head("measured", "lines"))
        (unit_head("runs", "that count, void")) (unit_head("idle p50", "ms"))
        (unit_head("loaded p99", "ms")) (unit_head("lag", "ms")) (unit_head("cut", "%"))
    };
    let has_variants = record.variants.len() > 1;
    let rows: Vec<Markup> =
        study.groups.iter().flat_map(|group| group_rows(study, group, has_variants)).collect();
    html! {
        h2 { "Lines: " (study.class) " against " (study.against) } "\n"
        p.note {
            (count(u64::from(study.lines), "line")) " in all, "
            (thousands(u64::from(study.ineligible))) " of them not eligible and not measured. A "
            "run is void where the upload did not reach " (significant(study.full_percent))
            " % of the most that its own line reached. The 99th percentile is of all loaded "
            "round trips of a line's day; the lag is that less the idle median of the same class "
            "and day; the cut is the share of " (study.against) "'s lag that " (study.class)
            " does not have. Means over lines with their 95 % intervals; a line's days are "
            "averaged first."
            @if let Some(words) = left_out(study) { " Not of all runs: " (words) "." }
        }
        "\n"
        (table(&head, &rows))
    }
}

fn group_rows(study: &StudyRecord, group: &StudyGroup, has_variants: bool) -> Vec<Markup> {
    let rows = group.classes.iter().enumerate();
    rows.map(|(number, (name, class))| {
        row(study, group, (number == 0, has_variants), (name, class))
    })
    .collect()
}

fn row(
    study: &StudyRecord,
    group: &StudyGroup,
    (is_first, has_variants): (bool, bool),
    (name, class): (&String, &StudyClass),
) -> Markup {
    let StudyClass { idle_p50_ns, loaded_p99_ns, lag_ns, days_lost } = class;
    let ms = |interval: &Option<_>| mean(interval.as_ref(), 1e6, Least::None);
    html! {
        tr {
            td.text.wide { @if is_first { (group_name(group, has_variants)) } }
            td.text { (name) }
            td { @if is_first { (group.lines) } }
            td { @if is_first { (group.runs) ", " (group.runs_void) } }
            td { (ms(idle_p50_ns)) }
            td { (ms(loaded_p99_ns)) (lost_days(*days_lost)) }
            td { (ms(lag_ns)) }
            td {
                @if *name == study.class { (mean(group.cut_percent.as_ref(), 1.0, Least::None)) }
                @else { (NOTHING) }
            }
        }
    }
}
