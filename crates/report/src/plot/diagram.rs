//! Diagrams for documentation and other pages: lines and points in panels.

use std::ops::Range;

use super::canvas::Ink;
use super::chart::{self, Axis};
use super::{Plot, Plotted};
use crate::words::significant;

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

/// A scale: its name with unit, and its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    pub name: String,
    pub range: Range<f64>,
    pub kind: ScaleKind,
}

/// How a scale places and labels values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    Linear,
    /// By powers of ten; values must be positive.
    Logarithmic,
    /// Days since 1970, as dates; parts of a day as times, UTC.
    Days,
    /// Days since 1970, as dates; parts of a day have no meaning.
    Dates,
}

/// A sequence of values.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Name in the legend; curves with one name share colour and entry. Empty for no entry.
    pub name: String,
    pub mark: Mark,
    /// In order of x; points outside the scales are not drawn.
    pub points: Vec<(f64, f64)>,
}

/// How values of a curve are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    Line,
    Ring,
    /// A bar from the bottom to each point, of this width on a linear scale.
    Bar(f64),
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

impl Scale {
    pub fn linear(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Linear }
    }

    /// Makes a scale by powers of ten.
    pub fn logarithmic(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Logarithmic }
    }

    /// Makes a scale of [`ScaleKind::Days`].
    pub fn days(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Days }
    }

    /// Makes a scale of [`ScaleKind::Dates`].
    pub fn dates(name: &str, range: Range<f64>) -> Self {
        Self { name: name.to_owned(), range, kind: ScaleKind::Dates }
    }

    fn place(&self, value: f64) -> f64 {
        match self.kind {
            ScaleKind::Linear | ScaleKind::Days | ScaleKind::Dates => value,
            ScaleKind::Logarithmic => value.log10(),
        }
    }

    fn axis(&self) -> Axis<'_> {
        let range = self.place(self.range.start)..self.place(self.range.end);
        Axis { name: &self.name, range }
    }

    fn tick(&self, place: f64) -> String {
        match self.kind {
            ScaleKind::Linear => chart::number(place),
            ScaleKind::Dates if (place - place.round()).abs() > 1e-6 => String::new(),
            ScaleKind::Days | ScaleKind::Dates => date(place),
            // Over less than two decades, labels at whole powers alone would be too few.
            ScaleKind::Logarithmic if (place - place.round()).abs() > 1e-6 => {
                let is_long = self.range.end > self.range.start * 100.0;
                if is_long { String::new() } else { significant(10_f64.powf(place)) }
            }
            ScaleKind::Logarithmic if !(-3.5..4.5).contains(&place) => format!("1e{place:.0}"),
            ScaleKind::Logarithmic => chart::number(10_f64.powf(place)),
        }
    }
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
    /// # Errors
    /// Returns an error if a scale has an empty range.
    pub fn plot(&self) -> Plotted {
        self.plot_with_frames().map(|(plot, _)| plot)
    }

    /// Draws the diagram, and returns the positions of its panels' values, too.
    pub fn plot_with_frames(&self) -> Plotted<(Plot, Vec<Frame>)> {
        let mut frames = Vec::new();
        let names = self.names();
        let entries: Vec<(Ink, String)> = names
            .iter()
            .enumerate()
            .map(|(at, name)| (Ink::Variant(at), (*name).to_owned()))
            .collect();
        let mut legend_height = 0;
        let measured = chart::legend(None, &entries).map(|height| legend_height = height);
        let height = legend_height + self.panels.len() as u32 * PANEL_HEIGHT + 2;
        let plot = chart::plot(&self.name, self.title.clone(), String::new(), height, |area| {
            measured?;
            chart::legend(Some(area), &entries)?;
            for (number, panel) in self.panels.iter().enumerate() {
                let top = legend_height + number as u32 * PANEL_HEIGHT;
                frames.push(panel.draw(area, (top, top + PANEL_HEIGHT - 20), &names)?);
            }
            Ok(())
        })?;
        Ok((plot, frames))
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
    fn draw(
        &self,
        area: &chart::Area<'_>,
        rows: (u32, u32),
        names: &[&str],
    ) -> Result<Frame, String> {
        let (x, y) = (self.x.axis(), self.y.axis());
        if x.range.is_empty() || y.range.is_empty() {
            return Err(format!("'{}' against '{}' spans nothing", self.y.name, self.x.name));
        }
        let (x_tick, y_tick) = (|place| self.x.tick(place), |place| self.y.tick(place));
        let mut drawn = chart::panel_with_ticks(area, rows, &x, &y, (&x_tick, &y_tick))?;
        for curve in &self.curves {
            let at = names.iter().position(|name| *name == curve.name);
            let points = curve
                .points
                .iter()
                .filter(|(at, value)| self.x.holds(*at) && self.y.holds(*value))
                .map(|(at, value)| (self.x.place(*at), self.y.place(*value)))
                .collect();
            match (curve.mark, at) {
                (Mark::Ring, at) => {
                    chart::rings(&mut drawn, points, at.map_or(Ink::Muted, Ink::Solid))?;
                }
                (Mark::Line, at) => {
                    chart::curve(&mut drawn, points, at.map_or(Ink::Muted, Ink::Variant), 1.5)?;
                }
                (Mark::Bar(width), at) => {
                    let half = width * 0.44;
                    for (middle, value) in points {
                        let ink = at.map_or(Ink::Muted, Ink::Solid);
                        let (from, to) = ((middle - half, y.range.start), (middle + half, value));
                        chart::bar(&mut drawn, from, to, ink)?;
                    }
                }
            }
        }
        let (columns, rows) = chart::pixels_of(&drawn);
        Ok(Frame { x: self.x.clone(), y: self.y.clone(), columns, rows })
    }
}

impl Scale {
    fn holds(&self, value: f64) -> bool {
        (self.range.start..=self.range.end).contains(&value)
    }
}

/// Formats days since 1970 as `11-22`, or within a day as `06:30`.
fn date(days: f64) -> String {
    let minutes = (days * 1440.0).round() as i64;
    let Ok(at) = jiff::Timestamp::from_second(minutes.saturating_mul(60)) else {
        return String::new();
    };
    let format = if minutes.rem_euclid(1440) == 0 { "%m-%d" } else { "%H:%M" };
    at.strftime(format).to_string()
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
        let svg = diagram(Scale::logarithmic("window", 1.0..1e3)).plot().unwrap().svg();
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
        let (plot, frames) = diagram.plot_with_frames().unwrap();
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
    fn a_scale_of_whole_days_tells_no_times() {
        let times = |x: Scale| {
            let rings = Curve::rings("a", vec![(20_002.0, 5.0)]);
            let panel = Panel { x, y: Scale::linear("ms", 0.0..10.0), curves: vec![rings] };
            let (name, title) = ("f".to_owned(), "t".to_owned());
            let svg = Diagram { name, title, panels: vec![panel] }.plot().unwrap().svg();
            assert!(svg.contains(">10-06<"), "{svg}");
            svg.matches(":12<").count() + svg.matches(":36<").count()
        };
        assert!(times(Scale::days("time", 20_001.5..20_002.5)) > 0, "the premise");
        assert_eq!(times(Scale::dates("day", 20_001.5..20_002.5)), 0);
    }

    #[test]
    fn a_scale_that_spans_nothing_is_refused() {
        let error = diagram(Scale::linear("window", 1.0..1.0)).plot().unwrap_err();
        assert!(error.to_string().contains("window"), "{error}");
    }
}
