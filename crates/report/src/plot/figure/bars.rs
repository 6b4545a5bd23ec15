//! Bar charts, with a group of bars for each place.

use super::grid::{Cell, Grid};
use super::picture::Picture;
use crate::plot::canvas::Ink;
use crate::plot::scale::Scale;
use crate::plot::{Plot, chart};

const HEIGHT: u32 = 250;
/// Share of a group's width that its bars take.
const FILLED: f64 = 0.82;

pub(super) fn draw(picture: &Picture<'_>) -> Option<Plot> {
    let plot = picture.plot;
    let grid = Grid::of(picture, &plot.metric);
    if grid.is_empty() {
        return None;
    }
    let y = grid.scale(plot, std::iter::empty());
    let (lines, groups) = (grid.lines.len() as f64, grid.xs.len() as f64);
    let middles: Vec<f64> = (0..grid.xs.len()).map(|group| group as f64 + 0.5).collect();
    let grouped = if grid.lines.len() > 1 { "Bars in the order of the legend." } else { "" };
    let told = if grid.has_published() { "Diamonds and brackets: published." } else { "" };
    let caption = format!("{grouped} {told}").trim().to_owned();
    let names = grid.plain_legend();
    let x = Scale::linear("", 0.0..groups);
    Some(chart::with_legend(&picture.name, &plot.title, caption, HEIGHT, &names, |canvas, rows| {
        let mut panel = grid.panel(canvas, rows, (&x, &y), &middles, &plot.x_says);
        let width = FILLED / lines;
        // Bars on a logarithmic axis start at its lower end, because it has no zero.
        let floor = if y.is_log() { y.range.start } else { 0.0 };
        let left = |cell: &Cell| cell.x as f64 + (1.0 - FILLED) / 2.0 + width * cell.line as f64;
        for cell in &grid.cells {
            if let Some(value) = cell.value {
                let (from, to) = (left(cell) + width * 0.06, left(cell) + width * 0.94);
                panel.bar((from, floor), (to, value), Ink::Solid(cell.line));
            }
        }
        grid.draw_published(&mut panel, |cell| left(cell) + width / 2.0);
    }))
}
