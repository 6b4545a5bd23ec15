//! Heat maps of ratios as SVG: the hue shows which flow gets more, its depth by how much.

use std::fmt::Write as _;

/// The panels of a picture, in rows of two.
pub struct HeatMap {
    pub title: &'static str,
    pub note: &'static str,
    pub column_name: &'static str,
    pub row_name: &'static str,
    pub panels: Vec<Panel>,
}

pub struct Panel {
    pub title: String,
    pub columns: Vec<String>,
    /// The rows, each with its name, from top to bottom.
    pub rows: Vec<(String, Vec<Cell>)>,
}

#[derive(Clone)]
pub struct Cell {
    /// `None` if the ratio does not exist.
    pub ratio: Option<f64>,
    /// A note in a frame below the ratio.
    pub note: Option<String>,
}

impl HeatMap {
    pub fn svg(&self) -> String {
        let most = |count: fn(&Panel) -> usize| self.panels.iter().map(count).max().unwrap_or(0);
        let panel_width = LEFT + most(|panel| panel.columns.len()) * CELL_WIDTH + GAP;
        let panel_height = TOP + most(|panel| panel.rows.len()) * CELL_HEIGHT + BOTTOM;
        let (width, height) =
            (2 * panel_width, HEADER + self.panels.len().div_ceil(2) * panel_height);
        let mut svg = format!(
            "<svg class=\"heat\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n",
            self.title
        );
        text(&mut svg, "h", (GAP, 20), self.title);
        text(&mut svg, "m", (GAP, 38), self.note);
        scale(&mut svg, width);
        for (number, panel) in self.panels.iter().enumerate() {
            let at = (number % 2 * panel_width, HEADER + number / 2 * panel_height);
            self.panel(&mut svg, panel, at);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn panel(&self, svg: &mut String, panel: &Panel, (left, top): (usize, usize)) {
        text(svg, "t", (left + LEFT, top + 14), &panel.title);
        let x = |column: usize| left + LEFT + column * CELL_WIDTH;
        let y = |row: usize| top + TOP + row * CELL_HEIGHT;
        for (number, (name, cells)) in panel.rows.iter().enumerate() {
            text(svg, "r", (left + LEFT - 6, y(number) + 21), name);
            for (column, cell) in cells.iter().enumerate() {
                draw(svg, cell, (x(column), y(number)));
            }
        }
        text(svg, "r", (left + LEFT - 6, top + TOP - 6), self.row_name);
        let below = y(panel.rows.len()) + 14;
        for (column, name) in panel.columns.iter().enumerate() {
            text(svg, "c", (x(column) + CELL_WIDTH / 2, below), name);
        }
        let middle = left + LEFT + panel.columns.len() * CELL_WIDTH / 2;
        text(svg, "c", (middle, below + 16), self.column_name);
    }
}

/// The legend of the colours, at the right of the title.
fn scale(svg: &mut String, width: usize) {
    let ratios = [("1:16", 0.0625), ("1:4", 0.25), ("1", 1.0), ("4", 4.0), ("16", 16.0)];
    for (number, (name, ratio)) in ratios.iter().enumerate() {
        let x = width - GAP - (ratios.len() - number) * 40;
        rectangle(svg, "", (x, 12), (40, 20), &fill(*ratio));
        let class = if is_dark(*ratio) { "w" } else { "k" };
        text(svg, class, (x + 20, 26), name);
    }
}

fn draw(svg: &mut String, cell: &Cell, (x, y): (usize, usize)) {
    let Some(ratio) = cell.ratio else {
        return text(svg, "c", (x + CELL_WIDTH / 2, y + 21), "-");
    };
    rectangle(svg, "", (x, y), (CELL_WIDTH - 1, CELL_HEIGHT - 1), &fill(ratio));
    let class = if is_dark(ratio) { "w" } else { "k" };
    let middle = x + CELL_WIDTH / 2;
    let up = if cell.note.is_some() { 6 } else { 0 };
    text(svg, class, (middle, y + 21 - up), &share(Some(ratio)));
    if let Some(note) = &cell.note {
        rectangle(svg, "n", (x + 2, y + 2), (CELL_WIDTH - 5, CELL_HEIGHT - 5), "none");
        text(svg, &format!("{class} s"), (middle, y + 28), note);
    }
}

/// Returns a colour from blue (the other flow has 16 times as much or more) over pale to orange.
fn fill(ratio: f64) -> String {
    let (end, depth) = if ratio < 1.0 { (BLUE, depth(ratio)) } else { (ORANGE, depth(ratio)) };
    let mix = |from: u8, to: u8| f64::from(from) + (f64::from(to) - f64::from(from)) * depth;
    let [red, green, blue] = [0, 1, 2].map(|at| mix(PALE[at], end[at]).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn depth(ratio: f64) -> f64 {
    (ratio.max(1e-6).log2().abs() / 4.0).min(1.0)
}

fn is_dark(ratio: f64) -> bool {
    depth(ratio) > 0.7
}

fn rectangle(
    svg: &mut String,
    class: &str,
    (x, y): (usize, usize),
    (width, height): (usize, usize),
    fill: &str,
) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(
        svg,
        "<rect{class} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
    );
}

fn text(svg: &mut String, class: &str, (x, y): (usize, usize), text: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
}

const PALE: [u8; 3] = [0xee, 0xf0, 0xf2];
const BLUE: [u8; 3] = [0x0b, 0x4f, 0x95];
const ORANGE: [u8; 3] = [0xb8, 0x48, 0x06];

const CELL_WIDTH: usize = 54;
const CELL_HEIGHT: usize = 34;
/// Space in a panel for the names of its rows.
const LEFT: usize = 56;
const GAP: usize = 16;
/// Space in a panel for its title.
const TOP: usize = 24;
/// Space in a panel for the names of its columns.
const BOTTOM: usize = 50;
const HEADER: usize = 56;

/// Colours for light and dark pages; the cells have fixed colours.
const STYLE: &str = "\
svg.heat { --text: #1c2024; --muted: #5c6670; }
@media (prefers-color-scheme: dark) { svg.heat { --text: #e8eaed; --muted: #a3adb7; } }
svg.heat text {
  font-family: system-ui, \"Segoe UI\", Roboto, \"Liberation Sans\", Arial, sans-serif;
  font-size: 12px; font-variant-numeric: tabular-nums;
}
.h { fill: var(--text); font-weight: 600; }
.t { fill: var(--text); font-weight: 600; }
.m, .r, .c { fill: var(--muted); }
svg.heat .h { font-size: 14px; }
.r { text-anchor: end; }
.c, .w, .k { text-anchor: middle; }
.w { fill: #ffffff; }
.k { fill: #1c2024; }
svg.heat .s { font-size: 10px; }
.n { stroke: #1c2024; stroke-width: 1.5; }
";

/// Formats a ratio with its significant digits.
pub fn share(ratio: Option<f64>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(ratio) if ratio >= 9.95 => format!("{ratio:.0}"),
        Some(ratio) if ratio >= 0.995 => format!("{ratio:.1}"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}
