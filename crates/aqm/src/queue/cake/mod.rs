//! CAKE, Common Applications Kept Enhanced (Høiland-Jørgensen, Täht and Morton, arXiv 1804.07617;
//! Linux `sch_cake`): one discipline in place of a shaper, classes, a fair queue and an AQM.
//!
//! # Principle
//! A packet goes to a *tin* by its codepoint (`tins`), and there to the queue of its flow. The
//! queues of a tin take turns by DRR++, sparse flows first (`tin`). A host with several bulk flows
//! gets shorter turns, so that hosts get equal shares before flows do. The queue of a flow and the
//! entry of a host are found by eight-way set-associative hashing (`ways`), which makes collisions
//! rare. Each flow has a `cobalt`, which is CoDel and BLUE together. If memory runs out, packets
//! are dropped from the head of the longest queue (`longest`).
//!
//! With `rate`, a `shaper` without bursts determines when the next packet may leave, and tins
//! within their share of the rate precede the others. Without `rate`, the link behind the queue
//! sets the pace, and the tins take turns by weight.
//!
//! # Profile
//! `linux` is the behaviour of Linux 6.12, packet by packet. COBALT has two properties of the
//! kernel's code that its description does not require; see `cobalt`.
//!
//! # Divergences from Linux
//! * Flow and hosts are `meta.flow`, `meta.src` and `meta.dst`, not Jenkins hashes of addresses:
//!   callers who number their flows get no collisions below 1024.
//! * Memory is counted in packet lengths, with at least 64 bytes per packet, not in kernel buffers.
//! * Not implemented: the ACK filter (disciplines do not see TCP headers), `wash` (disciplines
//!   change only the ECN field), `autorate-ingress`, `nat`, `fwmark`, filters, negative overheads.
//!   Super-packets are not split here; the emulator cuts them before.
//!
//! # How it is validated
//! Tests compare each packet with Linux's own code (`tests/vectors.rs`), apply the laws, and
//! compare figures with the kernel's (`underload run kernel/20mbit`). See `docs/queues/cake.md`.

mod cobalt;
mod config;
mod longest;
mod params;
mod rotation;
mod shaper;
mod tin;
mod tins;
mod ways;

use alloc::vec::Vec;

use crate::aqm::{Marking, mark_if_capable};
use crate::packet::{Ecn, Packet};
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::queue::store::fair::slab::Slab;
use crate::rng::Rng;
use crate::time::Time;

pub use config::Isolation;
pub use params::CakeConfig;
pub(crate) use params::{DEFINITION, configure};
pub use shaper::{Framing, Overhead};
pub use tins::Tins;

use longest::Longest;
use shaper::{Pace, Shaper, bytes_per_second};
use tin::{Tin, law_of};
use ways::QUEUES;

/// The number of tins for whose queues the index has space.
const MAX_TINS: usize = 8;

/// The least memory that a packet counts, so that empty packets are bounded, too.
const LEAST_FOOTPRINT_BYTES: u32 = 64;

/// The CAKE queue discipline.
#[derive(Debug)]
pub struct Cake<P> {
    config: CakeConfig,
    tins: Vec<Tin>,
    shaper: Option<Shaper>,
    current: usize,
    longest: Longest,
    slab: Slab<P>,
    memory_bytes: u64,
    backlog: Backlog,
    /// All counters except `sent`, which is computed from the others.
    stats: Stats,
    rng: Rng,
}

/// A flow by its tin and its queue in the tin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    tin: usize,
    queue: usize,
}

impl Place {
    /// Returns the number of the queue among the queues of all tins.
    const fn number(self) -> usize {
        self.queue * MAX_TINS + self.tin
    }

    const fn of_number(number: usize) -> Self {
        Self { tin: number % MAX_TINS, queue: number / MAX_TINS }
    }
}

/// The outcome of a flow's turn.
enum Turn<P> {
    Sends(Packet<P>),
    /// The flow had no packet left.
    Ended,
    /// The flow was charged for a dropped packet, so its turn may be over.
    Charged,
}

impl<P> Cake<P> {
    /// Returns an empty queue that draws from `rng`.
    pub fn new(config: CakeConfig, rng: &Rng) -> Self {
        let rate = config.rate.map_or(0, bytes_per_second);
        let tin = |index| {
            let share = config.tins.share(index, rate);
            let law = law_of(share.rate, config.mtu_bytes, config.target(), config.rtt);
            Tin::new(share, law, config.isolation)
        };
        Self {
            tins: (0..config.tins.count()).map(tin).collect(),
            shaper: config.rate.map(|rate| Shaper::new(Pace::new(bytes_per_second(rate)))),
            current: 0,
            longest: Longest::new(QUEUES * MAX_TINS),
            slab: Slab::new(),
            memory_bytes: 0,
            backlog: Backlog::default(),
            stats: Stats::default(),
            rng: rng.child("cake"),
            config,
        }
    }

    fn footprint(len: u32) -> u64 {
        u64::from(len.max(LEAST_FOOTPRINT_BYTES))
    }

    /// Ends the idleness of an empty tin, and of the shaper if all of them are empty.
    #[inline]
    fn wake(&mut self, now: Time, tin: usize) {
        if self.tins[tin].packets > 0 {
            return;
        }
        self.tins[tin].schedule.wake(now);
        if self.backlog.is_empty()
            && let Some(shaper) = &mut self.shaper
        {
            shaper.wake(now);
        }
    }

    fn store(&mut self, now: Time, place: Place, packet: Packet<P>) -> u32 {
        let len = packet.meta.len;
        let tin = &mut self.tins[place.tin];
        let node = tin.flows[place.queue].chain.push(now, packet, &mut self.slab);
        tin.packets += 1;
        self.backlog.add(len);
        self.memory_bytes += Self::footprint(len);
        self.longest.add(place.number(), len);
        node
    }

    /// Removes and returns the oldest packet of a queue.
    fn pop(&mut self, place: Place) -> Option<Packet<P>> {
        let tin = &mut self.tins[place.tin];
        let packet = tin.flows[place.queue].chain.pop(&mut self.slab)?;
        let len = packet.meta.len;
        tin.packets -= 1;
        self.backlog.remove(len);
        self.memory_bytes -= Self::footprint(len);
        self.longest.remove(place.number(), len);
        Some(packet)
    }

    /// Drops packets until the memory limit is met. Returns whether node `arrival` was dropped.
    #[cold]
    fn drop_overflow(&mut self, now: Time, arrival: u32, observer: &mut dyn Observer<P>) -> bool {
        let mut hit_arrival = false;
        while self.memory_bytes > self.config.memory_bytes {
            let place = self.longest_queue();
            let tin = &mut self.tins[place.tin];
            let flow = &mut tin.flows[place.queue];
            hit_arrival |= flow.chain.head() == Some(arrival);
            let blue = flow.cobalt.on_overflow(now, &tin.law);
            tin.count_blue(blue);
            let Some(victim) = self.pop(place) else { break };
            if self.config.ingress {
                let charged = self.config.overhead.charged(victim.meta.len);
                self.charge_time(now, place.tin, charged, false);
            }
            self.stats.dropped_enqueue.add(victim.meta.len);
            observer.dropped(now, victim, DropReason::OverlimitFattest);
        }
        hit_arrival
    }

    /// Returns the queue to drop from. If the index names an empty queue, it is rebuilt. If all
    /// packets are empty, any queue with a packet is returned.
    fn longest_queue(&mut self) -> Place {
        for _ in 0..2 {
            let place = Place::of_number(self.longest.find());
            if self.holds(place) {
                return place;
            }
            self.longest.neglect();
        }
        let mut places = (0..QUEUES * MAX_TINS).map(Place::of_number);
        places.find(|place| self.holds(*place)).unwrap_or(Place { tin: 0, queue: 0 })
    }

    fn holds(&self, place: Place) -> bool {
        let tin = self.tins.get(place.tin);
        tin.is_some_and(|tin| tin.flows[place.queue].chain.packets() > 0)
    }

    /// Advances the shaper and a tin's schedule by a packet.
    #[inline]
    fn charge_time(&mut self, now: Time, tin: usize, charged: u32, was_sent: bool) {
        if let Some(shaper) = &mut self.shaper {
            self.tins[tin].schedule.advance(now, charged);
            shaper.charge(charged, was_sent);
        }
    }

    /// Returns the tin whose turn it is, if any has a packet.
    #[inline]
    fn choose_tin(&mut self, now: Time) -> Option<usize> {
        if self.shaper.is_some() {
            return self.most_urgent_tin(now);
        }
        if !self.tins.iter().any(Tin::is_active) {
            return None;
        }
        loop {
            let tin = &mut self.tins[self.current];
            if tin.is_active() && tin.schedule.deficit >= 0 {
                return Some(self.current);
            }
            if tin.schedule.deficit <= 0 {
                tin.schedule.deficit += i64::from(tin.schedule.weight);
            }
            self.current = (self.current + 1) % self.tins.len();
        }
    }

    /// Returns the highest tin within its rate, or the first that will be within its rate again.
    fn most_urgent_tin(&mut self, now: Time) -> Option<usize> {
        let mut best = None;
        for (index, tin) in self.tins.iter().enumerate().filter(|(_, tin)| tin.is_active()) {
            let wait = tin.schedule.next.since(now);
            if best.is_none_or(|(_, least)| wait <= least) {
                best = Some((index, wait));
            }
        }
        self.current = best?.0;
        Some(self.current)
    }

    /// Serves a tin until a packet leaves. Returns `None` if a flow was found empty: then a tin is
    /// chosen again. Only the first flow of a whole dequeue may be a decaying one.
    fn serve(
        &mut self,
        now: Time,
        tin: usize,
        may_decay: &mut bool,
        observer: &mut dyn Observer<P>,
    ) -> Option<Packet<P>> {
        loop {
            let may_decay = core::mem::take(may_decay);
            let queue = self.tins[tin].next_flow(may_decay, &mut self.rng)?;
            match self.take(now, Place { tin, queue }, observer) {
                Turn::Sends(packet) => return Some(packet),
                Turn::Ended => {
                    self.tins[tin].retire(now, queue);
                    return None;
                }
                Turn::Charged => {}
            }
        }
    }

    /// Removes and returns a packet of a flow that COBALT does not drop.
    fn take(&mut self, now: Time, place: Place, observer: &mut dyn Observer<P>) -> Turn<P> {
        while let Some(mut packet) = self.pop(place) {
            let tin = &mut self.tins[place.tin];
            let turns = if self.config.ingress { tin.bulk_flows } else { 0 };
            let flow = &mut tin.flows[place.queue];
            let sojourn = now.since(packet.meta.arrived);
            let is_capable = packet.meta.ecn != Ecn::NotEct;
            let rng = &mut self.rng;
            let judgement = flow.cobalt.judge(now, sojourn, is_capable, turns, &tin.law, rng);
            let charged = self.config.overhead.charged(packet.meta.len);
            if judgement.drop && flow.chain.packets() > 0 {
                self.stats.dropped_dequeue.add(packet.meta.len);
                observer.dropped(now, packet, DropReason::ControlLaw);
                if !self.config.ingress {
                    continue;
                }
                tin.charge(place.queue, charged);
                self.charge_time(now, place.tin, charged, false);
                return Turn::Charged;
            }
            if judgement.mark && mark_if_capable(&mut packet.meta) == Marking::Marked {
                self.stats.marked += 1;
                observer.marked(now, &packet, MarkReason::ControlLaw);
            }
            tin.charge(place.queue, charged);
            self.charge_time(now, place.tin, charged, true);
            self.longest.on_sent();
            return Turn::Sends(packet);
        }
        Turn::Ended
    }
}

impl<P> Qdisc<P> for Cake<P> {
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        self.stats.offered.add(packet.meta.len);
        let tin = self.config.tins.tin(packet.meta.dscp.value());
        let place = Place { tin, queue: self.tins[tin].flow_of(&packet.meta) };
        self.wake(now, tin);
        let node = self.store(now, place, packet);
        self.tins[tin].wake(place.queue, &mut self.rng);
        let is_overfull = self.memory_bytes > self.config.memory_bytes;
        if is_overfull && self.drop_overflow(now, node, observer) {
            return Admit::Refused;
        }
        Admit::Queued
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        let mut may_decay = true;
        while !self.backlog.is_empty() {
            if let Some(time) = self.shaper.as_ref().and_then(|shaper| shaper.wait(now)) {
                return Dequeue::NotBefore(time);
            }
            let Some(tin) = self.choose_tin(now) else { break };
            if let Some(packet) = self.serve(now, tin, &mut may_decay, observer) {
                return Dequeue::Packet(packet);
            }
        }
        Dequeue::Empty
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn stats(&self) -> Stats {
        self.stats.with_sent(self.backlog)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let sum = |count: fn(&Tin) -> u32| f64::from(self.tins.iter().map(count).sum::<u32>());
        visit("cake.bulk_flows", sum(|tin| tin.bulk_flows));
        visit("cake.sparse_flows", sum(|tin| tin.sparse_flows));
        visit("cake.unresponsive_flows", sum(|tin| tin.unresponsive_flows));
        visit("cake.memory_bytes", self.memory_bytes as f64);
    }
}

#[cfg(test)]
mod tests;
