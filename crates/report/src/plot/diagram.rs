//! Diagrams for documentation and other pages: lines and points in panels.

use super::Plot;
use super::canvas::{Canvas, Ink};
use super::chart;
pub use super::scale::{Scale, ScaleKind};

/// Panels one below the other, with one legend.
#[derive(Debug, Clone)]
pub struct Diagram {
    /// Name of the file, without the ending.
    pub name: String,
    pub title: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// Curves over one pair of scales.
#[derive(Debug, Clone)]
pub struct Panel {
    pub x: Scale,
    pub y: Scale,
    pub curves: Vec<Curve>,
}

/// A sequence of values.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Name in the legend; curves with one name share colour and entry. Empty for no entry.
    pub name: String,
    pub mark: Mark,
    /// In order of x, those of an area around it; points outside the scales are not drawn.
    pub points: Vec<(f64, f64)>,
}

/// How values of a curve are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    Line,
    Ring,
    /// A bar from the bottom to each point, of this width on a linear scale.
    Bar(f64),
    /// A pale area, whose outline are the points.
    Area,
}

/// The position of a panel's values on its plot, for scripts that look values up.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub x: Scale,
    pub y: Scale,
    /// First and last column of the scale, pixels of the plot.
    pub columns: (f64, f64),
    /// First and last row, downwards; the largest value is at the first row.
    pub rows: (f64, f64),
}

impl Curve {
    pub fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), mark: Mark::Line, points }
    }

    pub fn rings(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), mark: Mark::Ring, points }
    }
}

impl Diagram {
    pub fn plot(&self) -> Plot {
        self.plot_with_frames().0
    }

    /// Draws the diagram, and returns the positions of its panels' values, too.
    pub fn plot_with_frames(&self) -> (Plot, Vec<Frame>) {
        let mut frames = Vec::new();
        let names = self.names();
        let entry = |(at, name): (usize, &&str)| (Ink::Variant(at), (*name).to_owned());
        let entries: Vec<(Ink, String)> = names.iter().enumerate().map(entry).collect();
        let height = self.panels.len() as u32 * PANEL_HEIGHT + 2;
        let (name, title) = (&self.name, &self.title);
        let plot =
            chart::with_legend(name, title, String::new(), height, &entries, |canvas, (top, _)| {
                for (number, panel) in self.panels.iter().enumerate() {
                    let top = top + number as u32 * PANEL_HEIGHT;
                    frames.push(panel.draw(canvas, (top, top + PANEL_HEIGHT - 20), &names));
                }
            });
        (plot, frames)
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for curve in self.panels.iter().flat_map(|panel| &panel.curves) {
            if !curve.name.is_empty() && !names.contains(&curve.name.as_str()) {
                names.push(&curve.name);
            }
        }
        names
    }
}

impl Panel {
    fn draw(&self, canvas: &mut Canvas, rows: (u32, u32), names: &[&str]) -> Frame {
        let mut drawn = chart::Panel::new(canvas, rows, &self.x, &self.y);
        for curve in &self.curves {
            let position = names.iter().position(|name| *name == curve.name);
            let solid = position.map_or(Ink::Muted, Ink::Solid);
            let is_inside = |(x, y): &&(f64, f64)| self.x.contains(*x) && self.y.contains(*y);
            let points: Vec<(f64, f64)> = curve.points.iter().filter(is_inside).copied().collect();
            match curve.mark {
                Mark::Ring => drawn.rings(&points, solid),
                Mark::Area => drawn.surface(&points, position.map_or(Ink::Band, Ink::Faint)),
                Mark::Line => {
                    drawn.curve(&points, position.map_or(Ink::Muted, Ink::Variant), 1.5);
                }
                Mark::Bar(width) => {
                    let half = width * 0.44;
                    for (middle, value) in points {
                        let from = (middle - half, self.y.range.start);
                        drawn.bar(from, (middle + half, value), solid);
                    }
                }
            }
        }
        let (columns, rows) = (drawn.columns, drawn.rows);
        Frame { x: self.x.clone(), y: self.y.clone(), columns, rows }
    }
}

/// Height of a panel with its axis names, pixels.
const PANEL_HEIGHT: u32 = 220;

#[cfg(test)]
mod tests {
    use super::*;

    fn diagram(y: Scale) -> Diagram {
        let x = Scale::logarithmic("loss", 1e-4..1e-1);
        let line = Curve::line("law", vec![(1e-4, 100.0), (1e-2, 10.0), (1.0, 1.0)]);
        let rings = Curve::rings("law", vec![(1e-3, 31.0)]);
        let panels = vec![Panel { x, y, curves: vec![line, rings] }];
        Diagram { name: "f".to_owned(), title: "t".to_owned(), panels }
    }

    #[test]
    fn a_diagram_has_its_curves_once_in_the_legend_and_nothing_outside_its_scales() {
        let svg = diagram(Scale::logarithmic("window", 1.0..1e3)).plot().svg();
        assert_eq!(svg.matches(">law<").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(
            svg.contains(">1e-4<") && svg.contains(">0.01<") && svg.contains(">1000<"),
            "{svg}"
        );
        let line = svg.lines().rfind(|line| line.contains("polyline")).unwrap();
        assert_eq!(line.matches(',').count(), 2, "the third value is outside: {line}");
    }

    #[test]
    fn a_value_is_where_the_frame_says() {
        let x = Scale::days("day", 20_000.0..20_010.0);
        let bars =
            Curve { name: "runs".to_owned(), mark: Mark::Bar(1.0), points: vec![(20_005.0, 5.0)] };
        let panel = Panel { x, y: Scale::linear("runs", 0.0..10.0), curves: vec![bars] };
        let panels = vec![panel.clone(), panel];
        let diagram = Diagram { name: "f".to_owned(), title: "t".to_owned(), panels };
        let (plot, frames) = diagram.plot_with_frames();
        let svg = plot.svg();
        assert!(svg.contains(">10-06<"), "20 002 days after 1970 is 2024-10-06: {svg}");
        for frame in &frames {
            let middle = f64::midpoint(frame.rows.0, frame.rows.1);
            let top = |line: &str| {
                let (_, rest) = line.split_once(" y=\"")?;
                rest.split('"').next()?.parse::<f64>().ok()
            };
            let bars = svg.lines().filter(|line| line.starts_with("<rect class=\"f-c0\""));
            let mut tops = bars.filter_map(top);
            assert!(tops.any(|top| (top - middle).abs() < 0.3), "{middle}: {svg}");
        }
        assert!(frames[0].rows.1 < frames[1].rows.0, "below each other");
    }

    #[test]
    fn a_scale_of_whole_days_has_no_times() {
        let times = |x: Scale| {
            let rings = Curve::rings("a", vec![(20_002.0, 5.0)]);
            let panel = Panel { x, y: Scale::linear("ms", 0.0..10.0), curves: vec![rings] };
            let (name, title) = ("f".to_owned(), "t".to_owned());
            let svg = Diagram { name, title, panels: vec![panel] }.plot().svg();
            assert!(svg.contains(">10-06<"), "{svg}");
            svg.matches(":12<").count() + svg.matches(":36<").count()
        };
        assert!(times(Scale::days("time", 20_001.5..20_002.5)) > 0, "the premise");
        assert_eq!(times(Scale::dates("day", 20_001.5..20_002.5)), 0);
    }

    #[test]
    fn an_empty_scale_shows_its_value_in_the_middle() {
        let x = Scale::linear("delay", 5.0..5.0);
        let rings = Curve::rings("a", vec![(5.0, 3.0)]);
        let panel = Panel { x, y: Scale::linear("ms", 0.0..10.0), curves: vec![rings] };
        let (name, title) = ("f".to_owned(), "t".to_owned());
        let diagram = Diagram { name, title, panels: vec![panel] };
        let (plot, frames) = diagram.plot_with_frames();
        let middle = f64::midpoint(frames[0].columns.0, frames[0].columns.1);
        assert!(plot.svg().contains(&format!("cx=\"{middle}\"")), "{}", plot.svg());
    }
}
