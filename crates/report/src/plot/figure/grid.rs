//! The numbers of a picture: of each line at each place of the axis to the right, ours and those
//! that were published.

use std::ops::Range;

use underload_record::metric_of;
use underload_record::schema::{Expectation, PlotAxis, PlotPoint, PlotRecord};
use underload_store::RunData;

use super::picture::{Picture, X_ROWS};
use crate::plot::canvas::Ink;
use crate::plot::chart::{self, Area, Axis, Panel, Published};

/// Lines and places, in the order of the arms.
pub(super) struct Grid {
    pub(super) lines: Vec<String>,
    pub(super) xs: Vec<String>,
    pub(super) cells: Vec<Cell>,
}

/// A point of a picture.
pub(super) struct Cell {
    pub(super) line: usize,
    pub(super) x: usize,
    pub(super) point: PlotPoint,
    /// `None`: nothing was measured.
    pub(super) value: Option<f64>,
    pub(super) published: Vec<Published>,
}

impl Grid {
    pub(super) fn of(picture: &Picture<'_>, metric: &str) -> Self {
        let Picture { plot, run, .. } = picture;
        let arms = arms(run);
        let mut grid = Self { lines: Vec::new(), xs: Vec::new(), cells: Vec::new() };
        for point in plot.points(&arms) {
            let wanted = plot.expectation(metric, &point);
            let number = |arm: &str| metric_of(&run.record, arm, metric);
            let value = wanted.measure(&arms, number).filter(|value| value.is_finite());
            let told = |expected: &Expectation| {
                let is_inverse = expected.is_inverse_of(&wanted, &arms)?;
                Some(Published::new(expected, is_inverse))
            };
            let published = run.record.expectations.iter().filter_map(told).collect();
            let line = position(&mut grid.lines, &point.line);
            let x = position(&mut grid.xs, &point.x);
            grid.cells.push(Cell { line, x, point, value, published });
        }
        grid
    }

    /// Numbers of no arms, each at its line and place.
    pub(super) fn of_numbers(
        lines: &[String],
        xs: &[String],
        numbers: impl Iterator<Item = ((usize, usize), Option<f64>)>,
    ) -> Self {
        let cell = |((line, x), value)| {
            let point = PlotPoint {
                line: lines.get(line).cloned().unwrap_or_default(),
                x: xs.get(x).cloned().unwrap_or_default(),
                arms: String::new(),
            };
            Cell { line, x, point, value, published: Vec::new() }
        };
        Self { lines: lines.to_vec(), xs: xs.to_vec(), cells: numbers.map(cell).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.value.is_none())
    }

    /// Everything that has to be seen.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        let published = self.cells.iter().flat_map(|cell| &cell.published);
        let ours = self.cells.iter().filter_map(|cell| cell.value);
        ours.chain(published.flat_map(Published::ends))
    }

    /// A panel with the names of the places below it, which are at `at` of the axis to the right.
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
        chart::frame(area, &panel, (&x, &y), (false, scale.is_log()), &named)?;
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

    /// Names of the lines with their inks, for marks that have no dashes.
    pub(super) fn plain_legend(&self) -> Vec<(Ink, String)> {
        let plain = |(ink, name)| match ink {
            Ink::Arm(line) => (Ink::Solid(line), name),
            other => (other, name),
        };
        self.legend().into_iter().map(plain).collect()
    }

    /// Names of the lines with their inks; nothing where there is one that has no name.
    pub(super) fn legend(&self) -> Vec<(Ink, String)> {
        let named = self.lines.iter().enumerate().filter(|(_, line)| !line.is_empty());
        named.map(|(line, name)| (Ink::Arm(line), name.clone())).collect()
    }
}

/// The arms of a run by name.
pub(super) fn arms(run: &RunData) -> Vec<&str> {
    run.record.arms.iter().map(|arm| arm.name.as_str()).collect()
}

pub(super) fn position(known: &mut Vec<String>, name: &str) -> usize {
    let found = known.iter().position(|known| known == name);
    found.unwrap_or_else(|| {
        known.push(name.to_owned());
        known.len() - 1
    })
}

/// An axis by its values or by their logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Over all of these values; from 0 on where the scale is linear and nothing is below.
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

    /// Where a value is; what a logarithm does not have is at the start.
    pub(super) fn at(&self, value: f64) -> f64 {
        let at = match (self.is_log, value > 0.0) {
            (true, true) => value.log10(),
            (true, false) => self.from,
            (false, _) => value,
        };
        at.clamp(self.from, self.to)
    }

    /// The value of a place, the inverse of [`Scale::at`].
    pub(super) fn value(&self, at: f64) -> f64 {
        if self.is_log { 10_f64.powf(at) } else { at }
    }

    pub(super) fn is_log(&self) -> bool {
        self.is_log
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

/// Where the places of an axis to the right stand: by their numbers where they begin with some that
/// grow, evenly by factors where they grow by factors, else one beside the other.
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

/// From this span on a parameter is drawn by factors.
const BY_FACTORS: f64 = 8.0;

/// The number that a name begins with, in the smallest unit of its kind: `64KiB`, `10mbit`.
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
        assert_eq!(of(&["20ms", "10ms"]), ["0.000", "1.000"], "in the order of the arms");
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
