//! The earliest of a fixed number of sources.

use underload_aqm::time::Time;

/// A winner tree: each source has one key, the instant of its next event, and the earliest is
/// known at once. Changing a key costs log2(sources) comparisons and no memory; at equal keys the
/// source with the lower number is first, so the order of events never depends on history.
#[derive(Debug)]
pub(crate) struct Tournament {
    keys: Vec<Time>,
    /// Winner of each node; node 1 is the root, `leaves + i` is source `i`.
    winners: Vec<u32>,
    leaves: usize,
}

impl Tournament {
    /// A tree of `count` sources that have nothing to do.
    pub(crate) fn new(count: usize) -> Self {
        let leaves = count.max(1).next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for node in (1..2 * leaves).rev() {
            winners[node] = if node >= leaves { (node - leaves) as u32 } else { winners[2 * node] };
        }
        Self { keys: vec![Time::MAX; leaves], winners, leaves }
    }

    /// The earliest instant and its source. `Time::MAX`: nothing will ever happen.
    #[inline]
    pub(crate) fn first(&self) -> (Time, usize) {
        let source = self.winners[1] as usize;
        (self.keys[source], source)
    }

    /// The key of `source`.
    #[inline]
    pub(crate) fn key(&self, source: usize) -> Time {
        self.keys[source]
    }

    /// Sets the key of `source`; `Time::MAX` for nothing to do.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, key: Time) {
        if self.keys[source] == key {
            return;
        }
        self.keys[source] = key;
        let mut node = (self.leaves + source) >> 1;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let left_first = self.keys[left as usize] <= self.keys[right as usize];
            self.winners[node] = if left_first { left } else { right };
            node >>= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underload_aqm::rng::Rng;

    #[test]
    fn the_first_is_always_the_smallest_key_with_the_lowest_number() {
        for count in [1, 2, 3, 5, 17] {
            let mut tree = Tournament::new(count);
            let mut keys = vec![Time::MAX; count];
            let mut rng = Rng::new(count as u64);
            for _ in 0..1_000 {
                let source = rng.below(count as u32) as usize;
                keys[source] = Time::from_nanos(u64::from(rng.below(20)));
                tree.set(source, keys[source]);
                let best = (0..count).min_by_key(|&i| (keys[i], i)).expect("count is not zero");
                assert_eq!(tree.first(), (keys[best], best));
            }
        }
    }
}
