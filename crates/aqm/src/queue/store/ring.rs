//! A first-in first-out store of packets with its counters.

use alloc::collections::VecDeque;

use crate::aqm::Store;
use crate::packet::{Meta, Packet};
use crate::qdisc::{Backlog, DropReason, MarkReason, Observer, Stats};
use crate::time::Time;

/// Packets in order of arrival. Grows to its high-water mark, then never allocates again.
#[derive(Debug)]
pub struct Ring<P> {
    packets: VecDeque<Packet<P>>,
    bytes: u64,
    /// All but `sent`, which follows from the others.
    stats: Stats,
}

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0, stats: Stats::default() }
    }
}

impl<P> Ring<P> {
    /// Counts an arrival of `len` bytes; it is then stored or dropped.
    #[inline]
    pub const fn offer(&mut self, len: u32) {
        self.stats.offered.add(len);
    }

    /// Stores `packet` behind all others, as arrived `now`.
    #[inline]
    pub fn push(&mut self, now: Time, packet: Packet<P>) {
        self.bytes += u64::from(packet.meta.len);
        self.packets.push_back(packet);
        // Stamped in its place: wide loads of a packet that was just written to stall.
        if let Some(stored) = self.packets.back_mut() {
            stored.meta.arrived = now;
        }
    }

    /// The counters. What was offered, is not stored and was not dropped has been sent.
    pub fn stats(&self) -> Stats {
        self.stats.with_sent(self.backlog())
    }

    /// Counts `packet` as dropped while enqueuing and hands it to `observer`.
    #[cold]
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
    #[inline]
    fn head(&self) -> Option<&Meta> {
        self.packets.front().map(|packet| &packet.meta)
    }

    #[inline]
    fn pop(&mut self) -> Option<Packet<P>> {
        self.bytes -= u64::from(self.head()?.len);
        self.packets.pop_front()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u32, bytes: self.bytes }
    }

    #[cold]
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

    #[cold]
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
