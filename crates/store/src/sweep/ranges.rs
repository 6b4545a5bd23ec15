//! Sets of mostly consecutive numbers, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, whose memory grows with its gaps and not with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges {
    /// Ends by starts. Ranges are not empty, and neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds the numbers of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // Adds a range, merged with all ranges that it overlaps or touches.
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            (start, end) = (start.min(other), end.max(other_end));
            self.ends.remove(&other);
        }
        self.ends.insert(start, end);
    }

    pub fn count(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the first missing numbers from `from` on and below `limit`; `None` if none is
    /// missing.
    pub fn next_gap(&self, from: u64, limit: u64) -> Option<Range<u64>> {
        let before = self.ends.range(..=from).next_back();
        let start = before.map_or(from, |(_, end)| from.max(*end));
        let end = self.ends.range(start..).next().map_or(limit, |(next, _)| limit.min(*next));
        (start < end).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_behave_as_a_set(inserted in vec((0_u64..60, 0_u64..12), 0..20), from in 0_u64..70) {
            const LIMIT: u64 = 65;
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for (start, length) in inserted {
                ranges.insert(start..start + length);
                plain.extend(start..start + length);
            }
            prop_assert_eq!(ranges.count(), plain.len() as u64);
            let first = (from..LIMIT).find(|number| !plain.contains(number));
            let gap = ranges.next_gap(from, LIMIT);
            prop_assert_eq!(gap.as_ref().map(|gap| gap.start), first);
            if let Some(gap) = gap {
                prop_assert!(gap.clone().all(|number| !plain.contains(&number)));
                prop_assert!(gap.end == LIMIT || plain.contains(&gap.end));
            }
        }
    }
}
