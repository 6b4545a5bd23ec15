//! Groups of bars.

use underload_record::schema::PlotAxis;

use super::grid::{Grid, Scale};
use super::picture::{Picture, X_ROWS};
use crate::plot::canvas::Ink;
use crate::plot::chart::{self, Axis};
use crate::plot::{Plot, PlotError};

const HEIGHT: u32 = 250;
/// Share of a group's room that its bars take.
const FILLED: f64 = 0.82;

pub(super) fn draw(picture: &Picture<'_>) -> Result<Option<Plot>, PlotError> {
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
    chart::with_legend(
        &picture.name,
        &plot.title,
        caption,
        HEIGHT,
        &grid.plain_legend(),
        |area, top, bottom| {
            let x = Axis { name: "", range: 0.0..groups };
            let y = Axis { name: &plot.says, range: scale.range() };
            let tick = |at: f64| scale.tick(at);
            let rows = (top, bottom - X_ROWS);
            let mut panel = chart::panel_with_ticks(area, rows, &x, &y, (&chart::number, &tick))?;
            chart::ticks_below(area, &panel, &middles, &grid.xs, &plot.x_says)?;
            let named: Vec<(f64, &str)> =
                middles.iter().copied().zip(grid.xs.iter().map(String::as_str)).collect();
            chart::frame(area, &panel, (&x, &y), (false, scale.is_log()), &named)?;
            let width = FILLED / lines;
            // A bar by factors has no zero to begin at; 1 is where nothing changes.
            let floor = if scale.is_log() { scale.range().start } else { scale.at(0.0) };
            for cell in &grid.cells {
                let from = cell.x as f64 + (1.0 - FILLED) / 2.0 + width * cell.line as f64;
                if let Some(value) = cell.value {
                    let to = scale.at(value);
                    let (low, high) = (floor.min(to), floor.max(to));
                    let ends = ((from + width * 0.06, low), (from + width * 0.94, high));
                    chart::bar(&mut panel, ends.0, ends.1, Ink::Solid(cell.line))?;
                }
            }
            for cell in &grid.cells {
                let middle =
                    cell.x as f64 + (1.0 - FILLED) / 2.0 + width * (cell.line as f64 + 0.5);
                for told in &cell.published {
                    chart::published(area, &panel, middle, told.map(|value| scale.at(value)))?;
                }
            }
            Ok(())
        },
    )
    .map(Some)
}
