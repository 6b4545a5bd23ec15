//! Single facts about FQ-CoDel that other implementations' suites assert.

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Ecn, Meta, Packet};
use underload_aqm::qdisc::{DropReason, MarkReason, Observer, Qdisc};
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;

#[derive(Default)]
struct PerFlow {
    marks: [u32; 5],
    drops: [u32; 5],
}

impl Observer<()> for PerFlow {
    fn dropped(&mut self, _now: Time, packet: Packet<()>, _reason: DropReason) {
        self.drops[packet.meta.flow as usize] += 1;
    }

    fn marked(&mut self, _now: Time, packet: &Packet<()>, _reason: MarkReason) {
        self.marks[packet.meta.flow as usize] += 1;
    }
}

fn queue(spec: &str) -> Box<dyn Qdisc<()>> {
    QueueSetup::parse(spec, &LinkFacts::default()).expect(spec).build(&Rng::new(0))
}

/// Five flows of 20 packets of 120 bytes, one dequeue every 110 ms until nothing is left.
fn five_flows(spec: &str, ecn: Ecn) -> PerFlow {
    let mut queue = queue(spec);
    let mut signals = PerFlow::default();
    for flow in 0..5 {
        for _ in 0..20 {
            let mut meta = Meta::new(120, flow);
            meta.ecn = ecn;
            queue.enqueue(Time::ZERO, Packet { meta, payload: () }, &mut signals);
        }
    }
    let mut now_ms = 0;
    while !queue.backlog().is_empty() {
        now_ms += 110;
        let _ = queue.dequeue(Time::from_millis(now_ms), &mut signals);
    }
    signals
}

/// ns-3's suite marks six packets of each flow. Its guard looks at the flow's own 1500 bytes, as
/// the `rfc` profile does; the kernel's looks at all flows and continues to mark.
#[test]
fn marks_of_each_flow_depend_on_whose_backlog_the_guard_sees() {
    let own = five_flows("fq-codel:profile=rfc,mtu=1500B", Ecn::Ect0);
    assert_eq!((own.marks, own.drops), ([6; 5], [0; 5]));
    let whole = five_flows("fq-codel:profile=linux,mtu=1500B", Ecn::Ect0);
    assert!(whole.marks.iter().all(|&marks| marks > 6), "{:?}", whole.marks);
}

#[test]
fn not_ect_packets_are_dropped_and_without_ecn_no_packet_is_marked() {
    for (spec, ecn) in [
        ("fq-codel:profile=rfc,mtu=1500B", Ecn::NotEct),
        ("fq-codel:profile=rfc,mtu=1500B,ecn=off", Ecn::Ect0),
    ] {
        let signals = five_flows(spec, ecn);
        assert_eq!((signals.marks, signals.drops), ([0; 5], [3; 5]), "{spec}");
    }
}

/// An overflow counts as a signal in the victim's CoDel (Linux `fq_codel_drop`), so that the law
/// signals more often from the start.
#[test]
fn overflow_drops_raise_the_count_of_the_law() {
    let drops_within_a_second = |limit: &str| {
        let mut queue = queue(&format!("fq-codel:profile=linux,ecn=off,limit={limit}"));
        for _ in 0..600 {
            queue.enqueue(
                Time::from_secs(1),
                Packet { meta: Meta::new(1_500, 0), payload: () },
                &mut (),
            );
        }
        for ms in 0..500 {
            let _ = queue.dequeue(Time::from_millis(1_000 + ms), &mut ());
        }
        queue.stats().dropped_dequeue.packets
    };
    assert!(drops_within_a_second("10240p") < drops_within_a_second("590p"));
}
