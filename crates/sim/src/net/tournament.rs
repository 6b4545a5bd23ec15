//! The earliest event of a fixed number of sources.

use std::hint::select_unpredictable;

use underload_aqm::time::Time;

/// A winner tree: each source has one key, the instant of its next event, and the root has the
/// earliest. Changing a key costs at most log2(sources) comparisons and stops where the winner does
/// not change. At equal keys the source with the lower number is first, so the order of events
/// never depends on history. Up to [`FEW`] sources are compared in [`Tournament::first`] instead.
pub(crate) struct Tournament {
    /// Node 1 is the root, node `n` has the children `2n` and `2n + 1`, `leaves + i` is source `i`.
    nodes: Vec<Contender>,
    leaves: usize,
}

/// The earliest source below a node, with its key, so that a comparison reads one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contender {
    key: Time,
    source: u32,
}

impl Tournament {
    /// Creates a tree of `count` idle sources.
    pub(crate) fn new(count: usize) -> Self {
        let leaves = count.max(1).next_power_of_two();
        let mut nodes = vec![Contender { key: Time::MAX, source: 0 }; 2 * leaves];
        for node in (1..2 * leaves).rev() {
            let leaf = node.checked_sub(leaves);
            nodes[node].source = leaf.map_or_else(|| nodes[2 * node].source, |leaf| leaf as u32);
        }
        Self { nodes, leaves }
    }

    /// Returns the earliest instant and its source; `Time::MAX` if all sources are idle.
    #[inline]
    pub(crate) fn first(&self) -> (Time, usize) {
        let mut first = self.nodes[1];
        if self.leaves <= FEW {
            let (leaves, others) = self.nodes[self.leaves..].split_at(1);
            first = leaves[0];
            for other in others {
                // The branch would be unpredictable.
                let earlier = other.key < first.key;
                first.key = select_unpredictable(earlier, other.key, first.key);
                first.source = select_unpredictable(earlier, other.source, first.source);
            }
        }
        (first.key, first.source as usize)
    }

    /// Sets the key of `source`; `Time::MAX`: idle.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, key: Time) {
        let mut node = self.leaves + source;
        if self.leaves <= FEW {
            self.nodes[node].key = key;
            return;
        }
        let mut winner = Contender { key, source: source as u32 };
        // If the winner is unchanged, so are all nodes above.
        while self.nodes[node] != winner {
            self.nodes[node] = winner;
            if node == 1 {
                return;
            }
            // The branch would be unpredictable. At equal keys the left node wins.
            let rival = self.nodes[node ^ 1];
            let loses = (rival.key, node ^ 1) < (winner.key, node);
            winner.key = select_unpredictable(loses, rival.key, winner.key);
            winner.source = select_unpredictable(loses, rival.source, winner.source);
            node >>= 1;
        }
    }
}

/// Up to this number of sources, comparing all of them is as fast as updating a tree.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use underload_aqm::rng::Rng;

    #[test]
    fn the_first_has_the_smallest_key_and_ties_the_lowest_number() {
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
