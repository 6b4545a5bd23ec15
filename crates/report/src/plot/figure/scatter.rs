//! Scatter plots: a point per variant, such as throughput over delay with lines of equal power.

use underload_record::schema::{PlotAxis, names_variant};

use super::grid::{Cell, Grid, variants};
use super::picture::{Frame, Picture};
use crate::plot::Plot;
use crate::plot::canvas::{Canvas, Ink};
use crate::plot::chart::{self, Panel, Published};
use crate::plot::scale::Scale;

const HEIGHT: u32 = 320;
/// Lines of equal power, as shares of the best power.
const POWERS: [f64; 3] = [1.0, 0.1, 0.01];
/// Points of a line of equal power.
const POWER_POINTS: usize = 80;

pub(super) fn draw(picture: &Picture<'_>) -> Option<Plot> {
    let plot = picture.plot;
    let up = Grid::of(picture, &plot.metric);
    let right = across(picture, &up);
    if up.is_empty() || right.iter().all(|(value, _)| value.is_none()) {
        return None;
    }
    let ends = right.iter().flat_map(|(_, told)| told.iter().flat_map(Published::ends));
    let all = right.iter().filter_map(|(value, _)| *value).chain(ends);
    let x = Scale::over(&plot.x_says, (plot, PlotAxis::X), all);
    let y = up.scale(plot, std::iter::empty());
    let points: Vec<(&Cell, f64, f64)> = up
        .cells
        .iter()
        .zip(&right)
        .filter_map(|(cell, (x, _))| Some((cell, (*x)?, cell.value?)))
        .collect();
    // Power is throughput over delay, so both must be measured.
    let power = points.iter().filter(|(_, x, _)| *x > 0.0).map(|(_, x, y)| y / x);
    let best = if plot.x_metric.is_empty() { 0.0 } else { power.fold(0.0, f64::max) };
    let caption = caption(&up, &right, best > 0.0);
    let names = up.plain_legend();
    Some(chart::with_legend(&picture.name, &plot.title, caption, HEIGHT, &names, |canvas, rows| {
        let mut panel = plane(canvas, rows, (&x, &y));
        if best > 0.0 {
            for share in POWERS {
                panel.curve(&equal_power((&x, &y), best * share), Ink::Axis, 1.2);
            }
        }
        for (cell, x, y) in &points {
            panel.rings(&[(*x, *y)], Ink::Solid(cell.line));
        }
        for (cell, (x, published)) in up.cells.iter().zip(&right) {
            for number in &cell.published {
                let Some(x) = x else { continue };
                panel.published(*x, *number);
            }
            for number in published {
                let Some(y) = cell.value else { continue };
                panel.published_across(y, *number);
            }
        }
    }))
}

/// Draws a ring for each point, in the colour of its line.
pub(super) fn dots(frame: Frame<'_>, lines: &[String], points: &[(usize, f64, f64)]) -> Plot {
    let Frame { name, plot, caption } = frame;
    let all = points.iter().map(|(_, x, _)| *x);
    let x = Scale::over(&plot.x_says, (plot, PlotAxis::X), all);
    let all = points.iter().map(|(_, _, y)| *y);
    let y = Scale::over(&plot.says, (plot, PlotAxis::Y), all);
    let named = lines.iter().enumerate().filter(|(_, line)| !line.is_empty());
    let names: Vec<(Ink, String)> =
        named.map(|(line, name)| (Ink::Solid(line), name.clone())).collect();
    chart::with_legend(name, &plot.title, caption, HEIGHT, &names, |canvas, rows| {
        let mut panel = plane(canvas, rows, (&x, &y));
        for line in 0..lines.len() {
            let own = points.iter().filter(|(of, ..)| *of == line);
            let placed: Vec<(f64, f64)> = own.map(|(_, x, y)| (*x, *y)).collect();
            panel.rings(&placed, Ink::Solid(line));
        }
    })
}

/// Draws a panel with two numeric axes.
fn plane<'c>(
    canvas: &'c mut Canvas,
    (top, bottom): (u32, u32),
    (x, y): (&'c Scale, &'c Scale),
) -> Panel<'c> {
    let mut panel = Panel::new(canvas, (top, bottom - 16), x, y);
    panel.describe(&[]);
    panel
}

/// Returns each cell's x, and the published values of x.
fn across(picture: &Picture<'_>, up: &Grid) -> Vec<(Option<f64>, Vec<Published>)> {
    let plot = picture.plot;
    if !plot.x_metric.is_empty() {
        let right = Grid::of(picture, &plot.x_metric);
        return right.cells.into_iter().map(|cell| (cell.value, cell.published)).collect();
    }
    let variants = variants(picture.run);
    let given = |cell: &Cell| {
        let named = variants.iter().find(|variant| names_variant(&cell.point.variants, variant))?;
        let mut values = plot.x_values.iter();
        values.find(|(pattern, _)| names_variant(pattern, named)).map(|(_, value)| *value)
    };
    up.cells.iter().map(|cell| (given(cell), Vec::new())).collect()
}

fn caption(up: &Grid, right: &[(Option<f64>, Vec<Published>)], has_power: bool) -> String {
    let mut parts = Vec::new();
    if has_power {
        parts.push(
            "Up and to the left is better. Lines join what has the same power (upwards over \
             rightwards): that of the best point, a tenth and a hundredth of it."
                .to_owned(),
        );
    }
    if up.xs.len() > 1 {
        parts.push(format!("A point for each of {}.", up.xs.join(", ")));
    }
    if up.has_published() || right.iter().any(|(_, told)| !told.is_empty()) {
        parts.push("Diamonds and brackets: published.".to_owned());
    }
    parts.join(" ")
}

/// Returns the line on which y is `power` times x, inside the panel.
fn equal_power((x, y): (&Scale, &Scale), power: f64) -> Vec<(f64, f64)> {
    let along = (0..=POWER_POINTS).map(|point| x.value(point as f64 / POWER_POINTS as f64));
    along.map(|x| (x, x * power)).filter(|(_, up)| y.contains(*up)).collect()
}
