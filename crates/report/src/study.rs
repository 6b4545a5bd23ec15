//! A study of lines in words: its groups, and lines for a terminal's table.

use underload_record::comparison::Verdict;
use underload_record::schema::{Interval, RunRecord, StudyGroup, StudyRecord};

use crate::words::{count, ms, significant};

/// Returns `variant: model XB7, firmware 6.5`, or `all lines`.
pub(crate) fn group_name(group: &StudyGroup, has_variants: bool) -> String {
    let conditions: Vec<String> =
        group.conditions.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let lines = if conditions.is_empty() { "all lines".to_owned() } else { conditions.join(", ") };
    if has_variants { format!("{}: {lines}", group.variant) } else { lines }
}

/// Returns the title of a run's study and a line for each group; `None` without a study.
pub(crate) fn table_lines(record: &RunRecord) -> Option<(String, Vec<String>)> {
    let study = record.study.as_ref()?;
    let left_out = left_out(study).map(|words| format!("; {words}")).unwrap_or_default();
    let title = format!(
        "{} against {}, {}, {} of them not eligible{left_out}: lag p99, and the cut of it",
        study.class,
        study.against,
        count(study.lines, "line"),
        study.ineligible
    );
    let has_variants = record.variants.len() > 1;
    Some((title, study.groups.iter().map(|group| group_line(study, group, has_variants)).collect()))
}

/// Returns a sentence for each variant on the effect of a marking over all lines; empty without a
/// study.
pub(crate) fn sentences(record: &RunRecord) -> Vec<String> {
    let Some(study) = &record.study else { return Vec::new() };
    let has_variants = record.variants.len() > 1;
    let all_lines = study.groups.iter().filter(|group| group.conditions.is_empty());
    let mut lines: Vec<String> =
        all_lines.take(MOST_SENTENCES).map(|group| sentence(study, group, has_variants)).collect();
    if lines.is_empty() && !record.trials.is_empty() {
        lines.push("No run of a line counts, so nothing can be said of its classes.".to_owned());
    }
    lines
}

/// Maximum number of variants with a sentence each; the table has more.
const MOST_SENTENCES: usize = 4;

fn sentence(study: &StudyRecord, group: &StudyGroup, has_variants: bool) -> String {
    let StudyRecord { class, against, .. } = study;
    let with = if has_variants { format!("With {}, ", group.variant) } else { String::new() };
    let lag = |class: &String| group.classes.get(class)?.lag_ns.as_ref();
    let (Some(cut), Some(own), Some(other)) = (&group.cut_percent, lag(class), lag(against)) else {
        let runs = count(group.runs + group.runs_void, "run");
        return format!(
            "{with}{class} and {against} cannot be compared: of {runs} {} count, and no line has \
             both classes, idle and under load.",
            group.runs
        );
    };
    let lag_ms = |lag: &Interval| significant(lag.mean / 1e6);
    format!(
        "{with}{class} {} over {}: {} against {} ms of round trip at p99 under load above the idle \
         median, the mean of the lines.",
        lag_words(group.verdict, cut, against, "lines"),
        count(cut.repeats, "line"),
        lag_ms(own),
        lag_ms(other)
    )
}

/// Formats the verdict on the lag of a class against `than`, by its reduction over `units`.
pub(crate) fn lag_words(verdict: Verdict, cut: &Interval, than: &str, units: &str) -> String {
    let (low, high) = (cut.low.unwrap_or_default(), cut.high.unwrap_or_default());
    let (least, most, word) =
        if cut.mean < 0.0 { (-high, -low, "more") } else { (low, high, "less") };
    let lag = format!("has {} % {word} lag than {than}", significant(cut.mean.abs()));
    let range = format!("{} to {} %", significant(least), significant(most));
    let percent = (cut.confidence * 100.0).round();
    match verdict {
        Verdict::Lower | Verdict::Higher => format!("{lag} ({range} at {percent} %)"),
        Verdict::Alike => format!("hardly differs from {than} in its lag"),
        Verdict::TooFew => format!("{lag}, with too few {units} to be sure,"),
        _ => {
            format!("is not sure to differ from {than} in its lag ({range} {word} at {percent} %)")
        }
    }
}

/// Says how many runs a study left out; `None` if none.
pub(crate) fn left_out(study: &StudyRecord) -> Option<String> {
    (study.runs_left_out > 0)
        .then(|| format!("{} left out for memory", count(study.runs_left_out, "run")))
}

fn group_line(study: &StudyRecord, group: &StudyGroup, has_variants: bool) -> String {
    let lag = |class: &str| {
        let lag = group.classes.get(class).and_then(|class| class.lag_ns.as_ref());
        lag.map_or_else(|| "-".to_owned(), |lag| ms(lag.mean.max(0.0) as u64))
    };
    let cut = group.cut_percent.as_ref().map_or_else(|| "-".to_owned(), with_interval);
    format!(
        "{}: {}, {} ({} void), {} to {} ms, cut {cut} %",
        group_name(group, has_variants),
        count(group.lines, "line"),
        count(group.runs, "run"),
        group.runs_void,
        lag(&study.against),
        lag(&study.class),
    )
}

fn with_interval(interval: &Interval) -> String {
    let mean = significant(interval.mean);
    match (interval.low, interval.high) {
        (Some(low), Some(high)) => {
            format!("{mean} [{} to {}]", significant(low), significant(high))
        }
        _ => mean,
    }
}
