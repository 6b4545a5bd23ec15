//! A first-in first-out store of packets with its counters.

use alloc::collections::VecDeque;

use crate::aqm::Store;
use crate::packet::Packet;
use crate::qdisc::{Backlog, DropReason, MarkReason, Observer, Stats};
use crate::time::Time;

/// Packets in order of arrival. Grows to its high-water mark, then never allocates again.
#[derive(Debug)]
pub struct Ring<P> {
    packets: VecDeque<Packet<P>>,
    backlog: Backlog,
    stats: Stats,
}

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), backlog: Backlog::default(), stats: Stats::default() }
    }
}

impl<P> Ring<P> {
    /// Stores `packet` behind all others.
    pub fn push(&mut self, packet: Packet<P>) {
        self.backlog.add(packet.meta.len);
        self.packets.push_back(packet);
    }

    /// The counters that storing and dropping maintain.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// The counters, to count an arrival or a departure.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Counts `packet` as dropped while enqueuing and hands it to `observer`.
    pub fn drop_enqueue(
        &mut self,
        now: Time,
        packet: Packet<P>,
        reason: DropReason,
        observer: &mut dyn Observer<P>,
    ) {
        self.stats.dropped_enqueue.add(packet.meta.len);
        observer.dropped(now, packet, reason);
    }
}

impl<P> Store<P> for Ring<P> {
    fn pop(&mut self) -> Option<Packet<P>> {
        let packet = self.packets.pop_front()?;
        self.backlog.remove(packet.meta.len);
        Some(packet)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn drop(
        &mut self,
        now: Time,
        packet: Packet<P>,
        reason: DropReason,
        observer: &mut dyn Observer<P>,
    ) {
        self.stats.dropped_dequeue.add(packet.meta.len);
        observer.dropped(now, packet, reason);
    }

    fn marked(
        &mut self,
        now: Time,
        packet: &Packet<P>,
        reason: MarkReason,
        observer: &mut dyn Observer<P>,
    ) {
        self.stats.marked += 1;
        observer.marked(now, packet, reason);
    }
}
