//! Sentences about a line's history.

use underload_record::history::{Followed, RUNS_MIN, Trend};
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
    lines.push(if runs == 1 {
        "1 run was read.".to_owned()
    } else {
        format!("{runs} runs were read.")
    });
    lines
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
            let direction = if change.abs() < 1.0 {
                "no change".to_owned()
            } else {
                format!("{:.0} % {}", change.abs(), if change > 0.0 { "more" } else { "less" })
            };
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
            if baseline.runs == 1 { "1 run".to_owned() } else { format!("{} runs", baseline.runs) }
        ),
        _ => format!("{step}: {words} was not measured."),
    }
}
