//! Bar charts, with a group of bars for each place.

use underload_record::schema::PlotAxis;

use super::grid::{Grid, Scale};
use super::picture::Picture;
use crate::plot::canvas::Ink;
use crate::plot::{Plot, Plotted, chart};

const HEIGHT: u32 = 250;
/// Share of a group's width that its bars take.
const FILLED: f64 = 0.82;

pub(super) fn draw(picture: &Picture<'_>) -> Plotted<Option<Plot>> {
    let plot = picture.plot;
    let grid = Grid::of(picture, &plot.metric);
    if grid.is_empty() {
        return Ok(None);
    }
    let scale = Scale::of_plot(plot, PlotAxis::Y, grid.values());
    let (lines, groups) = (grid.lines.len() as f64, grid.xs.len() as f64);
    let middles: Vec<f64> = (0..grid.xs.len()).map(|group| group as f64 + 0.5).collect();
    let grouped = if grid.lines.len() > 1 { "Bars in the order of the legend." } else { "" };
    let told = if grid.has_published() { "Diamonds and brackets: published." } else { "" };
    let caption = format!("{grouped} {told}").trim().to_owned();
    let names = grid.plain_legend();
    chart::with_legend(&picture.name, &plot.title, caption, HEIGHT, &names, |area, top, bottom| {
        let at = (&scale, middles.as_slice());
        let mut panel = grid.panel(area, (top, bottom), plot, 0.0..groups, at)?;
        let width = FILLED / lines;
        // Bars on a logarithmic axis start at its lower end, because it has no zero.
        let floor = if scale.is_log { scale.range().start } else { scale.at(0.0) };
        for cell in &grid.cells {
            let from = cell.x as f64 + (1.0 - FILLED) / 2.0 + width * cell.line as f64;
            if let Some(value) = cell.value {
                let to = scale.at(value);
                let (low, high) = (floor.min(to), floor.max(to));
                let ends = ((from + width * 0.06, low), (from + width * 0.94, high));
                chart::bar(&mut panel, ends.0, ends.1, Ink::Solid(cell.line))?;
            }
        }
        grid.draw_published(area, &panel, &scale, |cell| {
            cell.x as f64 + (1.0 - FILLED) / 2.0 + width * (cell.line as f64 + 0.5)
        })
    })
    .map(Some)
}
