//! Low Latency DOCSIS: the dual queue of a cable modem or CMTS (MULPIv3.1 annexes M to P).
//!
//! # Principle
//! An aggregate service flow has two queues. Packets marked ECT(1) or CE (L4S), or with the
//! non-queue-building codepoint (NQB, DSCP 45), go to the low latency queue, all others to a
//! classic one under DOCSIS-PIE. On arrival, packets of the low latency queue meet
//! * the *immediate AQM* (annex N): a ramp of marking over the queue's delay, combined with the
//!   coupled probability, which is `k` times the root of the classic one. Packets that are not
//!   ECN-capable pass unmarked;
//! * *queue protection* (annex P, RFC 9957): packets of a flow that keeps the queue long are moved
//!   to the classic queue until the flow's score has drained.
//!
//! The low latency queue has the larger weight (230 of 256), but never the whole link.
//!
//! # Parameters
//! See `underload queues docsis-lld`, or the table below. With the TLVs of a modem's file: 70.8 is
//! `rate`; 24.8 of each flow `low-latency-rate` and `classic-rate`, 24.9 their `-burst`, 24.27
//! their `-peak`; 70.42.5 is `coupling`, 42.6 `weight`, 42.7 `protection`, 42.8 `critical-delay`,
//! 42.9 `critical-score`, 42.10 `aging`; 40.2 is `target`, 40.4 `threshold`, 40.5 `range`.
//!
//! # Divergences
//! * The delay of the low latency queue is the time of its backlog, with the arrival, at the
//!   highest rate that it may have: `qdelayCoupledL` of annex O, the form for a CMTS.
//!   `delay=virtual` is the form for a modem, whose backlog waits for grants. The virtual queue
//!   accepts packets while its backlog is less than the buffer minus one frame; the real queue
//!   while its backlog is less than that plus the bytes that wait for grants.
//! * The rate of a service flow (`low-latency-rate`, `classic-rate`) is enforced here, at the
//!   queue, unless the link grants (`map`): then the grants enforce it, as in a CMTS. Here, a
//!   packet larger than the burst leaves when the bucket is full.
//! * The scheduler divides bytes by the weights. The CableLabs simulator gives the classic queue a
//!   full quantum, which results in 230 : 256; the standard's text says 230 : 26.
//!
//! # Validation
//! Tests compare thresholds, buffers and scores with the figures that the CableLabs simulator's own
//! tests assert, and check laws; for tests in virtual time see `docs/contributing/queues.md`.

mod immediate;
mod params;
mod protection;
mod rates;
mod shaper;
mod virtual_queue;

use alloc::boxed::Box;

use crate::aqm::Verdict;
use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::ServiceFlows;
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::queue::control::{ONE_Q56, Recur, UpdateTimer, q56_to_f64};
use crate::queue::docsis_pie::{Controller, MAX_PACKET_BYTES, UPDATE_INTERVAL};
use crate::queue::store::dual::{Credit, Pair};
use crate::rng::Rng;
use crate::service_flow::{Contract, Side, Waiting};
use crate::time::{Span, Time};

use immediate::Ramp;
pub use params::{CoupledWhile, DocsisLldConfig};
pub(crate) use params::{DEFINITION, configure};
use protection::Protection;
use rates::{Rates, WHOLE_WEIGHT};
use shaper::Shaper;
use virtual_queue::VirtualQueue;

/// The dual queue of Low Latency DOCSIS.
#[derive(Debug)]
pub struct DocsisLld<P> {
    config: DocsisLldConfig,
    ramp: Ramp,
    /// `None` if the delay is computed from the backlog.
    virtual_queue: Option<VirtualQueue>,
    rates: Rates,
    classic: Controller,
    timer: UpdateTimer,
    coupled_q56: u64,
    marking: Recur,
    protection: Option<Protection>,
    credit: Credit,
    /// Bits that the low latency queue sent since the last update (`interval_bitsL`).
    low_latency_bits: u64,
    /// `None` if no service flow has its own rate.
    shapers: Option<Box<Shapers>>,
    pair: Pair<P>,
}

/// The shapers of service flows with their own rates.
#[derive(Debug)]
struct Shapers {
    low_latency: Option<Shaper>,
    classic: Option<Shaper>,
}

impl Shapers {
    /// Returns `None` if neither flow has its own rate.
    fn new(config: &DocsisLldConfig) -> Option<Box<Self>> {
        let low_latency = Shaper::new(config.low_latency);
        let classic = Shaper::new(config.classic);
        let any = low_latency.is_some() || classic.is_some();
        any.then(|| Box::new(Self { low_latency, classic }))
    }

    const fn side(&mut self, side: Side) -> Option<&mut Shaper> {
        match side {
            Side::LowLatency => self.low_latency.as_mut(),
            Side::Classic => self.classic.as_mut(),
        }
    }

    /// Returns how long from `now` on the head of `side`, `len` bytes long, has to wait.
    fn wait(&mut self, side: Side, now: Time, len: u32) -> Span {
        self.side(side).map_or(Span::ZERO, |shaper| shaper.wait(now, len))
    }
}

impl<P> DocsisLld<P> {
    /// Returns an empty queue that draws from `rng`.
    pub fn new(config: DocsisLldConfig, rng: &Rng) -> Self {
        assert!(!config.rate.is_zero(), "configuration refuses a rate of zero");
        let most = config.low_latency.within(config.rate);
        let ramp = Ramp::new(most, config.threshold, config.range_exponent);
        let critical_delay = config.critical_delay.unwrap_or(ramp.end);
        let classic_weight = WHOLE_WEIGHT - u32::from(config.weight);
        Self {
            classic: Controller::new(
                config.target,
                config.classic_limit_bytes,
                rng.child("docsis-pie"),
            ),
            timer: UpdateTimer::new(Time::ZERO + UPDATE_INTERVAL, UPDATE_INTERVAL),
            coupled_q56: 0,
            marking: Recur::default(),
            protection: config.protection.then(|| {
                Protection::new(critical_delay, config.critical_score, config.aging_exponent)
            }),
            credit: Credit::new(classic_weight, WHOLE_WEIGHT, MAX_PACKET_BYTES as u32),
            low_latency_bits: 0,
            shapers: Shapers::new(&config),
            virtual_queue: config.virtual_loop.map(|request_loop| {
                let limit = config.low_latency_limit_bytes;
                VirtualQueue::new(most, limit, request_loop, config.proactive)
            }),
            rates: Rates::new(config.rate, config.weight, config.low_latency, config.classic),
            pair: Pair::default(),
            ramp,
            config,
        }
    }

    fn advance(&mut self, now: Time) {
        if let Some(queue) = &mut self.virtual_queue {
            queue.advance(now, self.pair.low_latency.backlog().bytes);
        }
        while let Some(due) = self.timer.take_due(now) {
            let nothing_sent = self.low_latency_bits == 0;
            if !self.update() && nothing_sent {
                let _ = self.timer.skip_due(now);
            }
            debug_assert!(due <= now);
        }
    }

    /// The periodic update of annex M. Returns whether it changed anything.
    #[cold]
    fn update(&mut self) -> bool {
        let delay = self.classic_delay();
        self.low_latency_bits = 0;
        let changed = self.classic.update(delay);
        let silent = self.config.coupled_while == CoupledWhile::Awake && self.classic.is_asleep();
        let classic_q56 = if silent { 0 } else { self.classic.probability_q56() };
        let root_q56 = (u128::from(classic_q56) << 56).isqrt();
        let coupled_q56 = root_q56 * u128::from(self.config.coupling_tenths) / 10;
        self.coupled_q56 = coupled_q56.min(u128::from(ONE_Q56)) as u64;
        changed
    }

    /// Returns the time of the classic backlog at the rate that the low latency queue leaves.
    fn classic_delay(&self) -> Span {
        self.rates.classic_delay(self.pair.classic.backlog().bytes, self.low_latency_bits)
    }

    fn is_low_latency(&self, meta: &Meta) -> bool {
        let scalable = matches!(meta.ecn, Ecn::Ect1 | Ecn::Ce);
        scalable || self.config.dscp_set >> meta.dscp.value() & 1 == 1
    }

    fn enqueue_classic(
        &mut self,
        now: Time,
        packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        let backlog = self.pair.classic.backlog();
        let len = packet.meta.len;
        if backlog.bytes + u64::from(len) > self.config.classic_limit_bytes {
            self.classic.on_refused();
            return self.pair.drop_arrival(
                Side::Classic,
                now,
                packet,
                DropReason::Overlimit,
                observer,
            );
        }
        if self.classic.judge(len, backlog) == Verdict::Pass {
            return self.pair.store(Side::Classic, now, packet);
        }
        self.pair.drop_arrival(Side::Classic, now, packet, DropReason::Early, observer)
    }

    fn enqueue_low_latency(
        &mut self,
        now: Time,
        mut packet: Packet<P>,
        observer: &mut dyn Observer<P>,
    ) -> Admit {
        let stored = self.pair.low_latency.backlog().bytes;
        let len = packet.meta.len;
        // Annex M reserves space for one largest frame, whatever the size of the arrival.
        let (delay, has_room) = match &mut self.virtual_queue {
            None => {
                let room = self.config.low_latency_limit_bytes.saturating_sub(MAX_PACKET_BYTES);
                (self.ramp.delay_of(stored + u64::from(len)), stored < room)
            }
            Some(queue) => {
                let has_room = queue.has_room(now, stored);
                (queue.arrive(now, len), has_room)
            }
        };
        let native_q56 = self.ramp.probability_q56(delay);
        let score = self.protection.as_mut().and_then(|protection| {
            protection.sanctions(now, packet.meta.flow, len, delay, native_q56)
        });
        let sanctioned = score.is_some();
        if let Some(score) = score {
            observer.sanctioned(now, &packet, score);
            packet.meta.dscp = self.config.sanctioned_dscp.unwrap_or(packet.meta.dscp);
        }
        let side = if sanctioned { Side::Classic } else { Side::LowLatency };
        if self.marking.signals(native_q56.max(self.coupled_q56)) {
            let native = native_q56 > self.coupled_q56;
            let reason = if native { MarkReason::Threshold } else { MarkReason::Early };
            self.pair.mark(side, now, &mut packet, reason, observer);
        }
        if has_room && !sanctioned {
            return self.pair.store(side, now, packet);
        }
        if let Some(queue) = &mut self.virtual_queue {
            queue.give_back(len);
        }
        if sanctioned {
            return self.enqueue_classic(now, packet, observer);
        }
        self.pair.drop_arrival(side, now, packet, DropReason::Overlimit, observer)
    }

    /// Sends from the side whose turn it is, among the sides that may send.
    fn send(
        &mut self,
        now: Time,
        [low_latency, classic]: [bool; 2],
        observer: &mut dyn Observer<P>,
    ) -> Dequeue<P> {
        let Some(side) = self.credit.choose(low_latency, classic) else { return Dequeue::Empty };
        let Some(packet) = self.take(now, side, observer) else { return Dequeue::Empty };
        if low_latency && classic {
            self.credit.charge(side, packet.meta.len);
        }
        if let Some(shaper) = self.shapers.as_mut().and_then(|shapers| shapers.side(side)) {
            shaper.take(packet.meta.len);
        }
        Dequeue::Packet(packet)
    }

    /// Takes the head of `side`.
    fn take(&mut self, now: Time, side: Side, observer: &mut dyn Observer<P>) -> Option<Packet<P>> {
        let packet = self.pair.side(side).pop()?;
        if let Some(edges) = &self.config.histograms[side as usize] {
            observer.binned(side, edges.bin(now.since(packet.meta.arrived)));
        }
        if side == Side::LowLatency {
            self.low_latency_bits += u64::from(packet.meta.len) * 8;
        }
        Some(packet)
    }

    /// Dequeues if a flow also waits for its own rate.
    #[inline(never)]
    fn dequeue_shaped(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        let waits = [Side::LowLatency, Side::Classic].map(|side| self.wait(side, now));
        let [low_latency, classic] = waits.map(|wait| wait == Some(Span::ZERO));
        if !low_latency && !classic {
            let first = waits.into_iter().flatten().min();
            return first.map_or(Dequeue::Empty, |wait| Dequeue::NotBefore(now + wait));
        }
        self.send(now, [low_latency, classic], observer)
    }

    /// Returns how long from `now` on the head of `side` has to wait; `None` if `side` is empty.
    fn wait(&mut self, side: Side, now: Time) -> Option<Span> {
        let len = self.pair.side(side).head()?.len;
        Some(self.shapers.as_mut().map_or(Span::ZERO, |shapers| shapers.wait(side, now, len)))
    }
}

impl<P> Qdisc<P> for DocsisLld<P> {
    fn enqueue(&mut self, now: Time, packet: Packet<P>, observer: &mut dyn Observer<P>) -> Admit {
        self.advance(now);
        if self.pair.backlog().is_empty() {
            self.credit.reset();
        }
        if self.is_low_latency(&packet.meta) {
            self.enqueue_low_latency(now, packet, observer)
        } else {
            self.enqueue_classic(now, packet, observer)
        }
    }

    fn dequeue(&mut self, now: Time, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        self.advance(now);
        if self.shapers.is_some() {
            return self.dequeue_shaped(now, observer);
        }
        let low_latency_waits = self.pair.low_latency.head().is_some();
        let classic_waits = self.pair.classic.head().is_some();
        self.send(now, [low_latency_waits, classic_waits], observer)
    }

    fn backlog(&self) -> Backlog {
        self.pair.backlog()
    }

    fn stats(&self) -> Stats {
        self.pair.stats()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("docsis-lld.coupled_probability", q56_to_f64(self.coupled_q56));
        visit("docsis-lld.low_latency_bytes", self.pair.low_latency.backlog().bytes as f64);
        visit("docsis-lld.classic_bytes", self.pair.classic.backlog().bytes as f64);
        let sanctions = self.protection.as_ref().map_or(0, |it| it.sanctioned);
        visit("docsis-lld.sanctioned_packets", sanctions as f64);
        let score = self.protection.as_ref().map_or(Span::ZERO, Protection::highest_score);
        visit("docsis-lld.highest_score_ns", score.as_nanos() as f64);
        self.classic.gauges(visit);
    }

    fn service_flows(&mut self) -> Option<&mut dyn ServiceFlows<P>> {
        Some(self)
    }
}

impl<P> ServiceFlows<P> for DocsisLld<P> {
    fn contract(&self) -> Contract {
        Contract {
            weight: self.config.weight,
            flows: [self.config.low_latency, self.config.classic],
            proactive: self.config.proactive,
        }
    }

    fn waiting(&self) -> [Waiting; 2] {
        [&self.pair.low_latency, &self.pair.classic].map(|ring| Waiting {
            bytes: ring.backlog().bytes,
            head_bytes: ring.head().map(|head| head.len),
        })
    }

    fn serve(&mut self, now: Time, side: Side, observer: &mut dyn Observer<P>) -> Dequeue<P> {
        self.advance(now);
        // The grants observe the flow's own rates.
        self.take(now, side, observer).map_or(Dequeue::Empty, Dequeue::Packet)
    }
}

#[cfg(test)]
mod law_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency_bins::LatencyEdges;
    use crate::packet::Dscp;
    use crate::rate::Rate;
    use crate::service_flow::FlowRates;
    use alloc::vec::Vec;

    fn queue(protection: bool) -> DocsisLld<u32> {
        let config = DocsisLldConfig {
            protection,
            ..DocsisLldConfig::for_rate(Rate::from_megabits_per_second(10))
        };
        DocsisLld::new(config, &Rng::new(1))
    }

    fn packet(len: u32, ecn: Ecn, dscp: u8) -> Packet<u32> {
        let dscp = Dscp::new(dscp).expect("a codepoint");
        Packet { meta: Meta { dscp, ecn, ..Meta::new(len, u32::from(dscp.value())) }, payload: 0 }
    }

    #[test]
    fn marked_packets_and_nqb_go_to_the_low_latency_queue() {
        for (ecn, dscp, low_latency) in [
            (Ecn::Ect1, 0, true),
            (Ecn::Ce, 0, true),
            (Ecn::NotEct, 45, true),
            (Ecn::Ect0, 0, false),
            (Ecn::NotEct, 46, false),
        ] {
            let mut queue = queue(true);
            queue.enqueue(Time::ZERO, packet(100, ecn, dscp), &mut ());
            assert_eq!(queue.pair.low_latency.backlog().packets, u32::from(low_latency));
        }
    }

    /// Makes updates with 100 ms of classic delay until the coupling marks all packets.
    fn under_pressure(coupled_while: CoupledWhile) -> DocsisLld<u32> {
        let rate = Rate::from_megabits_per_second(10);
        let config = DocsisLldConfig { coupled_while, ..DocsisLldConfig::for_rate(rate) };
        let mut queue = DocsisLld::new(config, &Rng::new(1));
        for _ in 0..25 {
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 0), &mut ());
        }
        for _ in 0..1_000 {
            queue.update();
        }
        queue
    }

    /// 31,250 of 125,000 bytes are less than a third, so DOCSIS-PIE sleeps, however long the
    /// packets wait.
    #[test]
    fn the_coupling_continues_while_pie_is_inactive_by_default() {
        assert!(under_pressure(CoupledWhile::Always).coupled_q56 > ONE_Q56 / 100);
        let mut awake = under_pressure(CoupledWhile::Awake);
        assert!(awake.classic.is_asleep() && awake.classic.probability_q56() > 0);
        assert_eq!(awake.coupled_q56, 0);
        while awake.classic.is_asleep() {
            awake.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 0), &mut ());
        }
        for _ in 0..100 {
            awake.update();
        }
        assert!(awake.coupled_q56 > 0, "a third of the buffer is full");
    }

    /// 2 ms of packets arrive at once, and 3 ms more after 1 ms in which nothing left: 5 ms are
    /// stored, and the virtual queue has 4 ms.
    #[test]
    fn a_virtual_queue_marks_by_the_delay_that_it_computes() {
        let marks = |virtual_loop| {
            let config = DocsisLldConfig {
                virtual_loop,
                threshold: Span::from_micros(3_700),
                range_exponent: 0,
                ..DocsisLldConfig::for_rate(Rate::from_megabits_per_second(10))
            };
            let mut queue = DocsisLld::new(config, &Rng::new(1));
            for at in [0, 0, 1, 1, 1] {
                let now = Time::from_millis(at);
                queue.enqueue(now, packet(1_250, Ecn::Ect1, 0), &mut ());
            }
            queue.stats().marked
        };
        assert_eq!((marks(None), marks(Some(Span::from_millis(6)))), (1, 0));
    }

    /// Returns the bytes sent from each side within a second: L, then C.
    fn sent_in_a_second(low_latency: FlowRates, classic: FlowRates) -> [u64; 2] {
        let rate = Rate::from_megabits_per_second(10);
        let config = DocsisLldConfig {
            low_latency,
            classic,
            low_latency_limit_bytes: 1 << 30,
            classic_limit_bytes: 1 << 30,
            protection: false,
            ..DocsisLldConfig::for_rate(rate)
        };
        let mut queue = DocsisLld::new(config, &Rng::new(1));
        for _ in 0..1_200 {
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 45), &mut ());
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 0), &mut ());
        }
        let (mut now, mut sent) = (Time::ZERO, [0; 2]);
        while now < Time::from_secs(1) {
            match queue.dequeue(now, &mut ()) {
                Dequeue::Packet(packet) => {
                    sent[usize::from(packet.meta.dscp == Dscp::DEFAULT)] += 1;
                    now += Span::from_millis(1);
                }
                Dequeue::NotBefore(time) => now = time,
                Dequeue::Empty => break,
            }
        }
        sent
    }

    #[test]
    fn each_service_flow_is_limited_to_its_rate() {
        let limited = |kilobits: u64| FlowRates {
            sustained: Some(Rate::from_bits_per_second(kilobits * 1_000)),
            ..FlowRates::UNLIMITED
        };
        let none = FlowRates::UNLIMITED;
        assert_eq!(sent_in_a_second(none, none), [899, 101], "230 : 26");
        // 2 Mbit/s are 200 packets, and the burst of 3044 bytes is two more; C gets the rest.
        assert_eq!(sent_in_a_second(limited(2_000), none), [202, 798]);
        // 300 packets and one of the burst: the bucket loses most of the burst while it is full and waits
        // for its first turn in the scheduler.
        assert_eq!(sent_in_a_second(limited(2_000), limited(3_000)), [202, 301]);
        // 50 packets and one of the burst, for the same reason.
        assert_eq!(sent_in_a_second(none, limited(500)), [949, 51]);
    }

    #[test]
    fn queue_protection_redirects_a_greedy_nqb_flow_and_no_sparse_one() {
        let mut queue = queue(true);
        let mut greedy_lost = 0;
        for millisecond in 0..2_000 {
            let now = Time::from_millis(millisecond);
            if millisecond % 20 == 0 {
                queue.enqueue(now, packet(172, Ecn::NotEct, 45), &mut ());
                assert!(queue.pair.low_latency.backlog().packets > 0);
            }
            // ECT(1) packets at twice the link's rate, from a sender that ignores marks.
            for _ in 0..2 {
                let before = queue.pair.low_latency.backlog().packets;
                queue.enqueue(now, packet(1_250, Ecn::Ect1, 0), &mut ());
                greedy_lost += u32::from(queue.pair.low_latency.backlog().packets == before);
            }
            let _ = queue.dequeue(now, &mut ());
        }
        assert!(greedy_lost > 2_000, "{greedy_lost} of 4,000 were sent away");
    }

    /// Codepoints of packets that were moved to the classic queue, and bins of those that left.
    #[derive(Default)]
    struct Recorder {
        sanctioned: Vec<(u8, Span)>,
        bins: [[u32; 2]; 2],
    }

    impl Observer<u32> for Recorder {
        fn dropped(&mut self, _now: Time, _packet: Packet<u32>, _reason: DropReason) {}

        fn sanctioned(&mut self, _now: Time, packet: &Packet<u32>, score: Span) {
            self.sanctioned.push((packet.meta.dscp.value(), score));
        }

        fn binned(&mut self, side: Side, bin: usize) {
            self.bins[side as usize][bin] += 1;
        }
    }

    #[test]
    fn redirected_packets_are_reported_and_can_be_remarked() {
        let config = DocsisLldConfig {
            sanctioned_dscp: Dscp::new(7),
            ..DocsisLldConfig::for_rate(Rate::from_megabits_per_second(10))
        };
        let (mut queue, mut told) = (DocsisLld::new(config, &Rng::new(1)), Recorder::default());
        for _ in 0..20 {
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 45), &mut told);
        }
        let sent_away = told.sanctioned.len() as u32;
        assert!((10..20).contains(&sent_away), "{sent_away}");
        assert!(told.sanctioned.iter().all(|(dscp, _)| *dscp == 45), "as they came");
        assert!(told.sanctioned.is_sorted_by_key(|(_, score)| *score), "nothing drains at once");
        assert_eq!(queue.pair.classic.backlog().packets, sent_away);
        let mut remarked = 0;
        while let Dequeue::Packet(packet) = queue.dequeue(Time::from_millis(1), &mut told) {
            remarked += u32::from(packet.meta.dscp.value() == 7);
        }
        assert_eq!(remarked, sent_away);
        assert_eq!(told.bins, [[0; 2]; 2], "no histogram is kept");
    }

    #[test]
    fn a_histogram_counts_departures_of_its_queue_by_sojourn() {
        let config = DocsisLldConfig {
            histograms: [LatencyEdges::new(&[100]), None],
            ..DocsisLldConfig::for_rate(Rate::from_megabits_per_second(10))
        };
        let (mut queue, mut told) = (DocsisLld::new(config, &Rng::new(1)), Recorder::default());
        for (at_us, dscp) in [(0, 45), (0, 0), (1, 45), (1_000, 45)] {
            queue.enqueue(Time::from_micros(at_us), packet(200, Ecn::NotEct, dscp), &mut told);
        }
        while let Dequeue::Packet(_) = queue.dequeue(Time::from_millis(1), &mut told) {}
        assert_eq!(told.bins, [[2, 1], [0, 0]], "one packet waited for 1 ms");
    }

    #[test]
    fn protection_can_be_off() {
        let mut queue = queue(false);
        for _ in 0..20 {
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::Ect1, 0), &mut ());
        }
        assert_eq!(queue.pair.classic.backlog().packets, 0);
    }
}
