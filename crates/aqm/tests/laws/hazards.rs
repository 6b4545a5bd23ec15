//! Situations in which queue disciplines are known to fail.

use underload_aqm::config::LinkFacts;
use underload_aqm::packet::{Dscp, Meta, Packet};
use underload_aqm::qdisc::Dequeue;
use underload_aqm::registry::QueueSetup;
use underload_aqm::rng::Rng;
use underload_aqm::time::Time;
use underload_laws::{self as laws, Subject};

use crate::subject::subjects;

/// After any history, a minute of silence restores the initial behaviour.
///
/// Excludes SFB as in Linux, whose probabilities change only with arrivals.
#[test]
fn a_trickle_after_an_idle_minute_passes_untouched() {
    let forgets = |subject: &&Subject| !subject.name().starts_with("sfb:profile=linux");
    subjects().iter().filter(forgets).for_each(laws::forgets_in_a_minute);
}

/// Left out: FQ-CoDel as Linux runs it, with so small a limit or memory that overflows raise the
/// count of flows that never dropped before. The kernel takes a next drop that is 36 to 73 minutes
/// old for one still ahead (see `codel::Linux`), and so does the profile. SFB, where its
/// hash changes every ten minutes: at another time flows share other bins.
#[test]
fn the_wrap_of_a_32_bit_clock_changes_nothing() {
    let is_left_out = |spec: &str| {
        let given = spec.strip_prefix("fq-codel:profile=linux,").unwrap_or_default();
        given.starts_with("limit=")
            || given.starts_with("memory=")
            || (spec.starts_with("sfb:") && !spec.contains("rehash=0s"))
    };
    let counts = |subject: &&Subject| !is_left_out(subject.name());
    subjects().iter().filter(counts).for_each(laws::survives_the_wrap_of_a_clock);
}

#[test]
fn a_packet_larger_than_the_limit_does_no_lasting_harm() {
    subjects().iter().for_each(laws::survives_a_giant);
}

#[test]
fn super_packets_reach_the_link_from_every_flow() {
    subjects().iter().for_each(laws::serves_every_flow);
}

/// Strict priority starves lower classes; the counters of the starved class must show its backlog
/// and losses.
#[test]
fn starvation_by_priority_shows_in_the_counters() {
    let setup = QueueSetup::parse("diffserv:low=[fifo:limit=10p]", &LinkFacts::default());
    let mut queue = setup.expect("a queue").build::<u32>(&Rng::new(0));
    let mut low_served = 0;
    for ms in 0..1_000 {
        for dscp in [46, 0] {
            let mut meta = Meta::new(1_250, u32::from(dscp));
            meta.dscp = Dscp::new(dscp).expect("a codepoint");
            queue.enqueue(Time::from_millis(ms), Packet { meta, payload: 0 }, &mut ());
        }
        if let Dequeue::Packet(packet) = queue.dequeue(Time::from_millis(ms), &mut ()) {
            low_served += u32::from(packet.meta.dscp == Dscp::DEFAULT);
        }
    }
    let mut low_bytes = 0.0;
    queue.gauges(&mut |name, value| {
        if name == "diffserv.low_bytes" {
            low_bytes = value;
        }
    });
    assert_eq!((low_served, queue.stats().dropped_enqueue.packets), (0, 990));
    assert_eq!((queue.backlog().packets, low_bytes as u64), (10, 12_500));
}

/// Profiles on a millisecond clock round both instants down: an age of one nanosecond more than
/// 20 ms is over the bound on one side of a tick only.
#[test]
fn whole_milliseconds_are_rounded_down_at_both_ends() {
    let survives = |profile: &str, arrival_us: u64, departure_us: u64| {
        let spec = format!("bode:profile={profile},bound=20ms,exempt=0p");
        let setup = QueueSetup::parse(&spec, &LinkFacts::default()).expect("a queue");
        let mut queue = setup.build::<u32>(&Rng::new(0));
        for id in 0..3 {
            let packet = Packet { meta: Meta::new(1_500, 0), payload: id };
            queue.enqueue(Time::from_micros(arrival_us), packet, &mut ());
        }
        let answer = queue.dequeue(Time::from_micros(departure_us), &mut ());
        matches!(answer, Dequeue::Packet(packet) if packet.payload == 0)
    };
    // Age 20.998 ms within 20 ticks; age 20.002 ms over 21 ticks.
    assert!(survives("patch", 1_001, 21_999) && !survives("patch", 1_999, 22_001));
    assert!(!survives("paper", 1_001, 21_999) && !survives("paper", 1_999, 22_001));
    assert!(survives("paper", 1_999, 21_998));
}
