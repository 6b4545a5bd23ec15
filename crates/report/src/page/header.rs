//! The head of a page: the document around it, and the result in sentences.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::measured;
use super::parts::{careful, sentence};
use crate::plot::style_sheet;
use crate::subject::Subject;
use crate::verdict::{sentences, warnings};
use crate::words::count;
use underload_store::RunData;

/// Renders a document without a script.
pub(super) fn document(title: &str, content: &Markup) -> Markup {
    around(title, content, "")
}

/// Renders a document with the script that sorts tables and shows values of plots.
pub(super) fn interactive(title: &str, content: &Markup) -> Markup {
    around(title, content, include_str!("page.js"))
}

fn around(title: &str, content: &Markup, script: &str) -> Markup {
    let style = format!("\n{}", style_sheet());
    html! {
        (DOCTYPE) "\n"
        html lang="en" {
            "\n"
            head {
                "\n" meta charset="utf-8"; "\n"
                meta name="viewport" content="width=device-width, initial-scale=1"; "\n"
                meta name="color-scheme" content="light dark"; "\n"
                title { (title) ": latency under load" } "\n"
                style { (PreEscaped(style)) } "\n"
            }
            "\n"
            body {
                "\n" main { "\n" (content) } "\n"
                @if !script.is_empty() { script { (PreEscaped(format!("\n{script}"))) } "\n" }
            }
            "\n"
        }
        "\n"
    }
}

pub(super) fn header(first: &RunData, runs: &[RunData], subjects: &[Subject<'_>]) -> Markup {
    let kinds: Vec<String> = runs.iter().map(kind).collect();
    let warnings = warnings(runs);
    html! {
        header {
            "\n"
            p.kind { (kinds.join(" · ")) } "\n"
            h1 { (title(first)) } "\n"
            @if let Some(card) = measured::card(runs) {
                (card)
            } @else {
                @for (number, line) in sentences(runs, subjects).iter().enumerate() {
                    p.verdict.minor[number > 0] { (sentence(&line.text)) } "\n"
                }
            }
            (careful(&warnings))
            @if subjects.is_empty() {
                p.note { "No variant of this run has finished a trial." } "\n"
            }
        }
        "\n"
    }
}

pub(super) fn title(run: &RunData) -> &str {
    let scenario = &run.record.scenario;
    if scenario.title.is_empty() { &scenario.name } else { &scenario.title }
}

fn kind(run: &RunData) -> String {
    let record = &run.record;
    let trials = count(record.trials.len(), "trial");
    let name = &record.scenario.name;
    let day = record.host.started.split('T').next().unwrap_or_default();
    let parts = [name.as_str(), record.world.description(), trials.as_str(), day];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
