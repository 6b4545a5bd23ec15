//! The content of a page, written as HTML, JSON or CSV.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use maud::{Markup, PreEscaped, html};
use serde_json::{Map, Value, json};
use underload_report::diagram::{Curve, Diagram, Frame, ScaleKind};

use super::problem::Problem;
use super::question::Question;
use super::table::Table;

#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) title: String,
    pub(super) sentences: Vec<String>,
    pub(super) sections: Vec<Section>,
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) note: String,
    pub(super) figure: Option<Figure>,
    pub(super) table: Table,
    /// Forms and texts below the table, in HTML only.
    pub(super) more: Markup,
}

#[derive(Debug)]
pub(super) struct Figure {
    pub(super) diagram: Diagram,
    /// Describes its tests and devices, and what is missing.
    pub(super) caption: String,
    /// Names of the form's fields for the ends of the horizontal scale.
    pub(super) zoom: (&'static str, &'static str),
    /// Notes on each point of the first panel's curves; may be empty.
    pub(super) point_notes: Vec<Vec<String>>,
}

impl Section {
    pub(super) fn new(heading: impl Into<String>, table: Table) -> Self {
        Self {
            heading: heading.into(),
            note: String::new(),
            figure: None,
            table,
            more: PreEscaped(String::new()),
        }
    }
}

impl Sheet {
    /// Returns the part of the page that depends on the query.
    pub(super) fn html(&self, question: &Question, path: &str) -> Markup {
        html! {
            h1 { (self.title) }
            @for (number, sentence) in self.sentences.iter().enumerate() {
                p.verdict.minor[number > 0] { (sentence) }
            }
            @for section in &self.sections { (section.html(question, path)) }
        }
    }

    pub(super) fn json(&self, now_ms: u64) -> Response {
        let tables = self.sections.iter();
        let tables: Map<String, Value> =
            tables.map(|section| (section.table.name.to_owned(), section.table.json())).collect();
        let made = super::question::moment(now_ms).map(|at| at.to_string());
        let document = json!({
            "page": self.title,
            "made": made,
            "says": self.sentences,
            "tables": tables,
        });
        axum::Json(document).into_response()
    }

    /// Writes the table that the query names, or the first.
    pub(super) fn csv(&self, question: &Question) -> Result<Response, Problem> {
        let wanted = question.text("table");
        let is_it = |section: &&Section| wanted.is_none_or(|name| section.table.name == name);
        let found = self.sections.iter().find(is_it);
        let table = &found.ok_or(Problem::NotFound("This page has no such table."))?.table;
        let headers = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present".to_owned()),
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"underload-{}.csv\"", table.name),
            ),
        ];
        Ok((headers, table.csv()).into_response())
    }
}

impl Section {
    fn html(&self, question: &Question, path: &str) -> Markup {
        let csv = question.address(path, &[("format", "csv"), ("table", self.table.name)]);
        let json = question.address(path, &[("format", "json"), ("table", "")]);
        let table = self.table.html(&self.heading);
        let figure = self.figure.as_ref().map(Figure::html);
        html! {
            section aria-label=(self.heading) {
                h2 { (self.heading) }
                @if !self.note.is_empty() { p.note { (self.note) } }
                @if let Some(figure) = figure {
                    (figure)
                    details { summary { "The numbers" } (table) }
                } @else {
                    (table)
                }
                (self.more)
                @if !self.table.rows.is_empty() {
                    p.note {
                        "As " a href=(csv) aria-label={ (self.heading) ", as CSV" } { "CSV" }
                        " or " a href=(json) aria-label={ (self.heading) ", as JSON" } { "JSON" }
                    }
                }
            }
        }
    }
}

impl Figure {
    fn html(&self) -> Markup {
        let (plot, frames) = self.diagram.plot_with_frames();
        let (low, high) = self.zoom;
        let data = json!({ "zoom": [low, high], "panels": self.panels(&frames) });
        html! {
            figure {
                // Focusable: arrow keys read the values.
                div.chart.scroll tabindex="0" role="group"
                    aria-label={ (self.diagram.title) ". Arrow keys read values." }
                    data-chart=(data) {
                    (PreEscaped(plot.inline()))
                }
                output.values aria-live="polite" {}
                figcaption { (self.caption) }
            }
        }
    }

    fn panels(&self, frames: &[Frame]) -> Vec<Value> {
        let panels = frames.iter().zip(&self.diagram.panels).enumerate();
        let panels = panels.map(|(number, (frame, panel))| {
            let notes = if number == 0 { self.point_notes.as_slice() } else { &[] };
            let curves = panel.curves.iter().enumerate();
            let curves: Vec<Value> =
                curves.map(|(at, curve)| curve_data(curve, notes.get(at))).collect();
            let scale = |scale: &underload_report::diagram::Scale| {
                let kind = match scale.kind {
                    ScaleKind::Linear => "linear",
                    ScaleKind::Logarithmic => "log",
                    ScaleKind::Days | ScaleKind::Dates => "days",
                };
                json!({
                    "name": scale.name, "kind": kind,
                    "from": scale.range.start, "to": scale.range.end,
                })
            };
            json!({
                "columns": [frame.columns.0, frame.columns.1],
                "rows": [frame.rows.0, frame.rows.1],
                "x": scale(&frame.x),
                "y": scale(&frame.y),
                "curves": curves,
            })
        });
        panels.collect()
    }
}

fn curve_data(curve: &Curve, notes: Option<&Vec<String>>) -> Value {
    let round = |value: f64| (value * 1e3).round() / 1e3;
    let points = curve.points.iter().enumerate().map(|(at, (x, y))| {
        let note = notes.and_then(|notes| notes.get(at));
        note.map_or_else(
            || json!([round(*x), round(*y)]),
            |note| json!([round(*x), round(*y), note]),
        )
    });
    json!({ "name": curve.name, "points": points.collect::<Vec<_>>() })
}
