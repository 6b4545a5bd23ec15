//! Packets of many flows in one vector, chained by index.

use alloc::vec::Vec;

use crate::packet::{Meta, Packet};
use crate::time::Time;

const NONE: u32 = u32::MAX;

/// The nodes of all chains; freed nodes are reused, the last freed first. Successors are stored
/// apart from packets, so that linking does not touch packets that are not needed yet: with many
/// flows they are not in the nearest cache.
#[derive(Debug)]
pub(in crate::queue) struct Slab<P> {
    nodes: Vec<Node<P>>,
    next: Vec<u32>,
    free: u32,
}

/// A packet in its own cache lines: with many flows each is fetched from far away.
#[derive(Debug)]
#[repr(align(64))]
struct Node<P>(Option<Packet<P>>);

impl<P> Slab<P> {
    pub(in crate::queue) const fn new() -> Self {
        Self { nodes: Vec::new(), next: Vec::new(), free: NONE }
    }

    /// Returns the metadata of the packet in `node`.
    #[inline]
    pub(in crate::queue) fn meta(&self, node: u32) -> Option<&Meta> {
        self.nodes[node as usize].0.as_ref().map(|packet| &packet.meta)
    }

    /// Stores `packet` with `now` as its arrival, in place: wide loads after a write stall.
    #[inline]
    fn insert(&mut self, now: Time, packet: Packet<P>) -> u32 {
        let node = self.free;
        if node == NONE {
            return self.grow(now, packet);
        }
        self.free = self.next[node as usize];
        self.nodes[node as usize].0.insert(packet).meta.arrived = now;
        node
    }

    #[cold]
    fn grow(&mut self, now: Time, mut packet: Packet<P>) -> u32 {
        packet.meta.arrived = now;
        self.nodes.push(Node(Some(packet)));
        self.next.push(NONE);
        (self.nodes.len() - 1) as u32
    }

    #[inline]
    fn remove(&mut self, node: u32) -> Option<Packet<P>> {
        self.next[node as usize] = self.free;
        self.free = node;
        self.nodes[node as usize].0.take()
    }
}

/// The packets of one flow, first in first out.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Chain {
    head: u32,
    tail: u32,
    packets: u32,
}

impl Chain {
    pub(in crate::queue) const EMPTY: Self = Self { head: NONE, tail: NONE, packets: 0 };

    pub(in crate::queue) const fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the node of the oldest packet.
    pub(in crate::queue) const fn head(&self) -> Option<u32> {
        if self.packets == 0 { None } else { Some(self.head) }
    }

    /// Stores `packet` last, with `now` as its arrival, and returns its node.
    #[inline]
    pub(in crate::queue) fn push<P>(
        &mut self,
        now: Time,
        packet: Packet<P>,
        slab: &mut Slab<P>,
    ) -> u32 {
        let node = slab.insert(now, packet);
        if self.packets == 0 {
            self.head = node;
        } else {
            slab.next[self.tail as usize] = node;
        }
        self.tail = node;
        self.packets += 1;
        node
    }

    /// Takes the oldest packet.
    #[inline]
    pub(in crate::queue) fn pop<P>(&mut self, slab: &mut Slab<P>) -> Option<Packet<P>> {
        let node = self.head()?;
        self.head = slab.next[node as usize];
        self.packets -= 1;
        slab.remove(node)
    }
}
