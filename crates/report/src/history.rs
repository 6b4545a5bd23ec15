//! The history of a line in words.

use std::collections::BTreeSet;

use underload_record::comparison::{EffectRange, Verdict};
use underload_record::history::{Change, Followed, Labelled, Level, LikeHours, Marked, Trend};

use crate::words::{count, significant};

/// Marks with sentences, the latest ones; the page has all.
const MARKS_TOLD: usize = 5;

/// The fewest runs that have a range at 99 %, of two equal numbers: 2 of 252 orders are as far apart.
const ENOUGH: &str = "5 on each side, at the same hours, are enough";

/// Returns the sentences of a history about `metric`: of each step and its newest run, the number of
/// runs, of the latest marks, of the labels.
pub fn history_sentences(
    (trends, marks, labels): (&[Trend], &[Marked], &[Labelled]),
    metric: Followed,
    runs: usize,
) -> Vec<String> {
    let (words, unit) = metric.words();
    let judged = trends.iter().filter(|it| it.followed == metric && !it.points.is_empty());
    let of_step = |trend: &Trend| [Some(history_sentence(trend)), newest_sentence(trend)];
    let mut lines: Vec<String> = judged.flat_map(of_step).flatten().collect();
    if lines.is_empty() {
        lines.push(format!(
            "No valid run tells the {words}: a p99 needs 500 probes, --metric load-p50 fewer."
        ));
    }
    let read = if runs == 1 { "was" } else { "were" };
    lines.push(format!("{} {read} read. Dates and hours are local.", of_runs(runs)));
    let latest = &marks[marks.len().saturating_sub(MARKS_TOLD)..];
    lines.extend(latest.iter().flat_map(|marked| {
        let changes = marked.changes.iter().filter(|change| change.followed == metric);
        changes.map(|change| around(marked, change))
    }));
    let labels = labels.iter().filter(|it| it.followed == metric);
    lines.extend(labels.map(|it| {
        let (value, runs) = (significant(it.level.p50), of_runs(it.level.runs));
        format!(
            "Label \"{}\": {}: {words} is {value} {unit} (median of {runs}).",
            it.label, it.step
        )
    }));
    lines
}

/// Returns what one step has to say: the latest runs compared with the first days, and the worst hours.
pub fn history_sentence(trend: &Trend) -> String {
    let (words, unit) = trend.followed.words();
    let step = &trend.step;
    if let Some(last) = trend.points.last().filter(|_| !trend.is_current) {
        return format!(
            "{step}: {words} was not measured since {} ({} {unit} then), and is not judged.",
            date(last.local_s()),
            significant(last.value)
        );
    }
    let Some(baseline) = trend.baseline else {
        return format!("{step}: {words} was not measured.");
    };
    let said = compared(&trend.comparison, unit, "the first", "the latest");
    let said = said.unwrap_or_else(|| {
        format!(
            "is {} {unit} (median of {}); a comparison needs more: {ENOUGH}",
            significant(baseline.p50),
            of_runs(baseline.runs)
        )
    });
    let worst = trend.worst_hours.as_ref().map(|it| {
        let (within, others) = (significant(it.within.p50), significant(it.others.p50));
        let hours = hours_words(&it.hours);
        format!(
            " It is worst at {hours}: {within} {unit} (median) against {others} at other hours."
        )
    });
    format!("{step}: {words} {said}.{}", worst.unwrap_or_default())
}

/// Returns the sentence about the newest run of a step that is still measured: whether it is usual for
/// its hour.
fn newest_sentence(trend: &Trend) -> Option<String> {
    let newest = trend.newest.filter(|_| trend.is_current)?;
    let place = match newest.verdict {
        Verdict::Higher => "above",
        Verdict::Lower => "below",
        _ => "within",
    };
    let [value, low, high] = [newest.value, newest.usual.p10, newest.usual.p90].map(significant);
    let (step, unit, hour) = (&trend.step, trend.followed.words().1, newest.hour);
    let runs = newest.usual.runs;
    Some(format!(
        "{step}: the newest run, {value} {unit} at {hour} h, is {place} the usual range of this hour \
         ({low} to {high}, p10 to p90 of {runs} earlier runs)."
    ))
}

fn around(marked: &Marked, change: &Change) -> String {
    let (words, unit) = change.followed.words();
    let start = format!(
        "Mark \"{}\" ({}): {}: {words}",
        marked.mark.text,
        date(marked.mark.local_s()),
        change.step
    );
    before_and_after(&start, unit, &change.comparison, (change.before, change.after))
}

/// Returns the sentence about runs before and after an event. `start` names them and the number.
pub fn before_and_after(
    start: &str,
    unit: &str,
    comparison: &LikeHours,
    (before, after): (Option<Level>, Option<Level>),
) -> String {
    let runs = |level: Option<Level>| level.map_or(0, |it| it.runs);
    match compared(comparison, unit, "the earlier", "the later") {
        Some(said) => format!("{start} {said}."),
        None => format!(
            "{start}: {} runs before it and {} after it; a comparison needs more: {ENOUGH}.",
            runs(before),
            runs(after)
        ),
    }
}

/// Returns the verdict on later runs against earlier ones; `None` with too few.
fn compared(it: &LikeHours, unit: &str, first: &str, latest: &str) -> Option<String> {
    if it.verdict == Verdict::NotComparable {
        return Some(format!(
            "cannot be compared, as too few are from the same hours: {latest} runs from {}, {first} \
             from {}",
            hours_words(&it.later_hours),
            hours_words(&it.earlier_hours)
        ));
    }
    let (before, after, range) = (it.earlier?, it.later?, it.range?);
    let value = |level: Level| format!("{} {unit}", significant(level.p50));
    let usually = format!(
        "{}; usually {} to {}",
        value(after),
        significant(before.p10),
        significant(before.p90)
    );
    Some(match it.verdict {
        Verdict::Lower | Verdict::Higher => format!(
            "is {} in {latest} {} against {} in {first} {} at the same hours: {}",
            value(after),
            of_runs(after.runs),
            value(before),
            before.runs,
            change_words(&range)
        ),
        Verdict::Alike => format!("is unchanged ({usually})"),
        _ => {
            let smallest = range.smallest_shown().unwrap_or(1.0);
            format!(
                "shows no change ({usually}); {} show only changes of {:.0} % or more",
                of_runs(after.runs),
                (smallest - 1.0) * 100.0
            )
        }
    })
}

/// Returns `50 % more (44 to 57 % at 99 %)`.
pub(crate) fn change_words(range: &EffectRange) -> String {
    let percent = |ratio: Option<f64>| (ratio.unwrap_or(1.0) - 1.0) * 100.0;
    let [low, middle, high] = [Some(range.low), range.middle, range.high].map(percent);
    let (least, most, than) =
        if middle < 0.0 { (-high, -low, "less") } else { (low, high, "more") };
    format!(
        "{:.0} % {than} ({least:.0} to {most:.0} % at {:.0} %)",
        middle.abs(),
        range.confidence * 100.0
    )
}

/// Returns hours of the day, such as `8 to 11, 20 h`, or `22 to 1 h` over midnight.
fn hours_words(hours: &BTreeSet<usize>) -> String {
    let mut hours: Vec<usize> = hours.iter().copied().collect();
    // The hours since the last gap come first, if they continue after midnight.
    let gap = hours.windows(2).rposition(|pair| pair[0] + 1 < pair[1]);
    if let Some(gap) = gap.filter(|_| hours[0] == 0 && hours.ends_with(&[23])) {
        hours.rotate_left(gap + 1);
    }
    let words = |part: &[usize]| match part {
        [first, .., last] => format!("{first} to {last}"),
        part => part[0].to_string(),
    };
    let parts: Vec<String> =
        hours.chunk_by(|one, next| (one + 1) % 24 == *next).map(words).collect();
    format!("{} h", parts.join(", "))
}

fn of_runs(runs: usize) -> String {
    count(runs, "run")
}

fn date(local_s: i64) -> String {
    formatted(local_s, "%F")
}

/// Formats a local time, seconds since 1970 began there.
pub(crate) fn formatted(local_s: i64, format: &str) -> String {
    jiff::Timestamp::from_second(local_s).unwrap_or_default().strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use underload_record::history::{Mark, Point, Windows};

    use super::*;

    const LEVEL: Level = Level { runs: 4, p10: 51.0, p50: 64.0, p90: 230.0 };

    fn found(verdict: Verdict) -> LikeHours {
        let (earlier, later) = (Some(Level { runs: 28, ..LEVEL }), Some(LEVEL));
        let (high, middle) = (Some(0.7), Some(0.5));
        let range = Some(EffectRange { low: 0.4, high, middle, confidence: 0.99 });
        LikeHours { verdict, earlier, later, range, ..LikeHours::default() }
    }

    #[test]
    fn each_verdict_has_its_sentence() {
        let said = |it: &LikeHours| compared(it, "ms", "the first", "the latest");
        for (verdict, sentence) in [
            (Verdict::Alike, "is unchanged (64.0 ms; usually 51.0 to 230)"),
            (
                Verdict::NotSure,
                "shows no change (64.0 ms; usually 51.0 to 230); 4 runs show only changes of 40 % \
                 or more",
            ),
            (
                Verdict::Lower,
                "is 64.0 ms in the latest 4 runs against 64.0 ms in the first 28 at the same hours: \
                 50 % less (30 to 60 % at 99 %)",
            ),
        ] {
            assert_eq!(said(&found(verdict)).as_deref(), Some(sentence));
        }
        let other = LikeHours {
            earlier_hours: [20].into(),
            later_hours: [8, 9, 10, 11, 23].into(),
            ..found(Verdict::NotComparable)
        };
        assert_eq!(
            said(&other).as_deref(),
            Some(
                "cannot be compared, as too few are from the same hours: the latest runs from 8 to \
                 11, 23 h, the first from 20 h"
            )
        );
        assert_eq!(said(&LikeHours { range: None, ..found(Verdict::TooFew) }), None);
    }

    #[test]
    fn the_first_sentence_names_the_worst_hours_and_the_next_the_newest_run() {
        // Four runs a day from midnight, local time; the line is slow from 22 to 1 h.
        let run = |number: i64| {
            let value = if number % 4 == 3 { 120.0 } else { 40.0 } + (number % 3) as f64;
            let at_s = 1_795_392_000 + number * 6 * 3_600 + 4 * 3_600;
            Point { at_s, offset_s: 0, value }
        };
        let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
        let said = |points: Vec<Point>| {
            let latest_s = points.last().unwrap().at_s;
            let trend = Trend::of("up", Followed::LoadP99, points, windows, latest_s);
            history_sentences((&[trend], &[], &[]), Followed::LoadP99, 56)
        };
        let lines = said((0..56).map(run).collect());
        let [first, newest, read] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            first,
            "up: p99 of latency under load is unchanged (42.0 ms; usually 40.0 to 121). It is worst at \
             22 h: 121 ms (median) against 41.0 at other hours."
        );
        assert_eq!(
            newest,
            "up: the newest run, 121 ms at 22 h, is within the usual range of this hour (120 to 122, \
             p10 to p90 of 13 earlier runs)."
        );
        assert_eq!(read, "56 runs were read. Dates and hours are local.");
        let slow = |point: Point| Point { value: 300.0, ..point };
        let above = said(
            (0..57)
                .map(run)
                .map(|it| if it.at_s == run(56).at_s { slow(it) } else { it })
                .collect(),
        );
        assert!(above[1].contains("300 ms at 4 h, is above the usual range"), "{above:?}");
        let flat = said((0..56).map(|it| Point { value: 40.0, ..run(it) }).collect());
        assert!(!flat[0].contains("worst"), "{flat:?}");
        let hours = |hours: &[usize]| hours_words(&hours.iter().copied().collect());
        assert_eq!(hours(&[0, 1, 22, 23]), "22 to 1 h");
        assert_eq!(hours(&[0, 8, 9, 23]), "23 to 0, 8 to 9 h");
        assert_eq!(hours(&[0, 20]), "0, 20 h");
    }

    #[test]
    fn a_mark_says_what_changed_or_that_it_needs_more_runs() {
        // 2026-09-21 14:13 UTC is the next day where it was made.
        let text = "new router".to_owned();
        let mark = Mark { at_s: 1_790_000_000, offset_s: 10 * 3_600, text };
        let change = Change {
            step: "up".to_owned(),
            followed: Followed::LoadP99,
            before: Some(LEVEL),
            after: None,
            comparison: LikeHours { verdict: Verdict::TooFew, ..LikeHours::default() },
        };
        let marked = Marked { mark, changes: Vec::new() };
        let start = "Mark \"new router\" (2026-09-22): up: p99 of latency under load";
        assert_eq!(
            around(&marked, &change),
            format!(
                "{start}: 4 runs before it and 0 after it; a comparison needs more: 5 on each side, at the same hours, are enough."
            )
        );
        let change = Change { comparison: found(Verdict::Alike), ..change };
        let said = around(&marked, &change);
        assert_eq!(said, format!("{start} is unchanged (64.0 ms; usually 51.0 to 230)."));
    }
}
