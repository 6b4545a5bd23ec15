//! Bytes per flow, and the flow with the most.
//!
//! Linux scans every flow on every overflow. Here flows are grouped in blocks of 32, and each
//! block remembers an upper bound of its flows' bytes: adding bytes raises the bound, removing
//! leaves it. A search recomputes only the block with the highest bound, until that bound is
//! exact. Adding and removing thus cost a comparison; a search costs one pass over the bounds
//! plus, amortised, the blocks whose flows have shrunk since.

use alloc::vec;
use alloc::vec::Vec;

const BLOCK: usize = 32;

#[derive(Debug)]
pub(super) struct Fattest {
    bytes: Vec<u64>,
    /// Per block, an upper bound of the bytes of its flows.
    bounds: Vec<u64>,
}

impl Fattest {
    pub(super) fn new(flows: usize) -> Self {
        Self { bytes: vec![0; flows], bounds: vec![0; flows.div_ceil(BLOCK)] }
    }

    pub(super) fn bytes(&self, flow: usize) -> u64 {
        self.bytes[flow]
    }

    pub(super) fn add(&mut self, flow: usize, len: u32) {
        let bytes = &mut self.bytes[flow];
        *bytes += u64::from(len);
        let bound = &mut self.bounds[flow / BLOCK];
        *bound = (*bound).max(*bytes);
    }

    pub(super) fn remove(&mut self, flow: usize, len: u32) {
        self.bytes[flow] -= u64::from(len);
    }

    /// Returns the flow with the most bytes (the first of several), and its bytes.
    pub(super) fn find(&mut self) -> (usize, u64) {
        loop {
            let (block, bound) = first_maximum(&self.bounds);
            let start = block * BLOCK;
            let end = (start + BLOCK).min(self.bytes.len());
            let (offset, most) = first_maximum(&self.bytes[start..end]);
            if most == bound {
                return (start + offset, most);
            }
            self.bounds[block] = most;
        }
    }
}

fn first_maximum(values: &[u64]) -> (usize, u64) {
    let mut best = (0, values[0]);
    for (index, &value) in values.iter().enumerate().skip(1) {
        if value > best.1 {
            best = (index, value);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn finds_what_a_scan_of_all_flows_finds() {
        let mut rng = Rng::new(3);
        for flows in [1, 31, 32, 33, 1_024] {
            let mut index = Fattest::new(flows);
            for _ in 0..5_000 {
                let flow = rng.below(flows as u32) as usize;
                if rng.below(2) == 0 {
                    // Few different lengths, so that ties are common.
                    index.add(flow, 100 * (1 + rng.below(3)));
                } else {
                    let len = index.bytes(flow).min(200) as u32;
                    index.remove(flow, len);
                }
                if rng.below(4) == 0 {
                    let scanned = first_maximum(&index.bytes);
                    assert_eq!(index.find(), scanned);
                }
            }
        }
    }
}
