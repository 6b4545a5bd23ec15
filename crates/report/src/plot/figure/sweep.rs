//! Lines over a parameter.

use underload_record::schema::{Curve, Expectation, Shape};

use super::grid::{Grid, places, variants};
use super::picture::{Frame, Picture};
use crate::plot::canvas::Ink;
use crate::plot::scale::Scale;
use crate::plot::{Plot, chart};

const HEIGHT: u32 = 280;

pub(super) fn draw(picture: &Picture<'_>) -> Option<Plot> {
    let plot = picture.plot;
    let grid = Grid::of(picture, &plot.metric);
    if grid.is_empty() {
        return None;
    }
    let best = best_places(picture, &grid);
    let mut caption = String::from("A ring for each point; over several variants their mean.");
    if grid.has_published() {
        caption += " Diamonds and brackets: published.";
    }
    if !best.is_empty() {
        caption += " Bars at the top: where the best was published to be.";
    }
    Some(paint(Frame { name: &picture.name, plot, caption }, &grid, &best))
}

/// Draws the lines; `best` has the ranges in which a line's best value was published to be.
pub(super) fn paint(frame: Frame<'_>, grid: &Grid, best: &[(usize, f64, f64)]) -> Plot {
    let Frame { name, plot, caption } = frame;
    let at = places(&grid.xs);
    let margin = (at.iter().copied().fold(f64::MIN, f64::max) - at[0]).max(1.0) * 0.05;
    let x = Scale::linear("", at[0] - margin..at[at.len() - 1] + margin);
    let y = grid.scale(plot, std::iter::empty());
    chart::with_legend(name, &plot.title, caption, HEIGHT, &grid.legend(), |canvas, rows| {
        let mut panel = grid.panel(canvas, rows, (&x, &y), &at, &plot.x_says);
        for line in 0..grid.lines.len() {
            let own = grid.cells.iter().filter(|cell| cell.line == line);
            let mut points: Vec<(f64, f64)> =
                own.filter_map(|cell| Some((at[cell.x], cell.value?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            panel.curve(&points, Ink::Variant(line), 2.0);
            panel.rings(&points, Ink::Solid(line));
        }
        grid.draw_published(&mut panel, |cell| at[cell.x]);
        for (row, (line, low, high)) in best.iter().enumerate() {
            let up = y.value(1.0 - 0.02 * (row + 1) as f64);
            panel.curve(&[(*low, up), (*high, up)], Ink::Solid(*line), 4.0);
        }
    })
}

/// Returns for each line the range in which its best value was published to be.
fn best_places(picture: &Picture<'_>, grid: &Grid) -> Vec<(usize, f64, f64)> {
    let at = places(&grid.xs);
    let variants = variants(picture.run);
    let of = |expected: &Expectation| {
        let is_place = |it: &&Curve| matches!(it.shape, Shape::Peak | Shape::Trough);
        let curve = expected.curve.as_ref().filter(is_place);
        let curve = curve.filter(|_| expected.metric == picture.plot.metric)?;
        let plain = |name: &str| Expectation {
            variant: expected.variant.replace("{}", name),
            curve: None,
            ..expected.clone()
        };
        let mut found = None;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for (name, number) in &curve.among {
            let cell = grid.cells.iter().find(|cell| {
                let own = picture.plot.expectation(&picture.plot.metric, &cell.point);
                plain(name).is_inverse_of(&own, &variants) == Some(false)
            })?;
            if found.is_some_and(|line| line != cell.line) {
                return None;
            }
            found = Some(cell.line);
            let is_above = expected.low.is_none_or(|low| *number >= low);
            if is_above && expected.high.is_none_or(|high| *number <= high) {
                (low, high) = (low.min(at[cell.x]), high.max(at[cell.x]));
            }
        }
        let reach = (at[at.len() - 1] - at[0]) * 0.012;
        found.filter(|_| low <= high).map(|line| (line, low - reach, high + reach))
    };
    picture.run.record.expectations.iter().filter_map(of).collect()
}
