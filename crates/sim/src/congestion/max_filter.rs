//! The largest value of a sliding window, in constant memory.

/// Kathleen Nichols' windowed maximum (Linux `lib/win_minmax.c`): the best, second best and third
/// best values of the window, each later than its predecessor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxFilter {
    best: [Entry; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    at: u64,
    value: u64,
}

impl MaxFilter {
    pub(super) fn value(&self) -> u64 {
        self.best[0].value
    }

    /// Adds a value at `at`, in the units of `window`; `at` never decreases.
    pub(super) fn update(&mut self, window: u64, at: u64, value: u64) {
        let entry = Entry { at, value };
        if value >= self.best[0].value || at - self.best[2].at > window {
            self.best = [entry; 3];
            return;
        }
        if value >= self.best[1].value {
            self.best[1] = entry;
            self.best[2] = entry;
        } else if value >= self.best[2].value {
            self.best[2] = entry;
        }
        let age = at - self.best[0].at;
        if age > window {
            self.best = [self.best[1], self.best[2], entry];
            if at - self.best[0].at > window {
                self.best = [self.best[1], self.best[2], entry];
            }
        } else if self.best[1].at == self.best[0].at && age > window / 4 {
            self.best[1] = entry;
            self.best[2] = entry;
        } else if self.best[2].at == self.best[1].at && age > window / 2 {
            self.best[2] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_lasts_as_long_as_the_window() {
        let mut filter = MaxFilter::default();
        filter.update(10, 0, 100);
        for at in 1..=10 {
            filter.update(10, at, 50);
            assert_eq!(filter.value(), 100, "at {at}");
        }
        filter.update(10, 11, 40);
        assert_eq!(filter.value(), 50);
        filter.update(10, 12, 60);
        assert_eq!(filter.value(), 60);
    }
}
