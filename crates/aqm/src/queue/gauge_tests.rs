//! The gauges of each discipline, compared with numbers computed by hand. Every discipline is in
//! front of a link of 8 Mbit/s: 1000 bytes take 1 ms.

use alloc::boxed::Box;
use std::collections::BTreeMap;

use crate::config::LinkFacts;
use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::Qdisc;
use crate::rate::Rate;
use crate::registry::QueueSetup;
use crate::rng::Rng;
use crate::time::Time;

struct Subject(Box<dyn Qdisc<()>>);

impl Subject {
    fn new(spec: &str) -> Self {
        let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(8));
        Self(QueueSetup::parse(spec, &facts).expect(spec).build(&Rng::new(1)))
    }

    /// Offers `count` packets of 1000 bytes at once.
    fn offer(&mut self, at_us: u64, packets: u32, ecn: Ecn) {
        for _ in 0..packets {
            let meta = Meta { ecn, ..Meta::new(1_000, 7) };
            self.0.enqueue(Time::from_micros(at_us), Packet { meta, payload: () }, &mut ());
        }
    }

    fn take(&mut self, at_us: u64) {
        let _ = self.0.dequeue(Time::from_micros(at_us), &mut ());
    }

    #[track_caller]
    fn shows(&self, expected: &[(&'static str, f64)]) {
        let mut shown = BTreeMap::new();
        self.0.gauges(&mut |name, value| {
            assert!(shown.insert(name, value).is_none(), "{name} twice");
        });
        for (name, value) in expected {
            let shown = shown.get(name).copied();
            let is_near = |shown: f64| (shown - value).abs() <= 1e-6 * value.abs();
            assert!(shown.is_some_and(is_near), "{name}: {shown:?}, not {value}");
        }
    }
}

#[test]
fn avq_shows_its_virtual_link() {
    let mut avq = Subject::new("avq");
    avq.offer(1_000_000, 1, Ecn::NotEct);
    // The capacity is 8 Mbit/s minus 0.15 of 8000 bit.
    avq.shows(&[
        ("avq.virtual_capacity_bit_per_s", 7_998_800.0),
        ("avq.virtual_backlog_bytes", 1e3),
    ]);
    avq.offer(1_000_500, 1, Ecn::NotEct);
    // In half a millisecond 3999.4 bit left; the gauge omits the fraction of a byte.
    avq.shows(&[("avq.virtual_backlog_bytes", 1_500.0)]);
}

#[test]
fn blue_and_sfb_show_what_a_loss_or_a_full_bin_has_raised() {
    let mut blue = Subject::new("blue:increment=50%,limit=1p");
    blue.offer(0, 2, Ecn::NotEct);
    blue.shows(&[("blue.probability", 0.5)]);

    let mut sfb = Subject::new("sfb:increment=20%,target=1p");
    sfb.offer(0, 1, Ecn::NotEct);
    sfb.shows(&[("sfb.max_probability", 0.0), ("sfb.max_bin_packets", 1.0)]);
    sfb.offer(0, 1, Ecn::NotEct);
    // A fifth of 65535 is 13107.
    sfb.shows(&[("sfb.max_probability", 0.2)]);
}

#[test]
fn rem_shows_its_price_and_probability() {
    let spec = "rem:gamma=0.5,alpha=0.1,phi=2,target=0p,interval=10ms,mean-packet=1000B";
    let mut rem = Subject::new(spec);
    rem.offer(5_000, 12, Ecn::NotEct);
    rem.take(10_000);
    // 12 packets arrive, 10 can leave, and 12 wait: 0.5 (0.1 * 12 + 12 - 10).
    let price = 1.6;
    rem.shows(&[("rem.price_packets", price), ("rem.probability", 1.0 - (-price).exp2())]);
}

#[test]
fn pi_and_sred_show_their_probability_and_frequency_of_hits() {
    let mut pi = Subject::new("pi:a=1000,b=0,target=2p,interval=10ms");
    pi.offer(5_000, 12, Ecn::NotEct);
    pi.take(10_000);
    // Ten packets too many, of a thousandth each.
    pi.shows(&[("pi.probability", 0.01)]);

    let mut sred = Subject::new("sred:zombies=1,replace=25%");
    sred.offer(0, 2, Ecn::NotEct);
    // The second packet hits the only zombie, the flow of the first.
    sred.shows(&[("sred.hit_frequency", 0.25)]);
}

#[test]
fn a_policer_shows_what_may_pass_at_once() {
    let mut policer = Subject::new("policer:rate=8mbit,burst=20kB");
    policer.offer(0, 2, Ecn::NotEct);
    policer.shows(&[("policer.tokens_bytes", 18_000.0)]);
}

#[test]
fn docsis_pie_shows_delay_and_probability_of_its_last_update() {
    let mut pie = Subject::new("docsis-pie:limit=30kB");
    let shown = |probability: f64, delay_ms: f64, activity: f64| {
        [
            ("docsis-pie.probability", probability),
            ("docsis-pie.delay_ns", delay_ms * 1e6),
            ("docsis-pie.burst_left_ns", 0.0),
            ("docsis-pie.activity", activity),
        ]
    };
    pie.offer(0, 10, Ecn::NotEct);
    pie.shows(&shown(0.0, 0.0, 0.0));
    // The eleventh packet finds a third of the buffer full.
    pie.offer(0, 2, Ecn::NotEct);
    pie.shows(&shown(0.0, 0.0, 1.0));
    pie.take(16_000);
    // The delay is 12 ms, the target 10: (0.25 * 0.002 + 2.5 * 0.012) / 2048, the smallest step.
    pie.shows(&shown(0.0305 / 2_048.0, 12.0, 1.0));
}

#[test]
fn dualpi2_shows_its_base_probability_and_both_queues() {
    let spec = "dualpi2:profile=rfc,tupdate=16ms,alpha=0.16,beta=3.2,target=15ms";
    let mut dual = Subject::new(spec);
    dual.offer(0, 3, Ecn::NotEct);
    dual.offer(0, 2, Ecn::Ect1);
    dual.take(16_000);
    dual.shows(&[
        // `alpha` times the 1 ms above the target, and `beta` times the change of 16 ms.
        ("dualpi2.probability", 0.051_36),
        ("dualpi2.low_latency_bytes", 1_000.0),
        ("dualpi2.classic_bytes", 3_000.0),
    ]);
}

#[test]
fn docsis_lld_shows_its_coupling_and_both_queues() {
    let mut lld = Subject::new("docsis-lld");
    lld.offer(0, 3, Ecn::NotEct);
    lld.offer(0, 2, Ecn::Ect1);
    lld.take(0);
    lld.shows(&[
        ("docsis-lld.coupled_probability", 0.0),
        ("docsis-lld.low_latency_bytes", 1_000.0),
        ("docsis-lld.classic_bytes", 3_000.0),
        ("docsis-lld.sanctioned_packets", 0.0),
        ("docsis-pie.activity", 0.0),
    ]);
}
