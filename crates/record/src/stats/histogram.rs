//! The fixed bins of a bar chart.

/// Equal bins from zero, as in the bar charts of Comcast 2021, Figures 5 and 6 (15 ms wide).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedBins {
    /// Width of each bin, ns.
    pub width_ns: u64,
    /// Values per bin; bin i holds `i * width <= v < (i + 1) * width`.
    pub counts: Vec<u64>,
    /// Values beyond the last bin.
    pub beyond: u64,
}

impl FixedBins {
    /// Counts the values into at most `bins` bins of `width_ns` (at least 1).
    pub fn count(values: impl IntoIterator<Item = u64>, width_ns: u64, bins: usize) -> FixedBins {
        let mut result = FixedBins { width_ns: width_ns.max(1), counts: vec![0; bins], beyond: 0 };
        for value in values {
            let bin = usize::try_from(value / result.width_ns).unwrap_or(usize::MAX);
            match result.counts.get_mut(bin) {
                Some(count) => *count += 1,
                None => result.beyond += 1,
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_closed_below_and_open_above() {
        let bins = FixedBins::count([0, 14_999_999, 15_000_000, 45_000_000], 15_000_000, 3);
        assert_eq!((bins.counts, bins.beyond), (vec![2, 1, 0], 1));
    }
}
