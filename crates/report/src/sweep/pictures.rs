//! Plots of a sweep, gathered cell by cell in bounded memory.

use std::collections::BTreeMap;

use underload_record::CONFIDENCE;
use underload_record::schema::PlotKind;
use underload_record::stats::{RunningMean, nearest_rank};
use underload_store::sweep::{SweepCell, SweepPlot};

use crate::plot::{CellNumber, CellNumbers, Place, Plot, cells_plot};
use crate::words::thousands;

/// Maximum number of values of a box, and of points of a plot; of more a random selection is drawn.
const MOST_VALUES: usize = 1_000;

/// The data of a plot.
#[derive(Debug, Clone)]
pub(super) struct Gathered {
    plot: SweepPlot,
    values: Values,
}

#[derive(Debug, Clone)]
enum Values {
    Means(BTreeMap<Place, RunningMean>),
    Spreads(BTreeMap<Place, Spread>),
    Points(Lot<(Place, f64, f64)>),
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

    /// Adds a cell, with its part of each dimension, if it is shown.
    pub(super) fn add(&mut self, cell: &SweepCell, parts: &[Option<usize>]) {
        let is_meant = |(dimension, value): &(usize, String)| {
            let own = cell.values.get(*dimension).map_or(&cell.variant, |own| &own.text);
            own == value
        };
        if !self.plot.only.iter().all(is_meant) {
            return;
        }
        let part = |dimension: Option<usize>| match dimension {
            None => Some(0),
            Some(dimension) => parts.get(dimension).copied().flatten(),
        };
        let Some(place) = part(self.plot.line).zip(part(self.plot.x)) else { return };
        let Some(value) = mean_of(cell, self.plot.metric) else { return };
        match &mut self.values {
            Values::Means(means) => means.entry(place).or_default().push(value),
            Values::Spreads(spreads) => {
                let spread = spreads.entry(place).or_insert_with(|| Spread {
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
                    points.push(cell.cell, (place, right, value));
                }
            }
        }
    }

    /// Draws the plot; `None` if no cell has a value. `parts` has the names of the parts of each
    /// dimension; the last one, of the variants, may lack some of them.
    pub(super) fn draw(
        &self,
        name: &str,
        parts: &[Vec<String>],
        has_more_variants: bool,
    ) -> Option<Plot> {
        let (numbers, mut caption): (Vec<(Place, CellNumber)>, _) = match &self.values {
            Values::Means(means) => {
                let mean = |mean: &RunningMean| Some(mean.interval(CONFIDENCE)?.mean);
                let means =
                    means.iter().filter_map(|(at, it)| Some((*at, CellNumber::Mean(mean(it)?))));
                (means.collect(), "Each is the mean of all cells there.".to_owned())
            }
            Values::Spreads(spreads) => {
                let fives = spreads
                    .iter()
                    .filter_map(|(at, it)| Some((*at, CellNumber::Spread(it.five()?))));
                let counts = || spreads.values().map(|spread| spread.values.all);
                let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
                let of = if least == most {
                    thousands(most)
                } else {
                    format!("{} to {}", thousands(least), thousands(most))
                };
                let by_lot = spreads.values().any(|spread| !spread.values.is_whole());
                let lot = if by_lot { " (of some, drawn at random)" } else { "" };
                let caption = format!(
                    "Each box is of {of} cells: median, quartiles{lot}, smallest and largest."
                );
                (fives.collect(), caption)
            }
            Values::Points(points) => {
                let dots =
                    points.kept.iter().map(|(_, (at, x, y))| (*at, CellNumber::Point(*x, *y)));
                let (kept, all) = (thousands(points.kept.len() as u64), thousands(points.all));
                let caption = if points.is_whole() {
                    "A ring for each cell.".to_owned()
                } else {
                    format!("A ring for each of {kept} of {all} cells, drawn at random.")
                };
                (dots.collect(), caption)
            }
        };
        let variants = parts.len().checked_sub(1);
        if has_more_variants && [self.plot.line, self.plot.x].contains(&variants) {
            caption += " Only the first variants are drawn.";
        }
        let names = |dimension: Option<usize>| match dimension {
            None => vec![String::new()],
            Some(dimension) => parts.get(dimension).cloned().unwrap_or_default(),
        };
        let (lines, xs) = (names(self.plot.line), names(self.plot.x));
        cells_plot(name, &self.plot.picture, caption, CellNumbers { lines, xs, numbers })
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

pub(super) fn mean_of(cell: &SweepCell, metric: usize) -> Option<f64> {
    cell.metrics.get(metric)?.map(|interval| interval.mean).filter(|mean| mean.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_selection_is_bounded_and_even() {
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
