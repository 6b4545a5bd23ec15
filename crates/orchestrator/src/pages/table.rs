//! Tables, as HTML, JSON and CSV.

use maud::{Markup, html};
use serde_json::{Value, json};
use underload_fleet::device::DeviceId;
use underload_record::text::csv_field;
use underload_report::{one_line, significant, thousands};

use super::question::moment;

#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Name of the table in JSON documents and CSV files.
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Name of the column in JSON documents and CSV files.
    key: &'static str,
    title: String,
    /// Empty for words and counts.
    unit: &'static str,
    is_text: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// A link to a device, shown as the first eight of its 32 digits.
    Device(DeviceId),
    Count(u64),
    Number(f64),
    /// Percent of a whole, 0 to 100, drawn as a bar beside its number.
    Share(f64),
    /// Milliseconds since 1970; 0 for never.
    When(u64),
    Nothing,
}

pub(super) fn words(key: &'static str, title: &str) -> Column {
    Column { key, title: title.to_owned(), unit: "", is_text: true }
}

pub(super) fn count(key: &'static str, title: &str) -> Column {
    Column { key, title: title.to_owned(), unit: "", is_text: false }
}

pub(super) fn number(key: &'static str, title: &str, unit: &'static str) -> Column {
    Column { key, title: title.to_owned(), unit, is_text: false }
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn number(value: Option<f64>) -> Self {
        value.map_or(Self::Nothing, Self::Number)
    }

    fn html(&self) -> Markup {
        match self {
            Self::Text(text) => html! { (one_line(text)) },
            Self::Device(id) => {
                let id = id.to_string();
                html! { a href={ "/devices/" (id) } title=(id) { (&id[..8]) "…" } }
            }
            Self::Count(count) => html! { (thousands(*count)) },
            Self::Number(value) => html! { (significant(*value)) },
            Self::Share(percent) => html! {
                svg.share viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                    rect.f-grid width="100" height="10" {}
                    rect.f-c1 width=(format!("{:.1}", percent.clamp(0.0, 100.0))) height="10" {}
                }
                span.percent { (significant(*percent)) }
            },
            Self::When(0) => html! { "never" },
            Self::When(at_ms) => match moment(*at_ms) {
                Some(at) => {
                    html! { time datetime=(at) { (at.strftime("%Y-%m-%d %H:%M").to_string()) } }
                }
                None => html! { (NOTHING) },
            },
            Self::Nothing => html! { (NOTHING) },
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Device(id) => json!(id.to_string()),
            Self::Count(count) => json!(count),
            Self::Number(value) | Self::Share(value) => json!(rounded(*value)),
            Self::When(0) | Self::Nothing => Value::Null,
            Self::When(at_ms) => moment(*at_ms).map_or(Value::Null, |at| json!(at.to_string())),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) => csv_field(text),
            other => match other.json() {
                Value::Null => String::new(),
                Value::String(text) => csv_field(&text),
                number => number.to_string(),
            },
        }
    }
}

/// A column, and the function that returns its cell of a row of type `T`.
pub(super) type ColumnOf<'a, T> = (Column, &'a dyn Fn(&T) -> Cell);

impl Table {
    pub(super) fn of<'r, T: 'r>(
        name: &'static str,
        rows: impl IntoIterator<Item = &'r T>,
        columns: &[ColumnOf<'_, T>],
    ) -> Self {
        let row = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
        let rows = rows.into_iter().map(row).collect();
        Self { name, columns: columns.iter().map(|(column, _)| column.clone()).collect(), rows }
    }

    /// A table of entries of a log: when, who, what.
    pub(super) fn log(entries: impl Iterator<Item = (u64, String, String)>) -> Self {
        let row = |(at_ms, who, what)| vec![Cell::When(at_ms), Cell::Text(who), Cell::Text(what)];
        Self {
            name: "log",
            columns: vec![words("at", "When, UTC"), words("who", "Who"), words("what", "What")],
            rows: entries.map(row).collect(),
        }
    }

    /// A table wider than the page scrolls by itself.
    pub(super) fn html(&self, caption: &str) -> Markup {
        if self.rows.is_empty() {
            return html! { p.note { "Nothing yet." } };
        }
        html! {
            // Focusable, so that the keyboard scrolls it.
            div.scroll.narrow[self.columns.len() <= NARROW] tabindex="0" role="group"
                aria-label={ (caption) ", table" } {
                table {
                    caption.unseen { (caption) }
                    thead { tr { @for column in &self.columns { (column.head()) } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (cell, column) in row.iter().zip(&self.columns) {
                                    td.text[column.is_text] { (cell.html()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Columns with their units, and rows as lists in the same order.
    pub(super) fn json(&self) -> Value {
        let columns = self.columns.iter().map(
            |column| json!({ "name": column.key, "title": column.title, "unit": column.unit }),
        );
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::json).collect::<Vec<_>>());
        json!({
            "columns": columns.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
        })
    }

    /// RFC 4180, with the columns' names in the first line.
    pub(super) fn csv(&self) -> String {
        let names = self.columns.iter().map(|column| match column.unit {
            "" => column.key.to_owned(),
            unit => csv_field(&format!("{} ({unit})", column.key)),
        });
        let mut text = names.collect::<Vec<_>>().join(",") + "\r\n";
        for row in &self.rows {
            text += &(row.iter().map(Cell::csv).collect::<Vec<_>>().join(",") + "\r\n");
        }
        text
    }
}

impl Column {
    fn head(&self) -> Markup {
        html! {
            th.text[self.is_text] scope="col" {
                (self.title)
                @if !self.unit.is_empty() { br; span.unit { (self.unit) } }
            }
        }
    }
}

/// Tables with at most this many columns do not fill the width of a page.
const NARROW: usize = 5;
/// Shown in place of a number that does not exist.
const NOTHING: &str = "–";

/// Drops digits that mean nothing: bins are 2 % wide.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        Table {
            name: "t",
            columns: vec![words("name", "Name"), number("p99_ms", "p99", "ms")],
            rows: vec![vec![Cell::text(text), Cell::Number(-12.345_678)]],
        }
    }

    #[test]
    fn formulas_in_foreign_text_are_not_computed_by_spreadsheets() {
        let csv = table("=HYPERLINK(\"x\")").csv();
        let line = "\"'=HYPERLINK(\"\"x\"\")\",-12.3457";
        assert_eq!(csv, format!("name,p99_ms (ms)\r\n{line}\r\n"));
    }

    #[test]
    fn a_page_shows_words_as_words() {
        let html = table("<script>").html("Newest results").into_string();
        assert!(html.contains("<caption class=\"unseen\">Newest results</caption>"), "{html}");
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"), "{html}");
        assert!(html.contains("<span class=\"unit\">ms</span>"), "{html}");
        assert_eq!(table("x").json()["rows"][0][1], json!(-12.3457));
    }
}
