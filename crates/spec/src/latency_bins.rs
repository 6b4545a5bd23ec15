//! Edges of the latency histogram that a DOCSIS device keeps of a service flow (TLV 40.6).

use core::fmt;

use crate::time::Span;

/// Rising edges between the bins of a latency histogram, in units of 0.01 ms as in the TLV. `n`
/// edges make `n + 1` bins, the outer ones without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyEdges {
    edges: [u16; Self::MOST],
    count: usize,
}

impl LatencyEdges {
    /// The maximum number of edges.
    pub const MOST: usize = 15;
    /// The maximum number of bins.
    pub const MOST_BINS: usize = Self::MOST + 1;

    /// Returns edges in units of 0.01 ms; `None` if none, more than [`Self::MOST`], or not rising.
    #[inline]
    pub fn new(edges: &[u16]) -> Option<Self> {
        let rises = edges.is_sorted_by(|before, after| before < after);
        if edges.is_empty() || edges.len() > Self::MOST || !rises {
            return None;
        }
        let mut all = [0; Self::MOST];
        all[..edges.len()].copy_from_slice(edges);
        Some(Self { edges: all, count: edges.len() })
    }

    /// Returns the edges as times, rising.
    #[inline]
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.edges[..self.count].iter().map(|edge| UNIT * u64::from(*edge))
    }

    /// Returns the index of the bin of `delay`, below [`Self::MOST_BINS`].
    #[inline]
    pub fn bin(&self, delay: Span) -> usize {
        let units = delay.as_nanos() / UNIT.as_nanos();
        self.edges[..self.count].iter().filter(|edge| u64::from(**edge) <= units).count()
    }
}

/// The unit of an edge. Public sources do not settle it, see `docs/docsis.md`.
const UNIT: Span = Span::from_micros(10);

/// Formats the edges as in a SPEC: `0.5ms+1ms+10ms`, in the largest unit without a fraction.
impl fmt::Display for LatencyEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, edge) in self.spans().enumerate() {
            let joint = if position == 0 { "" } else { "+" };
            write!(f, "{joint}{edge}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_delay_at_an_edge_belongs_to_the_bin_above_it() {
        let edges = LatencyEdges::new(&[50, 100, 1_000]).expect("they rise");
        let bins = [0, 499, 500, 999, 1_000, 9_999, 10_000, 9_000_000]
            .map(|micros| edges.bin(Span::from_micros(micros)));
        assert_eq!(bins, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(edges.bin(Span::from_nanos(u64::MAX)), 3);
        assert_eq!(edges.to_string(), "500us+1ms+10ms");
    }

    #[test]
    fn edges_rise_and_are_one_to_fifteen() {
        assert!(LatencyEdges::new(&[]).is_none());
        assert!(LatencyEdges::new(&[5, 5]).is_none());
        assert!(LatencyEdges::new(&[6, 5]).is_none());
        let sixteen: [u16; 16] = core::array::from_fn(|edge| edge as u16);
        assert!(LatencyEdges::new(&sixteen).is_none());
        let most = LatencyEdges::new(&sixteen[..15]).expect("as many as there may be");
        assert_eq!(most.bin(Span::from_secs(1)) + 1, LatencyEdges::MOST_BINS);
        let longest = LatencyEdges::new(&[u16::MAX]).expect("one");
        assert_eq!(longest.bin(Span::from_nanos(655_349_999)), 0);
        assert_eq!(longest.bin(Span::from_micros(655_350)), 1);
    }
}
