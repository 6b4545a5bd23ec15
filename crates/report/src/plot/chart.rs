//! Parts of all charts: size, axes, legend, and marks at values.

use underload_record::schema::Expectation;

use super::Plot;
use super::canvas::{Across, Along, Canvas, Ink, Style, style};
use super::scale::Scale;

/// Width of every chart, pixels: two fit side by side on a desktop screen, one fills a phone.
pub(super) const WIDTH: u32 = 480;

const LEFT: u32 = 50;
const RIGHT: u32 = 14;
const LINE_HEIGHT: u32 = 17;
const TEXT_SIZE: f64 = 12.0;
/// Length of the mark at a tick, pixels.
const TICK: f64 = 4.0;

/// Draws a plot of `height` pixels.
pub(super) fn plot(
    name: &str,
    title: String,
    caption: String,
    height: u32,
    draw: impl FnOnce(&mut Canvas),
) -> Plot {
    let mut canvas = Canvas::default();
    draw(&mut canvas);
    Plot { name: name.to_owned(), title, caption, body: canvas.body, width: WIDTH, height }
}

/// Draws a chart below a legend; `draw` gets its first and last row, pixels.
pub(super) fn with_legend(
    name: &str,
    title: &str,
    caption: String,
    height: u32,
    names: &[(Ink, String)],
    draw: impl FnOnce(&mut Canvas, (u32, u32)),
) -> Plot {
    let mut canvas = Canvas::default();
    let top = if names.is_empty() { 0 } else { legend(&mut canvas, names) };
    let height = top + height;
    draw(&mut canvas, (top, height));
    let (name, title) = (name.to_owned(), title.to_owned());
    Plot { name, title, caption, body: canvas.body, width: WIDTH, height }
}

/// Draws rows of swatches and names, and returns their height, px.
fn legend(canvas: &mut Canvas, entries: &[(Ink, String)]) -> u32 {
    let (mut x, mut y) = (4, 2);
    for (ink, name) in entries {
        let name = shorten(name, 58);
        let width = 30 + text_width(&name, TEXT_SIZE);
        if x > 4 && x + width > WIDTH {
            (x, y) = (4, y + LINE_HEIGHT);
        }
        let middle = y + LINE_HEIGHT / 2;
        canvas.polyline([(x, middle), (x + 22, middle)], *ink, 2.5);
        let words = style(TEXT_SIZE, Ink::Text, Across::Left, Along::Center);
        canvas.text(&name, (x + 27, middle), words);
        x += width + 12;
    }
    y + LINE_HEIGHT + 2
}

/// Axes, and the canvas on which values between them are drawn.
pub(super) struct Panel<'c> {
    canvas: &'c mut Canvas,
    x: &'c Scale,
    y: &'c Scale,
    /// First and last column of the values, pixels.
    pub(super) columns: (f64, f64),
    /// First and last row, downwards; the largest value is at the first row.
    pub(super) rows: (f64, f64),
}

impl<'c> Panel<'c> {
    /// Draws axes between the rows `top` and `bottom` of the canvas, pixels; their names are
    /// outside. An axis without a name has no ticks if it is the horizontal one.
    pub(super) fn new(
        canvas: &'c mut Canvas,
        (top, bottom): (u32, u32),
        x: &'c Scale,
        y: &'c Scale,
    ) -> Self {
        let below = if x.name.is_empty() { 6 } else { 22 };
        let columns = (f64::from(LEFT), f64::from(WIDTH - RIGHT));
        let rows = (f64::from(top + 20), f64::from(bottom.saturating_sub(below)));
        let mut panel = Self { canvas, x, y, columns, rows };
        panel.draw_vertical_axis(if bottom - top < 130 { 4 } else { 6 });
        panel.canvas.text(&y.name, (LEFT - 6, top + 15), muted(Across::Left, Along::Bottom));
        panel.draw_horizontal_axis(if x.name.is_empty() { 0 } else { 8 });
        panel.canvas.text(&x.name, (WIDTH - RIGHT, bottom), muted(Across::Right, Along::Top));
        panel
    }

    fn draw_vertical_axis(&mut self, most: usize) {
        let ((left, right), (top, bottom)) = (self.columns, self.rows);
        let row = |(value, label)| (self.pixel((self.x.range.start, value)).1, label);
        let ticks: Vec<(f64, String)> = self.y.ticks(most).into_iter().map(row).collect();
        for (row, _) in &ticks {
            self.canvas.line((left, *row), (right, *row), Ink::Grid, 1.0);
        }
        self.canvas.polyline([(left, top), (left, bottom)], Ink::Axis, 1.0);
        for (row, label) in &ticks {
            let at = (left - 2.0 * TICK, *row);
            self.canvas.text(label, at, muted(Across::Right, Along::Center));
            self.canvas.polyline([(left - TICK, *row), (left, *row)], Ink::Axis, 1.0);
        }
    }

    fn draw_horizontal_axis(&mut self, most: usize) {
        let ((left, right), bottom) = (self.columns, self.rows.1);
        self.canvas.polyline([(left, bottom), (right, bottom)], Ink::Axis, 1.0);
        for (value, label) in self.x.ticks(most) {
            let column = self.pixel((value, self.y.range.start)).0;
            let at = (column, bottom + 2.0 * TICK);
            self.canvas.text(&label, at, muted(Across::Center, Along::Top));
            self.canvas.polyline([(column, bottom), (column, bottom + TICK)], Ink::Axis, 1.0);
        }
    }

    /// Describes the panel to the page's script, which shows values under the pointer: pixels of
    /// the edges, places at the edges, whether an axis is logarithmic, names; then the named
    /// `places` of the horizontal axis.
    pub(super) fn describe(&mut self, places: &[(f64, &str)]) {
        let ((left, right), (top, bottom)) = (self.columns, self.rows);
        let (x, y) = (self.x.placed_range(), self.y.placed_range());
        let mut lines = vec![
            format!("{left} {right} {top} {bottom}"),
            format!("{} {} {} {}", x.start, x.end, y.start, y.end),
            format!("{} {}", u8::from(self.x.is_log()), u8::from(self.y.is_log())),
            self.x.name.clone(),
            self.y.name.clone(),
        ];
        lines.extend(places.iter().map(|(at, name)| format!("{at} {name}")));
        let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
        self.canvas.metadata(&lines.join("\n"));
    }

    /// Writes names below the given places of a horizontal axis without ticks, and the axis' name
    /// below them. Names that would overlap are left out.
    pub(super) fn name_places(&mut self, at: &[f64], names: &[String], axis: &str) {
        let top = self.rows.1 + 9.0;
        // In one of two rows, a name has the width of two places, at 6 pixels per character.
        let places = names.len() as f64;
        let most = ((self.columns.1 - self.columns.0) * 2.0 / 6.0 / places).max(18.0) as usize;
        let mut free_from = f64::NEG_INFINITY;
        let mut below_from = f64::NEG_INFINITY;
        for (at, name) in at.iter().zip(names) {
            let name = shorten(name, most);
            let x = self.pixel((*at, 0.0)).0;
            let half = f64::from(text_width(&name, TEXT_SIZE - 1.0)) / 2.0;
            if x - half >= free_from {
                free_from = x + half + 4.0;
                self.canvas.text(&name, (x, top), muted(Across::Center, Along::Top));
            } else if axis.is_empty() && x - half >= below_from {
                // Without an axis name there is space for a second row of names.
                below_from = x + half + 4.0;
                self.canvas.text(&name, (x, top + 13.0), muted(Across::Center, Along::Top));
            }
        }
        let below = (f64::from(WIDTH - RIGHT), top + 15.0);
        self.canvas.text(axis, below, muted(Across::Right, Along::Top));
    }

    /// Returns the pixel of a value; values outside the scales are at an edge.
    fn pixel(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let ((left, right), (top, bottom)) = (self.columns, self.rows);
        let across = left + self.x.share(x) * (right - left);
        // Rows count from the top.
        (across, bottom - self.y.share(y) * (bottom - top))
    }

    fn pixels(&self, values: &[(f64, f64)]) -> Vec<(f64, f64)> {
        values.iter().map(|value| self.pixel(*value)).collect()
    }

    pub(super) fn curve(&mut self, values: &[(f64, f64)], ink: Ink, width: f64) {
        self.canvas.polyline(self.pixels(values), ink, width);
    }

    /// Draws a straight line that is part of a mark and not a curve.
    pub(super) fn stroke(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink, width: f64) {
        self.canvas.line(self.pixel(from), self.pixel(to), ink, width);
    }

    /// Draws a filled outline.
    pub(super) fn surface(&mut self, outline: &[(f64, f64)], ink: Ink) {
        self.canvas.polygon(self.pixels(outline), ink);
    }

    /// Draws a filled rectangle.
    pub(super) fn bar(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink) {
        self.canvas.rectangle(self.pixel(from), self.pixel(to), ink);
    }

    pub(super) fn rings(&mut self, values: &[(f64, f64)], ink: Ink) {
        for at in self.pixels(values) {
            self.canvas.ring(at, 3.0, ink);
        }
    }

    /// Draws a published number above the place `x`: a diamond for a value, a bracket for a band,
    /// open where the band has no end.
    pub(super) fn published(&mut self, x: f64, number: Published) {
        let pixels = number.map(|y| self.pixel((x, y)));
        mark(self.canvas, pixels, |point| point, -1.0);
    }

    /// Draws a published number to the right of the place `y`.
    pub(super) fn published_across(&mut self, y: f64, number: Published) {
        let turned = |(x, y): (f64, f64)| (y, x);
        let pixels = number.map(|x| turned(self.pixel((x, y))));
        mark(self.canvas, pixels, turned, 1.0);
    }
}

/// A published number on an axis: a value, or a band that may be open at one end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published<T = f64> {
    value: Option<T>,
    low: Option<T>,
    high: Option<T>,
}

impl Published {
    pub(super) fn new(expected: &Expectation, is_inverse: bool) -> Self {
        let Expectation { value, low, high, .. } = *expected;
        // A band around a value is a tolerance, which is not drawn.
        let plain = match value {
            Some(_) => Self { value, low: None, high: None },
            None => Self { value, low, high },
        };
        let inverse = |value: Option<f64>| value.filter(|value| *value > 0.0).map(f64::recip);
        if is_inverse {
            let (low, high) = (inverse(plain.high), inverse(plain.low));
            Self { value: inverse(plain.value), low, high }
        } else {
            plain
        }
    }

    /// Converts all values by `place`.
    fn map<T>(self, place: impl Fn(f64) -> T) -> Published<T> {
        let Self { value, low, high } = self;
        Published { value: value.map(&place), low: low.map(&place), high: high.map(&place) }
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = f64> {
        [self.value, self.low, self.high].into_iter().flatten().filter(|value| value.is_finite())
    }
}

/// Draws the mark of a published number from the pixels of its values. `up` is the sign of the
/// direction in which values grow, `turned` maps the pixels of an upright mark to those on the canvas.
fn mark(
    canvas: &mut Canvas,
    Published { value, low, high }: Published<(f64, f64)>,
    turned: impl Fn((f64, f64)) -> (f64, f64),
    up: f64,
) {
    let mut line = |points: &[(f64, f64)]| {
        canvas.polyline(points.iter().map(|point| turned(*point)), Ink::Text, 1.4);
    };
    if let Some((x, y)) = value {
        let corners = [(x - 5.0, y), (x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)];
        line(&corners);
    }
    for (end, inwards) in [(low, up), (high, -up)] {
        let Some((x, y)) = end else { continue };
        line(&[(x - 5.0, y), (x + 5.0, y)]);
        if low.is_none() || high.is_none() {
            // An arrow points from the only end into the band.
            let tip = y + inwards * 9.0;
            line(&[(x, y), (x, tip)]);
            line(&[(x - 3.0, tip - inwards * 4.0), (x, tip), (x + 3.0, tip - inwards * 4.0)]);
        }
    }
    if let (Some(low), Some(high)) = (low, high) {
        line(&[low, high]);
    }
}

/// Returns the style of axis names and tick labels.
fn muted(across: Across, along: Along) -> Style {
    style(TEXT_SIZE - 1.0, Ink::Muted, across, along)
}

/// Returns the end of an axis a little above the largest value; 1 if there is no positive value.
pub(super) fn above(largest: f64) -> f64 {
    if largest > 0.0 { largest * 1.06 } else { 1.0 }
}

/// Cuts a text to at most `columns` characters.
pub(super) fn shorten(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns - 1).collect();
    format!("{kept}…")
}

fn text_width(text: &str, size: f64) -> u32 {
    (text.chars().count() as f64 * size * 0.54).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_below_bars_has_the_width_of_two_places() {
        let names = ["none-docsis-pie-200ms", "none-buffer-control", "a", "b", "c"];
        let names = names.map(str::to_owned);
        let at = [0.5, 1.5, 2.5, 3.5, 4.5];
        let drawn = with_legend("bars", "", String::new(), 100, &[], |canvas, rows| {
            let (x, y) = (Scale::linear("", 0.0..5.0), Scale::linear("", 0.0..1.0));
            Panel::new(canvas, rows, &x, &y).name_places(&at, &names, "");
        });
        for name in names {
            assert!(drawn.body.contains(&format!(">{name}</text>")), "{name}: {}", drawn.body);
        }
    }
}
