//! The packets that leave a link, their times and their changes do not depend on how often the link
//! is polled; and a busy link passes as much as its rate.

use proptest::prelude::*;
use underload_aqm::config::LinkFacts;
use underload_aqm::link::Link;
use underload_aqm::packet::{Dscp, Ecn, Meta, Packet};
use underload_aqm::qdisc::{DropReason, Observer};
use underload_aqm::rate::Rate;
use underload_aqm::registry::{LinkSetup, QUEUES, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

const LINKS: [&str; 18] = [
    "3mbit:delay=2ms,overhead=18B",
    "steps:0s=3mbit,20ms=0bit,25ms=700kbit,repeat=40ms,delay=1ms",
    "steps:0s=6mbit,30ms=300kbit,loss=5%",
    "trace:t,delay=3ms",
    "trace:t,profile=exact",
    "docsis:rate=2mbit,burst=9kB,peak=7mbit",
    "unlimited:delay=4ms",
    "cellular:preset=lte-driving,delay=2ms",
    "cellular:centre=4mbit,max=8mbit,reversion=0s,tick=1ms,outage-gap=50ms,outage-length=9ms",
    "3mbit:delay=1ms,jitter=5ms,loss=2%",
    "3mbit:jitter=5ms,jitter-law=exponential,jitter-order=free,overhead=18B",
    "3mbit:delay=1ms,jitter=2ms,jitter-law=normal,reorder=10%,reorder-by=7ms",
    "docsis:rate=2mbit,burst=9kB,peak=7mbit,map=2ms,grant=3ms,delay=1ms",
    "docsis:generation=2.0,rate=2mbit,peak=7mbit,request=contention-random,busy=30%,delay=1ms",
    "3mbit:delay=1ms,jitter=5ms,jitter-order=free,loss=5%,mark=20%",
    "steps:0s=3mbit,9ms=500kbit,repeat=20ms,loss=5%,remark=dscp:45>0@0%..60%+ecn:bleach@40%..90%",
    "radio:0=3mbit,1=[steps:0s=3mbit,20ms=0bit,25ms=700kbit,repeat=40ms],\
     scheduler=proportional-fair,delay=1ms",
    "radio:0-1=[cellular:preset=lte-driving],scheduler=packets,aggregate=2p,access=100us,\
     dtim=10ms,memory=20kB",
];

/// A packet at the far end: its number, when it arrived, and its DSCP and ECN fields then.
type Arrival = (usize, Time, u8);

/// Returns packet number `id` with DSCP 45; the ECN fields and the hosts alternate.
fn packet(id: usize, len: u32) -> Packet<usize> {
    let dscp = Dscp::NON_QUEUE_BUILDING;
    let meta =
        Meta { dscp, ecn: Ecn::from_bits(id as u8), dst: id as u32 % 3, ..Meta::new(len, 0) };
    Packet { meta, payload: id }
}

fn arrival((time, packet): (Time, Packet<usize>)) -> Arrival {
    (packet.payload, time, packet.meta.tos())
}

fn link(spec: &str, queue: &str) -> Link<usize> {
    let mut load = |_: &str| Ok(b"0\n2\n2\n3\n9\n11\n17\n".to_vec());
    let setup = LinkSetup::parse_with(spec, &mut load).expect(spec);
    let rate = setup.facts().rate.or(Some(Rate::from_megabits_per_second(3)));
    let facts = LinkFacts { rate, ..setup.facts() };
    let queue = QueueSetup::parse(queue, &facts).expect(queue);
    let rng = Rng::new(11);
    setup.build_behind(&queue, &rng)
}

/// Offers the packets, polls every `every` between arrivals, and returns the packets that left.
fn outcome(spec: &str, queue: &str, script: &[(u64, u32)], every: Option<Span>) -> Vec<Arrival> {
    let mut link = link(spec, queue);
    let mut out = Vec::new();
    let (mut now, mut polled) = (Time::ZERO, Time::ZERO);
    for (id, &(gap_us, len)) in script.iter().enumerate() {
        now += Span::from_micros(gap_us);
        if let Some(every) = every {
            while polled + every < now {
                polled += every;
                while let Some(arrived) = link.poll(polled, &mut ()) {
                    assert!(arrived.0 <= polled);
                    out.push(arrival(arrived));
                }
            }
        }
        link.send(now, packet(id, len), &mut ());
    }
    while let Some(arrived) = link.poll(now + Span::from_secs(600), &mut ()) {
        out.push(arrival(arrived));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn polling_changes_nothing(
        script in prop::collection::vec((0_u64..3_000, 40_u32..1_400), 1..150),
    ) {
        for spec in LINKS {
            for queue in ["fifo:limit=20p", "pie", "docsis-pie", "codel"] {
                let once = outcome(spec, queue, &script, None);
                for every in [Span::from_micros(1_000), Span::from_nanos(77_777)] {
                    let polled = outcome(spec, queue, &script, Some(every));
                    prop_assert_eq!(&polled, &once, "{} behind {}", queue, spec);
                }
            }
        }
    }
}

/// Like [`outcome`], but polls only at the times of `next_event`.
fn outcome_by_events(spec: &str, script: &[(u64, u32)]) -> Vec<Arrival> {
    let mut link = link(spec, "fifo:limit=20p");
    let mut out = Vec::new();
    let mut now = Time::ZERO;
    let mut run_until = |link: &mut Link<usize>, limit: Time| {
        while let Some(event) = link.next_event().filter(|event| *event < limit) {
            while let Some(arrived) = link.poll(event, &mut ()) {
                assert_eq!(
                    arrived.0, event,
                    "{spec}: a packet came out before the event that was named"
                );
                out.push(arrival(arrived));
            }
            assert_ne!(link.next_event(), Some(event), "{spec}: an event that never passes");
        }
    };
    for (id, &(gap_us, len)) in script.iter().enumerate() {
        now += Span::from_micros(gap_us);
        run_until(&mut link, now);
        link.send(now, packet(id, len), &mut ());
    }
    run_until(&mut link, now + Span::from_secs(600));
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn the_next_event_is_never_reported_too_late(
        script in prop::collection::vec((0_u64..3_000, 40_u32..1_400), 1..150),
    ) {
        for spec in LINKS {
            let late = outcome(spec, "fifo:limit=20p", &script, None);
            prop_assert_eq!(outcome_by_events(spec, &script), late, "{}", spec);
        }
    }

    #[test]
    fn order_is_kept_unless_an_option_allows_reordering(
        script in prop::collection::vec((0_u64..1_000, 40_u32..1_400), 50..150),
    ) {
        for spec in LINKS {
            let out = outcome(spec, "fifo:limit=20p", &script, None);
            let free = spec.contains("jitter-order=free") || spec.contains("reorder=");
            let free = free || spec.starts_with("radio:");
            prop_assert!(free || out.is_sorted_by_key(|(id, ..)| *id), "{}", spec);
        }
    }
}

/// Counts what a link does with its packets.
#[derive(Debug, Default)]
struct Fates {
    dropped: usize,
    transmitted: usize,
}

impl Observer<usize> for Fates {
    fn dropped(&mut self, _now: Time, _packet: Packet<usize>, _reason: DropReason) {
        self.dropped += 1;
    }

    fn transmitted(&mut self, _start: Time, _end: Time, _packet: &Packet<usize>) {
        self.transmitted += 1;
    }
}

/// Sends bursts of many flows, each followed by silence in which most of a queue leaves, and polls
/// only at the times that the link announces.
fn drained_by_events(spec: &str, queue: &str) -> Fates {
    const BURST: usize = 60;
    let mut link = link(spec, queue);
    let (mut fates, mut arrived) = (Fates::default(), 0);
    for burst in 0..8 {
        for number in 0..BURST {
            let mut packet = packet(burst * BURST + number, 100 + 13 * number as u32);
            packet.meta.flow = (number % 7) as u32;
            link.send(Time::from_millis(90 * burst as u64), packet, &mut fates);
        }
        let end = if burst < 7 { Time::from_millis(90 * (burst as u64 + 1)) } else { Time::MAX };
        let mut events = 0;
        while let Some(event) = link.next_event().filter(|event| *event < end) {
            arrived += usize::from(link.poll(event, &mut fates).is_some());
            events += 1;
            assert!(events < 100_000, "{queue} behind {spec}: events without end");
        }
    }
    let (left, flying) = (link.queue().backlog(), link.in_flight());
    assert!(left.is_empty(), "{queue} behind {spec} is left with {left:?}");
    assert_eq!((flying, arrived), (0, fates.transmitted), "{queue} behind {spec}");
    assert_eq!(fates.transmitted + fates.dropped, 8 * BURST, "{queue} behind {spec}");
    fates
}

/// A queue that is asked for one packet may drop several and answer that it is empty. If it still
/// stores packets, the link must ask again without another arrival.
#[test]
fn no_packet_waits_for_a_request_that_its_link_never_makes() {
    let names = QUEUES.iter().map(|entry| entry.definition.name.to_owned());
    let eager = [
        "codel:target=10us,interval=20us",
        "fq-codel:target=10us,interval=20us,flows=4",
        "cake:rate=2mbit,rtt=100us",
        "fq-pie:target=1ms,tupdate=1ms",
        "bode:bound=3ms",
        "docsis-lld:delay=virtual,grant-rate=1mbit",
    ];
    for queue in names.chain(eager.map(String::from)) {
        for spec in [
            "3mbit:delay=2ms",
            "steps:0s=3mbit,20ms=0bit,25ms=700kbit,repeat=40ms,delay=1ms",
            "docsis:rate=2mbit,burst=9kB,peak=7mbit,map=2ms,grant=3ms,delay=1ms",
            "unlimited",
        ] {
            drained_by_events(spec, &queue);
        }
    }
    for queue in &eager[..2] {
        let fates = drained_by_events("3mbit:delay=2ms", queue);
        assert!(fates.dropped > 20, "the premise: {queue} drops when it is asked: {fates:?}");
    }
}

#[test]
fn the_reordering_option_reorders_packets() {
    let script: Vec<(u64, u32)> = vec![(500, 100); 500];
    for spec in ["3mbit:jitter=5ms,jitter-order=free", "3mbit:reorder=10%,reorder-by=7ms"] {
        let out = outcome(spec, "fifo:limit=20p", &script, None);
        assert_eq!(out.len(), 500);
        assert!(!out.is_sorted_by_key(|(id, ..)| *id), "{spec}");
        assert!(out.is_sorted_by_key(|(_, time, _)| *time), "{spec}");
    }
}

#[test]
fn a_busy_link_passes_packets_at_its_rate() {
    for (spec, bits_per_second) in [
        ("3mbit", 3_000_000.0),
        ("steps:0s=3mbit,20ms=0bit,25ms=700kbit,repeat=40ms", 1_762_500.0),
        ("trace:t,overhead=0B", 7.0 * 1_504.0 * 8.0 / 0.017),
        ("trace:t,profile=exact,overhead=0B", 7.0 * 1_504.0 * 8.0 / 0.017),
        ("docsis:rate=2mbit,burst=9kB,peak=7mbit", 2_000_000.0),
    ] {
        let script: Vec<(u64, u32)> = vec![(0, 700); 60_000];
        let out = outcome(spec, "fifo:limit=60000p", &script, None);
        let last = out.last().expect("packets come out").1.as_secs_f64();
        let measured = out.len() as f64 * 5_600.0 / last;
        let error = (measured / bits_per_second - 1.0).abs();
        assert!(error < 1e-3, "{spec}: {measured} instead of {bits_per_second}");
    }
}
