//! AVQ, Adaptive Virtual Queue (Kunniyur and Srikant, SIGCOMM 2001), in profile `kunniyur`.
//!
//! # Principle
//! A virtual queue receives the same arrivals as the real one. It has a buffer of `virtual-buffer`
//! and its own capacity. An arrival that would overflow the virtual queue is marked or dropped in
//! the real one. The capacity adapts so that arrivals use `gamma` of the link's rate: it grows by
//! `alpha * gamma` of the rate per second, and shrinks by `alpha` times each arrival. Signals thus
//! follow from the rate and begin before the real queue grows; below full utilisation it stays
//! empty.
//!
//! # Parameters
//! The parameters are those of section 2 of the paper; its buffer holds 100 packets of 1000 bytes.
//!
//! # Where the paper leaves room
//! * A dropped arrival, whether by the AQM or because of the limit, does not shrink the capacity,
//!   as in the authors' own code in ns-2. Otherwise senders that do not react would reduce the
//!   capacity to nothing, and every packet would be dropped. A marked arrival does shrink it.
//! * The virtual capacity starts at the link's rate (ns-2: at 0.8 of it).
//!
//! # Divergences
//! Unlike ns-2: always in bytes; no marking or dropping at the front.
//!
//! # Validation
//! Tests compare the token bucket with the paper's pseudo-code in floating point, and check the
//! paper's main claims, utilisation by `gamma` and a short queue under TCP
//! (`crates/sim/tests/shelf.rs`). See `docs/queues/avq.md`.

use crate::aqm::{Aqm, Verdict};
use crate::config::{
    Bytes, ConfigError, LinkFacts, Millionths, Probability, Profile, Values, from_values, params,
};
use crate::packet::Meta;
use crate::qdisc::Backlog;
use crate::queue::fifo::{LIMIT, OneQueue, one_queue};
use crate::rate::Rate;
use crate::time::Time;

from_values! {
    /// Parameters of [`Avq`]; the table of `avq` below explains them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AvqConfig(values, link: &LinkFacts) {
        /// The rate of the link.
        pub rate: Rate = rate_of(values, link)?,
        /// Desired utilisation of the link, as a fraction of 2^32.
        pub gamma_q32: u64 = values.get(GAMMA),
        /// Speed of the adaptation of the virtual capacity, in millionths per second.
        pub alpha_millionths: u64 = values.get(ALPHA),
        /// Size of the virtual queue, bytes.
        pub virtual_buffer_bytes: u64 = values.get(VIRTUAL_BUFFER),
        /// Whether ECN-capable packets are marked instead of dropped.
        pub ecn: bool = values.get(ECN),
    }
}

/// The adaptive virtual queue of one link.
#[derive(Clone, Debug)]
pub struct Avq {
    config: AvqConfig,
    /// The capacity of the virtual queue, bit/s as a fraction of 2^20.
    capacity_q20: u64,
    /// The backlog of the virtual queue, in 1e-9 bit: the product of rate and time is exact.
    backlog_nanobits: u128,
    /// The time up to which the virtual queue is drained.
    drained: Time,
    /// The time up to which the capacity has grown.
    grown: Time,
}

impl Avq {
    /// Returns an empty virtual queue at the link's rate.
    pub const fn new(config: AvqConfig) -> Self {
        Self {
            capacity_q20: Self::full_q20(&config),
            config,
            backlog_nanobits: 0,
            drained: Time::ZERO,
            grown: Time::ZERO,
        }
    }

    const fn full_q20(config: &AvqConfig) -> u64 {
        config.rate.bits_per_second() << 20
    }

    /// Drains the virtual queue up to `now`. If a packet of `len` bytes fits, adds it and returns
    /// true.
    fn admits(&mut self, now: Time, len: u32) -> bool {
        let passed_ns = now.since(self.drained).as_nanos();
        let sent = (u128::from(self.capacity_q20) * u128::from(passed_ns)) >> 20;
        self.backlog_nanobits = self.backlog_nanobits.saturating_sub(sent);
        self.drained = now;
        let with_it = self.backlog_nanobits + u128::from(len) * NANOBITS_PER_BYTE;
        let buffer = u128::from(self.config.virtual_buffer_bytes) * NANOBITS_PER_BYTE;
        let fits = with_it <= buffer;
        if fits {
            self.backlog_nanobits = with_it;
        }
        fits
    }

    /// Adapts the capacity to an arrival of `len` bytes that stays. The capacity first grows, at
    /// most to the link's rate, and then shrinks by the arrival.
    fn adapt(&mut self, now: Time, len: u32) {
        let passed_ns = u128::from(now.since(self.grown).as_nanos().min(GROWTH_CAP_NS));
        self.grown = now;
        let alpha = u128::from(self.config.alpha_millionths);
        let rate = u128::from(self.config.rate.bits_per_second());
        let wanted_q20 = (rate * u128::from(self.config.gamma_q32)) >> 12;
        let growth_q20 = wanted_q20 * passed_ns / 1_000_000_000 * alpha / 1_000_000;
        let shrinkage_q20 = (u128::from(len) << 23) * alpha / 1_000_000;
        let grown_q20 = u128::from(self.capacity_q20) + growth_q20;
        let full_q20 = u128::from(Self::full_q20(&self.config));
        self.capacity_q20 = grown_q20.min(full_q20).saturating_sub(shrinkage_q20) as u64;
    }
}

impl Aqm for Avq {
    fn on_enqueue(&mut self, now: Time, meta: &Meta, _backlog: Backlog) -> Verdict {
        let verdict = Verdict::new(!self.admits(now, meta.len), self.config.ecn);
        let stays = match verdict {
            Verdict::Pass => true,
            Verdict::Signal => meta.ecn.is_capable(),
            Verdict::Drop => false,
        };
        if stays {
            self.adapt(now, meta.len);
        }
        verdict
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("avq.virtual_capacity_bit_per_s", self.capacity_q20 as f64 / f64::from(1 << 20));
        let bytes = self.backlog_nanobits / NANOBITS_PER_BYTE;
        visit("avq.virtual_backlog_bytes", bytes as f64);
    }
}

const NANOBITS_PER_BYTE: u128 = 8_000_000_000;
/// A longer silence (18 minutes) does not grow the capacity further.
const GROWTH_CAP_NS: u64 = 1 << 40;

one_queue!(AvqQueue, AvqConfig, |queue, _rng| Avq::new(queue.config));

params! {
    define DEFINITION: "avq",
        "AVQ: signals where a virtual queue of a little less capacity would overflow",
        source: "Kunniyur and Srikant 2001",
        profiles: &[Profile { name: "kunniyur", doc: "the paper's AVQ, its token bucket" }];
    GAMMA: Probability = "gamma", "98%" in "1%".."100%", "desired utilisation";
    ALPHA: Millionths = "alpha", "0.15" in "0.001".."100", "speed of the adaptation, per second";
    VIRTUAL_BUFFER: Bytes = "virtual-buffer", "100kB" in "1500B".."1024MiB",
        "the virtual queue's buffer";
    pub(in crate::queue) RATE: Option<Rate> = "rate", ("the link's") in "1kbit".."1000gbit",
        "what the link can send";
    ECN: bool = "ecn", "off", "mark ECN-capable packets instead of dropping them";
    use LIMIT;
}

/// Returns the parameter `rate`, else the link's rate.
pub(in crate::queue) fn rate_of(values: &Values, link: &LinkFacts) -> Result<Rate, ConfigError> {
    values.rate(RATE, link).map(|rate| rate.min(MOST))
}

/// The arithmetic stays in range up to this rate; a faster link counts as this fast.
const MOST: Rate = Rate::from_bits_per_second(1_000_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, Packet};
    use crate::qdisc::{Dequeue, Qdisc};
    use crate::queue::store::{Limit, Overflow, Single};
    use crate::registry::{QueueConfig, QueueSetup};
    use crate::rng::Rng;
    use crate::time::Span;
    use alloc::string::ToString;

    /// At 8 Mbit/s, 1000 bytes take 1 ms.
    fn avq(spec: &str) -> Avq {
        let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(8));
        match QueueSetup::parse(spec, &facts).expect(spec).config {
            QueueConfig::Avq(queue) => Avq::new(queue.config),
            other => panic!("{other:?}"),
        }
    }

    fn capacity(avq: &Avq) -> f64 {
        avq.capacity_q20 as f64 / f64::from(1 << 20)
    }

    fn offer(avq: &mut Avq, now: Time, len: u32, ecn: Ecn) -> Verdict {
        avq.on_enqueue(now, &Meta { ecn, ..Meta::new(len, 0) }, Backlog::default())
    }

    /// The paper's pseudo-code (its figure 1) in floating point, over random arrivals around the
    /// link's rate: the same packets are marked, and the capacity is the same.
    #[test]
    fn marks_what_the_published_pseudo_code_marks() {
        for (spec, gamma, alpha, buffer) in [
            ("avq:ecn=on", 0.98, 0.15, 100_000.0),
            ("avq:ecn=on,gamma=90%,alpha=2,virtual-buffer=20kB", 0.9, 2.0, 20_000.0),
        ] {
            let (mut avq, mut rng) = (avq(spec), Rng::new(5));
            let (mut virtual_queue, mut virtual_capacity, mut last) = (0.0_f64, 1e6_f64, 0.0);
            let (mut now, mut marks, mut near) = (Time::ZERO, 0, 0);
            for number in 0..200_000_u32 {
                let busy = number % 20_000 < 10_000;
                now += Span::from_nanos(u64::from(rng.below(if busy {
                    1_300_000
                } else {
                    2_600_000
                })));
                let len = rng.below(1_500);
                let marked = offer(&mut avq, now, len, Ecn::Ect0) == Verdict::Signal;
                let (seconds, bytes) = (now.as_secs_f64(), f64::from(len));
                let passed = seconds - last;
                last = seconds;
                virtual_queue = (virtual_queue - virtual_capacity * passed).max(0.0);
                let expected = virtual_queue + bytes > buffer;
                near += u32::from((virtual_queue + bytes - buffer).abs() < 0.01);
                if !marked {
                    virtual_queue += bytes;
                }
                let grown = (virtual_capacity + alpha * gamma * 1e6 * passed).min(1e6);
                virtual_capacity = (grown - alpha * bytes).max(0.0);
                marks += u32::from(marked);
                assert!(marked == expected || near > 0, "{spec}: packet {number}");
                let error = capacity(&avq) / 8.0 - virtual_capacity;
                assert!(error.abs() < 0.5, "{spec}: {number}: off by {error} bytes per second");
            }
            assert!(marks > 5_000 && marks < 150_000 && near < 5, "{spec}: {marks}, {near} near");
        }
    }

    #[test]
    fn below_the_wanted_utilisation_no_packet_is_signalled() {
        let mut avq = avq("avq");
        for number in 0..50_000_u64 {
            // 1000 bytes every 1.03 ms: 97 %.
            let now = Time::from_micros(1_030 * number);
            assert_eq!(offer(&mut avq, now, 1_000, Ecn::NotEct), Verdict::Pass);
        }
        assert!(capacity(&avq) > 8e6 - 1_300.0, "{}", capacity(&avq));
    }

    /// Senders that do not react offer 125 %: the queue admits `gamma` of the link's rate and stays
    /// short.
    #[test]
    fn passes_the_wanted_utilisation_and_builds_no_queue() {
        for (spec, gamma) in [("avq", 0.98), ("avq:gamma=90%", 0.9), ("avq:gamma=50%", 0.5)] {
            let mut queue: Single<Avq, ()> =
                Single::new(avq(spec), Limit::packets(1_000), Overflow::Tail);
            let (mut arrival, mut served, mut longest) = (Time::ZERO, 0, 0);
            for ms in 0..200_000 {
                let now = Time::from_millis(ms);
                while arrival <= now {
                    let packet = Packet { meta: Meta::new(1_000, 0), payload: () };
                    queue.enqueue(arrival, packet, &mut ());
                    arrival += Span::from_micros(800);
                }
                if ms >= 100_000 {
                    longest = longest.max(queue.backlog().packets);
                }
                let sent = matches!(queue.dequeue(now, &mut ()), Dequeue::Packet(_));
                served += u32::from(sent && ms >= 100_000);
            }
            let utilisation = f64::from(served) / 1e5;
            assert!((utilisation - gamma).abs() < 0.005, "{spec}: {utilisation}");
            assert!(longest <= 3, "{spec}: {longest} packets");
        }
    }

    #[test]
    fn marked_packets_shrink_the_capacity_and_dropped_ones_do_not() {
        for (spec, ecn, verdict, shrinks) in [
            ("avq", Ecn::Ect0, Verdict::Drop, false),
            ("avq:ecn=on", Ecn::NotEct, Verdict::Signal, false),
            ("avq:ecn=on", Ecn::Ect0, Verdict::Signal, true),
            ("avq:ecn=on", Ecn::Ce, Verdict::Signal, true),
        ] {
            let mut avq = avq(spec);
            while offer(&mut avq, Time::ZERO, 1_000, ecn) == Verdict::Pass {}
            // 100 packets fit: each has reduced the capacity by 0.15 * 8000 bit/s.
            let before = 8e6 - 0.15 * 8_000.0 * if shrinks { 101.0 } else { 100.0 };
            assert!((capacity(&avq) - before).abs() < 1.0, "{spec}: {}", capacity(&avq));
            assert_eq!(offer(&mut avq, Time::ZERO, 1_000, ecn), verdict);
            assert_eq!(capacity(&avq) < before - 1_000.0, shrinks, "{spec}");
        }
    }

    #[test]
    fn an_idle_hour_and_huge_packets_do_not_overflow() {
        let mut avq = avq("avq:alpha=100,rate=1000gbit,ecn=on");
        for hour in 0..10 {
            let now = Time::from_secs(3_600 * hour);
            assert_eq!(offer(&mut avq, now, u32::MAX, Ecn::Ect0), Verdict::Signal);
            assert_eq!(offer(&mut avq, now + Span::from_secs(60), 1_500, Ecn::Ect0), Verdict::Pass);
            assert!((capacity(&avq) / 1e12 - 1.0).abs() < 1e-3, "{}", capacity(&avq));
        }
    }

    #[test]
    fn a_rate_must_be_known() {
        let error = QueueSetup::parse("avq", &LinkFacts::UNKNOWN).unwrap_err().to_string();
        assert!(error.contains("`avq` needs `rate=`: a rate, such as 20mbit"), "{error}");
        assert_eq!(avq("avq:rate=3mbit").config.rate, Rate::from_megabits_per_second(3));
        assert_eq!(avq("avq:rate=1000gbit").config.rate, MOST);
    }
}
