//! Axes divided into few parts, for tables and pictures of many cells.

use std::collections::BTreeMap;

use underload_store::sweep::{AxisValue, SweepCell};

use super::Sweep;
use super::axis::Axis;

/// Maximum number of parts of an axis in a picture.
const MOST_PARTS: usize = 16;
/// Maximum number of variants in a picture.
const MOST_VARIANTS: usize = 12;

/// An axis divided into parts: one per value if there are few, or else one per group of neighbours.
#[derive(Debug)]
struct AxisBins {
    /// Name of each part, in the order of the axis.
    labels: Vec<String>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Listed(BTreeMap<String, usize>),
    Amount { from: f64, to: f64, is_log: bool },
}

impl AxisBins {
    fn new(axis: &Axis, most: usize) -> Self {
        let most = most.max(1) as u64;
        let levels = axis.levels().unwrap_or(u64::MAX);
        let parts = levels.min(most);
        let middle = |part: u64| axis.at((part as f64 + 0.5) / parts as f64).value.text;
        let place = match axis.ends() {
            Some((from, to, is_log)) if levels > most => Place::Amount { from, to, is_log },
            // Listed values are in the file, so that there are not too many.
            _ => {
                let part = |level: u64| (level * parts / levels) as usize;
                let named = |level| (axis.level(level).value.text, part(level));
                Place::Listed((0..levels).map(named).collect())
            }
        };
        Self { labels: (0..parts).map(middle).collect(), place }
    }

    /// Returns the part that a value is in; `None` for a value that the axis does not have.
    fn place(&self, value: &AxisValue) -> Option<usize> {
        match &self.place {
            Place::Listed(places) => places.get(&value.text).copied(),
            Place::Amount { from, to, is_log } => {
                let amount = value.amount?;
                let share = if *is_log {
                    libm::log(amount / from) / libm::log(to / from)
                } else {
                    (amount - from) / (to - from)
                };
                let parts = self.labels.len();
                Some(((share * parts as f64).max(0.0) as usize).min(parts - 1))
            }
        }
    }
}

/// The dimensions in which a report groups cells: the axes, and behind them the variants.
#[derive(Debug)]
pub struct Bins {
    axes: Vec<AxisBins>,
    variants: Vec<String>,
}

impl Bins {
    /// Returns the names of the parts of each dimension.
    pub(super) fn labels(&self) -> Vec<Vec<String>> {
        let axes = self.axes.iter().map(|axis| axis.labels.clone());
        axes.chain([self.variants.clone()]).collect()
    }

    /// Returns the part of each dimension that a cell is in; `None` for one that has no part.
    pub fn parts_of(&self, cell: &SweepCell) -> Vec<Option<usize>> {
        let axes = self.axes.iter().zip(&cell.values).map(|(axis, value)| axis.place(value));
        axes.chain([self.variants.iter().position(|name| *name == cell.variant)]).collect()
    }
}

impl Sweep {
    /// Divides each axis into at most 16 parts.
    pub fn bins(&self) -> Bins {
        let variants = self.scenario.variants.iter().take(MOST_VARIANTS);
        Bins {
            axes: self.axes.iter().map(|axis| AxisBins::new(axis, MOST_PARTS)).collect(),
            variants: variants.map(|variant| variant.name.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(text: &str, most: usize) -> AxisBins {
        let keys = super::super::keys_of(text).expect("TOML");
        AxisBins::new(&Axis::read(keys, false).expect("right"), most)
    }

    fn value(text: &str, amount: f64) -> AxisValue {
        AxisValue { text: text.to_owned(), amount: Some(amount) }
    }

    #[test]
    fn few_values_get_a_bin_each_and_many_values_share_bins() {
        let few = bins("key = \"k\"\nvalues = [\"a\", \"b\", \"c\"]", 4);
        assert_eq!(few.labels, ["a", "b", "c"]);
        assert_eq!(few.place(&value("c", 0.0)), Some(2));
        assert_eq!(few.place(&value("d", 0.0)), None);
        let many = bins("key = \"k\"\nvalues = [1, 2, 3, 4, 5, 6]", 3);
        let places = [1, 2, 3, 4, 5, 6].map(|it| many.place(&value(&it.to_string(), 0.0)));
        assert_eq!(places, [0, 0, 1, 1, 2, 2].map(Some));
        let log = "key = \"k\"\nfrom = \"1mbit\"\nto = \"100mbit\"\nscale = \"log\"";
        let log = bins(log, 4);
        assert_eq!(log.labels.len(), 4);
        let places = [1e6, 3e6, 4e6, 11e6, 99e6, 1e8].map(|rate| log.place(&value("", rate)));
        assert_eq!(places, [0, 0, 1, 2, 3, 3].map(Some));
        for (part, label) in log.labels.iter().enumerate() {
            let amount = underload_scenario::study::Quantity::read(label).expect("a rate").amount;
            assert_eq!(log.place(&value(label, amount)), Some(part), "{label}");
        }
    }
}
