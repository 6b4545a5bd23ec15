//! The plots of a report, as SVG without scripts, fonts or fixed colours.

mod canvas;
mod chart;
mod cohorts;
pub mod diagram;
mod distribution;
mod figure;
mod overview;
mod timeline;

pub(crate) use canvas::escape;
use canvas::ink_rules;
pub(crate) use cohorts::plots as cohort_plots;
pub(crate) use distribution::MOST_HISTOGRAMS;
pub(crate) use figure::{CellNumbers, Numbers, cells_plot};
pub(crate) use timeline::MOST_TIMELINES;

use crate::subject::Subject;

/// Colours of light, dark and print; see [`ink_rules`] for what uses them.
const COLOURS: &str = include_str!("colours.css");

/// A plot of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// Its file name without the ending, for example `cdf-mean`.
    pub name: String,
    /// Title of the plot, one line.
    pub title: String,
    /// How to read it: windows, counts, what was left out.
    pub caption: String,
    /// Content of the `svg` element.
    body: String,
    width: u32,
    height: u32,
}

impl Plot {
    /// The element as it stands in a page, which brings [`style_sheet`].
    pub fn inline(&self) -> String {
        self.element("")
    }

    /// A file of its own.
    pub fn svg(&self) -> String {
        let style = format!(
            "<style>\n{COLOURS}{}\nsvg.plot {{ background: var(--paper); }}\n</style>\n",
            ink_rules()
        );
        self.element(&style)
    }

    fn element(&self, style: &str) -> String {
        let (title, body) = (escape(&self.title), &self.body);
        let (width, height) = (self.width, self.height);
        format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <title>{title}</title>\n{style}{body}</svg>\n"
        )
    }
}

/// What pages look like, light, dark and printed, with the plots in them.
pub fn style_sheet() -> String {
    format!("{COLOURS}{}{}\n", include_str!("../page/page.css"), ink_rules())
}

/// A plot could not be laid out.
#[derive(Debug, thiserror::Error)]
#[error("plot {name}: {reason}")]
pub struct PlotError {
    name: String,
    reason: String,
}

/// The groups of plots in a report; a group without data is empty.
#[derive(Debug, Default)]
pub(crate) struct Plots {
    /// Those that the scenario asks for.
    pub(crate) figures: Vec<Plot>,
    pub(crate) overview: Vec<Plot>,
    pub(crate) distributions: Vec<Plot>,
    pub(crate) histograms: Vec<Plot>,
    pub(crate) timelines: Vec<Plot>,
}

/// The first so many.
fn first<'s, 'a>(subjects: &'s [Subject<'a>], most: usize) -> &'s [Subject<'a>] {
    &subjects[..subjects.len().min(most)]
}

impl Plots {
    pub(crate) fn of(subjects: &[Subject<'_>]) -> Result<Plots, PlotError> {
        Ok(Plots {
            figures: figure::figures(subjects)?,
            overview: overview::working_latency(subjects)?.into_iter().collect(),
            distributions: distribution::cdfs(subjects)?,
            histograms: distribution::histograms(first(subjects, MOST_HISTOGRAMS))?,
            timelines: timeline::timelines(subjects)?,
        })
    }

    /// Those that the scenario asks for, alone.
    pub(crate) fn asked_for(subjects: &[Subject<'_>]) -> Result<Vec<Plot>, PlotError> {
        figure::figures(subjects)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Plot> {
        let groups =
            [&self.figures, &self.overview, &self.distributions, &self.histograms, &self.timelines];
        groups.into_iter().flatten()
    }
}
