//! A heat map: a cell for each line and place.

use super::grid::Grid;
use super::picture::{Frame, Picture};
use crate::plot::Plot;
use crate::plot::canvas::{Across, Along, HEATS, Ink, style};
use crate::plot::chart::{self, WIDTH};
use crate::words::significant;

const ROW: i32 = 30;
const TOP: i32 = 24;
const LEFT: i32 = 112;
const RIGHT: i32 = 8;
/// Narrowest column with numbers, pixels.
const NUMBER: i32 = 30;

pub(super) fn draw(picture: &Picture<'_>) -> Option<Plot> {
    let plot = picture.plot;
    let grid = Grid::of(picture, &plot.metric);
    if grid.is_empty() {
        return None;
    }
    Some(paint(Frame { name: &picture.name, plot, caption: String::new() }, &grid))
}

pub(super) fn paint(frame: Frame<'_>, grid: &Grid) -> Plot {
    let Frame { name, plot, caption: of } = frame;
    let values = || grid.cells.iter().filter_map(|cell| cell.value);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let by_factors = least > 0.0 && most / least >= 20.0;
    let place = |value: f64| if by_factors { value.ln() } else { value };
    let heat = |value: f64| {
        let span = (place(most) - place(least)).max(f64::MIN_POSITIVE);
        ((place(value) - place(least)) / span * (HEATS - 1) as f64).round() as usize
    };
    let height = TOP + ROW * grid.lines.len() as i32 + 40;
    let caption = format!(
        "{}: from {} (palest) to {}{}. {of}",
        plot.says,
        significant(least),
        significant(most),
        if by_factors { ", shaded by factors" } else { "" }
    );
    chart::plot(name, plot.title.clone(), caption.trim_end().to_owned(), height as u32, |canvas| {
        let width = (WIDTH as i32 - LEFT - RIGHT) / grid.xs.len() as i32;
        for (row, line) in grid.lines.iter().enumerate() {
            let at = (LEFT - 8, TOP + ROW * row as i32 + ROW / 2);
            let style = style(12.0, Ink::Text, Across::Right, Along::Center);
            canvas.text(&chart::shorten(line, 17), at, style);
        }
        for cell in &grid.cells {
            let (left, top) = (LEFT + width * cell.x as i32, TOP + ROW * cell.line as i32);
            let Some(value) = cell.value else { continue };
            let (from, to) = ((left + 1, top + 1), (left + width - 1, top + ROW - 1));
            canvas.rectangle(from, to, Ink::Heat(heat(value)));
            if width >= NUMBER {
                let middle = (left + width / 2, top + ROW / 2);
                let style = style(11.0, Ink::Text, Across::Center, Along::Center);
                canvas.text(&significant(value), middle, style);
            }
        }
        let below = TOP + ROW * grid.lines.len() as i32 + 4;
        for (column, x) in grid.xs.iter().enumerate() {
            let at = (LEFT + width * column as i32 + width / 2, below);
            let style = style(11.0, Ink::Muted, Across::Center, Along::Top);
            canvas.text(&chart::shorten(x, (width / 6).max(3) as usize), at, style);
        }
        let style = style(11.0, Ink::Muted, Across::Right, Along::Top);
        canvas.text(&plot.x_says, (WIDTH as i32 - RIGHT, below + 16), style);
    })
}
