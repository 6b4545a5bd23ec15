//! A first-in first-out store of packets with its counters.

use alloc::collections::VecDeque;

use crate::packet::{Meta, Packet};
use crate::qdisc::{Backlog, DropReason, MarkReason, Observer, Stats};
use crate::time::Time;

/// Packets in order of arrival. Grows to its high-water mark, then never allocates again.
#[derive(Debug)]
pub struct Ring<P> {
    packets: VecDeque<Packet<P>>,
    bytes: u64,
    /// All counters except `sent`, which is computed from the others.
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

    /// Stores `packet` last, with `now` as its arrival.
    #[inline]
    pub fn push(&mut self, now: Time, packet: Packet<P>) {
        self.bytes += u64::from(packet.meta.len);
        self.packets.push_back(packet);
        // Stamped in place: wide loads of a packet that was just written to stall.
        if let Some(stored) = self.packets.back_mut() {
            stored.meta.arrived = now;
        }
    }

    /// Returns the counters. A packet that was offered and neither dropped nor stored was sent.
    pub fn stats(&self) -> Stats {
        self.stats.with_sent(self.backlog())
    }

    /// Drops `packet` while enqueuing: counts it and hands it to `observer`.
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

    /// Drops `packet` while dequeuing: counts it and hands it to `observer`.
    #[cold]
    pub fn drop_dequeue(
        &mut self,
        now: Time,
        packet: Packet<P>,
        reason: DropReason,
        observer: &mut dyn Observer<P>,
    ) {
        self.stats.dropped_dequeue.add(packet.meta.len);
        observer.dropped(now, packet, reason);
    }

    /// Counts a mark of `packet`, and reports it to `observer`.
    #[cold]
    pub fn marked(
        &mut self,
        now: Time,
        packet: &Packet<P>,
        reason: MarkReason,
        observer: &mut dyn Observer<P>,
    ) {
        self.stats.marked += 1;
        observer.marked(now, packet, reason);
    }

    /// Returns the oldest packet's header.
    #[inline]
    pub fn head(&self) -> Option<&Meta> {
        self.packets.front().map(|packet| &packet.meta)
    }

    /// Takes the oldest packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet<P>> {
        self.bytes -= u64::from(self.head()?.len);
        self.packets.pop_front()
    }

    /// Returns the packets and bytes that are stored.
    #[inline]
    pub fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u32, bytes: self.bytes }
    }
}
