//! When CoDel drops, per profile: facts measured from the kernel's and Mahimahi's code and from RFC
//! 8289's pseudo-code, and facts that the ns-3 suite asserts.

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Ecn, Meta, Packet};
use underload_aqm::qdisc::{Dequeue, DropReason, MarkReason, Observer, Qdisc};
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

#[derive(Default)]
struct Signals {
    /// Identifier and millisecond of each drop and each mark.
    drops: Vec<(u32, u64)>,
    marks: Vec<(u32, u64)>,
}

impl Observer<u32> for Signals {
    fn dropped(&mut self, now: Time, packet: Packet<u32>, _reason: DropReason) {
        self.drops.push((packet.payload, now.as_millis()));
    }

    fn marked(&mut self, now: Time, packet: &Packet<u32>, _reason: MarkReason) {
        self.marks.push((packet.payload, now.as_millis()));
    }
}

fn queue(spec: &str) -> Box<dyn Qdisc<u32>> {
    QueueSetup::parse(spec, &LinkFacts::default()).expect(spec).build(&Rng::new(0))
}

fn packet(id: u32, len: u32, ecn: Ecn) -> Packet<u32> {
    let mut meta = Meta::new(len, 0);
    meta.ecn = ecn;
    Packet { meta, payload: id }
}

/// 1500 bytes every 0.5 ms for a second into a link that takes one packet at each whole
/// millisecond from the first on, until the queue is empty. Arrivals happen at the next multiple
/// of `arrival_unit_us`.
fn at_twice_the_rate(spec: &str, ecn: Ecn, arrival_unit_us: u64) -> Signals {
    let mut queue = queue(spec);
    let mut signals = Signals::default();
    for id in 0.. {
        let now_us = u64::from(id) * 500;
        if id < 2_000 {
            let arrival = Time::from_micros(now_us.next_multiple_of(arrival_unit_us));
            queue.enqueue(arrival, packet(id, 1_500, ecn), &mut signals);
        } else if queue.backlog().is_empty() {
            break;
        }
        if now_us % 1_000 == 0 && now_us > 0 {
            let _ = queue.dequeue(Time::from_micros(now_us), &mut signals);
        }
    }
    signals
}

#[test]
fn linux_drops_when_the_kernel_does() {
    let signals = at_twice_the_rate("codel:profile=linux,limit=100000p", Ecn::NotEct, 1);
    let first = [
        (109, 110),
        (210, 210),
        (261, 260),
        (319, 317),
        (369, 366),
        (414, 410),
        (455, 450),
        (494, 488),
    ];
    assert_eq!(signals.drops[..8], first);
    assert_eq!(signals.drops.len(), 96);
}

#[test]
fn linux_marks_as_often_as_the_kernel() {
    let signals = at_twice_the_rate("codel:profile=linux,ecn=on,limit=100000p", Ecn::Ect0, 1);
    assert_eq!((signals.marks.len(), signals.drops.len()), (106, 0));
}

#[test]
fn rfc_drops_when_the_pseudo_code_does() {
    let signals = at_twice_the_rate("codel:profile=rfc,limit=100000p", Ecn::NotEct, 1);
    let first = [(108, 109), (209, 209), (281, 280), (340, 338), (391, 388), (437, 433)];
    assert_eq!(signals.drops[..6], first);
    assert_eq!(signals.drops.len(), 94);
}

/// Mahimahi's time stamps are whole milliseconds, rounded up when these facts were measured.
#[test]
fn mahimahi_drops_in_pairs() {
    let signals = at_twice_the_rate("codel:profile=mahimahi,limit=100000p", Ecn::NotEct, 1_000);
    let first = [(109, 109), (210, 209), (281, 279), (339, 336)];
    assert_eq!(signals.drops[..4], first);
    assert_eq!(signals.drops.len(), 99);
}

/// ns-3's suite: of 20 packets of 1000 bytes none is dropped at 10 ms. At 210 ms one packet is
/// dropped and one leaves, and no second one is dropped at that instant.
#[test]
fn one_drop_on_entering_the_dropping_state() {
    for profile in ["linux", "rfc"] {
        let mut queue = queue(&format!("codel:profile={profile}"));
        let mut signals = Signals::default();
        for id in 0..20 {
            queue.enqueue(Time::ZERO, packet(id, 1_000, Ecn::NotEct), &mut signals);
        }
        let mut leaves = |ms, drops| {
            let answer = queue.dequeue(Time::from_millis(ms), &mut signals);
            assert!(matches!(answer, Dequeue::Packet(_)), "{profile} at {ms} ms");
            assert_eq!(signals.drops.len(), drops, "{profile} at {ms} ms");
        };
        leaves(10, 0);
        leaves(210, 1);
        leaves(210, 1);
    }
}

#[test]
fn three_arrivals_beyond_the_limit_are_refused() {
    let mut queue = queue("codel:limit=500p");
    let mut signals = Signals::default();
    for id in 0..503 {
        queue.enqueue(Time::ZERO, packet(id, 1_000, Ecn::NotEct), &mut signals);
    }
    assert_eq!(signals.drops.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [500, 501, 502]);
}

/// The CE threshold marks each packet that waited longer, even with the law's own ECN off.
#[test]
fn ce_threshold_marks_every_packet_that_waited_longer() {
    let mut queue = queue("codel:profile=linux,ce-threshold=2ms");
    let mut signals = Signals::default();
    for id in 0..10 {
        queue.enqueue(Time::ZERO, packet(id, 1_000, Ecn::Ect0), &mut signals);
    }
    for ms in 0..5 {
        let _ = queue.dequeue(Time::from_millis(ms), &mut signals);
    }
    assert_eq!(signals.marks, [(3, 3), (4, 4)]);
}

/// The kernel's clock wraps after 2^32 ticks of 1024 ns, 73 minutes; the behaviour must not change
/// then.
#[test]
fn the_wrap_of_the_kernel_clock_changes_nothing() {
    let run = |start_ms: u64, profile: &str| {
        let mut queue = queue(&format!("codel:profile={profile},limit=100000p"));
        let mut signals = Signals::default();
        for half_ms in 0..2_000_u64 {
            let now = Time::from_micros(start_ms * 1_000 + half_ms * 500);
            queue.enqueue(now, packet(half_ms as u32, 1_500, Ecn::NotEct), &mut signals);
            if half_ms % 2 == 0 {
                let _ = queue.dequeue(now, &mut signals);
            }
        }
        signals.drops.iter().map(|(id, _)| *id).collect::<Vec<_>>()
    };
    let wrap_ms = (1_u64 << 42) / 1_000_000;
    for profile in ["linux", "rfc"] {
        // Multiples of 1024 ms, so that both runs see the same fractions of a tick.
        assert_eq!(run(0, profile), run((wrap_ms - 500) / 1_024 * 1_024, profile), "{profile}");
    }
}
