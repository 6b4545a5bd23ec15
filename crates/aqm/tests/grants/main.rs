//! Packets wait in the queue for requests and grants of a `docsis` link with `map`: any queue, and the
//! two service flows of Low Latency DOCSIS.

mod parameters;

use std::collections::BTreeSet;

use proptest::prelude::*;
use underload_aqm::link::Link;
use underload_aqm::packet::{Dscp, Meta, Packet};
use underload_aqm::qdisc::{DropReason, Observer};
use underload_aqm::registry::{LinkSetup, QueueSetup};
use underload_aqm::rng::Rng;
use underload_aqm::time::{Span, Time};

/// Boundaries every 2 ms, grants 3 ms after them, sent at 40 Mbit/s: 1000 bytes in 200 us.
const LINK: &str = "docsis:rate=20mbit,peak=40mbit,map=2ms,grant=3ms";

fn link(spec: &str, queue: &str) -> Link<usize> {
    let setup = LinkSetup::parse(spec).expect(spec);
    let queue = QueueSetup::parse(queue, &setup.facts()).expect(queue);
    let rng = Rng::new(11);
    setup.build(queue.build(&rng), &rng)
}

/// A packet of the low latency flow, or of the classic one.
fn packet(id: usize, len: u32, low_latency: bool) -> Packet<usize> {
    let mut meta = Meta::new(len, u32::from(low_latency));
    if low_latency {
        meta.dscp = Dscp::NON_QUEUE_BUILDING;
    }
    Packet { meta, payload: id }
}

/// The departures in order: start and end of transmission, bytes, and whether of the low latency
/// flow.
#[derive(Default)]
struct Log {
    sent: Vec<(Time, Time, u32, bool)>,
    order: Vec<usize>,
    dropped: usize,
    /// Packets that queue protection moved to the classic flow.
    sanctioned: BTreeSet<usize>,
}

impl Observer<usize> for Log {
    fn dropped(&mut self, _now: Time, _packet: Packet<usize>, _reason: DropReason) {
        self.dropped += 1;
    }

    fn sanctioned(&mut self, _now: Time, packet: &Packet<usize>, _score: Span) {
        self.sanctioned.insert(packet.payload);
    }

    fn transmitted(&mut self, start: Time, end: Time, packet: &Packet<usize>) {
        let low_latency = packet.meta.dscp == Dscp::NON_QUEUE_BUILDING;
        self.sent.push((start, end, packet.meta.len, low_latency));
        self.order.push(packet.payload);
    }
}

fn drain(link: &mut Link<usize>, log: &mut Log, until: Time) {
    while let Some(event) = link.next_event().filter(|event| *event <= until) {
        while link.poll(event, log).is_some() {}
        assert_ne!(link.next_event(), Some(event), "an event that never passes");
    }
}

/// A gauge that counts bytes.
fn gauge(link: &Link<usize>, wanted: &str) -> u64 {
    let mut found = None;
    link.gauges(&mut |name, value| {
        if name == wanted {
            found = Some(value as u64);
        }
    });
    found.unwrap_or_else(|| panic!("no gauge {wanted}"))
}

fn us(micros: u64) -> Time {
    Time::from_micros(micros)
}

#[test]
fn a_packet_is_requested_at_the_next_boundary_and_leaves_with_its_grant() {
    let (mut link, mut log) = (link(LINK, "docsis-lld"), Log::default());
    for (id, at) in [300, 2_000, 2_001].into_iter().enumerate() {
        link.send(us(at), packet(id, 1_000, true), &mut log);
    }
    drain(&mut link, &mut log, us(100_000));
    let times: Vec<_> = log.sent.iter().map(|(start, end, ..)| (*start, *end)).collect();
    // The first two packets are requested at 2 ms (an arrival at the boundary counts), the third at
    // 4 ms.
    let expected = [(5_000, 5_200), (5_200, 5_400), (7_000, 7_200)];
    assert_eq!(times, expected.map(|(start, end)| (us(start), us(end))));
    assert_eq!(link.next_event(), None, "an empty upstream rests");
}

#[test]
fn a_proactive_grant_saves_the_request() {
    // A proactive grant of 1000 bytes every millisecond.
    let queue = "docsis-lld:grant-rate=8mbit,grant-interval=1ms";
    let (mut link, mut log) = (link(LINK, queue), Log::default());
    link.send(us(300), packet(0, 1_000, true), &mut log);
    link.send(us(300), packet(1, 1_000, false), &mut log);
    drain(&mut link, &mut log, us(100_000));
    let times: Vec<_> = log.sent.iter().map(|(start, ..)| *start).collect();
    assert_eq!(times, [us(1_000), us(5_000)], "the classic flow has none");
}

#[test]
fn a_packet_too_large_for_one_grant_leaves_with_the_grant_that_completes_it() {
    // Proactive grants of 400 bytes every millisecond; the request loop is too long to matter.
    let spec = "docsis:rate=20mbit,peak=40mbit,map=2ms,grant=1s";
    let queue = "docsis-lld:grant-rate=3200kbit,grant-interval=1ms";
    let (mut link, mut log) = (link(spec, queue), Log::default());
    link.send(us(300), packet(0, 1_000, true), &mut log);
    link.send(us(300), packet(1, 100, true), &mut log);
    drain(&mut link, &mut log, us(50_000));
    let times: Vec<_> = log.sent.iter().map(|(start, ..)| *start).collect();
    // 800 of its bytes are sent before 3 ms, and 200 of that grant are left for the next packet.
    assert_eq!(times, [us(3_000), us(3_040)]);
}

#[test]
fn a_marked_packet_overtakes_inside_the_modem() {
    let (mut link, mut log) = (link(LINK, "docsis-lld"), Log::default());
    for id in 0..40 {
        link.send(us(0), packet(id, 1_500, false), &mut log);
    }
    link.send(us(4_000), packet(40, 200, true), &mut log);
    drain(&mut link, &mut log, us(200_000));
    let place = log.order.iter().position(|id| *id == 40).expect("it left");
    // By then 7 ms of 20 Mbit/s and the burst are granted: 13 of 40 packets.
    assert_eq!(log.sent[place].0, us(7_000));
    assert!(place < 15 && log.order.len() == 41, "{place}");
}

/// Both flows have packets for all of `seconds`. Returns the bytes of each, L first.
fn busy(spec: &str, queue: &str, seconds: u64) -> [u64; 2] {
    let (mut link, mut log) = (link(spec, queue), Log::default());
    let end = Time::from_secs(seconds);
    for step in 0..seconds * 4_000 {
        let now = us(step * 250);
        for low_latency in [true, false] {
            link.send(now, packet(0, 1_250, low_latency), &mut log);
        }
    }
    drain(&mut link, &mut log, end);
    let mut bytes = [0; 2];
    // Excludes the beginning, with its bursts and the delay of the first grants.
    let steady = log.sent.iter().filter(|(start, ..)| *start >= Time::from_secs(1) && *start < end);
    for (.., len, low_latency) in steady {
        bytes[usize::from(!low_latency)] += u64::from(*len);
    }
    bytes
}

/// No packet is moved, and packets are dropped only because a queue is full.
const GREEDY: &str = "docsis-lld:protection=off,classic-limit=1MB,low-latency-limit=1MB,target=1s";

#[test]
fn while_both_flows_request_bytes_divide_by_weight_and_fill_the_rate() {
    // 2.5 MB per second.
    let [low_latency, classic] = busy(LINK, GREEDY, 3);
    let total = low_latency + classic;
    assert!(total.abs_diff(5_000_000) <= 2 * 6_250, "{total}");
    let share = low_latency as f64 / total as f64;
    assert!((share - 230.0 / 256.0).abs() < 0.002, "{share}");
}

#[test]
fn grants_keep_each_flow_to_its_own_rate() {
    let [low_latency, classic] = busy(LINK, &format!("{GREEDY},low-latency-rate=4mbit"), 3);
    assert!(low_latency.abs_diff(1_000_000) <= 2_500, "{low_latency}");
    assert!(classic.abs_diff(4_000_000) <= 12_500, "{classic}");
    let [_, alone] =
        busy(LINK, &format!("{GREEDY},classic-rate=500kbit,low-latency-rate=1mbit"), 3);
    assert!(alone.abs_diff(125_000) <= 2_500, "{alone}");
}

#[test]
fn proactive_grants_count_in_the_low_latency_part() {
    // 19 of 20 Mbit/s are granted proactively, more than 230/256 of them.
    let [low_latency, classic] = busy(LINK, &format!("{GREEDY},grant-rate=19mbit"), 3);
    assert!(low_latency.abs_diff(4_750_000) <= 15_000, "{low_latency}");
    assert!(classic.abs_diff(250_000) <= 5_000, "{classic}");
}

/// Capacity is idle only if no flow requests it: the unused part of proactive grants is granted
/// again.
#[test]
fn unused_proactive_grants_do_not_reduce_the_classic_flows_rate() {
    let queue = format!("{GREEDY},grant-rate=5mbit");
    let (mut link, mut log) = (link(LINK, &queue), Log::default());
    for step in 0..8_000 {
        link.send(us(step * 250), packet(0, 1_250, false), &mut log);
    }
    drain(&mut link, &mut log, Time::from_secs(2));
    let steady = log.sent.iter().filter(|(start, ..)| *start >= Time::from_secs(1));
    let bytes: u64 = steady.map(|(.., len, _)| u64::from(*len)).sum();
    assert!(bytes.abs_diff(2_500_000) <= 2 * 6_250, "{bytes} of a second of 20 Mbit/s");
    let unused = gauge(&link, "grants.low_latency_unused_bytes");
    assert!(unused.abs_diff(1_250_000) <= 10_000, "{unused}: two seconds of 5 Mbit/s");
}

#[test]
fn without_requests_the_low_latency_flow_gets_no_more_than_guaranteed() {
    // No requested grant begins within the first second.
    let spec = "docsis:rate=20mbit,peak=40mbit,map=2ms,grant=1s";
    let queue = format!("{GREEDY},grant-rate=2mbit,grant-interval=3ms");
    let (mut link, mut log) = (link(spec, &queue), Log::default());
    for step in 0..1_000 {
        link.send(us(step * 1_000), packet(0, 1_400, true), &mut log);
    }
    drain(&mut link, &mut log, Time::from_millis(999));
    let mut bytes = 0;
    for (start, _, len, _) in &log.sent {
        bytes += u64::from(*len);
        // 250,000 bytes per second, the grant at time zero (750 bytes) and one packet.
        let guaranteed = start.as_nanos() / 4_000 + 750;
        assert!(bytes <= guaranteed + 1_400, "{bytes} by {start:?}");
    }
    assert!(bytes >= 247_000, "{bytes}");
}

#[test]
fn every_granted_byte_is_sent_or_counted_as_unused() {
    let queue = "docsis-lld:grant-rate=8mbit,grant-interval=1ms";
    let (mut link, mut log) = (link(LINK, queue), Log::default());
    for id in 0..50 {
        link.send(us(id * 20_300), packet(id as usize, 600, true), &mut log);
    }
    drain(&mut link, &mut log, Time::from_secs(10));
    link.send(Time::from_secs(10), packet(50, 600, true), &mut log);
    drain(&mut link, &mut log, Time::from_secs(20));
    let granted = gauge(&link, "grants.low_latency_granted_bytes");
    let unused = gauge(&link, "grants.low_latency_unused_bytes");
    assert_eq!(granted - unused, 51 * 600);
    assert!((10_000_000..10_020_000).contains(&granted), "{granted}: ten seconds of them");
    assert_eq!(gauge(&link, "grants.granted_bytes"), 0);
}

/// Arrivals: gap in microseconds, bytes, and whether of the low latency flow.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    prop::collection::vec((0_u64..3_000, 40_u32..1_500, any::<bool>()), 1..200)
}

const SPECS: [(&str, &str); 10] = [
    (LINK, "docsis-lld"),
    ("docsis:rate=3mbit,peak=3mbit,map=700us,grant=0s", "docsis-lld:grant-rate=1mbit"),
    (
        "docsis:rate=5mbit,peak=9mbit,burst=20kB,map=3ms,grant=10ms,delay=1ms",
        "docsis-lld:grant-rate=700kbit,grant-interval=1700us,classic-rate=2mbit,protection=off",
    ),
    (
        "docsis:rate=2mbit,peak=40mbit,map=2ms,grant=4ms,loss=20%,overhead=18B",
        "docsis-lld:low-latency-rate=1mbit,low-latency-peak=1500kbit",
    ),
    (LINK, "fifo:limit=20kB"),
    ("docsis:rate=3mbit,peak=3mbit,map=700us,grant=0s", "codel:target=1ms,interval=2ms"),
    ("docsis:rate=5mbit,peak=9mbit,burst=20kB,map=3ms,grant=10ms,delay=1ms", "fq-codel"),
    ("docsis:rate=2mbit,peak=40mbit,map=2ms,grant=4ms,loss=20%", "head-drop:limit=9kB"),
    ("docsis:rate=2mbit,peak=40mbit,map=2ms,grant=4ms", "cake:rate=1mbit"),
    ("docsis:rate=2mbit,peak=3mbit,map=2ms,grant=4ms,jitter=3ms", "docsis-pie"),
];

/// Sends the packets, and polls every `every` in addition. Returns the packets that left, with
/// their times.
fn outcome(
    (spec, queue): (&str, &str),
    script: &[(u64, u32, bool)],
    every: Option<Span>,
) -> (Vec<(usize, Time)>, Log) {
    let (mut link, mut log) = (link(spec, queue), Log::default());
    let (mut now, mut polled, mut out) = (Time::ZERO, Time::ZERO, Vec::new());
    for (id, &(gap_us, len, low_latency)) in script.iter().enumerate() {
        now += Span::from_micros(gap_us);
        while let Some(every) = every.filter(|every| polled + *every < now) {
            polled += every;
            while let Some((time, packet)) = link.poll(polled, &mut log) {
                out.push((packet.payload, time));
            }
        }
        link.send(now, packet(id, len, low_latency), &mut log);
    }
    let end = now + Span::from_secs(60);
    while let Some((time, packet)) = link.poll(end, &mut log) {
        out.push((packet.payload, time));
    }
    assert!(link.queue().backlog().is_empty(), "{spec}: a minute drains everything");
    assert_eq!(link.next_event(), None);
    (out, log)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn polling_changes_nothing(script in arrivals()) {
        for case in SPECS {
            let (once, log) = outcome(case, &script, None);
            for every in [Span::from_micros(1_000), Span::from_nanos(77_777)] {
                let (polled, polled_log) = outcome(case, &script, Some(every));
                prop_assert_eq!(&polled, &once, "{:?}", case);
                prop_assert_eq!(&polled_log.sent, &log.sent, "{:?}", case);
            }
        }
    }

    #[test]
    fn every_packet_leaves_once_or_is_dropped_and_flows_keep_their_order(script in arrivals()) {
        for case in SPECS {
            let (out, log) = outcome(case, &script, None);
            prop_assert_eq!(out.len() + log.dropped, script.len(), "{:?}", case);
            // Packets that queue protection moved stay in order, and so do the others.
            for (low_latency, sent_away) in [(true, false), (true, true), (false, false)] {
                let of = |(id, _): &&(usize, Time)| {
                    script[*id].2 == low_latency && log.sanctioned.contains(id) == sent_away
                };
                let ids: Vec<_> = out.iter().filter(of).map(|(id, _)| *id).collect();
                prop_assert!(ids.is_sorted(), "{:?}", case);
            }
            prop_assert!(log.sanctioned.iter().all(|id| script[*id].2), "{:?}", case);
        }
    }

    /// Buckets are settled per MAP interval: any window has at most the bytes of the rate, the
    /// burst, and two intervals.
    #[test]
    fn every_window_conforms(script in arrivals()) {
        let rate_and_burst = [(20_000, 3_044, 2_000), (3_000, 3_044, 700), (5_000, 20_000, 3_000)];
        for (case, (kilobits, burst, map_us)) in SPECS.into_iter().zip(rate_and_burst) {
            let (_, log) = outcome(case, &script, None);
            for from in 0..log.sent.len() {
                let mut bytes = 0;
                for (start, _, len, _) in &log.sent[from..] {
                    bytes += u64::from(*len);
                    let window_us = start.since(log.sent[from].0).as_nanos() / 1_000 + 2 * map_us;
                    // A packet is sent with bytes that were granted before it had arrived
                    // completely.
                    let most = kilobits * window_us / 8_000 + burst + 2 * 1_500;
                    prop_assert!(bytes <= most, "{:?}: {} > {}", case, bytes, most);
                }
            }
        }
    }
}

/// A sum of gauges over the service flows, in bytes.
fn total(link: &Link<usize>, name: &str) -> u64 {
    gauge(link, &format!("grants.{name}_bytes"))
        + gauge(link, &format!("grants.low_latency_{name}_bytes"))
}

/// The queues with a limit of `bytes`, for packets of `len` bytes.
fn limited(bytes: u64, len: u32) -> [String; 5] {
    let packets = (bytes / u64::from(len)).max(1);
    [
        format!("fifo:limit={bytes}B"),
        format!("docsis-lld:target=1s,classic-limit={bytes}B,protection=off"),
        format!("head-drop:limit={bytes}B"),
        format!("codel:limit={packets}p,target=1ms,interval=4ms"),
        format!("fq-codel:limit={packets}p"),
    ]
}

/// Megabits per second that a source of 30 Mbit/s gets through 25 Mbit/s, in packets of 1200 bytes
/// of which 1172 count.
fn goodput(queue: &str, map_ms: u64, grant_ms: u64) -> f64 {
    let spec = format!("docsis:rate=25mbit,peak=25mbit,map={map_ms}ms,grant={grant_ms}ms");
    let (mut link, mut log) = (link(&spec, queue), Log::default());
    for step in 0..31_250 {
        link.send(us(step * 320), packet(0, 1_200, false), &mut log);
        while link.poll(us(step * 320), &mut log).is_some() {}
    }
    let steady = log.sent.iter().filter(|(start, ..)| *start >= Time::from_secs(1));
    steady.count() as f64 * 1_172.0 * 8.0 / 9e6
}

/// A byte occupies the buffer for T, the MAP interval and the time to the grant, however many
/// requests overlap: 8 B / T, up to the rate. The first value of each row is B in KiB.
#[test]
fn a_buffer_carries_its_bytes_once_per_request_and_grant() {
    let timings = [(2, 4), (1, 4), (2, 2), (1, 2)];
    for (kibibytes, expected) in [
        (4, [4.69, 5.63, 7.03, 9.38]),
        (8, [9.38, 11.25, 14.06, 18.75]),
        (12, [15.63, 18.75, 23.44, 24.35]),
        // 13 packets at 5 ms would be 24.38: near the rate, the place in the grant counts, too.
        (16, [20.32, 23.44, 24.35, 24.35]),
        (24, [24.35; 4]),
        (64, [24.35; 4]),
    ] {
        for queue in &limited(kibibytes * 1_024, 1_200)[..2] {
            for ((map_ms, grant_ms), expected) in timings.into_iter().zip(expected) {
                let carried = goodput(queue, map_ms, grant_ms);
                let error = (carried / expected - 1.0).abs();
                assert!(error < 0.01, "{queue}, {map_ms} and {grant_ms} ms: {carried:.2}");
            }
        }
    }
}

/// No interval carries more than the maximum traffic burst: two frames every 2 ms are 12.2 Mbit/s.
#[test]
fn the_maximum_traffic_burst_bounds_each_interval() {
    let spec = "docsis:rate=25mbit,peak=25mbit,burst=3044B,map=2ms,grant=4ms";
    let (mut link, mut log) = (link(spec, "fifo:limit=64KiB"), Log::default());
    for step in 0..40_000 {
        link.send(us(step * 250), packet(0, 1_000, false), &mut log);
        while link.poll(us(step * 250), &mut log).is_some() {}
    }
    let carried = log.sent.len() as f64 * 8e3 / 10e6;
    assert!((carried / 12.176 - 1.0).abs() < 0.01, "{carried}");
}

/// Grants for requested packets that the queue then drops are unused.
#[test]
fn grants_for_dropped_packets_are_counted_as_unused() {
    for queue in ["codel:target=1ms,interval=2ms", "bode:bound=8ms"] {
        let (mut link, mut log) = (link(LINK, queue), Log::default());
        for step in 0..20_000 {
            // Half a second of twice the rate, half a second of silence.
            let now = us(step / 2_000 * 1_000_000 + step % 2_000 * 250);
            link.send(now, packet(0, 1_250, false), &mut log);
            while link.poll(now, &mut log).is_some() {}
        }
        drain(&mut link, &mut log, Time::from_secs(60));
        let sent: u64 = log.sent.iter().map(|(_, _, len, _)| u64::from(*len)).sum();
        let unused = total(&link, "unused");
        assert!(log.dropped > 1_000 && unused > 10_000, "{queue}: {} {unused}", log.dropped);
        assert_eq!(total(&link, "granted"), sent + unused, "{queue}");
        assert_eq!(total(&link, "outstanding"), 0, "{queue}");
    }
}

/// The end of each transmission if the queue does not hold packets that wait for grants: a token
/// bucket in front of requests that the queue cannot see.
fn ends_behind_the_queue(
    [rate, burst, peak]: [u64; 3],
    [map, grant]: [Span; 2],
    script: &[(u64, u32)],
) -> Vec<Time> {
    let spec = format!("docsis:rate={rate}kbit,burst={burst}B,peak={peak}kbit");
    let (mut link, mut log) = (link(&spec, "fifo:limit=9999p"), Log::default());
    let mut now = Time::ZERO;
    for (id, (gap_us, len)) in script.iter().enumerate() {
        now += Span::from_micros(*gap_us);
        link.send(now, packet(id, *len, false), &mut log);
    }
    drain(&mut link, &mut log, Time::MAX);
    let mut granted_until = Time::ZERO;
    let ends = log.sent.iter().map(|(_, end, len, _)| {
        let transmission = Span::from_nanos(u64::from(*len) * 8_000_000 / peak);
        let asked = end.since(Time::ZERO + transmission).as_nanos();
        let boundary = Time::ZERO + map * asked.div_ceil(map.as_nanos());
        granted_until = (boundary + grant).max(granted_until) + transmission;
        granted_until
    });
    ends.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// T is a whole number of MAP intervals, because a buffer that a grant has emptied requests at
    /// the next boundary.
    #[test]
    fn no_buffer_carries_more_than_its_bytes_once_per_request_and_grant(
        (bytes, map_us, grant_us) in (2_000_u64..40_000, 300_u64..4_000, 0_u64..9_000),
        (len, gap_us) in (200_u32..1_500, 50_u64..1_000),
    ) {
        let spec = format!("docsis:rate=100mbit,peak=100mbit,map={map_us}us,grant={grant_us}us");
        let loop_us = map_us * (grant_us / map_us + 1);
        for queue in limited(bytes, len) {
            let (mut link, mut log) = (link(&spec, &queue), Log::default());
            for step in 0..200_000 / gap_us {
                link.send(us(step * gap_us), packet(0, len, false), &mut log);
            }
            drain(&mut link, &mut log, us(200_000));
            // A packet whose first part is sent has left a queue that chooses packets late.
            let started = u64::from(queue.starts_with("fq"));
            let whole = ((bytes / u64::from(len)).max(1) + started) * u64::from(len);
            let carried = log.sent.len() as u64 * u64::from(len);
            let most = whole * 200_000 / loop_us + whole;
            prop_assert!(carried <= most, "{} behind {}: {} > {}", queue, spec, carried, most);
        }
    }

    #[test]
    fn requests_are_granted_or_outstanding_and_ask_for_each_byte_once(
        script in prop::collection::vec((0_u64..1_000, 40_u32..1_500, any::<bool>()), 1..200),
        (bytes, map_us, grant_us) in (3_000_u64..40_000, 300_u64..4_000, 0_u64..9_000),
    ) {
        let spec = format!("docsis:rate=9mbit,peak=20mbit,map={map_us}us,grant={grant_us}us");
        for queue in limited(bytes, 700) {
            let (mut link, mut log) = (link(&spec, &queue), Log::default());
            let mut now = Time::ZERO;
            for (id, &(gap_us, len, low_latency)) in script.iter().enumerate() {
                now += Span::from_micros(gap_us);
                link.send(now, packet(id, len, low_latency), &mut log);
                let [requested, outstanding, granted, unused] =
                    ["requested", "outstanding", "granted", "unused"].map(|name| total(&link, name));
                let sent: u64 = log.sent.iter().map(|(_, _, len, _)| u64::from(*len)).sum();
                prop_assert_eq!(requested, granted + outstanding, "{}", queue);
                prop_assert!(sent + unused <= granted, "{}", queue);
                let offered = link.queue().stats().offered.bytes;
                prop_assert!(requested <= offered, "{}", queue);
                if queue.starts_with("fifo") {
                    prop_assert!(requested <= sent + link.queue().backlog().bytes);
                }
            }
        }
    }

    #[test]
    fn each_packet_of_a_quiet_modem_leaves_with_its_own_grant(
        (map_us, grant_us, gap_us) in (300_u64..4_000, 0_u64..9_000, 400_u64..9_000),
    ) {
        let spec = format!("docsis:rate=9mbit,peak=40mbit,map={map_us}us,grant={grant_us}us");
        for queue in ["fifo", "codel", "fq-codel", "fq-pie", "dualpi2", "docsis-pie", "docsis-lld"] {
            let (mut link, mut log) = (link(&spec, queue), Log::default());
            for id in 0..20 {
                link.send(us(id * gap_us), packet(id as usize, 100, false), &mut log);
            }
            drain(&mut link, &mut log, Time::MAX);
            for ((start, ..), id) in log.sent.iter().zip(&log.order) {
                let sojourn_us = start.since(us(*id as u64 * gap_us)).as_nanos() / 1_000;
                // Packets of one grant leave one after the other.
                let most = grant_us + map_us + 20 * (map_us / gap_us + 1);
                prop_assert!((grant_us..=most).contains(&sojourn_us), "{}: {}", queue, sojourn_us);
            }
            prop_assert_eq!(log.sent.len(), 20, "{}", queue);
        }
    }

    #[test]
    fn a_packet_of_an_idle_modem_waits_for_a_boundary_and_its_grant(
        (map_us, grant_us, at_us) in (300_u64..4_000, 0_u64..9_000, 0_u64..100_000),
        (len, low_latency) in (40_u32..1_500, any::<bool>()),
    ) {
        let spec = format!("docsis:rate=9mbit,peak=40mbit,map={map_us}us,grant={grant_us}us");
        for queue in limited(9_000, 700) {
            let (mut link, mut log) = (link(&spec, &queue), Log::default());
            link.send(us(at_us), packet(0, len, low_latency), &mut log);
            drain(&mut link, &mut log, Time::MAX);
            let sojourn_us = log.sent[0].0.since(us(at_us)).as_nanos() / 1_000;
            prop_assert!((grant_us..=grant_us + map_us).contains(&sojourn_us), "{sojourn_us}");
        }
    }

    /// With an unlimited buffer, delivery times do not depend on where packets wait for grants,
    /// except for the intervals at which tokens are settled: a MAP interval, and the time of a
    /// largest frame.
    #[test]
    fn an_endless_buffer_delivers_as_if_packets_waited_behind_it(
        script in prop::collection::vec((0_u64..2_000, 40_u32..1_500), 1..200),
        (rate, faster, more_burst) in (2_000_u64..30_000, 0_u64..30_000, 0_u64..30_000),
        (map_us, grant_us) in (300_u64..4_000, 0_u64..9_000),
    ) {
        let peak = rate + faster;
        let burst = 3_044 + rate * map_us / 8_000 + more_burst;
        let [map, grant] = [map_us, grant_us].map(Span::from_micros);
        let behind = ends_behind_the_queue([rate, burst, peak], [map, grant], &script);
        let spec = format!(
            "docsis:rate={rate}kbit,burst={burst}B,peak={peak}kbit,map={map_us}us,grant={grant_us}us"
        );
        let frame = Span::from_micros(1_522 * 8_000 / rate);
        for queue in ["fifo:limit=9999p", "docsis-lld:target=1s,classic-limit=9MB"] {
            let script: Vec<_> = script.iter().map(|(gap, len)| (*gap, *len, false)).collect();
            let (_, log) = outcome((&spec, queue), &script, None);
            prop_assert_eq!(log.sent.len(), behind.len());
            for ((_, end, ..), behind) in log.sent.iter().zip(&behind) {
                prop_assert!(*end <= *behind + map, "{:?} and {:?}", end, behind);
                prop_assert!(*behind <= *end + map + map + frame, "{:?} and {:?}", end, behind);
            }
        }
    }
}
