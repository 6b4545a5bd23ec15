//! One metric against another, a point per variant: throughput over delay, with lines of equal power.

use underload_record::schema::{PlotAxis, PlotRecord, names_variant};

use super::grid::{Cell, Grid, Scale, variants};
use super::picture::{Frame, Picture};
use crate::plot::canvas::Ink;
use crate::plot::chart::{self, Area, Axis, Panel, Published};
use crate::plot::{Plot, Plotted};

const HEIGHT: u32 = 320;
/// Lines of equal power, as shares of the best power.
const POWERS: [f64; 3] = [1.0, 0.1, 0.01];
/// Points of a line of equal power.
const POWER_POINTS: usize = 80;

pub(super) fn draw(picture: &Picture<'_>) -> Plotted<Option<Plot>> {
    let plot = picture.plot;
    let up = Grid::of(picture, &plot.metric);
    let right = across(picture, &up);
    if up.is_empty() || right.iter().all(|(value, _)| value.is_none()) {
        return Ok(None);
    }
    let ends = right.iter().flat_map(|(_, told)| told.iter().flat_map(Published::ends));
    let across_scale = right.iter().filter_map(|(value, _)| *value).chain(ends);
    let across = Scale::of_plot(plot, PlotAxis::X, across_scale);
    let along = Scale::of_plot(plot, PlotAxis::Y, up.values());
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
    chart::with_legend(&picture.name, &plot.title, caption, HEIGHT, &names, |area, top, bottom| {
        let mut panel = plane(area, (top, bottom), plot, (&across, &along))?;
        if best > 0.0 {
            for share in POWERS {
                let line = equal_power(&across, &along, best * share);
                chart::curve(&mut panel, line, Ink::Axis, 1.2)?;
            }
        }
        for (cell, x, y) in &points {
            chart::rings(&mut panel, vec![(across.at(*x), along.at(*y))], Ink::Solid(cell.line))?;
        }
        for (cell, (x, told)) in up.cells.iter().zip(&right) {
            let at = (x.map(|x| across.at(x)), cell.value.map(|y| along.at(y)));
            for told in &cell.published {
                let Some(x) = at.0 else { continue };
                chart::published(area, &panel, x, told.map(|value| along.at(value)))?;
            }
            for told in told {
                let Some(y) = at.1 else { continue };
                chart::published_across(area, &panel, y, told.map(|value| across.at(value)))?;
            }
        }
        Ok(())
    })
    .map(Some)
}

/// Draws a ring for each point, in the colour of its line.
pub(super) fn dots(frame: Frame<'_>, lines: &[String], points: &[(usize, f64, f64)]) -> Plotted {
    let Frame { name, plot, caption } = frame;
    let across = Scale::of_plot(plot, PlotAxis::X, points.iter().map(|(_, x, _)| *x));
    let along = Scale::of_plot(plot, PlotAxis::Y, points.iter().map(|(_, _, y)| *y));
    let named = lines.iter().enumerate().filter(|(_, line)| !line.is_empty());
    let names: Vec<(Ink, String)> =
        named.map(|(line, name)| (Ink::Solid(line), name.clone())).collect();
    chart::with_legend(name, &plot.title, caption, HEIGHT, &names, |area, top, bottom| {
        let mut panel = plane(area, (top, bottom), plot, (&across, &along))?;
        for line in 0..lines.len() {
            let own = points.iter().filter(|(of, ..)| *of == line);
            let placed = own.map(|(_, x, y)| (across.at(*x), along.at(*y))).collect();
            chart::rings(&mut panel, placed, Ink::Solid(line))?;
        }
        Ok(())
    })
}

/// Draws a panel with two numeric axes.
fn plane<'a>(
    area: &Area<'a>,
    (top, bottom): (u32, u32),
    plot: &PlotRecord,
    (across, along): (&Scale, &Scale),
) -> Result<Panel<'a>, String> {
    let x = Axis { name: &plot.x_says, range: across.range() };
    let y = Axis { name: &plot.says, range: along.range() };
    let ticks = (|at: f64| across.tick(at), |at: f64| along.tick(at));
    let rows = (top, bottom - 16);
    let panel = chart::panel_with_ticks(area, rows, &x, &y, (&ticks.0, &ticks.1))?;
    chart::frame(area, &panel, (&x, &y), (across.is_log, along.is_log), &[])?;
    Ok(panel)
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
fn equal_power(across: &Scale, along: &Scale, power: f64) -> Vec<(f64, f64)> {
    let range = across.range();
    let step = (range.end - range.start) / POWER_POINTS as f64;
    let at = (0..=POWER_POINTS).map(|point| range.start + step * point as f64);
    at.filter_map(|at| {
        let up = across.value(at) * power;
        let inside = along.value(along.range().start)..=along.value(along.range().end);
        inside.contains(&up).then(|| (at, along.at(up)))
    })
    .collect()
}
