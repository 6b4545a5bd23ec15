//! The two stores of a dual queue.

use crate::aqm::{Marking, mark_if_capable};
use crate::packet::Packet;
use crate::qdisc::{Admit, Backlog, DropReason, MarkReason, Observer, Stats};
use crate::queue::store::Ring;
use crate::service_flow::Side;
use crate::time::{Span, Time};

/// The low latency and the classic store.
#[derive(Debug)]
pub(crate) struct Pair<P> {
    pub low_latency: Ring<P>,
    pub classic: Ring<P>,
}

impl<P> Default for Pair<P> {
    fn default() -> Self {
        Self { low_latency: Ring::default(), classic: Ring::default() }
    }
}

impl<P> Pair<P> {
    pub const fn side(&mut self, side: Side) -> &mut Ring<P> {
        match side {
            Side::LowLatency => &mut self.low_latency,
            Side::Classic => &mut self.classic,
        }
    }

    pub fn backlog(&self) -> Backlog {
        self.low_latency.backlog() + self.classic.backlog()
    }

    pub fn stats(&self) -> Stats {
        self.low_latency.stats() + self.classic.stats()
    }

    /// Returns how long the older of the two heads has waited at `now`; zero if both queues are
    /// empty.
    pub fn waiting_time(&self, now: Time) -> Span {
        let wait = |ring: &Ring<P>| ring.head().map_or(Span::ZERO, |head| now.since(head.arrived));
        wait(&self.low_latency).max(wait(&self.classic))
    }

    /// Drops an arrival of `side` before it was stored.
    #[cold]
    pub fn drop_arrival(
        &mut self,
        side: Side,
        now: Time,
        packet: Packet<P>,
        reason: DropReason,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        let ring = self.side(side);
        ring.offer(packet.meta.len);
        ring.drop_enqueue(now, packet, reason, observer);
        Admit::Refused
    }

    /// Stores an arrival of `side`.
    pub fn store(&mut self, side: Side, now: Time, packet: Packet<P>) -> Admit {
        let ring = self.side(side);
        ring.offer(packet.meta.len);
        ring.push(now, packet);
        Admit::Queued
    }

    /// Marks `packet` of `side` if it is ECN-capable, and returns whether it is.
    pub fn mark(
        &mut self,
        side: Side,
        now: Time,
        packet: &mut Packet<P>,
        reason: MarkReason,
        observer: &mut dyn Observer<P>,
    ) -> bool {
        match mark_if_capable(&mut packet.meta) {
            Marking::NotCapable => false,
            Marking::AlreadyCe => true,
            Marking::Marked => {
                self.side(side).marked(now, packet, reason, observer);
                true
            }
        }
    }
}
