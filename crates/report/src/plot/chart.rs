//! Parts of all charts: size, axes, legend, and drawing by ink instead of colour.

use std::fmt::Display;
use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, ShapeStyle, TextStyle};
use plotters_backend::{BackendCoord, DrawingBackend, DrawingErrorKind};
use underload_record::schema::Expectation;

use super::canvas::{Canvas, Ink, UNIT};
use super::{Plot, PlotError, Plotted};

/// Width of every chart, pixels: two fit side by side on a desktop screen, one fills a phone.
pub(super) const WIDTH: u32 = 480;

const LEFT: u32 = 50;
const RIGHT: u32 = 14;
const LINE_HEIGHT: u32 = 17;
const TEXT_SIZE: f64 = 12.0;

pub(super) type Area<'a> = DrawingArea<Canvas<'a>, Shift>;
pub(super) type Panel<'a> =
    ChartContext<'a, Canvas<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The result of drawing; an error is the reason.
pub(super) type Drawn<T = ()> = Result<T, String>;

/// An axis: its name with unit, and its range.
#[derive(Debug, Clone)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) range: Range<f64>,
}

/// Draws a plot of `height` pixels. `draw` returns the reason if it fails.
pub(super) fn plot(
    name: &str,
    title: String,
    caption: String,
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Plotted {
    let mut body = String::new();
    {
        let canvas = Canvas { body: &mut body, width: WIDTH, height };
        let area = canvas.into_drawing_area();
        draw(&area).map_err(|reason| PlotError { name: name.to_owned(), reason })?;
    }
    Ok(Plot { name: name.to_owned(), title, caption, body, width: WIDTH, height })
}

/// Draws axes between the rows `top` and `bottom` of the area, pixels; their names are outside.
pub(super) fn panel<'a>(
    area: &Area<'a>,
    top: u32,
    bottom: u32,
    x: &Axis<'_>,
    y: &Axis<'_>,
) -> Drawn<Panel<'a>> {
    let panel = panel_with_ticks(area, (top, bottom), x, y, (&number, &number))?;
    frame(area, &panel, (x, y), (false, false), &[])?;
    Ok(panel)
}

/// Describes a panel to the page's script, which shows values under the pointer: pixels of the
/// edges, values at the edges, whether an axis is logarithmic, names; then the named `places` of
/// the horizontal axis.
pub(super) fn frame(
    area: &Area<'_>,
    panel: &Panel<'_>,
    (x, y): (&Axis<'_>, &Axis<'_>),
    (x_log, y_log): (bool, bool),
    places: &[(f64, &str)],
) -> Drawn {
    let ((left, right), (top, bottom)) = pixels_of(panel);
    let edges = format!("{left} {right} {top} {bottom}");
    let values = format!("{} {} {} {}", x.range.start, x.range.end, y.range.start, y.range.end);
    let logs = format!("{} {}", u8::from(x_log), u8::from(y_log));
    let mut lines = vec![edges, values, logs, x.name.to_owned(), y.name.to_owned()];
    lines.extend(places.iter().map(|(at, name)| format!("{at} {name}")));
    let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
    text(area, &lines.join("\n"), (0, 0), style(1.0, Ink::Frame, HPos::Left, VPos::Top))
}

/// Formats the label of a tick.
pub(super) type Tick<'t> = &'t dyn Fn(f64) -> String;

/// As [`panel`], with tick labels by the caller and without the description for the script.
pub(super) fn panel_with_ticks<'a>(
    area: &Area<'a>,
    (top, bottom): (u32, u32),
    x: &Axis<'_>,
    y: &Axis<'_>,
    (x_tick, y_tick): (Tick<'_>, Tick<'_>),
) -> Drawn<Panel<'a>> {
    let part = area.clone().shrink((0, top * UNIT), (WIDTH * UNIT, (bottom - top) * UNIT));
    let mut chart = ChartBuilder::on(&part)
        .margin_left(2 * UNIT)
        .margin_right(RIGHT * UNIT)
        .margin_top(20 * UNIT)
        .x_label_area_size(if x.name.is_empty() { 6 * UNIT } else { 22 * UNIT })
        .y_label_area_size((LEFT - 2) * UNIT)
        .build_cartesian_2d(x.range.clone(), y.range.clone())
        .map_err(words)?;
    let labels = style(TEXT_SIZE - 1.0, Ink::Muted, HPos::Left, VPos::Top);
    let (x_tick, y_tick) = (|value: &f64| x_tick(*value), |value: &f64| y_tick(*value));
    let mut mesh = chart.configure_mesh();
    let _ = mesh
        .light_line_style(plotters::style::TRANSPARENT)
        .bold_line_style(line(Ink::Grid, 1.0))
        .axis_style(line(Ink::Axis, 1.0))
        .disable_x_mesh()
        .label_style(labels)
        .set_all_tick_mark_size(4 * UNIT as i32)
        .x_labels(if x.name.is_empty() { 0 } else { 8 })
        .y_labels(if bottom - top < 130 { 4 } else { 6 })
        .x_label_formatter(&x_tick)
        .y_label_formatter(&y_tick);
    mesh.draw().map_err(words)?;
    let above = (LEFT as i32 - 6, top as i32 + 15);
    text(area, y.name, above, style(TEXT_SIZE - 1.0, Ink::Muted, HPos::Left, VPos::Bottom))?;
    if !x.name.is_empty() {
        let below = ((WIDTH - RIGHT) as i32, bottom as i32);
        text(area, x.name, below, style(TEXT_SIZE - 1.0, Ink::Muted, HPos::Right, VPos::Top))?;
    }
    Ok(chart)
}

/// Returns first and last column, and first and last row of a panel's values, pixels.
pub(super) fn pixels_of(panel: &Panel<'_>) -> ((f64, f64), (f64, f64)) {
    let (columns, rows) = panel.plotting_area().get_pixel_range();
    let pixels = |range: Range<i32>| {
        (f64::from(range.start) / f64::from(UNIT), f64::from(range.end) / f64::from(UNIT))
    };
    (pixels(columns), pixels(rows))
}

/// Lays out rows of swatches and names, drawn if there is an area. Returns their height, px.
pub(super) fn legend(area: Option<&Area<'_>>, entries: &[(Ink, String)]) -> Drawn<u32> {
    let (mut x, mut y) = (4, 2);
    for (ink, name) in entries {
        let name = shorten(name, 58);
        let width = 30 + text_width(&name, TEXT_SIZE);
        if x > 4 && x + width > WIDTH {
            (x, y) = (4, y + LINE_HEIGHT);
        }
        if let Some(area) = area {
            let middle = (y + LINE_HEIGHT / 2) as i32;
            let swatch = [(x as i32, middle), (x as i32 + 22, middle)];
            polyline(area, &swatch, *ink, 2.5)?;
            let at = (x as i32 + 27, middle);
            text(area, &name, at, style(TEXT_SIZE, Ink::Text, HPos::Left, VPos::Center))?;
        }
        x += width + 12;
    }
    Ok(y + LINE_HEIGHT + 2)
}

/// Draws a chart below a legend; `draw` gets its first and last row, pixels.
pub(super) fn with_legend(
    name: &str,
    title: &str,
    caption: String,
    height: u32,
    names: &[(Ink, String)],
    draw: impl FnOnce(&Area<'_>, u32, u32) -> Drawn,
) -> Plotted {
    let measured = if names.is_empty() { Ok(0) } else { legend(None, names) };
    let top = *measured.as_ref().unwrap_or(&0);
    plot(name, title.to_owned(), caption, top + height, |area| {
        measured?;
        if !names.is_empty() {
            legend(Some(area), names)?;
        }
        draw(area, top, top + height)
    })
}

/// Writes names below the given places of an axis without ticks, and the axis' name below them.
/// Names that would overlap are left out.
pub(super) fn ticks_below(
    area: &Area<'_>,
    panel: &Panel<'_>,
    at: &[f64],
    names: &[String],
    axis: &str,
) -> Drawn {
    let (_, (_, bottom)) = pixels_of(panel);
    let top = bottom as i32 + 9;
    let mut free_from = f64::NEG_INFINITY;
    let mut below_from = f64::NEG_INFINITY;
    for (at, name) in at.iter().zip(names) {
        let name = shorten(name, 18);
        let (x, half) = (place(panel, *at, 0.0).0, f64::from(text_width(&name, 11.0)) / 2.0);
        let muted = style(TEXT_SIZE - 1.0, Ink::Muted, HPos::Center, VPos::Top);
        if x - half >= free_from {
            free_from = x + half + 4.0;
            text(area, &name, (x as i32, top), muted)?;
        } else if axis.is_empty() && x - half >= below_from {
            // Without an axis name there is space for a second row of names.
            below_from = x + half + 4.0;
            text(area, &name, (x as i32, top + 13), muted)?;
        }
    }
    let below = ((WIDTH - RIGHT) as i32, top + 15);
    text(area, axis, below, style(TEXT_SIZE - 1.0, Ink::Muted, HPos::Right, VPos::Top))
}

/// Returns the pixel of a value of a panel.
fn place(panel: &Panel<'_>, x: f64, y: f64) -> (f64, f64) {
    let (columns, rows) = pixels_of(panel);
    let (across, along) = (panel.x_range(), panel.y_range());
    let share = |value: f64, range: &Range<f64>| {
        (value - range.start) / (range.end - range.start).max(f64::MIN_POSITIVE)
    };
    let right = columns.0 + share(x, &across) * (columns.1 - columns.0);
    // Rows count from the top.
    let down = rows.1 - share(y, &along) * (rows.1 - rows.0);
    (right, down)
}

/// A published number on an axis: a value, or a band that may be open at one end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) value: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
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
    pub(super) fn map(&self, place: impl Fn(f64) -> f64) -> Self {
        let Self { value, low, high } = *self;
        Self { value: value.map(&place), low: low.map(&place), high: high.map(&place) }
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = f64> {
        [self.value, self.low, self.high].into_iter().flatten().filter(|value| value.is_finite())
    }
}

/// Draws a published number above the place `x` of a panel: a diamond for a value, a bracket for a
/// band, open where the band has no end.
pub(super) fn published(area: &Area<'_>, panel: &Panel<'_>, x: f64, told: Published) -> Drawn {
    let at = |y: f64| place(panel, x, y);
    let turned = |(x, y): (f64, f64)| (x.round() as i32, y.round() as i32);
    mark(area, told.value.map(at), told.low.map(at), told.high.map(at), turned, -1.0)
}

/// Draws a published number to the right of the place `y` of a panel.
pub(super) fn published_across(
    area: &Area<'_>,
    panel: &Panel<'_>,
    y: f64,
    told: Published,
) -> Drawn {
    // The mark is drawn upright and then turned.
    let at = |x: f64| {
        let (x, y) = place(panel, x, y);
        (y, x)
    };
    let turned = |(y, x): (f64, f64)| (x.round() as i32, y.round() as i32);
    mark(area, told.value.map(at), told.low.map(at), told.high.map(at), turned, 1.0)
}

/// Draws the mark of a published number. `up` is the sign of the direction in which values grow.
fn mark(
    area: &Area<'_>,
    value: Option<(f64, f64)>,
    low: Option<(f64, f64)>,
    high: Option<(f64, f64)>,
    turned: impl Fn((f64, f64)) -> (i32, i32),
    up: f64,
) -> Drawn {
    let line = |points: &[(f64, f64)]| {
        let points: Vec<(i32, i32)> = points.iter().map(|point| turned(*point)).collect();
        polyline(area, &points, Ink::Text, 1.4)
    };
    if let Some((x, y)) = value {
        let corners = [(x - 5.0, y), (x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)];
        line(&corners)?;
    }
    for (end, inwards) in [(low, up), (high, -up)] {
        let Some((x, y)) = end else { continue };
        line(&[(x - 5.0, y), (x + 5.0, y)])?;
        if low.is_none() || high.is_none() {
            // An arrow points from the only end into the band.
            let tip = y + inwards * 9.0;
            line(&[(x, y), (x, tip)])?;
            line(&[(x - 3.0, tip - inwards * 4.0), (x, tip), (x + 3.0, tip - inwards * 4.0)])?;
        }
    }
    match (low, high) {
        (Some(low), Some(high)) => line(&[low, high]),
        _ => Ok(()),
    }
}

/// Draws text at a point of the area, pixels.
pub(super) fn text(area: &Area<'_>, text: &str, at: (i32, i32), style: TextStyle<'_>) -> Drawn {
    area.draw(&Text::new(text, units(at), style)).map_err(words)
}

/// Draws a line through points of the area, pixels.
pub(super) fn polyline(area: &Area<'_>, points: &[(i32, i32)], ink: Ink, width: f64) -> Drawn {
    let points: Vec<(i32, i32)> = points.iter().map(|point| units(*point)).collect();
    area.draw(&PathElement::new(points, line(ink, width))).map_err(words)
}

/// Draws a filled rectangle of the area, pixels.
pub(super) fn rectangle(area: &Area<'_>, from: (i32, i32), to: (i32, i32), ink: Ink) -> Drawn {
    area.draw(&Rectangle::new([units(from), units(to)], ink.color().filled())).map_err(words)
}

/// Draws a small ring on the area, pixels.
pub(super) fn ring(area: &Area<'_>, at: (i32, i32), ink: Ink) -> Drawn {
    let radius = 4 * UNIT as i32;
    area.draw(&Circle::new(units(at), radius, line(ink, 1.5))).map_err(words)
}

/// Draws small rings at values of a panel.
pub(super) fn rings(panel: &mut Panel<'_>, points: Vec<(f64, f64)>, ink: Ink) -> Drawn {
    let ring = |point| Circle::new(point, 3 * UNIT as i32, line(ink, 1.5));
    panel.draw_series(points.into_iter().map(ring)).map(drop).map_err(words)
}

/// Draws a line through values of a panel.
pub(super) fn curve(panel: &mut Panel<'_>, points: Vec<(f64, f64)>, ink: Ink, width: f64) -> Drawn {
    panel.draw_series([PathElement::new(points, line(ink, width))]).map(drop).map_err(words)
}

/// Draws a straight line that is part of a mark: an SVG `line`, which the page's script does not
/// treat as a curve.
pub(super) fn stroke(
    panel: &mut Panel<'_>,
    from: (f64, f64),
    to: (f64, f64),
    ink: Ink,
    width: f64,
) -> Drawn {
    let stroke = Stroke { ends: [from, to], style: line(ink, width) };
    panel.draw_series([stroke]).map(drop).map_err(words)
}

struct Stroke {
    ends: [(f64, f64); 2],
    style: ShapeStyle,
}

impl<'a> PointCollection<'a, (f64, f64)> for &'a Stroke {
    type Point = &'a (f64, f64);
    type IntoIter = &'a [(f64, f64); 2];

    fn point_iter(self) -> Self::IntoIter {
        &self.ends
    }
}

impl<B: DrawingBackend> Drawable<B> for Stroke {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        mut ends: I,
        backend: &mut B,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<B::ErrorType>> {
        match (ends.next(), ends.next()) {
            (Some(from), Some(to)) => backend.draw_line(from, to, &self.style),
            _ => Ok(()),
        }
    }
}

/// Draws a filled outline on a panel.
pub(super) fn surface(panel: &mut Panel<'_>, outline: Vec<(f64, f64)>, ink: Ink) -> Drawn {
    panel.draw_series([Polygon::new(outline, ink.color().filled())]).map(drop).map_err(words)
}

/// Draws a filled rectangle on a panel.
pub(super) fn bar(panel: &mut Panel<'_>, from: (f64, f64), to: (f64, f64), ink: Ink) -> Drawn {
    let bar = Rectangle::new([from, to], ink.color().filled());
    panel.draw_series([bar]).map(drop).map_err(words)
}

pub(super) fn style(size: f64, ink: Ink, h_pos: HPos, v_pos: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", size * f64::from(UNIT)).into_font();
    let color = ink.color().to_backend_color();
    TextStyle { font, color, pos: Pos::new(h_pos, v_pos) }
}

/// Returns the end of an axis a little above the largest value; 1 if there is no positive value.
pub(super) fn above(largest: f64) -> f64 {
    if largest > 0.0 { largest * 1.06 } else { 1.0 }
}

/// Formats a tick's number with no more digits than it needs.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
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

fn line(ink: Ink, width: f64) -> ShapeStyle {
    ink.color().stroke_width((width * f64::from(UNIT)) as u32)
}

fn units((x, y): (i32, i32)) -> (i32, i32) {
    (x * UNIT as i32, y * UNIT as i32)
}

fn words(error: impl Display) -> String {
    error.to_string()
}
