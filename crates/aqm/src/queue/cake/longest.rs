//! Bytes per queue, and the queue with the most bytes, over all tins.
//!
//! A binary heap that is not maintained until memory runs out: the first overflow builds it, and it
//! is updated until 65,535 packets have left without another overflow.
//!
//! The heap is inexact, and the fates in Linux depend on that. A queue that has shrunk moves below
//! its children, but is not compared with their children: the largest value among the children
//! still counts as its own. So the heap finds the longest queue right after it was built, and later
//! often another long queue, until that queue is empty and the heap is rebuilt. Ties are decided by
//! the numbers of the queues, as in Linux.

use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Longest {
    bytes: Vec<u64>,
    /// A heap: no queue is longer than the one at half its index.
    heap: Vec<u16>,
    /// The index of each queue in the heap.
    place: Vec<u16>,
    /// Departures after which the heap is not maintained any more; zero while it is not.
    kept_for: u16,
}

impl Longest {
    /// Returns an index of `queues` empty queues, at most 65,536.
    pub fn new(queues: usize) -> Self {
        let numbers: Vec<u16> = (0..queues).map(|queue| queue as u16).collect();
        Self { bytes: vec![0; queues], place: numbers.clone(), heap: numbers, kept_for: 0 }
    }

    #[cfg(test)]
    pub fn bytes(&self, queue: usize) -> u64 {
        self.bytes[queue]
    }

    #[inline]
    pub fn add(&mut self, queue: usize, len: u32) {
        self.bytes[queue] += u64::from(len);
        if self.kept_for > 0 {
            self.rise(usize::from(self.place[queue]));
        }
    }

    #[inline]
    pub fn remove(&mut self, queue: usize, len: u32) {
        self.bytes[queue] -= u64::from(len);
        if self.kept_for > 0 {
            self.sink(usize::from(self.place[queue]));
        }
    }

    #[inline]
    pub const fn on_sent(&mut self) {
        self.kept_for = self.kept_for.saturating_sub(1);
    }

    /// Rebuilds the heap at the next search.
    pub const fn neglect(&mut self) {
        self.kept_for = 0;
    }

    /// Returns the queue with the most bytes, or one that had many when the heap was built.
    #[cold]
    pub fn find(&mut self) -> usize {
        if self.kept_for == 0 {
            (0..self.heap.len() / 2).rev().for_each(|place| self.sink(place));
        }
        self.kept_for = u16::MAX;
        usize::from(self.heap[0])
    }

    fn bytes_at(&self, place: usize) -> u64 {
        self.bytes[usize::from(self.heap[place])]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[usize::from(self.heap[a])] = a as u16;
        self.place[usize::from(self.heap[b])] = b as u16;
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.bytes_at(place) <= self.bytes_at(parent) {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    /// Moves the queue at `place` down below larger children. Below the first step, children must
    /// exceed the queue that was exchanged last, not the one that moves.
    fn sink(&mut self, mut place: usize) {
        let mut most = self.bytes_at(place);
        loop {
            let mut largest = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.bytes_at(child) > most {
                    largest = child;
                    most = self.bytes_at(child);
                }
            }
            if largest == place {
                return;
            }
            self.swap(place, largest);
            place = largest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_heap_just_built_finds_what_a_scan_finds() {
        let mut rng = Rng::new(3);
        for queues in [1, 2, 3, 64, 8_192] {
            let mut index = Longest::new(queues);
            for _ in 0..4_000 {
                let queue = rng.below(queues as u32) as usize;
                if rng.below(2) == 0 {
                    index.add(queue, 100 * (1 + rng.below(3)));
                } else {
                    let len = index.bytes(queue).min(200) as u32;
                    index.remove(queue, len);
                }
                if rng.below(16) == 0 {
                    index.neglect();
                    let most = index.bytes.iter().max().copied();
                    let found = index.find();
                    assert_eq!(Some(index.bytes(found)), most);
                }
            }
        }
    }

    #[test]
    fn a_heap_is_rebuilt_after_65535_packets() {
        let mut index = Longest::new(8);
        index.add(2, 100);
        index.add(5, 100);
        // 5 is below 2 in the heap, and not larger.
        assert_eq!(index.find(), 2);
        index.add(7, 300);
        assert_eq!(index.heap[0], 7, "kept");
        (0..u16::MAX).for_each(|_| index.on_sent());
        index.add(3, 400);
        assert_eq!(index.heap[0], 7, "no longer kept");
        assert_eq!(index.find(), 3);
    }

    /// Queue 0 shrinks to nothing: 1 rises, and 0 stays above 3, which is longer, because 1 was
    /// longer still.
    #[test]
    fn a_queue_that_shrinks_sinks_by_one_step_as_in_linux() {
        let mut index = Longest::new(8);
        for (queue, bytes) in [(0, 900), (1, 800), (2, 100), (3, 700)] {
            index.add(queue, bytes);
        }
        assert_eq!(index.find(), 0);
        index.remove(0, 900);
        assert_eq!((index.heap[0], index.heap[1], index.heap[3]), (1, 0, 3));
        index.remove(1, 800);
        assert_eq!(index.find(), 2, "a shorter queue than 3");
        index.neglect();
        assert_eq!(index.find(), 3);
    }
}
