//! Sections of plots: distributions, and time series.

use maud::{Markup, PreEscaped, html};
use underload_record::schema::World;

use super::parts::folded_if;
use crate::plot::{MOST_HISTOGRAMS, MOST_TIMELINES, Plot, Plots};
use crate::subject::Subject;

/// Whether figures carry their title as a heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Headings {
    Shown,
    Hidden,
}

/// Renders the plots that the scenario declares, before those of every run.
pub(super) fn asked_for_section(plots: &Plots) -> Markup {
    if plots.figures.is_empty() {
        return html! {};
    }
    html! {
        h2 { "What this scenario shows" } "\n"
        (figures(&plots.figures, Headings::Shown))
    }
}

pub(super) fn distribution_section(
    variants: &[Subject<'_>],
    plots: &Plots,
    is_many: bool,
) -> Markup {
    if plots.distributions.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Latency distribution" } "\n"
        p.note {
            "A curve further left is better; a steep one means that every moment is like the "
            "others."
        }
        "\n"
        (folded_if(is_many, "All curves", figures(&plots.distributions, Headings::Shown)))
        @if variants.len() > MOST_HISTOGRAMS {
            p.note {
                "Histograms of " (MOST_HISTOGRAMS) " of " (variants.len()) " variants; the "
                "samples of all are in " code { "samples.parquet" } "."
            }
            "\n"
        }
        (folded_if(is_many, "Histograms", figures(&plots.histograms, Headings::Shown)))
    }
}

pub(super) fn timeline_section(subjects: &[Subject<'_>], plots: &Plots, is_many: bool) -> Markup {
    if plots.timelines.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Over time" } "\n"
        p.note {
            "One trial per variant, all on the same scales. Curves are thinned to the smallest "
            "and the largest value per pixel, so every peak is there."
            @if subjects.iter().any(|subject| subject.run.record.world == World::Measured) {
                " Goodput counts bytes in order: those behind a lost packet wait for it and then "
                "count at once, for a moment above the rate of the line."
            }
        }
        "\n"
        @if subjects.len() > MOST_TIMELINES {
            p.note {
                "The first " (MOST_TIMELINES) " of " (subjects.len()) " variants are drawn; series "
                "of all are in " code { "series.parquet" } "."
            }
            "\n"
        }
        (folded_if(is_many, "Curves over time", figures(&plots.timelines, Headings::Shown)))
    }
}

pub(super) fn figures(plots: &[Plot], headings: Headings) -> Markup {
    if plots.is_empty() {
        return html! {};
    }
    html! {
        div.figures {
            "\n"
            @for plot in plots {
                figure class=[(headings == Headings::Shown).then_some("headed")] {
                    "\n"
                    @if headings == Headings::Shown { h3 { (plot.title) } "\n" }
                    (PreEscaped(plot.inline()))
                    figcaption { (plot.caption) } "\n"
                }
                "\n"
            }
        }
        "\n"
    }
}
