//! How much is folded in one transaction.

use std::time::Duration;

/// The outcome of a call of a keeper's `roll_up`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledUp {
    pub results: usize,
    /// Whether more results wait.
    pub has_more: bool,
}

impl RolledUp {
    /// The outcome of a call that the stop flag ended.
    pub(crate) const STOPPED: Self = Self { results: 0, has_more: true };
}

/// Limits of the results that are folded in one transaction: their number, the bytes that they are
/// stored in, and the cells that they change. A single result is folded even if it exceeds them;
/// the rules bound its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) results: usize,
    /// Bytes of the results' bodies.
    pub(crate) bytes: usize,
    /// Cells of the finest level, of which there are three.
    pub(crate) cells: usize,
}

impl Batch {
    pub(crate) const RESULTS_MAX: usize = 4_096;

    /// Scales all limits with the number of results.
    pub(crate) fn with_results(results: usize) -> Self {
        let scale = results.clamp(1, Self::RESULTS_MAX);
        Self { results: results.max(1), bytes: scale * 256, cells: (scale / 2).max(1) }
    }

    /// The size after a batch of `results` results and that duration. The time bounds how long
    /// uploads wait for a transaction of SQLite; it does not reduce a batch below 64 results.
    pub(crate) fn next_size(size: usize, done: RolledUp, took: Duration) -> usize {
        if took > 2 * DURATION && size > 64 {
            return size / 2;
        }
        let is_short = took < DURATION && done.results > 0;
        if is_short { (size * 2).min(Self::RESULTS_MAX) } else { size }
    }

    /// The size that a process begins with after one that died in a batch of `size` results.
    pub(crate) fn size_after_death(size: usize) -> usize {
        (size / 2).max(1)
    }
}

/// A batch that takes longer than twice this is followed by a smaller one.
const DURATION: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_shrinks_with_its_duration_and_with_deaths_and_grows_again() {
        let done = RolledUp { results: 5, has_more: true };
        let ms = Duration::from_millis;
        let sizes = [(4_096, 10), (4_096, 150), (4_096, 201), (64, 900), (3, 900), (3, 99)];
        let next = sizes.map(|(size, took)| Batch::next_size(size, done, ms(took)));
        assert_eq!(next, [4_096, 4_096, 2_048, 64, 3, 6]);
        let idle = RolledUp::default();
        assert_eq!(Batch::next_size(8, idle, ms(0)), 8, "a size that was not tried is no larger");
        let deaths =
            std::iter::successors(Some(4_096), |size| Some(Batch::size_after_death(*size)));
        assert_eq!(deaths.take(14).last(), Some(1));
        let (largest, smallest) = (Batch::with_results(usize::MAX), Batch::with_results(0));
        assert_eq!((largest.bytes, largest.cells), (1 << 20, 2_048));
        assert_eq!((smallest.results, smallest.bytes, smallest.cells), (1, 256, 1));
    }
}
