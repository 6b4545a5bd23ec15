//! Packets of many flows in one vector, chained by index.

use alloc::vec::Vec;

use crate::packet::Packet;

/// Stands for "no node".
const NONE: u32 = u32::MAX;

/// The nodes of all chains; freed ones are used again, the last freed first.
#[derive(Debug)]
pub(super) struct Slab<P> {
    nodes: Vec<Node<P>>,
    free: u32,
}

#[derive(Debug)]
struct Node<P> {
    packet: Option<Packet<P>>,
    next: u32,
}

impl<P> Slab<P> {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: NONE }
    }

    fn insert(&mut self, packet: Packet<P>) -> u32 {
        let node = Node { packet: Some(packet), next: NONE };
        let index = self.free;
        if index == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let place = &mut self.nodes[index as usize];
        self.free = place.next;
        *place = node;
        index
    }
}

/// The packets of one flow, first in, first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    head: u32,
    tail: u32,
    packets: u32,
}

impl Chain {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, packets: 0 };

    pub(super) const fn packets(&self) -> u32 {
        self.packets
    }

    /// The node of the oldest packet.
    pub(super) const fn head(&self) -> Option<u32> {
        if self.packets == 0 { None } else { Some(self.head) }
    }

    /// Stores `packet` behind all others and returns its node.
    pub(super) fn push<P>(&mut self, packet: Packet<P>, slab: &mut Slab<P>) -> u32 {
        let node = slab.insert(packet);
        if self.packets == 0 {
            self.head = node;
        } else {
            slab.nodes[self.tail as usize].next = node;
        }
        self.tail = node;
        self.packets += 1;
        node
    }

    /// Takes the oldest packet.
    pub(super) fn pop<P>(&mut self, slab: &mut Slab<P>) -> Option<Packet<P>> {
        let index = self.head()?;
        let node = &mut slab.nodes[index as usize];
        let packet = node.packet.take()?;
        self.head = node.next;
        self.packets -= 1;
        node.next = slab.free;
        slab.free = index;
        Some(packet)
    }
}
