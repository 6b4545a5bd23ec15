//! The courses of rates as a picture.

use std::fmt::Write as _;

/// A line's name, and the rate of each step under the oracle and under the follower, Mbit/s.
pub struct Course {
    pub title: String,
    pub rates: [Vec<f64>; 2],
}

const PANEL: (f64, f64) = (460.0, 130.0);
const PLOT: (f64, f64) = (400.0, 80.0);
const COLUMNS: usize = 2;
const STEPS_PER_POINT: usize = 10;
const STYLES: [(&str, &str); 2] = [("oracle", "#999999"), ("followed", "#0b62a4")];

/// Draws a panel for each course as SVG: a point for each second.
pub fn draw(courses: &[Course]) -> String {
    let (columns, rows) = (COLUMNS as f64, courses.len().div_ceil(COLUMNS) as f64);
    let (width, height) = (PANEL.0 * columns, PANEL.1 * rows + 20.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" \
         height=\"{height}\" fill=\"white\"/>\n"
    );
    for (place, (name, color)) in STYLES.iter().enumerate() {
        let x = 40.0 + 90.0 * place as f64;
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"14\" fill=\"{color}\">{name}</text>");
    }
    for (place, course) in courses.iter().enumerate() {
        let x = PANEL.0 * (place % COLUMNS) as f64 + 40.0;
        let y = PANEL.1 * (place / COLUMNS) as f64 + 40.0;
        panel(&mut svg, course, (x, y));
    }
    svg + "</svg>\n"
}

fn panel(svg: &mut String, course: &Course, (x, y): (f64, f64)) {
    let points = course.rates.each_ref().map(|rates| means(rates));
    let largest = points.iter().flatten().copied().fold(1.0, f64::max).ceil();
    let seconds = points[0].len();
    let (right, bottom) = (x + PLOT.0, y + PLOT.1);
    let below = bottom + 12.0;
    let _ = write!(
        svg,
        "<text x=\"{x}\" y=\"{}\">{}</text>\n<path d=\"M{x} {y}V{bottom}H{right}\" fill=\"none\" \
         stroke=\"black\"/>\n<text x=\"{x}\" y=\"{below}\">0 to {largest} Mbit/s</text>\n\
         <text x=\"{right}\" y=\"{below}\" text-anchor=\"end\">{seconds} s</text>\n",
        y - 4.0,
        course.title,
    );
    for (points, (_, color)) in points.iter().zip(STYLES) {
        let mut path = String::new();
        for (second, mbit) in points.iter().enumerate() {
            let across = x + PLOT.0 * second as f64 / seconds.max(1) as f64;
            let up = bottom - PLOT.1 * mbit.min(largest) / largest;
            let _ = write!(path, "{}{across:.1} {up:.1}", if second == 0 { "M" } else { "L" });
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\"/>"
        );
    }
}

/// Returns the mean of each second.
fn means(rates: &[f64]) -> Vec<f64> {
    let mean = |second: &[f64]| second.iter().sum::<f64>() / second.len() as f64;
    rates.chunks(STEPS_PER_POINT).map(mean).collect()
}
