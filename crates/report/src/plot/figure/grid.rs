//! The values of a picture by line and by place on the horizontal axis: measured and published.

use std::ops::Range;

use underload_record::metric_of;
use underload_record::schema::{Expectation, PlotAxis, PlotPoint, PlotRecord};
use underload_store::RunData;

use super::picture::{Picture, X_ROWS};
use crate::plot::canvas::Ink;
use crate::plot::chart::{self, Area, Axis, Panel, Published};

/// Lines, places and cells, in the order of the variants.
pub(super) struct Grid {
    pub(super) lines: Vec<String>,
    pub(super) xs: Vec<String>,
    pub(super) cells: Vec<Cell>,
}

pub(super) struct Cell {
    pub(super) line: usize,
    pub(super) x: usize,
    pub(super) point: PlotPoint,
    /// `None` if nothing was measured.
    pub(super) value: Option<f64>,
    pub(super) published: Vec<Published>,
}

impl Grid {
    pub(super) fn of(picture: &Picture<'_>, metric: &str) -> Self {
        let Picture { plot, run, .. } = picture;
        let variants = variants(run);
        let mut grid = Self { lines: Vec::new(), xs: Vec::new(), cells: Vec::new() };
        for point in plot.points(&variants) {
            let wanted = plot.expectation(metric, &point);
            let number = |variant: &str| metric_of(&run.record, variant, metric);
            let value = wanted.measure(&variants, number).filter(|value| value.is_finite());
            let told = |expected: &Expectation| {
                let is_inverse = expected.is_inverse_of(&wanted, &variants)?;
                Some(Published::new(expected, is_inverse))
            };
            let published = run.record.expectations.iter().filter_map(told).collect();
            let line = position(&mut grid.lines, &point.line);
            let x = position(&mut grid.xs, &point.x);
            grid.cells.push(Cell { line, x, point, value, published });
        }
        grid
    }

    /// Makes a grid of values that belong to no variants.
    pub(super) fn of_numbers(
        lines: &[String],
        xs: &[String],
        numbers: impl Iterator<Item = ((usize, usize), Option<f64>)>,
    ) -> Self {
        let cell = |((line, x), value)| {
            let point = PlotPoint {
                line: lines.get(line).cloned().unwrap_or_default(),
                x: xs.get(x).cloned().unwrap_or_default(),
                variants: String::new(),
            };
            Cell { line, x, point, value, published: Vec::new() }
        };
        Self { lines: lines.to_vec(), xs: xs.to_vec(), cells: numbers.map(cell).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.value.is_none())
    }

    /// Returns all values that the axis has to include.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        let published = self.cells.iter().flat_map(|cell| &cell.published);
        let ours = self.cells.iter().filter_map(|cell| cell.value);
        ours.chain(published.flat_map(Published::ends))
    }

    /// Draws a panel with the places' names below it, at the positions `at`.
    pub(super) fn panel<'a>(
        &self,
        area: &Area<'a>,
        (top, bottom): (u32, u32),
        plot: &PlotRecord,
        across: Range<f64>,
        (scale, at): (&Scale, &[f64]),
    ) -> Result<Panel<'a>, String> {
        let x = Axis { name: "", range: across };
        let y = Axis { name: &plot.says, range: scale.range() };
        let tick = |at: f64| scale.tick(at);
        let rows = (top, bottom - X_ROWS);
        let panel = chart::panel_with_ticks(area, rows, &x, &y, (&chart::number, &tick))?;
        chart::ticks_below(area, &panel, at, &self.xs, &plot.x_says)?;
        let named: Vec<(f64, &str)> =
            at.iter().copied().zip(self.xs.iter().map(String::as_str)).collect();
        chart::frame(area, &panel, (&x, &y), (false, scale.is_log), &named)?;
        Ok(panel)
    }

    /// Draws the published values, each at the x position that `place` returns for its cell.
    pub(super) fn draw_published(
        &self,
        area: &Area<'_>,
        panel: &Panel<'_>,
        scale: &Scale,
        place: impl Fn(&Cell) -> f64,
    ) -> Result<(), String> {
        for cell in &self.cells {
            for told in &cell.published {
                chart::published(area, panel, place(cell), told.map(|value| scale.at(value)))?;
            }
        }
        Ok(())
    }

    pub(super) fn has_published(&self) -> bool {
        self.cells.iter().any(|cell| !cell.published.is_empty())
    }

    /// Returns names and inks of the lines, for marks without dashes.
    pub(super) fn plain_legend(&self) -> Vec<(Ink, String)> {
        let plain = |(ink, name)| match ink {
            Ink::Variant(line) => (Ink::Solid(line), name),
            other => (other, name),
        };
        self.legend().into_iter().map(plain).collect()
    }

    /// Returns names and inks of the lines; empty for a single line without a name.
    pub(super) fn legend(&self) -> Vec<(Ink, String)> {
        let named = self.lines.iter().enumerate().filter(|(_, line)| !line.is_empty());
        named.map(|(line, name)| (Ink::Variant(line), name.clone())).collect()
    }
}

/// Returns the names of a run's variants.
pub(super) fn variants(run: &RunData) -> Vec<&str> {
    run.record.variants.iter().map(|variant| variant.name.as_str()).collect()
}

pub(super) fn position(known: &mut Vec<String>, name: &str) -> usize {
    let found = known.iter().position(|known| known == name);
    found.unwrap_or_else(|| {
        known.push(name.to_owned());
        known.len() - 1
    })
}

/// A linear or logarithmic axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    pub(super) is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Makes a scale that includes all values; a linear one starts at 0 unless a value is negative.
    pub(super) fn over(values: impl Iterator<Item = f64>, is_log: bool) -> Self {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!is_log || *value > 0.0)).collect();
        let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        if is_log && !values.is_empty() {
            let (from, to) = (least.log10() - 0.08, most.log10() + 0.08);
            return Self { is_log, from, to };
        }
        let reach = (most - least.min(0.0)).max(f64::MIN_POSITIVE);
        let from = if least < 0.0 { least - reach * 0.05 } else { 0.0 };
        let to = if most <= 0.0 { reach * 0.05 } else { most + reach * 0.06 };
        Self { is_log: false, from, to }
    }

    pub(super) fn of_plot(
        plot: &PlotRecord,
        axis: PlotAxis,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        Self::over(values, plot.log.contains(&axis))
    }

    pub(super) fn range(&self) -> Range<f64> {
        self.from..self.to
    }

    /// Returns the position of a value; values without a logarithm are at the start.
    pub(super) fn at(&self, value: f64) -> f64 {
        let at = match (self.is_log, value > 0.0) {
            (true, true) => value.log10(),
            (true, false) => self.from,
            (false, _) => value,
        };
        at.clamp(self.from, self.to)
    }

    /// Returns the value at a position, the inverse of [`Scale::at`].
    pub(super) fn value(&self, at: f64) -> f64 {
        if self.is_log { 10_f64.powf(at) } else { at }
    }

    pub(super) fn tick(&self, at: f64) -> String {
        if !self.is_log {
            return chart::number(at);
        }
        let value = 10_f64.powf(at);
        let digits = (1 - value.log10().floor() as i32).clamp(0, 6) as usize;
        let scale = 10_f64.powi(value.log10().floor() as i32 - 1);
        chart::number(
            format!("{:.digits$}", (value / scale).round() * scale).parse().unwrap_or(value),
        )
    }
}

/// Returns the positions of the places on the horizontal axis. If all names begin with growing
/// numbers these decide, by their logarithm if they span a factor of [`BY_FACTORS`]; otherwise the
/// places are evenly spaced.
pub(super) fn places(xs: &[String]) -> Vec<f64> {
    let numbers: Option<Vec<f64>> = xs.iter().map(|x| quantity(x)).collect();
    let grows = |numbers: &Vec<f64>| {
        numbers.len() > 1 && numbers.windows(2).all(|pair| pair[0] < pair[1] && pair[0] > 0.0)
    };
    match numbers.filter(grows) {
        Some(numbers) if numbers[numbers.len() - 1] / numbers[0] >= BY_FACTORS => {
            numbers.into_iter().map(f64::log2).collect()
        }
        Some(numbers) => numbers,
        None => (0..xs.len()).map(|place| place as f64).collect(),
    }
}

/// From this ratio of largest to smallest on, positions are logarithmic.
const BY_FACTORS: f64 = 8.0;

/// Returns the number at the start of a name, with its SI prefix: 64000 for `64KiB`.
pub(super) fn quantity(name: &str) -> Option<f64> {
    let end = name.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(name.len());
    let number: f64 = name[..end].parse().ok()?;
    let factor = match name[end..].get(..1).unwrap_or_default() {
        "k" | "K" => 1e3,
        "m" | "M" if !name[end..].starts_with("ms") => 1e6,
        "g" | "G" => 1e9,
        _ => 1.0,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_numbers_of_their_names() {
        let of = |names: &[&str]| {
            let at = places(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
            at.into_iter().map(|at| format!("{at:.3}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&["1mbit", "2mbit", "4mbit"]), ["1000000.000", "2000000.000", "4000000.000"]);
        assert_eq!(of(&["8KiB", "16KiB", "256KiB"]), ["12.966", "13.966", "17.966"]);
        assert_eq!(of(&["8", "16", "256"]), ["3.000", "4.000", "8.000"], "by factors");
        assert_eq!(of(&["skype", "hangouts"]), ["0.000", "1.000"]);
        assert_eq!(of(&["20ms", "10ms"]), ["0.000", "1.000"], "in the order of the variants");
    }

    #[test]
    fn ticks_by_factors_are_short() {
        let scale = Scale::over([1.0, 1000.0].into_iter(), true);
        assert_eq!([0.0, 0.5, 1.0, 2.5].map(|at| scale.tick(at)), ["1", "3.2", "10", "320"]);
        assert!((scale.value(scale.at(40.0)) - 40.0).abs() < 1e-9);
        let plain = Scale::over([-2.0, 4.0].into_iter(), false);
        assert!(plain.range().start < -2.0 && plain.range().end > 4.0);
        assert!(Scale::over(std::iter::empty(), true).range().end.is_finite());
    }
}
