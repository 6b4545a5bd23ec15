//! Sentences about a line's history.

use underload_record::history::{Change, Followed, Labelled, Level, Mark, Marked, RUNS_MIN, Trend};
use underload_report::significant;

/// Returns the first sentence and one sentence for each judged step of the number.
pub fn sentences(trends: &[Trend], metric: Followed, runs: usize) -> Vec<String> {
    let mut lines: Vec<String> = trends
        .iter()
        .filter(|it| it.followed == metric && !it.points.is_empty())
        .map(sentence)
        .collect();
    if lines.is_empty() {
        let (words, _) = metric.words();
        lines.push(format!(
            "No valid run tells the {words}: a p99 needs 500 probes, --metric load-p50 fewer."
        ));
    }
    lines.push(format!("{} {} read.", count(runs), if runs == 1 { "was" } else { "were" }));
    lines
}

/// Marks with sentences, the latest ones; the page has all.
const MARKS_TOLD: usize = 5;

/// Returns a sentence for each step around the latest marks.
pub fn of_marks(marks: &[Marked], metric: Followed) -> Vec<String> {
    let latest = &marks[marks.len().saturating_sub(MARKS_TOLD)..];
    let of_mark = |it: &Marked| -> Vec<String> {
        let of_metric = it.changes.iter().filter(|change| change.followed == metric);
        of_metric.map(|change| around(&it.mark, change)).collect()
    };
    latest.iter().flat_map(of_mark).collect()
}

fn around(mark: &Mark, change: &Change) -> String {
    let date = jiff::Timestamp::from_second(mark.at_s).unwrap_or_default().strftime("%F");
    let (words, unit) = change.followed.words();
    let start = format!("Mark \"{}\" ({date}): {}: {words}", mark.text, change.step);
    let (Some(before), Some(after), Some(percent)) =
        (change.before, change.after, change.change_percent)
    else {
        let runs = |level: Option<Level>| level.map_or(0, |it| it.runs);
        return format!(
            "{start}: {} runs before it and {} after it; a comparison needs {RUNS_MIN} of each.",
            runs(change.before),
            runs(change.after)
        );
    };
    let doubt = if change.is_beyond || percent.abs() < 1.0 {
        ""
    } else {
        ", within what the runs before it had"
    };
    format!(
        "{start} is {} {unit} in the {} runs after it against {} {unit} in the {} before it: \
         {}{doubt}.",
        significant(after.p50),
        after.runs,
        significant(before.p50),
        before.runs,
        difference(percent)
    )
}

/// Returns a sentence for each label and step.
pub fn of_labels(labels: &[Labelled], metric: Followed) -> Vec<String> {
    let (words, unit) = metric.words();
    let sentence = |it: &Labelled| {
        format!(
            "Label \"{}\": {}: {words} is {} {unit} (median of {}).",
            it.label,
            it.step,
            significant(it.level.p50),
            count(it.level.runs)
        )
    };
    labels.iter().filter(|it| it.followed == metric).map(sentence).collect()
}

fn count(runs: usize) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}

fn difference(percent: f64) -> String {
    if percent.abs() < 1.0 {
        return "no change".to_owned();
    }
    format!("{:.0} % {}", percent.abs(), if percent > 0.0 { "more" } else { "less" })
}

/// Returns the sentence about one step: the latest runs compared with the first days.
pub fn sentence(trend: &Trend) -> String {
    let (words, unit) = trend.followed.words();
    let step = &trend.step;
    if let Some(last) = trend.points.last().filter(|_| !trend.is_current) {
        return format!(
            "{step}: {words} was not measured since {} ({} {unit} then), and is not judged.",
            jiff::Timestamp::from_second(last.at_s).unwrap_or_default().strftime("%F"),
            significant(last.value)
        );
    }
    match (trend.baseline, trend.recent, trend.change_percent) {
        (Some(baseline), Some(recent), Some(change)) => {
            let direction = difference(change);
            format!(
                "{step}: {words} is {} {unit} in the latest {} runs against {} {unit} in the first \
                 {}: {direction}.",
                significant(recent.p50),
                recent.runs,
                significant(baseline.p50),
                baseline.runs
            )
        }
        (Some(baseline), ..) => format!(
            "{step}: {words} is {} {unit} (median of {}); a change needs {RUNS_MIN} runs in the \
             baseline and as many after it.",
            significant(baseline.p50),
            count(baseline.runs)
        ),
        _ => format!("{step}: {words} was not measured."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_changed_and_how_sure_that_is() {
        let level = |runs, p50| Some(Level { runs, p10: p50, p50, p90: p50 });
        let change = |before, after, change_percent, is_beyond| Change {
            step: "up".to_owned(),
            followed: Followed::LoadP99,
            before,
            after,
            change_percent,
            is_beyond,
        };
        let said = |change: Change| {
            let mark = Mark { at_s: 1_790_000_000, text: "new router".to_owned() };
            of_marks(&[Marked { mark, changes: vec![change] }], Followed::LoadP99).concat()
        };
        let start = "Mark \"new router\" (2026-09-21): up: p99 of latency under load";
        assert_eq!(
            said(change(level(30, 200.0), level(12, 40.0), Some(-80.0), true)),
            format!(
                "{start} is 40.0 ms in the 12 runs after it against 200 ms in the 30 before it: \
                     80 % less."
            )
        );
        let unsure = said(change(level(30, 40.0), level(12, 42.0), Some(5.0), false));
        assert!(unsure.ends_with("5 % more, within what the runs before it had."), "{unsure}");
        assert_eq!(
            said(change(level(30, 200.0), None, None, false)),
            format!("{start}: 30 runs before it and 0 after it; a comparison needs 3 of each.")
        );
        assert_eq!(of_marks(&[], Followed::LoadP99), [""; 0]);
    }
}
