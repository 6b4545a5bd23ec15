//! Parts of the sections: tables, rows that name a variant, numbers with their interval.

use maud::{Markup, Render, html};
use underload_record::schema::{Interval, Phase};

use crate::subject::Subject;
use crate::words::{count, significant};

/// Shown in place of a number that does not exist.
pub(super) const NOTHING: &str = "–";

/// Renders a table, which scrolls if it is wider than the page. The caption says what it shows, and is
/// for readers who cannot see where it is; no other table of the page has it.
pub(super) fn table(caption: &str, head: &Markup, rows: &[Markup]) -> Markup {
    table_with_class(None, caption, head, rows)
}

/// Renders a table that the page's script sorts by a click on a head, and filters by its first
/// column.
pub(super) fn sortable(caption: &str, head: &Markup, rows: &[Markup]) -> Markup {
    table_with_class(Some("sortable"), caption, head, rows)
}

fn table_with_class(class: Option<&str>, caption: &str, head: &Markup, rows: &[Markup]) -> Markup {
    html! {
        // Focusable, so that the keyboard scrolls it.
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table class=[class] {
                "\n" caption.unseen { (caption) } "\n" thead { tr { (head) } } "\n"
                tbody {
                    "\n"
                    @for row in rows { (row) "\n" }
                }
                "\n"
            }
        }
        "\n"
    }
}

/// A column of a table: its head, and its cell in each row.
pub(super) struct Column<'c, T> {
    head: Markup,
    cell: Box<dyn Fn(&T) -> Markup + 'c>,
}

impl<'c, T> Column<'c, T> {
    /// Makes a column of names of the rows.
    pub(super) fn names<R: Render>(name: &str, cell: impl Fn(&T) -> R + 'c) -> Self {
        Self::new(words_head(name), move |row| html! { th.text scope="row" { (cell(row)) } })
    }

    pub(super) fn words<R: Render>(name: &str, cell: impl Fn(&T) -> R + 'c) -> Self {
        Self::new(words_head(name), move |row| html! { td.text { (cell(row)) } })
    }

    /// Makes a column of words that wrap only where they are long.
    pub(super) fn wide_words<R: Render>(name: &str, cell: impl Fn(&T) -> R + 'c) -> Self {
        Self::new(words_head(name), move |row| html! { td.text.wide { (cell(row)) } })
    }

    pub(super) fn numbers<R: Render>(name: &str, cell: impl Fn(&T) -> R + 'c) -> Self {
        Self::new(head(name), move |row| html! { td { (cell(row)) } })
    }

    /// Makes a column of numbers whose head has their unit or a remark.
    pub(super) fn units<R: Render>(name: &str, unit: &str, cell: impl Fn(&T) -> R + 'c) -> Self {
        Self::new(unit_head(name, unit), move |row| html! { td { (cell(row)) } })
    }

    pub(super) fn new(head: Markup, cell: impl Fn(&T) -> Markup + 'c) -> Self {
        Self { head, cell: Box::new(cell) }
    }
}

/// Renders a table with a row for each of `rows`.
pub(super) fn table_of<'r, T: 'r>(
    caption: &str,
    columns: &[Column<'_, T>],
    rows: impl IntoIterator<Item = &'r T>,
) -> Markup {
    let heads = html! { @for column in columns { (column.head) } };
    let row = |row| html! { tr { @for column in columns { ((column.cell)(row)) } } };
    table(caption, &heads, &rows.into_iter().map(row).collect::<Vec<_>>())
}

/// Renders warnings that a reader must know before relying on the numbers.
pub(super) fn careful(warnings: &[String]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            div.warning role="note" {
                "\n"
                @for warning in warnings {
                    p { strong { "Careful." } " " (warning) } "\n"
                }
            }
            "\n"
        }
    }
}

pub(super) fn folded_if(is_much: bool, summary: &str, content: Markup) -> Markup {
    if is_much && !content.0.is_empty() { folded(summary, false, &content) } else { content }
}

pub(super) fn words_head(name: &str) -> Markup {
    html! { th.text { (name) } }
}

/// Renders the head of a column of numbers.
pub(super) fn head(name: &str) -> Markup {
    html! { th { (name) } }
}

/// Renders the head of a column of numbers with their unit or a remark.
pub(super) fn unit_head(name: &str, unit: &str) -> Markup {
    html! { th { (name) br; span.unit { (unit) } } }
}

/// Renders a row that names the variant of the rows below it, with disciplines and profiles.
pub(super) fn variant_row(subject: &Subject<'_>, columns: usize) -> Markup {
    let label = &subject.variant.label;
    let says_more = !label.is_empty() && *label != subject.variant.name;
    html! {
        tr.variant {
            th.text colspan=(columns) scope="rowgroup" {
                span.pin {
                    (variant_name(subject))
                    @if says_more { " " span.spec { (label) } }
                }
            }
        }
    }
}

/// Renders the head of a column in ms that is hidden on phones.
pub(super) fn wide_head(name: &str) -> Markup {
    html! { th.wide-only { (name) br; span.unit { "ms" } } }
}

/// Renders the name of a variant after a sample of its line.
pub(super) fn variant_name(subject: &Subject<'_>) -> Markup {
    let ink = format!("s-a{}", subject.position % 32);
    html! {
        svg.swatch viewBox="0 0 24 9" aria-hidden="true" {
            line class=(ink) x1="0" y1="4.5" x2="24" y2="4.5" {}
        }
        (subject.name)
    }
}

/// Renders a section that unfolds.
pub(super) fn folded(summary: &str, is_open: bool, content: &Markup) -> Markup {
    html! { details open[is_open] { "\n" summary { (summary) } "\n" (content) } "\n" }
}

/// Lower bound of a quantity.
#[derive(Clone, Copy)]
pub(super) enum Least {
    /// For round trips and rates.
    Zero,
    /// For scores, and for one-way delays between two clocks.
    None,
}

/// Renders a mean with its interval below it, in units of `divisor`.
pub(super) fn mean(interval: Option<&Interval>, divisor: f64, least: Least) -> Markup {
    let Some(interval) = interval else { return html! { (NOTHING) } };
    with_range(&significant(interval.mean / divisor), range(interval, divisor, least))
}

/// Renders a number with its interval, if any, below it.
pub(super) fn with_range(number: &str, range: Option<String>) -> Markup {
    html! { (number) @if let Some(range) = range { (below(&range)) } }
}

/// Renders the number of days whose percentile is a lost probe.
pub(super) fn lost_days(days: u64) -> Markup {
    html! { @if days > 0 { (below(&format!("lost on {}", count(days, "day")))) } }
}

/// Renders a sentence in which back quotes enclose what a user types.
pub(super) fn sentence(text: &str) -> Markup {
    html! {
        @for (place, part) in text.split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Renders a smaller line below.
pub(super) fn below(line: &str) -> Markup {
    html! { br; span.interval { (line) } }
}

/// Formats an interval in units of `divisor`: `23.9–25.1`, or with ` to ` if it starts below zero.
/// `None` for an interval of width 0.
pub(super) fn range(interval: &Interval, divisor: f64, least: Least) -> Option<String> {
    let low = match least {
        Least::Zero => interval.low?.max(0.0),
        Least::None => interval.low?,
    };
    // An interval of identical trials means nothing.
    if low >= interval.high? {
        return None;
    }
    let (low, high) = (low / divisor, interval.high? / divisor);
    let between = if low < 0.0 { " to " } else { "–" };
    Some(format!("{}{between}{}", signed(low), signed(high)))
}

/// Formats with a typographic minus sign.
pub(super) fn signed(value: f64) -> String {
    significant(value).replace('-', "−")
}

pub(super) fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Ramp => "ramp-up",
        Phase::Load => "under load",
        Phase::Drain => "draining",
        Phase::Whole => "whole trial",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_may_be_below_zero() {
        let interval = Interval {
            low: Some(-80.2),
            high: Some(-64.2),
            mean: -72.2,
            confidence: 0.95,
            repeats: 20,
        };
        assert_eq!(range(&interval, 1.0, Least::None).as_deref(), Some("−80.2 to −64.2"));
        let delay = Interval { low: Some(-1e6), high: Some(3e6), ..interval };
        assert_eq!(range(&delay, 1e6, Least::Zero).as_deref(), Some("0–3.00"));
    }
}
