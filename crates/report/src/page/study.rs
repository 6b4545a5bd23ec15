//! A study of lines, each measured several times a day: the effect of a marking, by group.

use maud::{Markup, html};
use underload_record::schema::{RunRecord, StudyClass, StudyGroup, StudyRecord};

use super::parts::{Column, Least, NOTHING, lost_days, mean, table_of};
use crate::study::{group_name, left_out};
use crate::words::{count, significant, thousands};
use underload_store::RunData;

pub(super) fn section(runs: &[RunData]) -> Markup {
    let studies = runs.iter().filter_map(|run| Some((&run.record, run.record.study.as_ref()?)));
    html! {
        @for (record, study) in studies { (one(record, study)) }
    }
}

/// A class of a group. Only the first class of a group has the numbers of the group.
struct Row<'a> {
    group: &'a StudyGroup,
    is_first: bool,
    name: &'a String,
    class: &'a StudyClass,
}

fn one(record: &RunRecord, study: &StudyRecord) -> Markup {
    type Cells<'c, 'r> = Column<'c, Row<'r>>;
    let has_variants = record.variants.len() > 1;
    let of_first = |row: &Row<'_>, text: String| if row.is_first { text } else { String::new() };
    let ms = |interval: &Option<_>| mean(interval.as_ref(), 1e6, Least::None);
    let columns = [
        Cells::wide_words("lines", |row| of_first(row, group_name(row.group, has_variants))),
        Cells::words("class", |row| row.name.clone()),
        Cells::units("measured", "lines", |row| of_first(row, row.group.lines.to_string())),
        Cells::units("runs", "that count, void", |row| {
            of_first(row, format!("{}, {}", row.group.runs, row.group.runs_void))
        }),
        Cells::units("idle p50", "ms", |row| ms(&row.class.idle_p50_ns)),
        Cells::units("loaded p99", "ms", |row| {
            html! { (ms(&row.class.loaded_p99_ns)) (lost_days(row.class.days_lost)) }
        }),
        Cells::units("lag", "ms", |row| ms(&row.class.lag_ns)),
        Cells::units("cut", "%", |row| {
            if *row.name == study.class {
                mean(row.group.cut_percent.as_ref(), 1.0, Least::None)
            } else {
                html! { (NOTHING) }
            }
        }),
    ];
    let mut rows = Vec::new();
    for group in &study.groups {
        let classes = group.classes.iter().enumerate();
        rows.extend(classes.map(|(number, (name, class))| {
            let is_first = number == 0;
            Row { group, is_first, name, class }
        }));
    }
    html! {
        h2 { "Lines: " (study.class) " against " (study.against) } "\n"
        p.note {
            (count(study.lines, "line")) " in all, "
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
        (table_of("Lag of the lines of both classes", &columns, &rows))
    }
}
