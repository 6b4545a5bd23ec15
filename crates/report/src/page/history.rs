//! The page of a line's history over weeks.

use maud::{Markup, html};
use underload_record::comparison::{EffectRange, Verdict};
use underload_record::history::{Change, Followed, Labelled, Level, Mark, Marked, Trend};
use underload_record::text::plain_text;

use super::figures::{Headings, figures};
use super::header;
use super::pairs::pairs_plot;
use super::parts::{Column, NOTHING, table_of};
use crate::history::{change_words, formatted};
use crate::plot::Plot;
use crate::plot::diagram::Mark::Area;
use crate::plot::diagram::{Curve, Diagram, Panel, Scale};
use crate::words::{capital, count, significant};

const DAY_S: f64 = 86_400.0;
const DAY_NAMES: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Fewest runs for medians by hour and day.
const PATTERN_RUNS: usize = 12;

#[derive(Debug, Clone, Copy, Default)]
pub struct HistoryPage<'a> {
    pub sentences: &'a [String],
    pub trends: &'a [Trend],
    pub marks: &'a [Marked],
    pub labels: &'a [Labelled],
    /// Runs that could not be read, each with its reason.
    pub skipped: &'a [String],
}

/// Renders a history: sentences, each number over time, around marks, by label, hour and day.
pub fn history_page(title: &str, page: HistoryPage<'_>) -> String {
    let HistoryPage { sentences, trends, marks, labels, skipped } = page;
    let plots = Followed::ALL.into_iter().filter_map(|followed| over_time(followed, trends, marks));
    let plots: Vec<Plot> = plots.collect();
    let pairs: Vec<Plot> = Followed::ALL.into_iter().filter_map(|it| around(it, marks)).collect();
    let hours: Vec<Plot> = Followed::ALL.into_iter().filter_map(|it| by_hour(it, trends)).collect();
    let content = html! {
        header {
            "\n"
            h1 { (title) } "\n"
            @for (number, line) in sentences.iter().enumerate() {
                p.verdict.minor[number > 0] { (line) } "\n"
            }
            @if !skipped.is_empty() {
                div.warning role="note" {
                    "\n"
                    p { strong { "Left out." } " " (count(skipped.len(), "run")) ":" } "\n"
                    @for line in skipped { p { (line) } "\n" }
                }
                "\n"
            }
        }
        "\n"
        h2 { "Over time" } "\n"
        (figures(&plots, Headings::Shown))
        (levels(trends))
        @if !marks.is_empty() {
            h2 { "Before and after each mark" } "\n"
            (figures(&pairs, Headings::Shown))
            (changes(marks))
        }
        @if !labels.is_empty() {
            h2 { "By label" } "\n"
            (by_label(labels))
        }
        @if !hours.is_empty() {
            h2 { "By hour of the day" } "\n"
            (figures(&hours, Headings::Shown))
            (weekdays(trends))
        }
    };
    plain_text(&header::document(title, &content).into_string())
}

/// Draws runs as rings, the baseline's median as a line, and each mark as a vertical line.
fn over_time(followed: Followed, trends: &[Trend], marks: &[Marked]) -> Option<Plot> {
    let of: Vec<&Trend> = with_runs(followed, trends).collect();
    let points = || of.iter().flat_map(|trend| &trend.points);
    let days = |local_s: i64| local_s as f64 / DAY_S;
    let first = points().map(|point| days(point.local_s())).reduce(f64::min)?;
    let last = points().map(|point| days(point.local_s())).reduce(f64::max)?;
    // Gives the axis a width if there is a single run.
    let margin = ((last - first) * 0.02).max(0.02);
    let most = points().map(|point| point.value).reduce(f64::max)?;
    let mut curves = Vec::new();
    for trend in &of {
        let values =
            trend.points.iter().map(|point| (days(point.local_s()), point.value)).collect();
        curves.push(Curve::rings(&trend.step, values));
        if let Some(baseline) = trend.baseline {
            let flat = vec![(first, baseline.p50), (last, baseline.p50)];
            curves.push(Curve::line(&trend.step, flat));
        }
    }
    let (words, unit) = followed.words();
    let (columns, top) = (first - margin..last + margin, (most * 1.08).max(1e-3));
    let drawn = marks.iter().map(|it| days(it.mark.local_s())).filter(|day| columns.contains(day));
    let lines: Vec<Curve> =
        drawn.map(|day| Curve::line("mark", vec![(day, 0.0), (day, top)])).collect();
    let explained = if lines.is_empty() { "" } else { ", a vertical line is a mark" };
    curves.extend(lines);
    let panel = Panel {
        x: Scale::days("date", columns),
        y: Scale::linear(&format!("{words}, {unit}"), 0.0..top),
        curves,
    };
    let name = format!("history-{}", followed.name());
    let title =
        format!("{}, each run; the line is the baseline's median{explained}", capital(words));
    Some(Diagram { name, title, panels: vec![panel] }.plot())
}

fn by_hour(followed: Followed, trends: &[Trend]) -> Option<Plot> {
    let of: Vec<&Trend> =
        with_runs(followed, trends).filter(|it| it.points.len() >= PATTERN_RUNS).collect();
    let values = |trend: &Trend, value: fn(Level) -> f64| -> Vec<(f64, f64)> {
        let hours = trend.hours.iter().enumerate();
        hours.filter_map(|(hour, level)| Some((hour as f64, value((*level)?)))).collect()
    };
    let usual = |trend: &&Trend| {
        let (low, mut high) = (values(trend, |it| it.p10), values(trend, |it| it.p90));
        high.reverse();
        Curve { name: trend.step.clone(), mark: Area, points: [low, high].concat() }
    };
    let median = |trend: &&Trend| Curve::line(&trend.step, values(trend, |it| it.p50));
    // Lines are above all areas.
    let curves: Vec<Curve> = of.iter().map(usual).chain(of.iter().map(median)).collect();
    let most = curves.iter().flat_map(|it| &it.points).map(|(_, it)| *it).reduce(f64::max)?;
    let (words, unit) = followed.words();
    let panel = Panel {
        x: Scale::linear("hour of the day", -0.5..23.5),
        y: Scale::linear(&format!("{words}, {unit}"), 0.0..(most * 1.08).max(1e-3)),
        curves,
    };
    let name = format!("hours-{}", followed.name());
    let title = format!(
        "{}, median of the runs that began in each hour; eight of ten runs are in the pale range",
        capital(words)
    );
    Some(Diagram { name, title, panels: vec![panel] }.plot())
}

fn with_runs(followed: Followed, trends: &[Trend]) -> impl Iterator<Item = &Trend> {
    trends.iter().filter(move |it| it.followed == followed && !it.points.is_empty())
}

fn date(mark: &Mark) -> String {
    formatted(mark.local_s(), "%F %H:%M")
}

fn or_nothing(number: Option<String>) -> String {
    number.unwrap_or_else(|| NOTHING.to_owned())
}

fn number_words(followed: Followed) -> String {
    let (words, unit) = followed.words();
    format!("{words}, {unit}")
}

/// Formats a change with its range; without a change, names the verdict.
pub(super) fn change(verdict: Verdict, range: Option<&EffectRange>) -> String {
    match range {
        Some(range) if matches!(verdict, Verdict::Lower | Verdict::Higher) => change_words(range),
        _ => verdict.name().to_owned(),
    }
}

/// Draws the medians before and after the marks, a pair for each mark and step.
fn around(followed: Followed, marks: &[Marked]) -> Option<Plot> {
    let changes = marks.iter().flat_map(|it| &it.changes).filter(|it| it.followed == followed);
    let medians = |it: &Change| Some((it.before?.p50, it.after?.p50));
    let pairs: Vec<(f64, f64)> = changes.filter_map(medians).collect();
    pairs_plot(format!("marks-{}", followed.name()), followed.words(), &pairs)
}

fn changes(marks: &[Marked]) -> Markup {
    type Row<'a> = (&'a Marked, &'a Change);
    type Cells<'c, 'r> = Column<'c, Row<'r>>;
    let runs = |level: Option<Level>| level.map_or(0, |it| it.runs);
    let median = |level: Option<Level>| or_nothing(level.map(|it| significant(it.p50)));
    let columns = [
        Cells::names("mark", |(marked, _)| marked.mark.text.clone()),
        Cells::words("date", |(marked, _)| date(&marked.mark)),
        Cells::words("number", |(_, it)| number_words(it.followed)),
        Cells::words("step", |(_, it)| it.step.clone()),
        Cells::units("before", "runs", |(_, it)| runs(it.before)),
        Cells::units("before", "median", |(_, it)| median(it.before)),
        Cells::units("after", "runs", |(_, it)| runs(it.after)),
        Cells::units("after", "median", |(_, it)| median(it.after)),
        Cells::words("change", |(_, it)| {
            change(it.comparison.verdict, it.comparison.range.as_ref())
        }),
    ];
    let rows = marks.iter().flat_map(|marked| marked.changes.iter().map(move |it| (marked, it)));
    table_of("Before and after each mark", &columns, &rows.collect::<Vec<Row<'_>>>())
}

fn by_label(labels: &[Labelled]) -> Markup {
    type Cells<'c> = Column<'c, Labelled>;
    let columns = [
        Cells::names("label", |it| it.label.clone()),
        Cells::words("number", |it| number_words(it.followed)),
        Cells::words("step", |it| it.step.clone()),
        Cells::numbers("runs", |it| it.level.runs),
        Cells::numbers("median", |it| significant(it.level.p50)),
        Cells::numbers("p10 to p90", |it| range(it.level)),
    ];
    table_of("Runs by label", &columns, labels)
}

fn range(level: Level) -> String {
    format!("{}–{}", significant(level.p10), significant(level.p90))
}

fn levels(trends: &[Trend]) -> Markup {
    type Cells<'c> = Column<'c, Trend>;
    let columns = [
        Cells::names("number", |it| number_words(it.followed)),
        Cells::words("step", |it| it.step.clone()),
        Cells::numbers("runs", |it| it.points.len()),
        Cells::units("baseline", "median", |it| {
            or_nothing(it.baseline.map(|level| significant(level.p50)))
        }),
        Cells::units("baseline", "p10 to p90", |it| or_nothing(it.baseline.map(range))),
        Cells::units("latest", "median", |it| {
            or_nothing(it.recent.map(|level| significant(level.p50)))
        }),
        Cells::words("change", |it| change(it.comparison.verdict, it.comparison.range.as_ref())),
    ];
    table_of(
        "First days and latest runs",
        &columns,
        trends.iter().filter(|trend| !trend.points.is_empty()),
    )
}

fn weekdays(trends: &[Trend]) -> Markup {
    type Cells<'c> = Column<'c, Trend>;
    let mut columns = vec![
        Cells::names("number", |it| number_words(it.followed)),
        Cells::words("step", |it| it.step.clone()),
    ];
    columns.extend(DAY_NAMES.iter().enumerate().map(|(day, name)| {
        Cells::numbers(name, move |it: &Trend| {
            or_nothing(it.days.get(day).copied().flatten().map(|level| significant(level.p50)))
        })
    }));
    table_of(
        "Medians by day of the week",
        &columns,
        trends.iter().filter(|trend| trend.points.len() >= PATTERN_RUNS),
    )
}

#[cfg(test)]
mod tests {
    use underload_record::history::{Point, Windows};

    use super::*;

    #[test]
    fn a_page_shows_numbers_over_time_and_escapes_strangers() {
        let windows = Windows { baseline_s: 7 * 86_400, recent_s: 86_400 };
        let points = (0..60)
            .map(|run| Point {
                at_s: 1_790_000_000 + run * 6 * 3600,
                offset_s: 10 * 3_600,
                value: 40.0 + run as f64,
            })
            .collect();
        let trend =
            Trend::of("<b>up", Followed::LoadP99, points, windows, 1_790_000_000 + 59 * 6 * 3600);
        let one = vec![Point { at_s: 1_790_000_000, offset_s: 0, value: 0.0 }];
        let lonely = Trend::of("down", Followed::IdleP50, one, windows, 1_790_000_000);
        let skipped = vec!["runs/<script>: no run.json".to_owned()];
        let sentences = ["up is worse".to_owned()];
        let (at_s, offset_s) = (1_790_000_000 + 30 * 6 * 3600, 10 * 3_600);
        let mark = Mark { at_s, offset_s, text: "<i>router".to_owned() };
        let changes = trend.around(std::slice::from_ref(&mark)).into_iter().flatten().collect();
        let level = trend.baseline.unwrap();
        let label = Labelled {
            label: "<u>wifi".to_owned(),
            step: "up".to_owned(),
            followed: Followed::LoadP99,
            level,
        };
        let content = HistoryPage {
            sentences: &sentences,
            trends: &[trend, lonely],
            marks: &[Marked { mark, changes }],
            labels: &[label],
            skipped: &skipped,
        };
        let page = history_page("A line", content);
        assert!(page.contains("&lt;i&gt;router") && page.contains("&lt;u&gt;wifi"));
        assert!(!page.contains("<i>router") && !page.contains("<u>wifi"));
        assert!(page.contains("a vertical line is a mark"));
        // The mark is at 02:13 UTC, which is 12:13 where the line is.
        assert!(page.contains("2026-09-29 12:13") && !page.contains("UTC"), "{page}");
        assert!(!page.contains("<b>up") && page.contains("&lt;b&gt;up"));
        assert!(!page.contains("<script>") && page.contains("Left out."));
        assert!(page.matches("<svg").count() >= 3, "{}", page.matches("<svg").count());
        assert!(page.contains("Wednesday") && page.contains("hour of the day"));
        let usual = page.split("<h2>By hour of the day").nth(1).unwrap();
        let usual = usual.split("polygon").nth(1).unwrap();
        let places = usual.split_once("points=\"").unwrap().1.split('"').next().unwrap();
        assert_eq!(places.split(' ').count(), 2 * 4, "p10 and p90 at four hours: {places}");
        assert!(!history_page("Nothing", HistoryPage::default()).contains("<svg"));
    }
}
