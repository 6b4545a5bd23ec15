//! The fates of packets that the controller signals, tested through public calls only.

use alloc::boxed::Box;

use super::DualPi2Profile;
use crate::config::LinkFacts;
use crate::packet::{Ecn, Meta, Packet};
use crate::qdisc::{Dequeue, Qdisc};
use crate::rate::Rate;
use crate::registry::{QueueConfig, QueueSetup};
use crate::rng::Rng;
use crate::time::Time;

/// Steps so large that one update at 16 ms of delay makes p' 0.4: C signals 0.16 of its packets.
const SPEC: &str = "dualpi2:profile=rfc,tupdate=16ms,alpha=0.000001,beta=25,target=15ms";

fn queue(spec: &str) -> Box<dyn Qdisc<()>> {
    let facts = LinkFacts::of_rate(Rate::from_megabits_per_second(10));
    QueueSetup::parse(spec, &facts).expect(spec).build(&Rng::new(1))
}

/// Offers packets at once. Returns how many of them leave at `at_ms`.
fn offer_and_take(queue: &mut dyn Qdisc<()>, packets: u32, ecn: Ecn, at_ms: u64) -> u32 {
    for _ in 0..packets {
        let meta = Meta { ecn, ..Meta::new(1_250, 3) };
        queue.enqueue(Time::ZERO, Packet { meta, payload: () }, &mut ());
    }
    let mut sent = 0;
    while let Dequeue::Packet(_) = queue.dequeue(Time::from_millis(at_ms), &mut ()) {
        sent += 1;
    }
    sent
}

#[test]
fn a_spec_is_read_into_the_units_of_its_profile() {
    let parse = |spec: &str, rate| {
        let facts = LinkFacts::of_rate(Rate::from_bits_per_second(rate));
        QueueSetup::parse(spec, &facts).map(|setup| match setup.config {
            QueueConfig::DualPi2(config) => config,
            other => panic!("{other:?}"),
        })
    };
    let linux = parse("dualpi2:profile=linux,coupling=3", 1_000).unwrap();
    let DualPi2Profile::Linux(controller) = linux.profile else { panic!("{linux:?}") };
    assert_eq!(controller.coupling, 3);
    // Returns a share in hundredths of a percent, rounded to the nearest.
    for (share, expected) in [("25%", 2_500), ("1.126%", 113), ("1.124%", 112)] {
        let spec = alloc::format!("dualpi2:classic-share={share}");
        assert_eq!(parse(&spec, 1_000_000).unwrap().classic_share, expected);
    }
    // A quarter of a second at 32 bit/s is one byte.
    assert!(parse("dualpi2:profile=rfc", 32).is_ok());
    let error = parse("dualpi2:profile=rfc", 31).unwrap_err();
    assert!(alloc::format!("{error}").contains("no link's rate is known"), "{error}");
}

#[test]
fn a_signal_marks_ecn_capable_packets_and_drops_others() {
    for (ecn, marked, dropped) in [(Ecn::Ect0, 16, 0), (Ecn::NotEct, 0, 16)] {
        let mut queue = queue(SPEC);
        let sent = offer_and_take(&mut *queue, 100, ecn, 16);
        let stats = queue.stats();
        assert_eq!(stats.marked, marked, "{ecn:?}");
        assert_eq!(stats.dropped_dequeue.packets, dropped, "{ecn:?}");
        assert_eq!(u64::from(sent), 100 - dropped, "{ecn:?}");
    }
}

/// RFC 9332 figure 6: the low latency queue's own AQM does not judge a packet that is alone. Each
/// further packet is certain to be marked, and the first of them brings the sum to one, which it
/// must exceed.
#[test]
fn the_last_packet_of_the_low_latency_queue_is_not_marked_for_its_wait() {
    let mut queue = queue("dualpi2:profile=rfc");
    assert_eq!(offer_and_take(&mut *queue, 4, Ecn::Ect1, 10), 4);
    assert_eq!(queue.stats().marked, 2);
}
