//! A first-in first-out queue with an AQM and a limit: FIFO, head-drop, CoDel, PIE, RED, BoDe.

use crate::aqm::{Aqm, Marking, Store, Verdict, mark_if_capable};
use crate::config::PacketsOrBytes;
use crate::packet::{Meta, Packet};
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::queue::store::Ring;
use crate::time::Time;

/// The limits of a queue; an arrival that would exceed either overflows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets of any size.
    pub packets: u32,
    /// Bytes as the link charges them.
    pub bytes: u64,
}

impl Limit {
    /// Returns a limit of `packets` packets of any size.
    pub const fn packets(packets: u32) -> Self {
        Self { packets, bytes: u64::MAX }
    }

    /// Returns a limit of `bytes` bytes in any number of packets.
    pub const fn bytes(bytes: u64) -> Self {
        Self { packets: u32::MAX, bytes }
    }

    /// Whether a packet of `len` bytes fits beside `backlog`.
    pub const fn admits(self, backlog: Backlog, len: u32) -> bool {
        backlog.packets < self.packets && backlog.bytes + len as u64 <= self.bytes
    }

    /// Whether `backlog` is within both limits.
    pub const fn holds(self, backlog: Backlog) -> bool {
        backlog.packets <= self.packets && backlog.bytes <= self.bytes
    }
}

impl From<PacketsOrBytes> for Limit {
    fn from(limit: PacketsOrBytes) -> Self {
        match limit {
            PacketsOrBytes::Packets(packets) => Self::packets(packets),
            PacketsOrBytes::Bytes(bytes) => Self::bytes(bytes),
        }
    }
}

/// The packet that is dropped when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The arrival is dropped.
    #[default]
    Tail,
    /// Drops as many of the oldest packets as necessary. An arrival larger than the byte limit
    /// empties the queue and is dropped itself (as Mahimahi's `drophead` does).
    Head,
}

/// No AQM: the queue only overflows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAqm;

impl Aqm for NoAqm {}

/// A queue under the AQM `A`.
#[derive(Debug)]
pub struct Single<A, P> {
    aqm: A,
    limit: Limit,
    overflow: Overflow,
    ring: Ring<P>,
}

impl<A: Aqm, P> Single<A, P> {
    /// Returns an empty queue.
    pub fn new(aqm: A, limit: Limit, overflow: Overflow) -> Self {
        Self { aqm, limit, overflow, ring: Ring::default() }
    }

    /// Returns the AQM, for its state.
    pub const fn aqm(&self) -> &A {
        &self.aqm
    }

    /// Drops an arrival that exceeds a limit.
    #[cold]
    fn refuse(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        self.aqm.on_refused(now, &packet.meta, self.ring.backlog());
        self.ring.drop_enqueue(now, packet, DropReason::Overlimit, observer);
        Admit::Refused
    }

    /// Drops packets to meet the limits after a stored arrival. Returns whether it stays.
    #[inline(never)]
    fn drop_from_head(&mut self, now: Time, len: u32, observer: &mut dyn Observer<P>) -> Admit {
        let mut victims = 0;
        while !self.limit.holds(self.ring.backlog()) {
            let Some(victim) = self.ring.pop() else { break };
            self.ring.drop_enqueue(now, victim, DropReason::OverlimitHead, observer);
            victims += 1;
        }
        if victims > 0 {
            self.aqm.on_overlimit(now, victims);
        }
        // An arrival is its own victim only if it is larger than the whole queue.
        if u64::from(len) > self.limit.bytes { Admit::Refused } else { Admit::Queued }
    }

    /// Marks or drops an arrival as the AQM decided.
    #[cold]
    fn signal_arrival(
        &mut self,
        now: Time,
        verdict: Verdict,
        mut packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        let marking = match verdict {
            Verdict::Pass => Marking::AlreadyCe,
            Verdict::Signal => mark_if_capable(&mut packet.meta),
            Verdict::Drop => Marking::NotCapable,
        };
        match marking {
            Marking::NotCapable => {
                self.ring.drop_enqueue(now, packet, DropReason::Early, observer);
                return Admit::Refused;
            }
            Marking::Marked => self.ring.marked(now, &packet, MarkReason::Early, observer),
            Marking::AlreadyCe => {}
        }
        self.store(now, packet, observer)
    }

    #[inline]
    fn store(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        let len = packet.meta.len;
        self.ring.push(now, packet);
        match self.overflow {
            Overflow::Tail => Admit::Queued,
            Overflow::Head => self.drop_from_head(now, len, observer),
        }
    }
}

impl<A: Aqm, P> Qdisc<P> for Single<A, P> {
    #[inline]
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        let len = packet.meta.len;
        self.ring.offer(len);
        let backlog = self.ring.backlog();
        if self.overflow == Overflow::Tail && !self.limit.admits(backlog, len) {
            return self.refuse(now, packet, observer);
        }
        match self.aqm.on_enqueue(now, &packet.meta, backlog) {
            Verdict::Pass => self.store(now, packet, observer),
            verdict => self.signal_arrival(now, verdict, packet, observer),
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        let packet = self.aqm.dequeue(now, &mut Serving { ring: &mut self.ring, now, observer });
        packet.map_or(Dequeue::Empty, Dequeue::Packet)
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.ring.backlog()
    }

    fn stats(&self) -> Stats {
        Stats { slept: self.aqm.slept(), ..self.ring.stats() }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.aqm.gauges(visit);
    }

    #[inline]
    fn head_bytes(&self) -> Option<u32> {
        self.ring.head().map(|head| head.len)
    }
}

/// The queue while its AQM dequeues.
struct Serving<'a, P> {
    ring: &'a mut Ring<P>,
    now: Time,
    observer: &'a mut dyn Observer<P>,
}

impl<P> Store<P> for Serving<'_, P> {
    #[inline]
    fn head(&self) -> Option<&Meta> {
        self.ring.head()
    }

    #[inline]
    fn pop(&mut self) -> Option<Packet<P>> {
        self.ring.pop()
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.ring.backlog()
    }

    fn drop(&mut self, packet: Packet<P>, reason: DropReason) {
        self.ring.drop_dequeue(self.now, packet, reason, self.observer);
    }

    fn marked(&mut self, packet: &Packet<P>, reason: MarkReason) {
        self.ring.marked(self.now, packet, reason, self.observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    struct Losses(Vec<u32>);

    impl Observer<u32> for Losses {
        fn dropped(&mut self, _now: Time, packet: Packet<u32>, _reason: DropReason) {
            self.0.push(packet.payload);
        }
    }

    fn offer(overflow: Overflow, limit: Limit, sizes: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut queue = Single::new(NoAqm, limit, overflow);
        let mut losses = Losses(Vec::new());
        for (id, &len) in sizes.iter().enumerate() {
            let packet = Packet { meta: Meta::new(len, 0), payload: id as u32 };
            queue.enqueue(Time::ZERO, packet, &mut losses);
        }
        let mut kept = Vec::new();
        while let Dequeue::Packet(packet) = queue.dequeue(Time::ZERO, &mut losses) {
            kept.push(packet.payload);
        }
        (kept, losses.0)
    }

    #[test]
    fn tail_drop_keeps_the_first_and_fills_to_the_byte() {
        let (kept, lost) = offer(Overflow::Tail, Limit::bytes(2_000), &[1_500, 600, 500, 1]);
        assert_eq!((kept.as_slice(), lost.as_slice()), (&[0, 2][..], &[1, 3][..]));
    }

    #[test]
    fn head_drop_keeps_the_last() {
        let (kept, lost) = offer(Overflow::Head, Limit::packets(2), &[100, 100, 100, 100]);
        assert_eq!((kept.as_slice(), lost.as_slice()), (&[2, 3][..], &[0, 1][..]));
    }

    #[test]
    fn head_drop_of_an_oversized_arrival_empties_the_queue() {
        let (kept, lost) = offer(Overflow::Head, Limit::bytes(1_000), &[400, 400, 1_001]);
        assert_eq!((kept.as_slice(), lost.as_slice()), (&[][..], &[0, 1, 2][..]));
    }
}
