//! A fair queue: one AQM per flow and a deficit round robin that serves new flows first
//! (RFC 8290 section 4). FQ-CoDel is `Fair<codel::Linux, P>`.
//!
//! # Principle
//! Packets are hashed into flows; each flow is a queue with its own AQM. A flow that becomes active
//! joins the *new* list with a credit of one quantum of bytes; new flows are served before *old*
//! ones, so a sparse flow passes at once. A flow that has spent its credit gets another quantum and
//! moves to the end of the old list. A new flow that becomes empty passes through the old list
//! once; otherwise it could return as new for ever and starve the others. If a limit is exceeded,
//! up to half of the fattest flow's bytes are dropped, from its head (FQ-CoDel), or the arrival is
//! dropped (FQ-PIE).
//!
//! # Cost
//! Packets of all flows share one slab of nodes that grows to its high-water mark; nothing
//! allocates after that. Enqueue and dequeue are O(1) apart from the search for the fattest flow
//! on overflow (see `fattest.rs`).
//!
//! # Deviations from Linux (`sch_fq_codel.c`)
//! * The flow is `meta.flow` modulo the number of flows, not the upper bits of a hash, so that
//!   callers may simply number their flows.
//! * Memory is counted in packet lengths, not in kernel buffers (`truesize`), and it is a hard
//!   limit: batches of packets are dropped until the rest fits, where Linux drops one batch.

mod fattest;
mod list;
pub(in crate::queue) mod slab;

use alloc::vec::Vec;

use crate::aqm::{Aqm, Marking, Store, Verdict, mark_if_capable};
use crate::packet::{Meta, Packet};
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::time::Time;
use fattest::Fattest;
use list::{FlowList, Linked, UNLISTED};
use slab::{Chain, Slab};

/// The parameters of the scheduler; the AQM has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairConfig {
    /// The number of flows, at least 1.
    pub flows: u32,
    /// Maximum number of packets of all flows.
    pub limit_packets: u32,
    /// Maximum number of bytes of all flows.
    pub memory_bytes: u64,
    /// Bytes that a flow may send in each turn.
    pub quantum_bytes: u32,
    /// The packet that is dropped when the queue is full.
    pub overflow: FairOverflow,
    /// Whether a flow's turn ends at a credit of exactly zero (Linux), or only below (RFC 8290
    /// section 4.2).
    pub turn_ends_at_zero: bool,
}

/// The packets that a full fair queue drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairOverflow {
    /// Up to half the bytes of the fattest flow, from its head.
    Fattest {
        /// Maximum number of packets that one overflow drops.
        drop_batch: u32,
    },
    /// The arrival is dropped.
    Tail,
}

/// Many flows, each under its own `A`.
#[derive(Debug)]
pub struct Fair<A, P> {
    config: FairConfig,
    flows: Vec<Flow<A>>,
    new: FlowList,
    old: FlowList,
    shared: Shared<P>,
}

/// A flow; with Linux's CoDel exactly one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Flow<A> {
    aqm: A,
    chain: Chain,
    /// The next flow in the new or old list.
    next: u32,
    /// Bytes that the flow may still send in this turn.
    credit: i32,
}

impl<A> Flow<A> {
    /// Whether the flow is in the new or the old list.
    fn is_active(&self) -> bool {
        self.next != UNLISTED
    }
}

impl<A> Linked for Flow<A> {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// The packets and the counters of all flows.
#[derive(Debug)]
struct Shared<P> {
    slab: Slab<P>,
    bytes: Fattest,
    backlog: Backlog,
    stats: Stats,
}

impl<A, P> Fair<A, P> {
    /// The memory of a flow, without its packets.
    pub(crate) const BYTES_PER_FLOW: usize = size_of::<Flow<A>>();
}

impl<A: Aqm, P> Fair<A, P> {
    /// Returns an empty queue; `aqm` makes the AQM of the flow with the given number.
    pub fn new(config: FairConfig, mut aqm: impl FnMut(u32) -> A) -> Self {
        let flow = |index| Flow { aqm: aqm(index), chain: Chain::EMPTY, next: UNLISTED, credit: 0 };
        Self {
            config,
            flows: (0..config.flows).map(flow).collect(),
            new: FlowList::EMPTY,
            old: FlowList::EMPTY,
            shared: Shared {
                slab: Slab::new(),
                bytes: Fattest::new(config.flows as usize),
                backlog: Backlog::default(),
                stats: Stats::default(),
            },
        }
    }

    fn is_overfull(&self) -> bool {
        self.shared.backlog.packets > self.config.limit_packets
            || self.shared.backlog.bytes > self.config.memory_bytes
    }

    /// Whether an arrival of `len` bytes exceeds a limit.
    #[inline]
    fn refuses(&self, len: u32) -> bool {
        let backlog = self.shared.backlog;
        self.config.overflow == FairOverflow::Tail
            && (backlog.packets >= self.config.limit_packets
                || backlog.bytes + u64::from(len) > self.config.memory_bytes)
    }

    /// Drops an arrival of flow `index` that exceeds a limit.
    #[cold]
    fn refuse(
        &mut self,
        now: Time,
        index: usize,
        packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        let backlog = self.flow_backlog(index);
        self.flows[index].aqm.on_refused(now, &packet.meta, backlog);
        self.shared.stats.dropped_enqueue.add(packet.meta.len);
        observer.dropped(now, packet, DropReason::Overlimit);
        Admit::Refused
    }

    #[inline]
    fn flow_backlog(&self, index: usize) -> Backlog {
        let packets = self.flows[index].chain.packets();
        Backlog { packets, bytes: self.shared.bytes.bytes(index) }
    }

    /// Drops packets until the limits are met. Returns whether that in node `arrival` was a victim.
    #[cold]
    fn drop_overflow(&mut self, now: Time, arrival: u32, observer: &mut dyn Observer<P>) -> bool {
        let FairOverflow::Fattest { drop_batch } = self.config.overflow else { return false };
        let mut hit_arrival = false;
        while self.is_overfull() {
            hit_arrival |= self.drop_from_fattest(now, drop_batch, arrival, observer);
        }
        hit_arrival
    }

    /// Drops packets from the head of the fattest flow, up to half its bytes or a batch. Returns
    /// whether the packet in node `arrival` was among the victims.
    fn drop_from_fattest(
        &mut self,
        now: Time,
        drop_batch: u32,
        arrival: u32,
        observer: &mut dyn Observer<P>,
    ) -> bool {
        let (mut index, bytes) = self.shared.bytes.find();
        if bytes == 0 {
            // If all packets are empty, any flow with a packet counts as the fattest.
            index = self.flows.iter().position(|flow| flow.chain.packets() > 0).unwrap_or(0);
        }
        let flow = &mut self.flows[index];
        let mut victims = 0;
        let mut dropped_bytes = 0;
        let mut hit_arrival = false;
        while victims < drop_batch && (victims == 0 || dropped_bytes < bytes / 2) {
            hit_arrival |= flow.chain.head() == Some(arrival);
            let (chain, shared) = (&mut flow.chain, &mut self.shared);
            let Some(victim) = (FlowStore { chain, index, shared, now, observer }).pop() else {
                break;
            };
            dropped_bytes += u64::from(victim.meta.len);
            victims += 1;
            self.shared.stats.dropped_enqueue.add(victim.meta.len);
            observer.dropped(now, victim, DropReason::OverlimitFattest);
        }
        flow.aqm.on_overlimit(now, victims);
        hit_arrival
    }

    /// Returns the flow of a packet, without a division if the number of flows is a power of two.
    #[inline]
    fn flow_of(&self, meta: &Meta) -> usize {
        let flows = self.config.flows;
        let index =
            if flows.is_power_of_two() { meta.flow & (flows - 1) } else { meta.flow % flows };
        index as usize
    }

    /// Signals an arrival as the flow's AQM decided. Returns false if it is to be dropped.
    #[cold]
    fn signal_arrival(
        &mut self,
        now: Time,
        verdict: Verdict,
        packet: &mut Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> bool {
        let marking = match verdict {
            Verdict::Pass => Marking::AlreadyCe,
            Verdict::Signal => mark_if_capable(&mut packet.meta),
            Verdict::Drop => Marking::NotCapable,
        };
        if marking == Marking::Marked {
            self.shared.stats.marked += 1;
            observer.marked(now, packet, MarkReason::Early);
        }
        marking != Marking::NotCapable
    }

    /// Returns the flow whose turn it is, after its next quantum if it had no credit left.
    fn next_flow(&mut self) -> Option<(usize, IsNew)> {
        loop {
            let (index, is_new) = match (self.new.first(), self.old.first()) {
                (Some(index), _) => (index, IsNew::Yes),
                (None, Some(index)) => (index, IsNew::No),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index];
            if flow.credit > 0 || (flow.credit == 0 && !self.config.turn_ends_at_zero) {
                return Some((index, is_new));
            }
            flow.credit = flow.credit.saturating_add_unsigned(self.config.quantum_bytes);
            self.take_from(is_new);
            self.old.push(index, &mut self.flows);
        }
    }

    fn take_from(&mut self, list: IsNew) {
        match list {
            IsNew::Yes => self.new.pop(&mut self.flows),
            IsNew::No => self.old.pop(&mut self.flows),
        }
    }

    /// Ends the turn of a flow that has no packet.
    #[inline]
    fn retire(&mut self, index: usize, is_new: IsNew) {
        self.take_from(is_new);
        if is_new == IsNew::Yes && self.old.first().is_some() {
            self.old.push(index, &mut self.flows);
        }
    }
}

/// The list that a flow is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsNew {
    Yes,
    No,
}

impl<A: Aqm, P> Qdisc<P> for Fair<A, P> {
    #[inline]
    fn enqueue(
        &mut self,
        now: Time,
        mut packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        self.shared.stats.offered.add(packet.meta.len);
        let index = self.flow_of(&packet.meta);
        if self.refuses(packet.meta.len) {
            return self.refuse(now, index, packet, observer);
        }
        let backlog = self.flow_backlog(index);
        let verdict = self.flows[index].aqm.on_enqueue(now, &packet.meta, backlog);
        if verdict != Verdict::Pass && !self.signal_arrival(now, verdict, &mut packet, observer) {
            self.shared.stats.dropped_enqueue.add(packet.meta.len);
            observer.dropped(now, packet, DropReason::Early);
            return Admit::Refused;
        }
        self.shared.backlog.add(packet.meta.len);
        self.shared.bytes.add(index, packet.meta.len);
        let flow = &mut self.flows[index];
        let node = flow.chain.push(now, packet, &mut self.shared.slab);
        if !flow.is_active() {
            flow.credit = 0_i32.saturating_add_unsigned(self.config.quantum_bytes);
            self.new.push(index, &mut self.flows);
        }
        if self.is_overfull() && self.drop_overflow(now, node, observer) {
            return Admit::Refused;
        }
        Admit::Queued
    }

    #[inline]
    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        while let Some((index, is_new)) = self.next_flow() {
            let flow = &mut self.flows[index];
            let (chain, shared) = (&mut flow.chain, &mut self.shared);
            let mut store = FlowStore { chain, index, shared, now, observer };
            let served = flow.aqm.dequeue(now, &mut store);
            if let Some(packet) = &served {
                flow.credit = flow.credit.saturating_sub_unsigned(packet.meta.len);
                return served.map_or(Dequeue::Empty, Dequeue::Packet);
            }
            self.retire(index, is_new);
        }
        Dequeue::Empty
    }

    #[inline]
    fn backlog(&self) -> Backlog {
        self.shared.backlog
    }

    fn stats(&self) -> Stats {
        self.shared.stats.with_sent(self.shared.backlog)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let active = self.flows.iter().filter(|flow| flow.is_active()).count();
        visit("fair.active_flows", active as f64);
    }
}

/// A flow while its AQM dequeues.
struct FlowStore<'a, P> {
    chain: &'a mut Chain,
    index: usize,
    shared: &'a mut Shared<P>,
    now: Time,
    observer: &'a mut dyn Observer<P>,
}

impl<P> Store<P> for FlowStore<'_, P> {
    #[inline]
    fn head(&self) -> Option<&Meta> {
        self.shared.slab.meta(self.chain.head()?)
    }

    #[inline]
    fn pop(&mut self) -> Option<Packet<P>> {
        let len = self.head()?.len;
        self.shared.backlog.remove(len);
        self.shared.bytes.remove(self.index, len);
        self.chain.pop(&mut self.shared.slab)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.chain.packets(), bytes: self.shared.bytes.bytes(self.index) }
    }

    fn total_backlog(&self) -> Backlog {
        self.shared.backlog
    }

    fn drop(&mut self, packet: Packet<P>, reason: DropReason) {
        self.shared.stats.dropped_dequeue.add(packet.meta.len);
        self.observer.dropped(self.now, packet, reason);
    }

    fn marked(&mut self, packet: &Packet<P>, reason: MarkReason) {
        self.shared.stats.marked += 1;
        self.observer.marked(self.now, packet, reason);
    }
}

#[cfg(test)]
mod tests;
