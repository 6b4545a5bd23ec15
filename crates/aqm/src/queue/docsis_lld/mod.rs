//! Low Latency DOCSIS: the dual queue of a cable modem or CMTS (MULPIv3.1 annexes M to P).
//!
//! # Principle
//! An aggregate service flow has two queues. Packets marked ECT(1) or CE (L4S), or with the
//! non-queue-building codepoint (NQB, DSCP 45), go to the low latency queue, all others to a
//! classic one under DOCSIS-PIE. On arrival, packets of the low latency queue meet
//! * the *immediate AQM* (annex N): a ramp of marking over the delay that the queue stands for,
//!   combined with the coupled probability, the root of the classic one times `k`. Packets that
//!   are not ECN-capable pass unmarked;
//! * *queue protection* (annex P, RFC 9957): a flow that keeps the queue long loses its place, its
//!   packets go to the classic queue until its score has drained.
//!
//! The low latency queue has the larger weight (230 of 256), never all of the link.
//!
//! # Parameters
//! See `underload queues docsis-lld`, or the table below. With the TLVs of a modem's file:
//! 70.42.5 is `coupling`, 42.6 `weight`, 42.7 `protection`, 42.8 `critical-delay`, 42.9
//! `critical-score`, 42.10 `aging`; 40.2 is `target`, 40.4 `threshold`, 40.5 `range`.
//!
//! # Divergences
//! * The delay of the low latency queue is its backlog, the arrival included, at the aggregate
//!   rate: `qdelayCoupledL` of annex O, the form for a CMTS. A modem upstream has a virtual queue
//!   instead, because its backlog waits for grants; behind a link with grants (`map`), this
//!   queue therefore marks more than a modem would.
//! * Rates per service flow inside the aggregate, and guaranteed grants, are not built.
//! * The scheduler divides bytes as the weights say. The CableLabs simulator gives the classic
//!   queue a full quantum, which makes 230 : 256 of it; the standard's text says 230 : 26.
//!
//! # Validation
//! Thresholds, buffers and scores against the figures that the CableLabs simulator's own tests
//! assert; laws; in virtual time, see `docs/queues/docsis-lld.md`.

mod immediate;
mod params;
mod protection;

use crate::aqm::Store;
use crate::aqm::Verdict;
use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::{Admit, Backlog, Dequeue, DropReason, MarkReason, Observer, Qdisc, Stats};
use crate::queue::control::{ONE_Q56, Recur, UpdateTimer, q56_to_f64};
use crate::queue::docsis_pie::{Controller, MAX_PACKET_BYTES, UPDATE_INTERVAL};
use crate::queue::store::dual::{Credit, Pair, Side};
use crate::rng::Rng;
use crate::time::{Span, Time};

use immediate::Ramp;
pub use params::DocsisLldConfig;
pub(crate) use params::{DEFINITION, configure};
use protection::Protection;

/// The dual queue.
#[derive(Debug)]
pub struct DocsisLld<P> {
    config: DocsisLldConfig,
    ramp: Ramp,
    classic: Controller,
    timer: UpdateTimer,
    coupled_q56: u64,
    marking: Recur,
    protection: Option<Protection>,
    credit: Credit,
    /// Bits that the low latency queue sent since the last update (`interval_bitsL`).
    low_latency_bits: u64,
    pair: Pair<P>,
}

impl<P> DocsisLld<P> {
    /// Empty; draws from `rng`.
    pub fn new(config: DocsisLldConfig, rng: &Rng) -> Self {
        assert!(!config.rate.is_zero(), "configuration refuses a rate of zero");
        let ramp = Ramp::new(config.rate, config.threshold, config.range_exponent);
        let critical_delay = config.critical_delay.unwrap_or(ramp.end());
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
            pair: Pair::default(),
            ramp,
            config,
        }
    }

    fn advance(&mut self, now: Time) {
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
        let root_q56 = (u128::from(self.classic.probability_q56()) << 56).isqrt();
        let coupled_q56 = root_q56 * u128::from(self.config.coupling_tenths) / 10;
        self.coupled_q56 = coupled_q56.min(u128::from(ONE_Q56)) as u64;
        changed
    }

    /// How long the classic backlog takes at what the low latency queue leaves of the rate, going
    /// by what that one sent since the last update (`qdelayCoupledC`, annex O).
    fn classic_delay(&self) -> Span {
        let rate = self.config.rate.bits_per_second();
        let weighted = u128::from(rate) * u128::from(self.config.weight) / u128::from(WHOLE_WEIGHT);
        let second = u128::from(Span::from_secs(1).as_nanos());
        let measured =
            u128::from(self.low_latency_bits) * second / u128::from(UPDATE_INTERVAL.as_nanos());
        let left = u128::from(rate) - measured.min(weighted);
        let bits = u128::from(self.pair.classic.backlog().bytes) * 8;
        let nanos = bits * second / left.max(1);
        Span::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
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
            return self.pair.refuse(Side::Classic, now, packet, observer);
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
        let delay = self.ramp.delay_of(stored + u64::from(len));
        let native_q56 = self.ramp.probability_q56(delay);
        let sanctioned = self.protection.as_mut().is_some_and(|protection| {
            protection.sanctions(now, packet.meta.flow, len, delay, native_q56)
        });
        let side = if sanctioned { Side::Classic } else { Side::LowLatency };
        if self.marking.signals(native_q56.max(self.coupled_q56)) {
            let native = native_q56 > self.coupled_q56;
            let reason = if native { MarkReason::Threshold } else { MarkReason::Early };
            self.pair.mark(side, now, &mut packet, reason, observer);
        }
        if sanctioned {
            return self.enqueue_classic(now, packet, observer);
        }
        // Annex M leaves room for one largest frame instead of looking at the arrival.
        if stored >= self.config.low_latency_limit_bytes.saturating_sub(MAX_PACKET_BYTES) {
            return self.pair.refuse(side, now, packet, observer);
        }
        self.pair.store(side, now, packet)
    }
}

/// All of the link, in the unit of the scheduling weight (TLV 42.6).
const WHOLE_WEIGHT: u32 = 256;

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

    fn dequeue(&mut self, now: Time, _observer: &mut dyn Observer<P>) -> Dequeue<P> {
        self.advance(now);
        let low_latency_waits = self.pair.low_latency.head().is_some();
        let classic_waits = self.pair.classic.head().is_some();
        let Some(side) = self.credit.choose(low_latency_waits, classic_waits) else {
            return Dequeue::Empty;
        };
        let Some(packet) = self.pair.side(side).pop() else { return Dequeue::Empty };
        if low_latency_waits && classic_waits {
            self.credit.charge(side, packet.meta.len);
        }
        if side == Side::LowLatency {
            self.low_latency_bits += u64::from(packet.meta.len) * 8;
        }
        Dequeue::Packet(packet)
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
        let sanctions = self.protection.as_ref().map_or(0, Protection::sanctioned);
        visit("docsis-lld.sanctioned_packets", sanctions as f64);
        self.classic.gauges(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Dscp;
    use crate::rate::Rate;

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

    #[test]
    fn what_the_low_latency_queue_sends_slows_the_classic_one() {
        let mut queue = queue(true);
        for _ in 0..10 {
            queue.enqueue(Time::ZERO, packet(1_250, Ecn::NotEct, 0), &mut ());
        }
        // 12,500 B at 10 Mbit/s.
        assert_eq!(queue.classic_delay(), Span::from_millis(10));
        // Half of the rate over 16 ms is 80,000 bits.
        queue.low_latency_bits = 80_000;
        assert_eq!(queue.classic_delay(), Span::from_millis(20));
        // At most its weight, 230/256, counts: 26/256 of the rate are left.
        queue.low_latency_bits = 1_600_000;
        let millis = queue.classic_delay().as_nanos() / 1_000_000;
        assert_eq!(millis, 98);
    }

    #[test]
    fn a_sparse_nqb_flow_stays_and_a_greedy_one_is_sent_away() {
        let mut queue = queue(true);
        let mut greedy_lost = 0;
        for millisecond in 0..2_000 {
            let now = Time::from_millis(millisecond);
            if millisecond % 20 == 0 {
                queue.enqueue(now, packet(172, Ecn::NotEct, 45), &mut ());
                assert!(queue.pair.low_latency.backlog().packets > 0);
            }
            // Twice the link's rate, marked ECT(1), and never slower for a mark.
            for _ in 0..2 {
                let before = queue.pair.low_latency.backlog().packets;
                queue.enqueue(now, packet(1_250, Ecn::Ect1, 0), &mut ());
                greedy_lost += u32::from(queue.pair.low_latency.backlog().packets == before);
            }
            let _ = queue.dequeue(now, &mut ());
        }
        assert!(greedy_lost > 2_000, "{greedy_lost} of 4,000 were sent away");
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
