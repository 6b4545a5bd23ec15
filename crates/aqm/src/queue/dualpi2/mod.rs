//! DualPI2, the dual queue coupled AQM of L4S (RFC 9332 appendix A), in two profiles.
//!
//! # Principle
//! Packets marked ECT(1) or CE go to a low latency queue (L), all others to a classic one (C). A PI
//! controller keeps the delay of C at its target by a base probability `p`. Classic packets are
//! dropped (ECT(0) packets are marked) with `p * p`, because the rate of classic congestion control
//! is proportional to the inverse square root of that. L packets are marked with `k * p`, so that a
//! scalable flow gets about the rate of a classic one of the same round trip. In addition L has its
//! own AQM at about a millisecond; the higher of the two probabilities counts. L has priority,
//! except for a share reserved for C. From `k * p >= 1` on all L packets are marked, so L drops
//! with `p * p`, too.
//!
//! # Profiles
//! | point | `rfc` | `linux` |
//! |---|---|---|
//! | source | RFC 9332 appendix A | `sch_dualpi2.c` (6.17) |
//! | target, update | 15 ms, 15 ms | 15 ms, 16 ms |
//! | gains (alpha, beta) | 0.15, 3 Hz | 41/256, 819/256 Hz, in steps of 64 ns |
//! | L's own AQM | ramp from 0.8 to 1.2 ms at dequeue, if more than one packet was queued | step at 1 ms |
//! | signals | spread evenly (`recur`) | at random; for C two draws at `p` |
//! | no AQM | - | while less than two MTU are stored |
//! | share of C | 1/16 | 10 % |
//! | C ignores ECT | from `p * p` = 1/k^2 on | from `k * p` above one on |
//! | limit | 250 ms at the link's rate, and room for one MTU | 10000 packets |
//! | keys of its own | - | `tc`'s: `drop`, `overload`, `step-packets`, `max-rtt`, ... |
//!
//! Not implemented: filters that put other traffic into L (Linux has none by default), and
//! `split_gso`, because packets arrive one by one.
//!
//! # Divergences
//! * `rfc`: the scheduler is weighted by a credit as in Linux; appendix A does not define one.
//!   "More than one packet" includes the packet that leaves. `p` is limited to 0 to 1. Overload
//!   marks every L packet that is not dropped: figure 8 draws from the same counter again with `k *
//!   p`, which above one would let that counter grow without bound.
//! * `linux`: memory is counted in packet lengths, not in kernel buffers (`truesize`), and has no
//!   separate limit by default; packets within the MTU cannot reach the kernel's, two MTU for each
//!   packet of `limit`. With `typical-rtt` or `max-rtt`, the parameters that follow from them
//!   cannot be given; `tc` prefers the round trips and warns.
//! * `linux`: the kernel resets the scheduler when it finds both queues empty; here the next
//!   arrival does so. The kernel's step of `p` has 32 bits and wraps when the delay changes by more
//!   than 312 ms from one update to the next, as after an outage; so does this one.
//!
//! # Validation
//! Tests check probabilities against hand-computed updates, ramp and step at their edges, shares of
//! the scheduler, and overload; in virtual time, Prague beside Reno and CUBIC
//! (`docs/contributing/queues.md`).

mod linux;
mod params;
mod rfc;

use crate::config::from_values;
use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::queue::control::UpdateTimer;
use crate::queue::store::dual::{Credit, Pair};
use crate::queue::store::{Limit, Ring};
use crate::service_flow::Side;
use crate::time::{Span, Time};

pub use linux::{DropAt, DualPi2Linux, LowLatencyEcn, Overload, Step};
pub(crate) use params::{DEFINITION, configure};
pub use params::{DualPi2Config, DualPi2Profile};
pub use rfc::DualPi2Rfc;

use params::{
    ALPHA, BETA, COUPLING, Control, DROP, ECN, L4S_RANGE, L4S_THRESHOLD, LIMIT, MEMORY, MIN_QUEUE,
    MTU, OVERLOAD, TARGET, TUPDATE,
};

/// The controller, in which the profiles differ.
pub trait Controller {
    /// Makes the periodic update, with the waiting time of the older head. Returns whether further
    /// updates with growing delays would change nothing but the remembered delay.
    fn update(&mut self, delay: Span) -> bool;

    /// Returns the queue of packets with that codepoint.
    fn side_of(&self, ecn: Ecn) -> Side {
        side_of(ecn)
    }

    /// Judges an arrival that is within the limits. `stored` is the backlog without it, with
    /// `low_latency_packets` in L.
    fn judge_arrival(
        &mut self,
        _side: Side,
        _meta: &Meta,
        _low_latency_packets: u32,
        _stored: Backlog,
    ) -> Decision {
        Decision::Pass
    }

    /// Judges a packet that leaves the low latency queue at `now`. `stored` is the backlog of both
    /// queues behind it; `queued` counts the packets of L, this one included.
    fn judge_low_latency(
        &mut self,
        now: Time,
        meta: &Meta,
        queued: u32,
        stored: Backlog,
    ) -> Decision;

    /// Judges a packet that leaves the classic queue.
    fn judge_classic(&mut self, meta: &Meta, stored: Backlog) -> Decision;

    /// Whether a packet of `len` bytes is within the limits.
    fn admits(&self, stored: Backlog, len: u32) -> bool;

    /// Returns the base probability, 0 to 1.
    fn probability(&self) -> f64;
}

/// A controller's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send the packet unchanged.
    Pass,
    /// Mark the packet if it is ECN-capable, else send it unchanged.
    Mark(MarkReason),
    /// Mark the packet if it is ECN-capable, else drop it.
    Signal,
    /// Drop the packet, even if it is ECN-capable.
    Drop,
}

from_values! {
    /// Parameters of [`DualPi2Rfc`], by the names of RFC 9332 appendix A.
    #[derive(Clone, Debug)]
    pub struct DualPi2RfcConfig(values, limit_bytes: u64) {
        /// The target delay of the classic queue (`target`).
        pub target: Span = values.get(TARGET),
        /// Time between updates of the base probability (`Tupdate`); not zero.
        pub update_interval: Span = values.get(TUPDATE),
        /// Weight of the delay's distance from its target, in millionths of a hertz.
        pub alpha_microhertz: u64 = values.get(ALPHA),
        /// Weight of the delay's change, in millionths of a hertz.
        pub beta_microhertz: u64 = values.get(BETA),
        /// Coupling factor (`k`), in millionths.
        pub coupling_millionths: u64 = values.get(COUPLING),
        /// Sojourn at which the ramp of the low latency queue starts (`minTh`).
        pub ramp_start: Span = values.get(L4S_THRESHOLD),
        /// Length of the ramp (`range`); zero is a step.
        pub ramp_range: Span = values.get(L4S_RANGE),
        /// The limit of both queues together (`limit`).
        pub limit_bytes: u64 = limit_bytes,
        /// The free space that an arrival requires (`MTU`).
        pub mtu_bytes: u32 = values.get(MTU) as u32,
    }
}

from_values! {
    /// Parameters of [`DualPi2Linux`], in the units of `sch_dualpi2.c`.
    #[derive(Clone, Debug)]
    pub struct DualPi2LinuxConfig(values, control: &Control, step: Step) {
        /// The target delay of the classic queue.
        pub target: Span = control.target,
        /// Time between updates of the base probability; not zero.
        pub update_interval: Span = control.update_interval,
        /// Weight of the delay's distance from its target, in 1/256 Hz.
        pub alpha_256ths: u32 = control.alpha_256ths,
        /// Weight of the delay's change, in 1/256 Hz.
        pub beta_256ths: u32 = control.beta_256ths,
        /// Coupling factor `k`, a whole number.
        pub coupling: u8 = (values.get(COUPLING) / 1_000_000) as u8,
        /// The step above which the low latency queue marks natively (`step_thresh`).
        pub step: Step = step,
        /// The step marks no packet that found fewer in the low latency queue (`min_qlen_step`).
        pub step_min_packets: u32 = values.get(MIN_QUEUE),
        /// When the coupled AQM judges a packet (`drop_early`).
        pub drop: DropAt = values.get(DROP),
        /// The action of the low latency queue if `k * p` would exceed one (`drop_overload`).
        pub overload: Overload = values.get(OVERLOAD),
        /// The packets that enter the low latency queue (`ecn_mask`).
        pub ecn: LowLatencyEcn = values.get(ECN),
        /// The limit of both queues together.
        pub limit: Limit = values.get(LIMIT).map_or(Limit::packets(10_000), Limit::from),
        /// The limit of both queues in bytes, besides `limit` (`memory_limit`); `None` for none.
        pub memory_bytes: Option<u64> = values.get(MEMORY),
        /// The coupled AQM sends no signal while less than two of these are stored.
        pub mtu_bytes: u32 = values.get(MTU) as u32,
    }
}

/// DualPI2 under the controller `C`.
#[derive(Debug)]
pub struct DualPi2<C, P> {
    controller: C,
    timer: UpdateTimer,
    credit: Credit,
    pair: Pair<P>,
}

impl<C: Controller, P> DualPi2<C, P> {
    fn new(controller: C, update_interval: Span, credit: Credit) -> Self {
        let timer = UpdateTimer::new(Time::ZERO + update_interval, update_interval);
        Self { controller, timer, credit, pair: Pair::default() }
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        while let Some(due) = self.timer.take_due(now) {
            self.replay_update(due, now);
        }
    }

    #[cold]
    fn replay_update(&mut self, due: Time, now: Time) {
        if self.controller.update(self.pair.waiting_time(due))
            && let Some(last) = self.timer.skip_due(now)
        {
            self.controller.update(self.pair.waiting_time(last));
        }
    }

    /// Judges a packet that leaves. Returns it unless it is dropped.
    fn settle(
        &mut self,
        side: Side,
        now: Time,
        mut packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Option<Packet<P>> {
        let stored = self.pair.backlog();
        let decision = match side {
            Side::LowLatency => {
                let queued = self.pair.low_latency.backlog().packets + 1;
                self.controller.judge_low_latency(now, &packet.meta, queued, stored)
            }
            Side::Classic => self.controller.judge_classic(&packet.meta, stored),
        };
        if self.carry_out(decision, side, now, &mut packet, observer) {
            self.pair.side(side).drop_dequeue(now, packet, DropReason::ControlLaw, observer);
            return None;
        }
        Some(packet)
    }

    /// Marks the packet if that is the decision. Returns whether to drop it.
    #[inline]
    fn carry_out(
        &mut self,
        decision: Decision,
        side: Side,
        now: Time,
        packet: &mut Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> bool {
        match decision {
            Decision::Pass => false,
            Decision::Mark(reason) => {
                self.pair.mark(side, now, packet, reason, observer);
                false
            }
            Decision::Signal => {
                !self.pair.mark(side, now, packet, MarkReason::ControlLaw, observer)
            }
            Decision::Drop => true,
        }
    }
}

/// Returns the queue of RFC 9332: ECT(1) and CE go to the low latency queue.
pub(crate) const fn side_of(ecn: Ecn) -> Side {
    match ecn {
        Ecn::Ect1 | Ecn::Ce => Side::LowLatency,
        Ecn::NotEct | Ecn::Ect0 => Side::Classic,
    }
}

impl<C: Controller, P> Qdisc<P> for DualPi2<C, P> {
    fn enqueue(
        &mut self,
        now: Time,
        mut packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        self.advance(now);
        let side = self.controller.side_of(packet.meta.ecn);
        let stored = self.pair.backlog();
        if stored.is_empty() {
            self.credit.reset();
        }
        if !self.controller.admits(stored, packet.meta.len) {
            return self.pair.drop_arrival(side, now, packet, DropReason::Overlimit, observer);
        }
        let in_low_latency = self.pair.low_latency.backlog().packets;
        let decision = self.controller.judge_arrival(side, &packet.meta, in_low_latency, stored);
        if self.carry_out(decision, side, now, &mut packet, observer) {
            return self.pair.drop_arrival(side, now, packet, DropReason::Early, observer);
        }
        self.pair.store(side, now, packet)
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        self.advance(now);
        loop {
            let waits = |ring: &Ring<P>| ring.head().is_some();
            let (l, c) = (waits(&self.pair.low_latency), waits(&self.pair.classic));
            let Some(side) = self.credit.choose(l, c) else { return Dequeue::Empty };
            let Some(packet) = self.pair.side(side).pop() else { return Dequeue::Empty };
            let Some(packet) = self.settle(side, now, packet, observer) else { continue };
            if l && c {
                self.credit.charge(side, packet.meta.len);
            }
            return Dequeue::Packet(packet);
        }
    }

    fn backlog(&self) -> Backlog {
        self.pair.backlog()
    }

    fn stats(&self) -> Stats {
        self.pair.stats()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("dualpi2.probability", self.controller.probability());
        visit("dualpi2.low_latency_bytes", self.pair.low_latency.backlog().bytes as f64);
        visit("dualpi2.classic_bytes", self.pair.classic.backlog().bytes as f64);
    }
}

#[cfg(test)]
mod decision_tests;
#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;
    use crate::config::LinkFacts;
    use crate::registry::QueueSetup;
    use crate::rng::Rng;

    /// The facts about packets that a queue reported, by their payload.
    #[derive(Default)]
    struct Recorder(Vec<(u64, u32, String)>);

    impl Observer<u32> for Recorder {
        fn dropped(&mut self, now: Time, packet: Packet<u32>, reason: DropReason) {
            let what = alloc::format!("dropped {reason:?}");
            self.0.push((now.as_millis(), packet.payload, what));
        }

        fn marked(&mut self, now: Time, packet: &Packet<u32>, reason: MarkReason) {
            let what = alloc::format!("marked {reason:?}");
            self.0.push((now.as_millis(), packet.payload, what));
        }
    }

    /// Three packets of each codepoint arrive every millisecond, and two leave, so the queue grows.
    fn overloaded(keys: &str) -> (Stats, Recorder, Vec<(u32, Ecn)>) {
        let text = alloc::format!("dualpi2:profile=linux,{keys}");
        let setup = QueueSetup::parse(&text, &LinkFacts::default()).expect("a queue");
        let mut queue = setup.build::<u32>(&Rng::new(1));
        let (mut told, mut left) = (Recorder::default(), Vec::new());
        for ms in 0..2_000_u32 {
            let now = Time::from_millis(u64::from(ms));
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1] {
                let meta = Meta { ecn, ..Meta::new(1_500, u32::from(ecn.bits())) };
                let packet = Packet { meta, payload: 4 * ms + u32::from(ecn.bits()) };
                let _ = queue.enqueue(now, packet, &mut told);
            }
            for _ in 0..2 {
                if let Dequeue::Packet(packet) = queue.dequeue(now, &mut told) {
                    left.push((packet.payload, packet.meta.ecn));
                }
            }
        }
        (queue.stats(), told, left)
    }

    #[test]
    fn early_drops_happen_before_the_packet_is_stored() {
        let (stats, told, left) = overloaded("drop=enqueue,limit=100000p");
        assert!(stats.dropped_enqueue.packets > 100, "{stats:?}");
        assert_eq!(stats.dropped_dequeue.packets, 0, "{stats:?}");
        // Packets are dropped in the millisecond in which they arrive.
        let drops = told.0.iter().filter(|(_, _, what)| what == "dropped Early");
        let drops: Vec<_> = drops.collect();
        assert_eq!(drops.len() as u64, stats.dropped_enqueue.packets);
        assert!(drops.iter().all(|(ms, payload, _)| u64::from(payload / 4) == *ms));
        // A packet that was marked on arrival leaves marked.
        let marked: Vec<u32> =
            told.0.iter().filter(|told| told.2.starts_with("marked")).map(|told| told.1).collect();
        assert!(marked.len() > 100);
        let wrong = left.iter().find(|(packet, ecn)| (*ecn == Ecn::Ce) != marked.contains(packet));
        assert_eq!(wrong, None);
        let (late, ..) = overloaded("limit=100000p");
        assert_eq!(late.dropped_enqueue.packets, 0, "{late:?}");
        assert!(late.dropped_dequeue.packets > 100);
    }

    #[test]
    fn an_overflowing_queue_loses_marked_packets_to_its_limit_alone() {
        let lost = |keys: &str| {
            let (_, told, _) = overloaded(keys);
            let of = |reason: &str| {
                let dropped =
                    |told: &&(u64, u32, String)| told.2 == reason && !told.1.is_multiple_of(4);
                told.0.iter().filter(dropped).count()
            };
            (of("dropped ControlLaw"), of("dropped Overlimit"))
        };
        let (by_law, _) = lost("limit=200p");
        assert!(by_law > 100, "{by_law}");
        let (by_law, by_limit) = lost("limit=200p,overload=overflow");
        assert_eq!(by_law, 0);
        assert!(by_limit > 100, "{by_limit}");
        let (_, by_memory) = lost("memory=300000B,overload=overflow");
        assert!(by_memory > 100, "the same 200 packets in bytes: {by_memory}");
    }
}
