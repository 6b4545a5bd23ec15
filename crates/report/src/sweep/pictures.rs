//! Plots of a sweep, gathered cell by cell in bounded memory.

use std::collections::{BTreeMap, BTreeSet};

use underload_record::CONFIDENCE;
use underload_record::schema::{PlotKind, PlotRecord};
use underload_record::stats::{RunningMean, nearest_rank};
use underload_store::sweep::SweepCell;

use crate::plot::{CellNumbers, Numbers, Plot, cells_plot};
use crate::words::thousands;

/// Most values of a box, and most points of a plot; of more a random selection is drawn.
const MOST_VALUES: usize = 1_000;

/// A plot of a sweep's cells.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPlot {
    /// Form, heading and words. Its variants and metrics are those below.
    pub picture: PlotRecord,
    /// The dimension with a curve, colour or row for each value.
    pub line: Option<SweepDimension>,
    /// The horizontal dimension; `None` for a scatter plot.
    pub x: Option<SweepDimension>,
    /// Position of the vertical metric.
    pub metric: usize,
    /// Position of the horizontal metric of a scatter plot.
    pub x_metric: Option<usize>,
    /// The cells that are shown: their value of an axis, or their variant.
    pub only: Vec<(SweepDimension, String)>,
}

/// A dimension in which cells differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepDimension {
    Variant,
    Axis(usize),
}

/// The data of a plot.
#[derive(Debug, Clone)]
pub(super) struct Gathered {
    plot: SweepPlot,
    values: Values,
}

/// Line and horizontal place.
type Place = (usize, usize);

#[derive(Debug, Clone)]
enum Values {
    Means(BTreeMap<Place, RunningMean>),
    Spreads(BTreeMap<Place, Spread>),
    Points(Lot<(usize, f64, f64)>),
}

#[derive(Debug, Clone)]
struct Spread {
    least: f64,
    most: f64,
    values: Lot<f64>,
}

/// A random selection of many items, which depends on their numbers and not on their order.
#[derive(Debug, Clone)]
struct Lot<T> {
    kept: Vec<(u64, T)>,
    /// Fewest leading zeros of a selected ticket.
    zeros: u32,
    all: u64,
}

impl<T> Default for Lot<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), zeros: 0, all: 0 }
    }
}

impl<T> Lot<T> {
    fn push(&mut self, number: u64, item: T) {
        self.all += 1;
        let ticket = ticket(number);
        if ticket.leading_zeros() < self.zeros {
            return;
        }
        self.kept.push((ticket, item));
        while self.kept.len() > MOST_VALUES {
            self.zeros += 1;
            self.kept.retain(|(ticket, _)| ticket.leading_zeros() >= self.zeros);
        }
    }

    fn is_whole(&self) -> bool {
        self.kept.len() as u64 == self.all
    }
}

/// Hashes a number (SplitMix64, Steele et al. 2014). Consecutive cells differ in the same axis, so
/// that a selection by order would miss values of it.
fn ticket(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Gathered {
    pub(super) fn new(plot: SweepPlot) -> Self {
        let values = match plot.picture.kind {
            PlotKind::Scatter => Values::Points(Lot::default()),
            PlotKind::Box => Values::Spreads(BTreeMap::new()),
            _ => Values::Means(BTreeMap::new()),
        };
        Self { plot, values }
    }

    /// Adds a cell, with its variant and its part of each axis, if these are shown.
    pub(super) fn add(
        &mut self,
        cell: &SweepCell,
        variant: Option<usize>,
        parts: &[Option<usize>],
    ) {
        let is_meant = |(dimension, value): &(SweepDimension, String)| match dimension {
            SweepDimension::Variant => cell.variant == *value,
            SweepDimension::Axis(axis) => {
                cell.values.get(*axis).is_some_and(|own| own.text == *value)
            }
        };
        if !self.plot.only.iter().all(is_meant) {
            return;
        }
        let place = |dimension: Option<SweepDimension>| match dimension {
            None => Some(0),
            Some(SweepDimension::Variant) => variant,
            Some(SweepDimension::Axis(axis)) => parts.get(axis).copied().flatten(),
        };
        let (Some(line), Some(x)) = (place(self.plot.line), place(self.plot.x)) else { return };
        let Some(value) = mean_of(cell, self.plot.metric) else { return };
        match &mut self.values {
            Values::Means(means) => means.entry((line, x)).or_default().push(value),
            Values::Spreads(spreads) => {
                let spread = spreads.entry((line, x)).or_insert_with(|| Spread {
                    least: value,
                    most: value,
                    values: Lot::default(),
                });
                spread.least = spread.least.min(value);
                spread.most = spread.most.max(value);
                spread.values.push(cell.cell, value);
            }
            Values::Points(points) => {
                let right = self.plot.x_metric.and_then(|metric| mean_of(cell, metric));
                if let Some(right) = right {
                    points.push(cell.cell, (line, right, value));
                }
            }
        }
    }

    /// Draws the plot; `None` if no cell has a value.
    pub(super) fn draw(
        &self,
        name: &str,
        names: impl Fn(Option<SweepDimension>) -> Vec<String>,
        has_more_variants: bool,
    ) -> Option<Plot> {
        let (numbers, mut caption) = match &self.values {
            Values::Means(means) => {
                let value = |mean: &RunningMean| mean.interval(CONFIDENCE).map(|it| it.mean);
                let values = means.iter().map(|(place, mean)| (*place, value(mean)));
                (
                    Numbers::Means(values.collect()),
                    "Each is the mean of all cells there.".to_owned(),
                )
            }
            Values::Spreads(spreads) => {
                let fives = spreads.iter().filter_map(|(place, it)| Some((*place, it.five()?)));
                let counts = || spreads.values().map(|spread| spread.values.all);
                let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
                let of = if least == most {
                    thousands(most)
                } else {
                    format!("{} to {}", thousands(least), thousands(most))
                };
                let by_lot = spreads.values().any(|spread| !spread.values.is_whole());
                let lot = if by_lot { " (of some, drawn by lot)" } else { "" };
                let caption = format!(
                    "Each box is of {of} cells: median, quartiles{lot}, smallest and largest."
                );
                (Numbers::Spreads(fives.collect()), caption)
            }
            Values::Points(points) => {
                let dots = points.kept.iter().map(|(_, point)| *point).collect();
                let (kept, all) = (thousands(points.kept.len() as u64), thousands(points.all));
                let caption = if points.is_whole() {
                    "A ring for each cell.".to_owned()
                } else {
                    format!("A ring for each of {kept} of {all} cells, drawn by lot.")
                };
                (Numbers::Points(dots), caption)
            }
        };
        let is_of_variants = [self.plot.line, self.plot.x].contains(&Some(SweepDimension::Variant));
        if is_of_variants && has_more_variants {
            caption += " Only the first variants are drawn.";
        }
        let (lines, xs) = (names(self.plot.line), names(self.plot.x));
        let cells = CellNumbers { lines, xs, numbers }.used();
        cells_plot(name, &self.plot.picture, caption, &cells)
    }
}

impl Spread {
    fn five(&self) -> Option<[f64; 5]> {
        let mut sorted: Vec<f64> = self.values.kept.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = |share: f64| nearest_rank(&sorted, share);
        Some([self.least, rank(0.25)?, rank(0.5)?, rank(0.75)?, self.most])
    }
}

impl CellNumbers {
    /// Drops lines and places without values.
    pub(crate) fn used(self) -> Self {
        let Self { lines, xs, numbers } = self;
        let places: Vec<Place> = match &numbers {
            Numbers::Means(means) => {
                means.iter().filter(|(_, mean)| mean.is_some()).map(|(place, _)| *place).collect()
            }
            Numbers::Spreads(spreads) => spreads.iter().map(|(place, _)| *place).collect(),
            Numbers::Points(points) => points.iter().map(|(line, ..)| (*line, 0)).collect(),
        };
        let own_lines: BTreeSet<usize> = places.iter().map(|(line, _)| *line).collect();
        let own_xs: BTreeSet<usize> = places.iter().map(|(_, x)| *x).collect();
        let line = |line: usize| own_lines.range(..line).count();
        let place = |(own, x): Place| (line(own), own_xs.range(..x).count());
        let numbers = match numbers {
            Numbers::Means(means) => {
                let own = means.into_iter().filter(|(_, mean)| mean.is_some());
                Numbers::Means(own.map(|(at, mean)| (place(at), mean)).collect())
            }
            Numbers::Spreads(spreads) => {
                Numbers::Spreads(spreads.into_iter().map(|(at, five)| (place(at), five)).collect())
            }
            Numbers::Points(points) => {
                Numbers::Points(points.into_iter().map(|(own, x, y)| (line(own), x, y)).collect())
            }
        };
        let named = |names: &[String], own: &BTreeSet<usize>| {
            own.iter().map(|at| names.get(*at).cloned().unwrap_or_default()).collect()
        };
        Self { lines: named(&lines, &own_lines), xs: named(&xs, &own_xs), numbers }
    }
}

pub(super) fn mean_of(cell: &SweepCell, metric: usize) -> Option<f64> {
    cell.metrics.get(metric)?.map(|interval| interval.mean).filter(|mean| mean.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lot_is_small_and_of_all_alike() {
        let mut lot = Lot::default();
        (0..100_000_u64).for_each(|number| lot.push(number, number));
        assert!(!lot.is_whole() && lot.all == 100_000);
        assert!((MOST_VALUES / 4..=MOST_VALUES).contains(&lot.kept.len()), "{}", lot.kept.len());
        // The selection has as many odd numbers as even ones, and as many late ones as early ones.
        let odd = lot.kept.iter().filter(|(_, number)| number % 2 == 1).count();
        let late = lot.kept.iter().filter(|(_, number)| *number >= 50_000).count();
        for half in [odd, late] {
            let share = half as f64 / lot.kept.len() as f64;
            assert!((0.4..0.6).contains(&share), "{share}");
        }
        let mut backwards = Lot::default();
        (0..100_000_u64).rev().for_each(|number| backwards.push(number, number));
        backwards.kept.sort_unstable();
        lot.kept.sort_unstable();
        assert_eq!(lot.kept, backwards.kept);
        // Items that all have one number are limited, too.
        let mut same = Lot::default();
        (0..3_000).for_each(|_| same.push(7, ()));
        assert!(same.kept.len() <= MOST_VALUES);
    }
}
