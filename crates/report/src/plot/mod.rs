//! The plots of a report, as SVG without scripts, fonts or fixed colours.

mod canvas;
mod chart;
mod cohorts;
pub mod diagram;
mod distribution;
mod element;
mod figure;
mod overview;
mod scale;
mod timeline;

pub(crate) use cohorts::plots as cohort_plots;
pub(crate) use distribution::MOST_HISTOGRAMS;
pub use element::{Plot, style_sheet};
pub(crate) use figure::{CellNumber, CellNumbers, Place, cells_plot};
pub(crate) use timeline::MOST_TIMELINES;

use crate::subject::Subject;

/// The plots of a report by group; a group without data is empty.
#[derive(Debug, Default)]
pub(crate) struct Plots {
    pub(crate) figures: Vec<Plot>,
    pub(crate) overview: Vec<Plot>,
    pub(crate) distributions: Vec<Plot>,
    pub(crate) histograms: Vec<Plot>,
    pub(crate) timelines: Vec<Plot>,
}

impl Plots {
    pub(crate) fn of(subjects: &[Subject<'_>]) -> Plots {
        Plots {
            figures: figure::figures(subjects),
            overview: overview::working_latency(subjects).into_iter().collect(),
            distributions: distribution::cdfs(subjects),
            histograms: distribution::histograms(&subjects[..subjects.len().min(MOST_HISTOGRAMS)]),
            timelines: timeline::timelines(subjects),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Plot> {
        let groups =
            [&self.figures, &self.overview, &self.distributions, &self.histograms, &self.timelines];
        groups.into_iter().flatten()
    }
}
