//! The values of a picture by line and by place on the horizontal axis: measured and published.

use underload_record::metric_of;
use underload_record::schema::{Expectation, PlotAxis, PlotPoint, PlotRecord};
use underload_store::RunData;

use super::picture::{Picture, X_ROWS};
use crate::plot::canvas::{Canvas, Ink};
use crate::plot::chart::{Panel, Published};
use crate::plot::scale::Scale;

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

    /// Returns the vertical scale, which includes all values and those of `more`.
    pub(super) fn scale(&self, plot: &PlotRecord, more: impl Iterator<Item = f64>) -> Scale {
        let published = self.cells.iter().flat_map(|cell| &cell.published);
        let ours = self.cells.iter().filter_map(|cell| cell.value);
        let all = ours.chain(published.flat_map(Published::ends)).chain(more);
        Scale::over(&plot.says, (plot, PlotAxis::Y), all)
    }

    /// Draws a panel with the places' names below it, at the positions `at`.
    pub(super) fn panel<'c>(
        &self,
        canvas: &'c mut Canvas,
        (top, bottom): (u32, u32),
        (x, y): (&'c Scale, &'c Scale),
        at: &[f64],
        x_says: &str,
    ) -> Panel<'c> {
        let mut panel = Panel::new(canvas, (top, bottom - X_ROWS), x, y);
        panel.name_places(at, &self.xs, x_says);
        let names = self.xs.iter().map(String::as_str);
        panel.describe(&at.iter().copied().zip(names).collect::<Vec<_>>());
        panel
    }

    /// Draws the published values, each at the x position that `place` returns for its cell.
    pub(super) fn draw_published(&self, panel: &mut Panel<'_>, place: impl Fn(&Cell) -> f64) {
        for cell in &self.cells {
            for published in &cell.published {
                panel.published(place(cell), *published);
            }
        }
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
    fn cells_of_a_grid_are_sorted_by_the_numbers_in_their_names() {
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
}
