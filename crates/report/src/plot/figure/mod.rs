//! Plots that a scenario declares, in the form of a published figure and with its numbers.

mod bars;
mod boxes;
mod curves;
mod grid;
mod heat;
mod picture;
mod scatter;
mod sweep;

use std::collections::BTreeSet;

use grid::Grid;
use picture::{Frame, Picture};
use underload_record::schema::{PlotKind, PlotRecord, names_variant};

use super::{Plot, distribution, timeline};
use crate::subject::Subject;

/// Draws the figures of a single run. Several runs side by side have none.
pub(super) fn figures(subjects: &[Subject<'_>]) -> Vec<Plot> {
    let Some(first) = subjects.first() else { return Vec::new() };
    if subjects.iter().any(|subject| subject.run_number != 0) {
        return Vec::new();
    }
    let mut drawn = Vec::new();
    for (number, plot) in first.run.record.scenario.plots.iter().enumerate() {
        let picture = Picture { name: format!("figure-{number}"), plot, run: first.run };
        drawn.extend(draw(&picture, subjects));
    }
    drawn
}

/// The values of a plot that does not show a run's variants.
pub(crate) struct CellNumbers {
    /// Names of the lines; a single line may have an empty name.
    pub(crate) lines: Vec<String>,
    /// Names of the places on the horizontal axis.
    pub(crate) xs: Vec<String>,
    pub(crate) numbers: Vec<(Place, CellNumber)>,
}

/// The positions of a line and of a place on the horizontal axis.
pub(crate) type Place = (usize, usize);

#[derive(Clone, Copy)]
pub(crate) enum CellNumber {
    /// For lines and heat maps.
    Mean(f64),
    /// Smallest value, quartiles with the median, largest value.
    Spread([f64; 5]),
    Point(f64, f64),
}

impl CellNumbers {
    /// Drops lines and places without values.
    fn used(self) -> Self {
        let used = |position: fn(&Place) -> usize| -> BTreeSet<usize> {
            self.numbers.iter().map(|(place, _)| position(place)).collect()
        };
        let (lines, xs) = (used(|place| place.0), used(|place| place.1));
        let named = |names: &[String], used: &BTreeSet<usize>| -> Vec<String> {
            used.iter().map(|position| names.get(*position).cloned().unwrap_or_default()).collect()
        };
        let place = |(line, x): Place| (lines.range(..line).count(), xs.range(..x).count());
        let numbers = self.numbers.iter().map(|(at, number)| (place(*at), *number)).collect();
        Self { lines: named(&self.lines, &lines), xs: named(&self.xs, &xs), numbers }
    }
}

/// Draws such values in one of the forms of a scenario's plots; `None` without values.
pub(crate) fn cells_plot(
    name: &str,
    plot: &PlotRecord,
    caption: String,
    cells: CellNumbers,
) -> Option<Plot> {
    let CellNumbers { lines, xs, numbers } = cells.used();
    let (mut means, mut spreads, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for ((line, x), number) in numbers {
        match number {
            CellNumber::Mean(mean) => means.push(((line, x), Some(mean))),
            CellNumber::Spread(five) => spreads.push(boxes::Spread { line, x, five }),
            CellNumber::Point(x, y) => points.push((line, x, y)),
        }
    }
    let frame = Frame { name, plot, caption };
    let grid = Grid::of_numbers(&lines, &xs, means.into_iter());
    (!lines.is_empty()).then(|| match plot.kind {
        PlotKind::Scatter => scatter::dots(frame, &lines, &points),
        PlotKind::Box => boxes::paint(frame, &grid, &spreads),
        PlotKind::Heat => heat::paint(frame, &grid),
        _ => sweep::paint(frame, &grid, &[]),
    })
}

fn draw(picture: &Picture<'_>, subjects: &[Subject<'_>]) -> Vec<Plot> {
    let one = |plot: Option<Plot>| plot.into_iter().collect();
    match picture.plot.kind {
        PlotKind::Sweep => one(sweep::draw(picture)),
        PlotKind::Bars => one(bars::draw(picture)),
        PlotKind::Scatter => one(scatter::draw(picture)),
        PlotKind::Box => one(boxes::draw(picture)),
        PlotKind::Heat => one(heat::draw(picture)),
        PlotKind::Cdf => one(curves::draw(picture, subjects)),
        PlotKind::Histogram => {
            renamed(picture, distribution::histograms(&meant(picture, subjects)))
        }
        PlotKind::Time => renamed(picture, timeline::timelines(&meant(picture, subjects))),
    }
}

/// Returns the variants that a picture shows.
fn meant<'a>(picture: &Picture<'_>, subjects: &[Subject<'a>]) -> Vec<Subject<'a>> {
    let variants: Vec<&str> =
        subjects.iter().map(|subject| subject.variant.name.as_str()).collect();
    let points = picture.plot.points(&variants);
    let is_meant = |subject: &&Subject<'_>| {
        points.iter().any(|point| names_variant(&point.variants, &subject.variant.name))
    };
    subjects.iter().filter(is_meant).cloned().collect()
}

fn renamed(picture: &Picture<'_>, plots: Vec<Plot>) -> Vec<Plot> {
    let rename = |(number, plot): (usize, Plot)| Plot {
        name: format!("{}-{number}", picture.name),
        title: format!("{}: {}", picture.plot.title, plot.title),
        ..plot
    };
    plots.into_iter().enumerate().map(rename).collect()
}
